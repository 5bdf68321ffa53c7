//! Tests of the snapshot, with a store that counts how often it is asked.

mod publisher;

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::*;
use crate::{
    domain::{faults::stability::NodeHourCounters, ledger::NodeId},
    store::{
        contract::until,
        ledger::stability_contract::{share, this_hour},
    },
};

const SOON: Duration = Duration::from_millis(5);

struct Store {
    answer: Mutex<Result<BTreeMap<Hour, ModelCounters>, StoreError>>,
    asked: AtomicU64,
    epochs: watch::Sender<u64>,
}

impl Store {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Ok(BTreeMap::new())),
            asked: AtomicU64::new(0),
            epochs: watch::Sender::new(0),
        })
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    fn answers(&self, answer: Result<BTreeMap<Hour, ModelCounters>, StoreError>) {
        *self.answer.lock() = answer;
    }

    /// Waits until it has been asked another two times: what it answered before is taken then.
    async fn is_asked_again(&self) {
        let before = self.asked();
        until("the store is asked again", async || self.asked() >= before + 2).await;
    }
}

#[async_trait]
impl StabilityStore for Store {
    async fn put_shares(&self, _: &NodeId, _: &[NodeHourCounters]) -> Result<(), StoreError> {
        unreachable!()
    }

    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, ModelCounters>, StoreError> {
        assert_eq!(first.plus(23), last, "a window has 24 hours");
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answer.lock().clone()
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}

/// A store that has told no time.
fn node_time() -> Arc<StoreTime> {
    Arc::new(StoreTime::new(clock::instant()))
}

fn bucket(requests: u64) -> BTreeMap<Hour, ModelCounters> {
    let share = share(this_hour(), &[("a", requests)]);
    BTreeMap::from([(share.hour, share.bucket)])
}

fn shown(snapshots: &Snapshots) -> Option<u64> {
    let snapshot = snapshots.get()?;
    let (_, bucket) = snapshot.buckets.first_key_value()?;
    Some(bucket["a"].requests)
}

#[tokio::test]
async fn the_first_is_read_at_once_and_readers_ask_the_store_nothing() {
    let store = Store::new();
    store.answers(Ok(bucket(3)));
    let snapshots = Arc::new(Snapshots::new(
        Arc::clone(&store) as _,
        node_time(),
        Duration::from_secs(3600),
    ));
    assert_eq!(snapshots.get(), None);
    let before = clock::unix_millis();
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(Arc::clone(&snapshots).run(stopped));
    until("it is read", async || shown(&snapshots) == Some(3)).await;
    for _ in 0..100_000 {
        assert!(snapshots.get().unwrap().read_at_ms >= before);
    }
    assert_eq!(store.asked(), 1);
    stop.send_replace(true);
    running.await.unwrap();
}

#[tokio::test]
async fn the_window_ends_with_the_hour_of_the_store() {
    const DAY_MS: i64 = 24 * 3600 * 1000;
    let (store, time) = (Store::new(), node_time());
    let (asked, behind) = (clock::instant(), clock::unix_millis() - DAY_MS);
    time.record(behind, asked, asked);
    let snapshots = Snapshots::new(Arc::clone(&store) as _, time, SOON);
    snapshots.read().await.unwrap();
    let read_at = snapshots.get().unwrap().read_at_ms;
    assert!((behind..behind + DAY_MS / 2).contains(&read_at), "{read_at}");
}

#[tokio::test]
async fn what_was_read_last_stays_while_the_store_is_away() {
    let store = Store::new();
    let away = || Err(StoreError::Unavailable("as the test says".to_owned()));
    store.answers(away());
    let snapshots = Arc::new(Snapshots::new(Arc::clone(&store) as _, node_time(), SOON));
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(Arc::clone(&snapshots).run(stopped));
    store.is_asked_again().await;
    assert_eq!(snapshots.get(), None);
    store.answers(Ok(bucket(1)));
    until("it is read", async || shown(&snapshots) == Some(1)).await;
    store.answers(away());
    store.is_asked_again().await;
    assert_eq!(shown(&snapshots), Some(1));
    store.answers(Ok(bucket(2)));
    until("it is read again", async || shown(&snapshots) == Some(2)).await;
    drop(stop);
    running.await.unwrap();
}
