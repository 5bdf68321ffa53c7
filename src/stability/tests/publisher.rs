//! Tests of the publisher, with a journal and a store that do as the test says.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::stability::*;
use crate::{
    config::JournalConfig,
    domain::{
        faults::stability::{ModelCounters, StabilityCounters},
        ledger::{AccountChange, Settlement},
        money::NanoUsd,
    },
    edges::clock,
    journal::{SEGMENT_BYTES_MIN, STEP_BYTES_MAX},
    store::{
        contract::until,
        embedded::ledger::EmbeddedLedger,
        ledger::{
            contract::{node, row},
            stability_contract::{share, this_hour},
        },
        redis::test_server::TestServer,
    },
};

/// Stands for the journal.
#[derive(Default)]
struct Tally {
    state: Mutex<JournalState>,
}

#[derive(Default)]
struct JournalState {
    shares: BTreeMap<Hour, NodeHourCounters>,
    changed: BTreeSet<Hour>,
    end: u64,
    synced: u64,
    told: u64,
}

fn place(offset: u64) -> Position {
    Position { segment: 1, offset }
}

impl Tally {
    /// The node has counted this.
    fn count(&self, share: NodeHourCounters) {
        let mut state = self.state.lock();
        state.end += 1;
        state.changed.insert(share.hour);
        state.shares.insert(share.hour, share);
    }

    fn has_beyond(&self, end: Position) -> bool {
        self.state.lock().end > end.offset
    }

    /// Up to which record the store has been told; all of them?
    fn is_told(&self) -> bool {
        let state = self.state.lock();
        state.told == state.end && state.changed.is_empty()
    }
}

#[async_trait]
impl ShareSource for Tally {
    fn changed(&self) -> (Vec<NodeHourCounters>, Position) {
        let mut state = self.state.lock();
        let hours = std::mem::take(&mut state.changed);
        let shares = hours.iter().map(|hour| state.shares[hour].clone());
        (shares.collect(), place(state.end))
    }

    fn hours(&self) -> Vec<Hour> {
        self.state.lock().shares.keys().copied().collect()
    }

    fn mark_unsent(&self, hours: &[Hour]) {
        self.state.lock().changed.extend(hours);
    }

    fn mark_sent(&self, to: Position) {
        self.state.lock().told = to.offset;
    }

    async fn wait_synced(&self, to: Position) {
        self.state.lock().synced = to.offset;
    }

    fn end(&self) -> Position {
        place(self.state.lock().end)
    }

    async fn wait_beyond(&self, end: Position) {
        while !self.has_beyond(end) {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

struct Store {
    journal: Arc<Tally>,
    held: Mutex<BTreeMap<Hour, ModelCounters>>,
    calls: Mutex<Vec<usize>>,
    /// So many calls are taken before all are refused.
    good: AtomicUsize,
    epochs: watch::Sender<u64>,
}

#[async_trait]
impl StabilityStore for Store {
    async fn put_shares(&self, by: &NodeId, shares: &[NodeHourCounters]) -> Result<(), StoreError> {
        assert_eq!(*by, node(1));
        let state = self.journal.state.lock();
        assert_eq!(state.synced, state.end, "nothing is told that is not on disk");
        self.calls.lock().push(shares.len());
        let take = |good: usize| good.checked_sub(1);
        if self
            .good
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_err()
        {
            return Err(StoreError::Unavailable("as the test says".to_owned()));
        }
        let told = shares.iter().map(|share| (share.hour, share.bucket.clone()));
        self.held.lock().extend(told);
        Ok(())
    }

    async fn buckets(&self, _: Hour, _: Hour) -> Result<BTreeMap<Hour, ModelCounters>, StoreError> {
        unreachable!()
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}

struct Bench {
    journal: Arc<Tally>,
    store: Arc<Store>,
    publisher: Arc<Publisher>,
    epochs: watch::Receiver<u64>,
}

impl Bench {
    fn new() -> Self {
        let journal = Arc::new(Tally::default());
        let store = Arc::new(Store {
            journal: Arc::clone(&journal),
            held: Mutex::default(),
            calls: Mutex::default(),
            good: AtomicUsize::new(usize::MAX),
            epochs: watch::Sender::new(0),
        });
        let publisher = Publisher::new(Arc::clone(&journal) as _, Arc::clone(&store) as _, node(1));
        Self {
            epochs: store.epochs(),
            publisher: Arc::new(publisher),
            journal,
            store,
        }
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        self.publisher.flush(&mut self.epochs).await
    }

    /// The calls since the last look.
    fn calls(&self) -> Vec<usize> {
        std::mem::take(&mut self.store.calls.lock())
    }

    fn assert_equal(&self) {
        let state = self.journal.state.lock();
        let counted = state.shares.iter().map(|(hour, share)| (*hour, share.bucket.clone()));
        assert_eq!(*self.store.held.lock(), counted.collect());
    }
}

#[tokio::test]
async fn what_has_changed_is_told_in_one_call_and_nothing_else() {
    let mut bench = Bench::new();
    bench.flush().await.unwrap();
    assert_eq!(bench.calls(), [0; 0]);
    let now = this_hour();
    bench.journal.count(share(now, &[("a", 1)]));
    bench.journal.count(share(now.plus(-1), &[("a", 1)]));
    bench.flush().await.unwrap();
    bench.journal.count(share(now, &[("a", 2)]));
    bench.flush().await.unwrap();
    bench.flush().await.unwrap();
    assert_eq!(bench.calls(), [2, 1]);
    assert!(bench.journal.is_told());
    bench.assert_equal();
}

#[tokio::test]
async fn what_the_store_refuses_is_told_again() {
    let mut bench = Bench::new();
    bench.store.good.store(0, Ordering::Relaxed);
    let now = this_hour();
    bench.journal.count(share(now, &[("a", 1)]));
    bench.flush().await.unwrap_err();
    bench.journal.count(share(now.plus(1), &[("a", 1)]));
    bench.flush().await.unwrap_err();
    assert_eq!(bench.publisher.unsent_hours(), 2);
    assert!(!bench.journal.is_told());
    bench.store.good.store(usize::MAX, Ordering::Relaxed);
    bench.flush().await.unwrap();
    assert_eq!(bench.publisher.unsent_hours(), 0);
    assert!(bench.journal.is_told());
    bench.assert_equal();
}

#[tokio::test]
async fn many_hours_are_told_in_parts_and_only_what_was_refused_again() {
    let mut bench = Bench::new();
    let now = this_hour();
    for ago in 0..600 {
        bench.journal.count(share(now.plus(-ago), &[("a", 1)]));
    }
    bench.store.good.store(2, Ordering::Relaxed);
    bench.flush().await.unwrap_err();
    assert_eq!(bench.calls(), [256, 256, 88]);
    assert_eq!(bench.publisher.unsent_hours(), 88);
    bench.store.good.store(usize::MAX, Ordering::Relaxed);
    bench.flush().await.unwrap();
    assert_eq!(bench.calls(), [88]);
    assert!(bench.journal.is_told());
    bench.assert_equal();
}

#[tokio::test]
async fn a_store_that_may_have_lost_something_is_told_everything_again() {
    let mut bench = Bench::new();
    let now = this_hour();
    for ago in 0..3 {
        bench.journal.count(share(now.plus(-ago), &[("a", 1)]));
    }
    bench.flush().await.unwrap();
    bench.calls();
    bench.store.held.lock().clear();
    bench.store.epochs.send_modify(|epoch| *epoch += 1);
    bench.flush().await.unwrap();
    bench.flush().await.unwrap();
    assert_eq!(bench.calls(), [3]);
    bench.assert_equal();
}

#[tokio::test]
async fn the_end_tells_what_is_left_at_once() {
    let bench = Bench::new();
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(Arc::clone(&bench.publisher).run(stopped));
    bench.journal.count(share(this_hour(), &[("a", 1)]));
    stop.send_replace(true);
    running.await.unwrap();
    bench.assert_equal();
    assert!(bench.journal.is_told());
}

#[tokio::test]
async fn nothing_is_due_before_something_is_counted_or_the_store_may_have_lost_something() {
    let mut bench = Bench::new();
    bench.journal.count(share(this_hour(), &[("a", 1)]));
    let end = ShareSource::end(&*bench.journal);
    bench.flush().await.unwrap();
    let epochs = bench.store.epochs.subscribe();
    let mut due = Box::pin(bench.publisher.wait_due(Some(end), epochs.clone()));
    assert!(futures_util::future::poll_immediate(&mut due).await.is_none());
    bench.journal.count(share(this_hour(), &[("a", 2)]));
    due.await;
    let end = ShareSource::end(&*bench.journal);
    let due = bench.publisher.wait_due(Some(end), epochs);
    bench.store.epochs.send_modify(|epoch| *epoch += 1);
    due.await;
}

/// An empty journal in this folder.
fn journal(path: &std::path::Path) -> Arc<Journal> {
    let settings = JournalConfig {
        path: path.to_owned(),
        segment_bytes: SEGMENT_BYTES_MIN,
        keep: Duration::from_secs(86_400),
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    };
    Journal::open(&settings).unwrap().journal
}

const REMEMBER: &str = "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 1) end";
const ROLL_BACK: &str = "redis.call('FLUSHDB') redis.call('SELECT', 1)
    for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 0) end";

#[tokio::test]
async fn a_redis_that_went_back_is_told_again_what_it_lost() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let journal = Arc::new(Tally::default());
    let store = Arc::clone(&joined.store);
    let publisher = Arc::new(Publisher::new(
        Arc::clone(&journal) as _,
        Arc::clone(&store) as _,
        node(1),
    ));
    let now = this_hour();
    let (before, after) = (share(now, &[("a", 1)]), share(now, &[("a", 5), ("b", 1)]));
    let (_stop, stopped) = watch::channel(false);
    journal.count(share(now.plus(-1), &[("a", 7)]));
    journal.count(before);
    let running = tokio::spawn(publisher.run(stopped));
    until("it is told", async || journal.is_told()).await;
    let () = server.ask(&["EVAL", REMEMBER, "0"]).await;
    journal.count(after.clone());
    until("it is told", async || journal.is_told()).await;
    let held = async || store.buckets(now.plus(-1), now).await.unwrap_or_default();
    let told = held().await;
    assert_eq!(told[&now], after.bucket);

    // As a failover does: what was acknowledged is gone, and the connection with it.
    let () = server.ask(&["EVAL", ROLL_BACK, "0"]).await;
    let () = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    until("it is told again", async || held().await == told).await;
    running.abort();
}

/// A row at both sides of a full hour, by way of a journal and a store.
#[tokio::test]
async fn a_full_hour_parts_what_ended_before_it_from_what_ended_at_it() {
    let folder = crate::journal::tests::scratch();
    let journal = journal(&folder.path().join("journal"));
    let store = EmbeddedLedger::open(&folder.path().join("store"), Arc::new(clock::unix_millis)).unwrap();
    let store = Arc::new(store);
    let node = journal.node().clone();
    let publisher = Publisher::new(Arc::clone(&journal) as _, Arc::clone(&store) as _, node);
    let mut epochs = StabilityStore::epochs(&*store);

    let hour = this_hour();
    let full_ms = hour.start_seconds() * 1000;
    let ended = [
        (full_ms - 1, hour.plus(-1)),
        (full_ms, hour),
        (full_ms + 3_599_999, hour),
        (full_ms + 3_600_000, hour.plus(1)),
    ];
    let mut expected: BTreeMap<Hour, ModelCounters> = BTreeMap::new();
    for (number, (time_ms, hour)) in (0..).zip(ended) {
        let mut row = row("acme", 1, &format!("r{number}"), time_ms, NanoUsd::from_nanos(1));
        (row.latency_ms, row.ttft_ms, row.status) = (100 + number, Some(40), if number == 2 { 502 } else { 200 });
        let counters = StabilityCounters {
            requests: 1,
            successes: u64::from(number != 2),
            latency_ms: 100 + number,
            ttft_ms: 40,
            ttft_count: 1,
            output_tokens: if number == 2 { 0 } else { 3 },
            generation_ms: if number == 2 { 0 } else { 60 + number },
        };
        let bucket = expected.entry(hour).or_default();
        bucket.entry(row.model.to_string()).or_default().add(&counters);
        let settlement = Settlement {
            lease: None,
            request: row.request_id.clone(),
            key: row.key_id.clone(),
            at_ms: row.admitted_ms,
            tokens_estimated: 0,
            tokens_used: 0,
            cost: row.cost_nano_usd,
            row: Some(row.into()),
        };
        let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
        let change = AccountChange::Settle(Box::new(settlement));
        journal.append_step("acme", change, 0, &mut room).unwrap();
        publisher.flush(&mut epochs).await.unwrap();
    }
    assert_eq!(store.buckets(hour.plus(-5), hour.plus(5)).await.unwrap(), expected);
}
