//! Tests of the cache over a store whose calls are counted, and of two nodes on one Redis.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::domain::keys::KeyState;
use crate::domain::keys::change::{ChangePrecondition, KeyChange};
use crate::edges::clock;
use crate::edges::limiter::RateAllowance;
use crate::store::contract::model::ModelStore;
use crate::store::contract::{Changing, digest, id, record, to, until};
use crate::store::{ChangeError, KeyHealer, KeyView};

mod bounds;
mod made_up;
mod nodes;
mod uses;

/// Long enough that what is tested happens for another reason.
const NEVER: Duration = Duration::from_secs(3600);
/// More than any test asks for that is about something else.
const PLENTY: RateAllowance = RateAllowance {
    per_minute: 1_000_000,
    burst: 1_000_000,
    clients_max: 1000,
};
const SETTINGS: KeyCacheSettings = KeyCacheSettings {
    lifetime: Duration::from_secs(60),
    offline_lifetime: Duration::from_secs(300),
    negative_lifetime: Duration::from_secs(5),
    entries_max: 1000,
    unknown: UnknownKeySettings {
        entries_max: 1000,
        per_address: PLENTY,
        in_all: PLENTY,
    },
    poll: Duration::from_millis(5),
    flush_used: NEVER,
};

fn somebody() -> ClientAddress {
    client(0)
}

/// One of many who may ask.
fn client(number: u32) -> ClientAddress {
    ClientAddress::from(IpAddr::V4(Ipv4Addr::from(number)))
}

/// A store that counts what it is asked, can be held up, can be away, and can be replaced as by a failover.
struct WatchedStore {
    inner: RwLock<Arc<ModelStore>>,
    finds: AtomicUsize,
    feed_reads: AtomicUsize,
    touches: AtomicUsize,
    /// Whether a find that has its answer waits for `release` before it gives it.
    holds: AtomicBool,
    held: Notify,
    release: Notify,
    is_away: AtomicBool,
}

impl WatchedStore {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: RwLock::new(Arc::new(ModelStore::new())),
            finds: AtomicUsize::new(0),
            feed_reads: AtomicUsize::new(0),
            touches: AtomicUsize::new(0),
            holds: AtomicBool::new(false),
            held: Notify::new(),
            release: Notify::new(),
            is_away: AtomicBool::new(false),
        })
    }

    fn inner(&self) -> Result<Arc<ModelStore>, StoreError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("away".to_owned()));
        }
        Ok(Arc::clone(&self.inner.read()))
    }

    fn finds(&self) -> usize {
        self.finds.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl KeyStore for WatchedStore {
    async fn find(&self, digest: &KeyDigest) -> Result<KeyLookup, StoreError> {
        self.finds.fetch_add(1, Ordering::SeqCst);
        let lookup = self.inner()?.find(digest).await;
        if self.holds.load(Ordering::SeqCst) {
            self.held.notify_one();
            self.release.notified().await;
        }
        lookup
    }
    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        self.inner()?.create(digest, record).await
    }
    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError> {
        self.inner()?.by_id(id).await
    }
    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError> {
        self.inner()?.list(after, limit).await
    }
    async fn change(&self, id: &KeyId, change: &KeyChange, from: &ChangePrecondition) -> Result<KeyView, ChangeError> {
        self.inner()?.change(id, change, from).await
    }
    async fn delete(&self, id: &KeyId, from: &ChangePrecondition) -> Result<Option<KeyView>, ChangeError> {
        self.inner()?.delete(id, from).await
    }
    async fn record_uses(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
        self.touches.fetch_add(1, Ordering::SeqCst);
        self.inner()?.record_uses(used).await
    }
    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError> {
        self.feed_reads.fetch_add(1, Ordering::SeqCst);
        self.inner()?.changes_since(version).await
    }
    fn nudges(&self) -> watch::Receiver<u64> {
        self.inner.read().nudges()
    }
}

#[async_trait]
impl KeyHealer for WatchedStore {
    async fn heal(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        self.inner()?.heal(digest, record).await
    }
    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        self.inner()?.heal_gone(id, revision).await
    }
}

/// A cache that follows its store.
struct Followed {
    store: Arc<WatchedStore>,
    cache: Arc<KeyCache>,
    shutdown: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Followed {
    async fn start(settings: KeyCacheSettings) -> Self {
        let store = WatchedStore::new();
        store.create(&digest(1), &record(1, 100)).await.unwrap();
        let cache = KeyCache::new(store.clone(), settings);
        let (shutdown, stop) = watch::channel(false);
        let running = tokio::spawn(Arc::clone(&cache).run(stop));
        let this = Self {
            store,
            cache,
            shutdown,
            running,
        };
        this.catch_up().await;
        this
    }

    /// Waits until all that has happened so far is worked through: the read that is under way may be older, the one after
    /// it is not, and when a third begins the second has been applied.
    async fn catch_up(&self) {
        let seen = self.store.feed_reads.load(Ordering::SeqCst);
        until("the feed is read", async || {
            self.store.feed_reads.load(Ordering::SeqCst) >= seen + 3
        })
        .await;
    }

    async fn find(&self, number: u8, now: Instant) -> Option<Arc<KeyRecord>> {
        self.cache.find(&digest(number), now, somebody).await.unwrap()
    }

    /// How many keys are held, and how many digests that stand for none.
    fn entries(&self) -> (usize, usize) {
        let lengths = self.cache.shards.iter().map(|shard| shard.lock().lengths());
        lengths.fold((0, 0), |(keys, unknown), one| (keys + one.0, unknown + one.1))
    }

    fn events(&self, name: &str) -> u64 {
        self.cache.events().iter().find(|(event, _)| *event == name).unwrap().1
    }
}

#[tokio::test]
async fn a_hit_asks_no_one() {
    let node = Followed::start(SETTINGS).await;
    let now = clock::instant();
    for _ in 0..10 {
        assert_eq!(node.find(1, now).await.as_deref(), Some(&record(1, 100)));
        assert_eq!(node.find(2, now).await, None);
    }
    assert_eq!(node.store.finds(), 2);
    assert_eq!(["hit", "negative_hit", "miss"].map(|name| node.events(name)), [9, 9, 2]);
    node.store.is_away.store(true, Ordering::SeqCst);
    assert!(
        node.find(1, now).await.is_some(),
        "a warm key outlives the store's absence"
    );
    let cold = node.cache.find(&digest(3), now, somebody).await;
    assert!(matches!(cold, Err(KeyLookupError::Store(StoreError::Unavailable(_)))));
    until("the absence is noticed", async || !node.cache.is_store_reachable()).await;
    node.store.is_away.store(false, Ordering::SeqCst);
    until("the return is noticed", async || node.cache.is_store_reachable()).await;
}

#[tokio::test]
async fn a_key_that_worked_not_long_ago_works_on_while_the_store_is_away() {
    let node = Followed::start(SETTINGS).await;
    let now = clock::instant();
    assert!(node.find(1, now).await.is_some());
    assert!(node.find(2, now).await.is_none());
    node.store.is_away.store(true, Ordering::SeqCst);
    let later = now + SETTINGS.lifetime + Duration::from_secs(1);
    assert!(node.find(1, later).await.is_some());
    assert_eq!(node.events("offline_hit"), 1);
    let unknown = node.cache.find(&digest(2), later, somebody).await;
    assert!(
        matches!(unknown, Err(KeyLookupError::Store(StoreError::Unavailable(_)))),
        "never taken for unknown"
    );
    let too_late = now + SETTINGS.offline_lifetime + Duration::from_secs(1);
    let late = node.cache.find(&digest(1), too_late, somebody).await;
    assert!(matches!(late, Err(KeyLookupError::Store(StoreError::Unavailable(_)))));
}

#[tokio::test]
async fn a_key_out_of_date_is_read_anew() {
    let node = Followed::start(SETTINGS).await;
    let now = clock::instant();
    assert!(node.find(1, now).await.is_some());
    let finds = node.store.finds();
    assert!(node.cache.refetch(&digest(1), now).await.unwrap().is_some());
    assert_eq!(node.store.finds(), finds + 1);
}

#[tokio::test]
async fn fifty_cold_finds_are_one_call() {
    let node = Followed::start(SETTINGS).await;
    let now = clock::instant();
    node.store.holds.store(true, Ordering::SeqCst);
    let finds: Vec<_> = (0..50)
        .map(|_| {
            let cache = Arc::clone(&node.cache);
            tokio::spawn(async move { cache.find(&digest(1), now, somebody).await })
        })
        .collect();
    node.store.held.notified().await;
    // On this one thread all of them have run as far as they can once the feed was read.
    node.catch_up().await;
    node.store.holds.store(false, Ordering::SeqCst);
    node.store.release.notify_one();
    for find in finds {
        assert!(find.await.unwrap().unwrap().is_some());
    }
    assert_eq!(node.store.finds(), 1);
}

#[tokio::test]
async fn a_cached_unknown_ends_when_the_key_is_created() {
    let node = Followed::start(SETTINGS).await;
    let now = clock::instant();
    assert_eq!(node.find(2, now).await, None);
    node.store.create(&digest(2), &record(2, 100)).await.unwrap();
    until("the key is found", async || node.find(2, now).await.is_some()).await;
    node.store.rotate(&id(2), &to(3, "abcd", None)).await.unwrap();
    until("the old text is refused", async || node.find(2, now).await.is_none()).await;
    assert!(node.find(3, now).await.is_some());
}

#[tokio::test]
async fn both_texts_of_a_key_are_cached_until_the_overlap_ends() {
    let node = Followed::start(SETTINGS).await;
    let now = clock::instant();
    node.store.create(&digest(2), &record(2, 100)).await.unwrap();
    until("the key is found", async || node.find(2, now).await.is_some()).await;
    node.store.rotate(&id(2), &to(3, "abcd", Some(900))).await.unwrap();
    until("the rotation is seen", async || {
        node.find(2, now).await.is_some_and(|key| key.former.is_some())
    })
    .await;
    assert_eq!(node.find(3, now).await, node.find(2, now).await);
    let asked = node.store.finds();
    assert!(node.find(2, now).await.is_some() && node.find(3, now).await.is_some());
    assert_eq!(node.store.finds(), asked, "both are at hand");
    node.store.end_overlap(&id(2)).await.unwrap();
    until("the old text is refused", async || node.find(2, now).await.is_none()).await;
    assert!(node.find(3, now).await.is_some());
}

#[tokio::test]
async fn entries_are_believed_for_their_lifetime() {
    let node = Followed::start(SETTINGS).await;
    let start = clock::instant();
    let ask = async |number, seconds| {
        let before = node.store.finds();
        node.find(number, start + Duration::from_secs(seconds)).await;
        node.store.finds() - before
    };
    assert_eq!([ask(1, 0).await, ask(1, 60).await, ask(1, 61).await], [1, 0, 1]);
    assert_eq!([ask(1, 121).await, ask(1, 122).await], [0, 1]);
    assert_eq!([ask(2, 0).await, ask(2, 5).await, ask(2, 6).await], [1, 0, 1]);
}

/// Starts a find that has read its answer and not given it yet.
async fn held_find(node: &Followed, now: Instant) -> JoinHandle<Option<Arc<KeyRecord>>> {
    node.store.holds.store(true, Ordering::SeqCst);
    let cache = Arc::clone(&node.cache);
    let find = tokio::spawn(async move { cache.find(&digest(1), now, somebody).await.unwrap() });
    node.store.held.notified().await;
    node.store.holds.store(false, Ordering::SeqCst);
    find
}

#[tokio::test]
async fn a_record_read_before_a_revocation_is_not_kept_after_it() {
    let node = Followed::start(SETTINGS).await;
    let now = clock::instant();
    let find = held_find(&node, now).await;
    node.store.revoke(&id(1), 500).await.unwrap();
    node.catch_up().await;
    node.store.release.notify_one();
    assert_eq!(find.await.unwrap().unwrap().state, KeyState::Active);
    let after = node.find(1, now).await.unwrap();
    assert_eq!(after.state, KeyState::Revoked { at: 500 });
}

#[tokio::test]
async fn a_store_that_goes_back_ends_all_entries_and_what_is_on_its_way() {
    let node = Followed::start(SETTINGS).await;
    let now = clock::instant();
    node.store.create(&digest(2), &record(2, 100)).await.unwrap();
    node.store.create(&digest(3), &record(3, 100)).await.unwrap();
    node.catch_up().await;
    assert!(node.find(2, now).await.is_some());
    let (find, flushes) = (held_find(&node, now).await, node.events("flush"));
    // A failover to a server that has not heard of it all, and where the first key is revoked.
    let other = Arc::new(ModelStore::new());
    other.create(&digest(1), &record(1, 100)).await.unwrap();
    other.revoke(&id(1), 500).await.unwrap();
    *node.store.inner.write() = other;
    until("the flush", async || node.events("flush") > flushes).await;
    node.store.release.notify_one();
    assert_eq!(find.await.unwrap().unwrap().state, KeyState::Active);
    assert_eq!(node.find(2, now).await, None);
    // What was read at the old server's higher version is no news to the new one.
    assert_eq!(node.find(1, now).await.unwrap().state, KeyState::Revoked { at: 500 });
}

#[tokio::test]
async fn nothing_is_kept_before_the_feed_is_followed() {
    let store = WatchedStore::new();
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let cache = KeyCache::new(store.clone(), SETTINGS);
    let now = clock::instant();
    for _ in 0..3 {
        assert!(cache.find(&digest(1), now, somebody).await.unwrap().is_some());
    }
    assert_eq!(store.finds(), 3);
}
