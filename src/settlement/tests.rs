//! A store that fails, answers late, loses answers and forgets: in the end it has every step once, in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Mutex,
};

use async_trait::async_trait;
use proptest::prelude::*;
use tokio::sync::watch;

use super::*;
use crate::{
    config::JournalConfig,
    domain::{
        consumption::Row,
        key::{KeyId, KeyRecord},
        ledger::{AccountView, Admission, Admit, KeySpend, NodeId, Step, TopUp, ToppedUp},
        money::NanoUsd,
        secret::KeyDigest,
    },
};

/// How the next calls end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Away,
    ReplyLost,
    Late,
    /// The effect comes at once, its answer late.
    LateReply,
    Corrupt,
}

/// What becomes of the answer of a call that had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Comes,
    ComesLate,
    IsLost,
}

impl Reply {
    async fn of<T>(self, value: T) -> Result<T, StoreError> {
        match self {
            Self::Comes => Ok(value),
            Self::ComesLate => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok(value)
            }
            Self::IsLost => unasked(),
        }
    }
}

#[derive(Default)]
struct Inner {
    applied: BTreeMap<String, Vec<Step>>,
    faults: Vec<Fault>,
    healed: BTreeSet<String>,
}

struct Store {
    inner: Mutex<Inner>,
    epoch: watch::Sender<u64>,
}

impl Store {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::default(),
            epoch: watch::Sender::new(0),
        })
    }

    /// The fault of this call, if it has one before its effect, or what becomes of its answer.
    async fn fault(&self) -> Result<Reply, StoreError> {
        let fault = self.inner.lock().unwrap().faults.pop();
        match fault {
            Some(Fault::Away) => Err(StoreError::Unavailable("away".to_owned())),
            Some(Fault::Corrupt) => Err(StoreError::Corrupt("odd".to_owned())),
            Some(Fault::Late) => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok(Reply::Comes)
            }
            Some(Fault::ReplyLost) => Ok(Reply::IsLost),
            Some(Fault::LateReply) => Ok(Reply::ComesLate),
            None => Ok(Reply::Comes),
        }
    }

    fn forget(&self, account: &str, keep: usize, tell: bool) {
        let mut inner = self.inner.lock().unwrap();
        if let Some(steps) = inner.applied.get_mut(account) {
            steps.truncate(keep);
        }
        drop(inner);
        if tell {
            self.epoch.send_modify(|epoch| *epoch += 1);
        }
    }

    fn amounts(&self, account: &str) -> Vec<(u64, i64)> {
        let inner = self.inner.lock().unwrap();
        let steps = inner.applied.get(account).map_or(&[][..], Vec::as_slice);
        let amount = |step: &Step| match &step.change {
            Change::Credit { amount } => (step.seq, amount.nanos()),
            other => panic!("nobody sent {other:?}"),
        };
        steps.iter().map(amount).collect()
    }
}

fn unasked<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("not part of the test".to_owned()))
}

#[async_trait]
impl LedgerStore for Store {
    async fn admit(&self, _: &Admit) -> Result<Admission, StoreError> {
        unasked()
    }
    async fn top_up(&self, _: &TopUp) -> Result<ToppedUp, StoreError> {
        unasked()
    }
    async fn apply(&self, _: &NodeId, account: &str, steps: &[Step]) -> Result<u64, StoreError> {
        assert!(steps.len() <= APPLY_STEPS_MAX);
        let reply = self.fault().await?;
        let watermark = {
            let mut inner = self.inner.lock().unwrap();
            let applied = inner.applied.entry(account.to_owned()).or_default();
            for step in steps {
                if step.seq == applied.len() as u64 + 1 {
                    applied.push(step.clone());
                } else if step.seq > applied.len() as u64 {
                    break;
                }
            }
            applied.len() as u64
        };
        reply.of(watermark).await
    }
    async fn watermark(&self, _: &NodeId, account: &str) -> Result<u64, StoreError> {
        let reply = self.fault().await?;
        let watermark = self.inner.lock().unwrap().applied.get(account).map_or(0, Vec::len) as u64;
        reply.of(watermark).await
    }
    async fn renew(&self, _: &NodeId, _: &[String]) -> Result<(), StoreError> {
        unasked()
    }
    async fn release(&self, _: &NodeId, _: &str) -> Result<(), StoreError> {
        unasked()
    }
    async fn account(&self, _: &str) -> Result<Option<AccountView>, StoreError> {
        unasked()
    }
    async fn accounts(&self, _: Option<&str>, _: usize) -> Result<Vec<AccountView>, StoreError> {
        unasked()
    }
    async fn key_spend(&self, _: &str, _: &KeyId) -> Result<KeySpend, StoreError> {
        unasked()
    }
    async fn rows(&self, _: &str, _: i64, _: usize, _: usize) -> Result<Vec<Row>, StoreError> {
        unasked()
    }
    fn epochs(&self) -> watch::Receiver<u64> {
        self.epoch.subscribe()
    }
}

#[async_trait]
impl KeyHealer for Store {
    async fn heal(&self, _: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        self.fault().await?;
        self.inner.lock().unwrap().healed.insert(record.id.to_string());
        Ok(())
    }
    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        self.fault().await?;
        self.inner
            .lock()
            .unwrap()
            .healed
            .insert(format!("{id} gone {revision}"));
        Ok(())
    }
}

/// A journal that is being settled.
struct Bench {
    journal: Arc<Journal>,
    down: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Bench {
    fn start(folder: &Path, store: &Arc<Store>) -> Self {
        let settings = JournalConfig {
            path: folder.to_owned(),
            segment_bytes: 16 * 1024,
            keep: Duration::from_secs(86_400),
            sync: Duration::from_millis(1),
        };
        // What reads the disk for the one before may not have ended yet.
        let opened = loop {
            match Journal::open(&settings) {
                Err(JournalError::InUse(_)) => std::thread::yield_now(),
                opened => break opened.unwrap(),
            }
        };
        let journal = opened.journal;
        let mut settler = Settler::new(Arc::clone(&journal), Arc::clone(store) as _, Arc::clone(store) as _);
        settler.pause = Duration::from_millis(1);
        let (down, shutdown) = watch::channel(false);
        let task = tokio::spawn(async move { settler.run(shutdown).await });
        Self { journal, down, task }
    }

    async fn stop(self) {
        self.down.send_replace(true);
        self.task.await.unwrap();
        drop(self.journal);
    }

    #[track_caller]
    fn drained(&self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        let drained = tokio::time::timeout(PATIENCE, self.journal.drained());
        async move { drained.await.unwrap_or_else(|_| panic!("{caller}: waited in vain")) }
    }

    fn credit(&self, account: &str, amount: i64) {
        let mut room = self.journal.reserve(STEP_BYTES_MAX).unwrap();
        let amount = NanoUsd::from_nanos(amount);
        self.journal
            .append_step(account, Change::Credit { amount }, 0, &mut room)
            .unwrap();
    }
}

/// How long a test waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn until(mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let began = crate::clock::instant();
        while !holds() {
            assert!(crate::clock::instant() - began < PATIENCE, "{caller}: waited in vain");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn a_step_reaches_the_store_and_drained_tells() {
    let folder = crate::journal::tests::scratch();
    let store = Store::new();
    let bench = Bench::start(folder.path(), &store);
    for amount in 1..=600 {
        bench.credit("acme", amount);
    }
    bench.drained().await;
    assert!(
        store
            .amounts("acme")
            .into_iter()
            .eq((1..=600_i64).map(|amount| (amount.unsigned_abs(), amount)))
    );
    assert_eq!(bench.journal.unacknowledged_steps(), 0);
    bench.stop().await;
}

#[tokio::test]
async fn what_a_store_forgets_is_sent_again_also_after_a_restart() {
    let folder = crate::journal::tests::scratch();
    let store = Store::new();
    let bench = Bench::start(folder.path(), &store);
    for amount in 1..=300 {
        bench.credit("acme", amount);
        bench.credit("other", amount);
    }
    bench.drained().await;
    let whole = store.amounts("acme");
    store.forget("acme", 10, true);
    until(|| store.amounts("acme") == whole).await;
    // Nobody tells: the next step finds out.
    store.forget("acme", 0, false);
    bench.credit("acme", 301);
    until(|| store.amounts("acme").len() == 301).await;
    bench.drained().await;
    bench.stop().await;
    store.forget("other", 7, false);
    let bench = Bench::start(folder.path(), &store);
    until(|| store.amounts("other") == whole).await;
    assert_eq!(bench.journal.lost_steps(), 0);
    bench.stop().await;
}

/// Waits for all of the settler's tasks.
async fn finish(settler: &Settler, tasks: &mut Tasks) {
    while let Some(done) = tasks.set.join_next().await {
        settler.done(tasks, done);
    }
}

#[tokio::test]
async fn a_doubt_about_the_watermark_outlives_the_task_that_runs() {
    let folder = crate::journal::tests::scratch();
    let store = Store::new();
    let bench = Bench::start(folder.path(), &store);
    (1..=30).for_each(|amount| bench.credit("acme", amount));
    bench.drained().await;
    let settler = Settler::new(
        Arc::clone(&bench.journal),
        Arc::clone(&store) as _,
        Arc::clone(&store) as _,
    );
    let mut tasks = Tasks::default();
    settler.send(&mut tasks, "acme".to_owned(), News::Steps);
    // That task looks once whether there is anything to send, and there is nothing.
    let done = tasks.set.join_next().await.unwrap();
    store.forget("acme", 10, false);
    settler.send(&mut tasks, "acme".to_owned(), News::Watermark);
    settler.send(&mut tasks, "acme".to_owned(), News::Steps);
    settler.done(&mut tasks, done);
    finish(&settler, &mut tasks).await;
    assert_eq!(store.amounts("acme").len(), 30);
    bench.stop().await;
}

#[tokio::test]
async fn an_answer_from_before_the_store_forgot_is_not_believed() {
    let folder = crate::journal::tests::scratch();
    let store = Store::new();
    let bench = Bench::start(folder.path(), &store);
    (1..=30).for_each(|amount| bench.credit("acme", amount));
    bench.drained().await;
    store.inner.lock().unwrap().faults = vec![Fault::LateReply];
    bench.credit("acme", 31);
    until(|| store.amounts("acme").len() == 31).await;
    // The answer to it is under way.
    store.forget("acme", 10, true);
    until(|| store.amounts("acme").len() == 31).await;
    bench.drained().await;
    bench.stop().await;
}

#[tokio::test]
async fn keys_are_told_again_when_the_store_may_have_forgotten() {
    use crate::domain::ledger::Record;
    let folder = crate::journal::tests::scratch();
    let store = Store::new();
    let bench = Bench::start(folder.path(), &store);
    let mut room = bench.journal.reserve(STEP_BYTES_MAX).unwrap();
    let id = KeyId::parse("key_0123456789abcdef").unwrap();
    for revision in [1, 2] {
        bench
            .journal
            .append(
                &Record::KeyGone {
                    id: id.clone(),
                    revision,
                },
                &mut room,
            )
            .unwrap();
    }
    store.inner.lock().unwrap().faults = vec![Fault::Away, Fault::Late, Fault::Away];
    store.forget("none", 0, true);
    until(|| !store.inner.lock().unwrap().healed.is_empty()).await;
    assert!(store.inner.lock().unwrap().healed.iter().eq([&format!("{id} gone 2")]));
    bench.stop().await;
}

#[test]
fn what_was_left_running_is_settled_once() {
    let folder = crate::journal::tests::scratch();
    let settings = JournalConfig {
        path: folder.path().to_owned(),
        segment_bytes: 64 * 1024,
        keep: Duration::ZERO,
        sync: Duration::from_millis(1),
    };
    let journal = Journal::open(&settings).unwrap().journal;
    let mut room = journal.reserve(2 * STEP_BYTES_MAX).unwrap();
    for request in ["one", "two"] {
        let record = crate::domain::ledger::Record::Admit(Box::new(crate::journal::tests::admitted(request)));
        journal.append(&record, &mut room).unwrap();
    }
    drop((room, journal));
    let opened = Journal::open(&settings).unwrap();
    assert_eq!(settle_left_over(&opened.journal, opened.unsettled).unwrap(), 2);
    assert_eq!(opened.journal.unacknowledged_steps(), 2);
    drop(opened.journal);
    assert_eq!(Journal::open(&settings).unwrap().unsettled, []);
}

#[derive(Clone, Debug)]
enum Act {
    Credit(usize, u8),
    Fault(Fault),
    Forget { account: usize, part: u8, tell: bool },
    Restart,
    Drain,
}

fn act() -> impl Strategy<Value = Act> {
    let fault = prop_oneof![
        Just(Fault::Away),
        Just(Fault::ReplyLost),
        Just(Fault::Late),
        Just(Fault::LateReply),
        Just(Fault::Corrupt)
    ];
    prop_oneof![
        8 => (0..3_usize, 1..40_u8).prop_map(|(account, count)| Act::Credit(account, count)),
        6 => fault.prop_map(Act::Fault),
        2 => (0..3_usize, any::<u8>(), any::<bool>()).prop_map(|(account, part, tell)| Act::Forget { account, part, tell }),
        1 => Just(Act::Restart),
        2 => Just(Act::Drain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn every_step_is_applied_once_and_in_order(acts in prop::collection::vec(act(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let names = ["a", "b", "c"];
            let folder = crate::journal::tests::scratch();
            let store = Store::new();
            let mut bench = Bench::start(folder.path(), &store);
            let mut expected: BTreeMap<&str, Vec<(u64, i64)>> = BTreeMap::new();
            let mut amount = 0;
            for act in acts {
                match act {
                    Act::Credit(account, count) => for _ in 0..count {
                        amount += 1;
                        bench.credit(names[account], amount);
                        let list = expected.entry(names[account]).or_default();
                        list.push((list.len() as u64 + 1, amount));
                    },
                    Act::Fault(fault) => store.inner.lock().unwrap().faults.push(fault),
                    Act::Forget { account, part, tell } => {
                        let keep = store.amounts(names[account]).len() * usize::from(part) / 256;
                        store.forget(names[account], keep, tell);
                    }
                    Act::Restart => {
                        bench.stop().await;
                        bench = Bench::start(folder.path(), &store);
                    }
                    Act::Drain => bench.drained().await,
                }
            }
            store.epoch.send_modify(|epoch| *epoch += 1);
            until(|| expected.iter().all(|(name, steps)| store.amounts(name) == *steps)).await;
            bench.drained().await;
            assert_eq!(bench.journal.lost_steps(), 0);
            bench.stop().await;
        });
    }
}
