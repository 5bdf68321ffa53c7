//! Keys at hand: a bounded cache in front of the store, invalidated by the store's change feed.
//!
//! A push from the store only says "read the feed now"; a poll over the data connection reads it anyway, so a revoked key is
//! refused within the poll's period when the push connection is cut. An entry loaded at version v is kept only if no
//! later version has been processed: whoever read before a revocation cannot write it back after.
//!
//! The entries lie in shards, each under a lock of its own together with the version it has processed. The rule holds for
//! each digest because it holds for its shard: a change takes effect there in one step with the new version.

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

#[cfg(test)]
mod tests;

/// How many parts the entries and the last uses are kept in, so that requests do not queue for one lock.
const SHARDS_MAX: usize = 16;
/// Cold keys asked for at the same time wait for one another on this many locks.
const FLIGHT_LOCKS: usize = 64;

/// How the cache behaves.
#[derive(Clone, Copy, Debug)]
pub struct KeyCacheSettings {
    /// The longest an entry is believed without asking again.
    pub lifetime: Duration,
    /// The longest an entry is believed while the store is away: a key that was used in the last minutes goes on working.
    pub offline_lifetime: Duration,
    /// The same for "no such key".
    pub negative_lifetime: Duration,
    /// The most entries; when their share of it is full the oldest go.
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
    offline_hits: AtomicU64,
    flushes: AtomicU64,
}

/// See the module.
pub struct KeyCache {
    store: Arc<dyn KeyStore>,
    settings: KeyCacheSettings,
    shards: Vec<Mutex<Shard>>,
    flights: Vec<AsyncMutex<()>>,
    used: Vec<Mutex<HashMap<KeyId, i64>>>,
    /// How many entries, and how many uses, one shard holds.
    shard_entries_max: usize,
    counters: Counters,
    reachable: AtomicBool,
}

#[derive(Default)]
struct Shard {
    /// The version up to which the feed has been followed; none before it was read first.
    version: Option<u64>,
    /// Counts the flushes. After one, versions from before it say nothing: the store may have gone back.
    flushes: u64,
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
        let shards = settings.entries_max.clamp(1, SHARDS_MAX);
        Arc::new(Self {
            store,
            settings,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            flights: (0..FLIGHT_LOCKS).map(|_| AsyncMutex::default()).collect(),
            used: (0..shards).map(|_| Mutex::default()).collect(),
            shard_entries_max: settings.entries_max / shards,
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
        let _flight = match pick(&self.flights, digest.as_bytes().first()) {
            Some(flight) => Some(flight.lock().await),
            None => None,
        };
        if let Some(record) = self.cached(digest, now) {
            return Ok(record);
        }
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        let flushes = self.shard(digest).map(|shard| shard.flushes);
        let found = self.store.find(digest).await;
        self.note(&found);
        if let Err(StoreError::Unavailable(_)) = &found
            && let Some(record) = self.offline(digest, now)
        {
            return Ok(Some(record));
        }
        let Lookup { record, version } = found?;
        let record = record.map(Arc::new);
        let entry = Entry {
            record: record.clone(),
            loaded: now,
        };
        self.keep(*digest, entry, version, flushes);
        Ok(record)
    }

    /// The record as the store has it now: for a key that was found to be out of date.
    pub async fn find_anew(&self, digest: &KeyDigest, now: Instant) -> Result<Option<Arc<KeyRecord>>, StoreError> {
        if let Some(mut shard) = self.shard(digest) {
            shard.entries.remove(digest);
        }
        self.find(digest, now).await
    }

    /// Notes that a key is used now; written to the store in batches.
    pub fn touch(&self, id: &KeyId, now_unix: i64) {
        let Some(used) = pick(&self.used, id.as_str().as_bytes().last()) else {
            return;
        };
        let mut used = lock(used);
        if let Some(at) = used.get_mut(id) {
            *at = now_unix.max(*at);
        } else if used.len() < self.shard_entries_max {
            used.insert(id.clone(), now_unix);
        }
    }

    /// Whether the last call to the store was answered.
    pub fn store_is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Events and how often each has happened since the start.
    pub fn events(&self) -> [(&'static str, u64); 5] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters {
            hits,
            negative_hits,
            misses,
            offline_hits,
            flushes,
        } = &self.counters;
        [
            ("hit", read(hits)),
            ("negative_hit", read(negative_hits)),
            ("miss", read(misses)),
            ("offline_hit", read(offline_hits)),
            ("flush", read(flushes)),
        ]
    }

    /// Follows the store until `shutdown` turns true, then writes the last uses.
    pub async fn run(self: Arc<Self>, shutdown: watch::Receiver<bool>) {
        let store = Arc::clone(&self.store);
        let background = store.run(shutdown.clone());
        tokio::select! {
            // A store without background work returns at once; the others go on.
            () = async { background.await; std::future::pending::<()>().await } => {}
            () = self.follow() => {}
            // It alone ends at the shutdown, so that no batch is dropped on its way to the store.
            () = self.flush_until(shutdown) => {}
        }
    }

    async fn follow(&self) {
        let mut nudges = self.store.nudges();
        let mut known = None;
        loop {
            let changes = self.store.changes_since(known.unwrap_or(0)).await;
            self.note(&changes);
            if let Ok(changes) = changes {
                let version = changes.version;
                self.apply(known, changes);
                known = Some(version);
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

    async fn flush_until(&self, mut shutdown: watch::Receiver<bool>) {
        let mut stop = false;
        while !stop {
            tokio::select! {
                () = tokio::time::sleep(self.settings.flush_used) => {}
                _ = shutdown.wait_for(|stop| *stop) => stop = true,
            }
            self.flush().await;
        }
    }

    async fn flush(&self) {
        let used: Vec<(KeyId, i64)> = self
            .used
            .iter()
            .flat_map(|used| std::mem::take(&mut *lock(used)))
            .collect();
        if !used.is_empty()
            && let Err(error) = self.store.touch(&used).await
        {
            tracing::debug!(%error, "the last use of keys could not be noted yet");
            for (id, at) in used {
                self.touch(&id, at);
            }
        }
    }

    fn note<T>(&self, answer: &Result<T, StoreError>) {
        let reachable = !matches!(answer, Err(StoreError::Unavailable(_)));
        self.reachable.store(reachable, Ordering::Relaxed);
    }

    fn shard(&self, digest: &KeyDigest) -> Option<MutexGuard<'_, Shard>> {
        pick(&self.shards, digest.as_bytes().last()).map(lock)
    }

    fn cached(&self, digest: &KeyDigest, now: Instant) -> Option<Option<Arc<KeyRecord>>> {
        let shard = self.shard(digest)?;
        let entry = shard.entries.get(digest)?;
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

    /// What was known of a key that worked not long ago.
    fn offline(&self, digest: &KeyDigest, now: Instant) -> Option<Arc<KeyRecord>> {
        let shard = self.shard(digest)?;
        let entry = shard.entries.get(digest)?;
        let age = now.saturating_duration_since(entry.loaded);
        let record = entry.record.clone().filter(|_| age <= self.settings.offline_lifetime)?;
        self.counters.offline_hits.fetch_add(1, Ordering::Relaxed);
        Some(record)
    }

    /// Keeps what was read at `version`, when the shard had seen `flushes`.
    fn keep(&self, digest: KeyDigest, entry: Entry, version: u64, flushes: Option<u64>) {
        let Some(mut shard) = self.shard(&digest) else {
            return;
        };
        // Without a version the feed is not followed yet, and nothing would end a wrong entry.
        let late = shard.version.is_none_or(|processed| version < processed);
        if late || flushes != Some(shard.flushes) || self.shard_entries_max == 0 {
            return;
        }
        if shard.entries.len() >= self.shard_entries_max && !shard.entries.contains_key(&digest) {
            make_room(&mut shard.entries);
        }
        shard.entries.insert(digest, entry);
    }

    /// Takes in what happened after the version `known`.
    fn apply(&self, known: Option<u64>, changes: Changes) {
        let Changes { version, digests } = changes;
        let digests = digests.filter(|_| known.is_some());
        if known == Some(version) && digests.is_some() {
            return;
        }
        if digests.is_none() {
            self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        }
        for shard in &self.shards {
            let mut shard = lock(shard);
            match &digests {
                // A digest of another shard is in none of its entries.
                Some(digests) => digests.iter().for_each(|digest| drop(shard.entries.remove(digest))),
                None => {
                    shard.entries.clear();
                    shard.flushes += 1;
                }
            }
            shard.version = Some(version);
        }
    }
}

/// One of several, chosen by a byte that is random in every digest and id.
fn pick<'a, T>(all: &'a [T], byte: Option<&u8>) -> Option<&'a T> {
    let byte = byte.map_or(0, |byte| usize::from(*byte));
    byte.checked_rem(all.len()).and_then(|slot| all.get(slot))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops the older half: rare, and cheaper than keeping an order on every hit.
fn make_room(entries: &mut HashMap<KeyDigest, Entry>) {
    let mut ages: Vec<Instant> = entries.values().map(|entry| entry.loaded).collect();
    ages.sort_unstable();
    let Some(middle) = ages.get(ages.len() / 2).copied() else {
        return;
    };
    entries.retain(|_, entry| entry.loaded > middle);
}
