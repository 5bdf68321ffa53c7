//! A store that fails, answers late, loses answers and forgets: in the end it has every step once, in order.

use std::{collections::BTreeMap, path::Path};

use proptest::prelude::*;
use tokio::sync::watch;

use self::store::{Fault, Store};
use super::*;
use crate::{
    config::JournalConfig,
    domain::{
        keys::KeyId,
        ledger::{AccountChange, AccountRecord},
        money::NanoUsd,
    },
    journal::STEP_BYTES_MAX,
    store::ledger::RECORD_CONFLICTS_MAX,
};

mod damaged;
mod first_balances;
mod leases;
mod store;

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
            sinks: Vec::new(),
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
        let drained = tokio::time::timeout(WAIT_MAX, self.journal.wait_until_acknowledged());
        async move { drained.await.unwrap_or_else(|_| panic!("{caller}: waited in vain")) }
    }

    fn credit(&self, account: &str, amount: i64) {
        let mut room = self.journal.reserve(STEP_BYTES_MAX).unwrap();
        let amount = NanoUsd::from_nanos(amount);
        self.journal
            .append_step(
                account,
                AccountChange::Credit {
                    amount,
                    at: 0,
                    operation: None,
                },
                0,
                &mut room,
            )
            .unwrap();
    }
}

/// How long a test waits for what has to come.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[track_caller]
fn until(mut holds: impl FnMut() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let began = crate::edges::clock::instant();
        while !holds() {
            assert!(
                crate::edges::clock::instant() - began < WAIT_MAX,
                "{caller}: waited in vain"
            );
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
        settler.on_task_end(tasks, done);
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
    settler.start_sending(&mut tasks, "acme".into(), Recheck::Steps);
    // That task looks once whether there is anything to send, and there is nothing.
    let done = tasks.set.join_next().await.unwrap();
    store.forget("acme", 10, false);
    settler.start_sending(&mut tasks, "acme".into(), Recheck::Watermark);
    settler.start_sending(&mut tasks, "acme".into(), Recheck::Steps);
    settler.on_task_end(&mut tasks, done);
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
    store.inner.lock().faults = vec![Fault::LateReply];
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
    store.inner.lock().faults = vec![Fault::Away, Fault::Late, Fault::Away];
    store.forget("none", 0, true);
    until(|| !store.inner.lock().healed.is_empty()).await;
    assert!(store.inner.lock().healed.iter().eq([&format!("{id} gone 2")]));
    bench.stop().await;
}

/// A record of an account at a revision, suspended.
fn suspended(revision: u64) -> AccountRecord {
    AccountRecord {
        revision,
        suspended: true,
        ..AccountRecord::default()
    }
}

#[tokio::test]
async fn accounts_are_told_again_when_the_store_may_have_forgotten_also_after_a_restart() {
    let folder = crate::journal::tests::scratch();
    let store = Store::new();
    let bench = Bench::start(folder.path(), &store);
    let mut room = bench.journal.reserve(STEP_BYTES_MAX).unwrap();
    for revision in [1, 2] {
        let (account, record) = ("acme".into(), suspended(revision));
        let record = Record::Account { account, record };
        bench.journal.append(&record, &mut room).unwrap();
    }
    let is_told = || store.inner.lock().records.get("acme") == Some(&suspended(2));
    store.inner.lock().faults = vec![Fault::Away, Fault::ReplyLost, Fault::Late, Fault::Away];
    store.inner.lock().conflicts = RECORD_CONFLICTS_MAX + 1;
    store.forget("none", 0, true);
    until(is_told).await;
    drop(room);
    bench.stop().await;
    store.inner.lock().records.clear();
    let bench = Bench::start(folder.path(), &store);
    until(is_told).await;
    bench.stop().await;
}

#[tokio::test]
async fn an_account_that_others_change_all_the_time_is_told_so_many_times() {
    for (conflicts, is_told) in [(RECORD_CONFLICTS_MAX - 1, true), (RECORD_CONFLICTS_MAX, false)] {
        let store = Store::new();
        store.inner.lock().conflicts = conflicts;
        let told = store.heal_terms("acme", &suspended(1)).await;
        assert_eq!(told.is_ok(), is_told, "{told:?}");
        assert!(is_told || matches!(told, Err(StoreError::Busy(_))));
        assert_eq!(store.inner.lock().conflicts, 0);
    }
}

#[test]
fn what_was_left_running_is_settled_once() {
    let folder = crate::journal::tests::scratch();
    let settings = JournalConfig {
        path: folder.path().to_owned(),
        segment_bytes: 64 * 1024,
        keep: Duration::ZERO,
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    };
    let journal = Journal::open(&settings).unwrap().journal;
    let mut room = journal.reserve(2 * STEP_BYTES_MAX).unwrap();
    for request in ["one", "two"] {
        let record = Record::Admit(Box::new(crate::journal::tests::admitted(request)));
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
                    Act::Fault(fault) => store.inner.lock().faults.push(fault),
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
