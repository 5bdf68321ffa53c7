//! Keys at hand: a bounded cache in front of the store, invalidated by the store's change feed.
//!
//! A push from the store only says "read the feed now"; a poll over the data connection reads it anyway, so a revoked key is
//! refused within the poll's period when the push connection is cut. An entry loaded at version v is kept only if no
//! later version has been processed: whoever read before a revocation cannot write it back after.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Mutex as AsyncMutex, watch};

use crate::{
    domain::{
        key::{KeyId, KeyRecord},
        secret::KeyDigest,
    },
    store::{Changes, KeyStore, Lookup, StoreError},
};

/// Cold keys asked for at the same time wait for one another on this many locks.
const FLIGHT_LOCKS: usize = 64;

/// How the cache behaves.
#[derive(Clone, Copy, Debug)]
pub struct KeyCacheSettings {
    /// The longest an entry is believed without asking again.
    pub lifetime: Duration,
    /// The same for "no such key".
    pub negative_lifetime: Duration,
    /// The most entries; then the oldest go.
    pub entries_max: usize,
    /// How often the feed is read without being told to.
    pub poll: Duration,
    /// How often the last use of keys is written to the store.
    pub flush_used: Duration,
}

/// What has happened since the start.
#[derive(Debug, Default)]
pub struct Counters {
    hits: AtomicU64,
    negative_hits: AtomicU64,
    misses: AtomicU64,
    flushes: AtomicU64,
}

/// See the module.
pub struct KeyCache {
    store: Arc<dyn KeyStore>,
    settings: KeyCacheSettings,
    held: Mutex<Held>,
    flights: Vec<AsyncMutex<()>>,
    used: Mutex<HashMap<KeyId, i64>>,
    counters: Counters,
    reachable: AtomicBool,
}

#[derive(Default)]
struct Held {
    /// The version up to which the feed has been followed; none before it was read first.
    version: Option<u64>,
    entries: HashMap<KeyDigest, Entry>,
}

struct Entry {
    record: Option<Arc<KeyRecord>>,
    loaded: Instant,
}

impl std::fmt::Debug for KeyCache {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("KeyCache")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl KeyCache {
    /// An empty cache. [`KeyCache::run`] has to run for it to stay true.
    pub fn new(store: Arc<dyn KeyStore>, settings: KeyCacheSettings) -> Arc<Self> {
        Arc::new(Self {
            store,
            settings,
            held: Mutex::default(),
            flights: (0..FLIGHT_LOCKS).map(|_| AsyncMutex::default()).collect(),
            used: Mutex::default(),
            counters: Counters::default(),
            reachable: AtomicBool::new(false),
        })
    }

    /// The record behind a digest: from the cache, else from the store in one round trip.
    pub async fn find(&self, digest: &KeyDigest, now: Instant) -> Result<Option<Arc<KeyRecord>>, StoreError> {
        if let Some(record) = self.cached(digest, now) {
            return Ok(record);
        }
        // One asks, the others wait and find the answer in the cache.
        let slot = digest.as_bytes().first().map_or(0, |byte| usize::from(*byte)) % FLIGHT_LOCKS;
        let _flight = match self.flights.get(slot) {
            Some(flight) => Some(flight.lock().await),
            None => None,
        };
        if let Some(record) = self.cached(digest, now) {
            return Ok(record);
        }
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        let found = self.store.find(digest).await;
        self.note(&found);
        let Lookup { record, version } = found?;
        let record = record.map(Arc::new);
        self.keep(*digest, record.clone(), version, now);
        Ok(record)
    }

    /// Notes that a key is used now; written to the store in batches.
    pub fn touch(&self, id: &KeyId, now_unix: i64) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = used.get_mut(id) {
            *at = now_unix.max(*at);
        } else if used.len() < self.settings.entries_max {
            used.insert(id.clone(), now_unix);
        }
    }

    /// Whether the last call to the store was answered.
    pub fn store_is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Events and how often each has happened since the start.
    pub fn events(&self) -> [(&'static str, u64); 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters {
            hits,
            negative_hits,
            misses,
            flushes,
        } = &self.counters;
        [
            ("hit", read(hits)),
            ("negative_hit", read(negative_hits)),
            ("miss", read(misses)),
            ("flush", read(flushes)),
        ]
    }

    /// Follows the store until `shutdown` turns true, then writes the last uses.
    pub async fn run(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let store = Arc::clone(&self.store);
        let background = store.run(shutdown.clone());
        let follow = self.follow();
        let flush = self.flush_regularly();
        tokio::select! {
            // A store without background work returns at once; the others go on.
            () = async { background.await; std::future::pending::<()>().await } => {}
            () = follow => {}
            () = flush => {}
            _ = shutdown.wait_for(|stop| *stop) => {}
        }
        self.flush().await;
    }

    async fn follow(&self) {
        let mut nudges = self.store.nudges();
        loop {
            let known = self.held().version;
            let changes = self.store.changes_since(known.unwrap_or(0)).await;
            self.note(&changes);
            if let Ok(changes) = changes {
                self.apply(known, changes);
            }
            tokio::select! {
                () = tokio::time::sleep(self.settings.poll) => {}
                told = nudges.changed() => {
                    if told.is_err() {
                        tokio::time::sleep(self.settings.poll).await;
                    }
                }
            }
        }
    }

    async fn flush_regularly(&self) {
        loop {
            tokio::time::sleep(self.settings.flush_used).await;
            self.flush().await;
        }
    }

    async fn flush(&self) {
        let used: Vec<(KeyId, i64)> = {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.drain().collect()
        };
        if !used.is_empty()
            && let Err(error) = self.store.touch(&used).await
        {
            tracing::debug!(%error, "the last use of keys could not be noted");
        }
    }

    fn note<T>(&self, answer: &Result<T, StoreError>) {
        let reachable = !matches!(answer, Err(StoreError::Unavailable(_)));
        self.reachable.store(reachable, Ordering::Relaxed);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cached(&self, digest: &KeyDigest, now: Instant) -> Option<Option<Arc<KeyRecord>>> {
        let held = self.held();
        let entry = held.entries.get(digest)?;
        let (lifetime, counter) = match entry.record {
            Some(_) => (self.settings.lifetime, &self.counters.hits),
            None => (self.settings.negative_lifetime, &self.counters.negative_hits),
        };
        if now.saturating_duration_since(entry.loaded) > lifetime {
            return None;
        }
        counter.fetch_add(1, Ordering::Relaxed);
        Some(entry.record.clone())
    }

    fn keep(&self, digest: KeyDigest, record: Option<Arc<KeyRecord>>, version: u64, now: Instant) {
        let mut held = self.held();
        // Without a version the feed is not followed yet, and nothing would end a wrong entry.
        if held.version.is_none_or(|processed| version < processed) {
            return;
        }
        if held.entries.len() >= self.settings.entries_max && !held.entries.contains_key(&digest) {
            make_room(&mut held.entries, self.settings.entries_max);
        }
        held.entries.insert(digest, Entry { record, loaded: now });
    }

    fn apply(&self, known: Option<u64>, changes: Changes) {
        let mut held = self.held();
        match (known, changes.digests) {
            (Some(_), Some(digests)) => {
                for digest in digests {
                    held.entries.remove(&digest);
                }
            }
            _ => {
                held.entries.clear();
                self.counters.flushes.fetch_add(1, Ordering::Relaxed);
            }
        }
        held.version = Some(changes.version);
    }
}

/// Drops the older half: rare, and cheaper than keeping an order on every hit.
fn make_room(entries: &mut HashMap<KeyDigest, Entry>, entries_max: usize) {
    let mut ages: Vec<Instant> = entries.values().map(|entry| entry.loaded).collect();
    ages.sort_unstable();
    let Some(middle) = ages.get(entries_max / 2).copied() else {
        return entries.clear();
    };
    entries.retain(|_, entry| entry.loaded > middle);
}
