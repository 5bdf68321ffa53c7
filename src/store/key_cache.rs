//! A bounded cache of key records in front of the store. The store's change feed invalidates its entries.
//!
//! A push from the store (a nudge) only means that the feed should be read now. A poll over the data connection reads the feed
//! anyway, so a revoked key is refused within the poll interval even if the push connection is cut. Each record is read at a
//! version of the store. It is cached only if no later version has been processed. So a record that was read before a revocation
//! cannot be cached after the revocation.
//!
//! The entries are divided into shards. Each shard has one lock, which also protects the version up to which the shard has
//! processed the feed. Existing keys and unknown digests are in separate tables (`KeyCacheShard`), and lookups of unknown keys
//! are rate-limited (`UnknownKeyLimits`).

pub(crate) mod shard;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use thiserror::Error;
use tokio::sync::{Mutex as AsyncMutex, watch};

use crate::{
    domain::{
        QuickMap,
        keys::{KeyId, KeyRecord, secret::KeyDigest},
    },
    edges::{clock, limiter::ClientAddress},
    store::{
        Changes, KeyLookup, KeyStore, StoreError,
        key_cache::shard::{
            CacheMiss, DigestOwner, EntryLifetimes, KeyCacheCounters, KeyCacheShard, ReachedLimit, ShardSizes,
            UnknownKeyLimits, count,
        },
    },
};

pub(crate) use crate::store::key_cache::shard::UnknownKeySettings;

/// Maximum number of shards for the entries, and also for the last uses. Each shard has its own lock, so requests do not contend
/// for one lock.
const SHARDS_MAX: usize = 16;
/// Number of locks on which concurrent lookups of the same uncached key wait for each other. The number of locks also limits the
/// number of concurrent lookups, and therefore how far failing lookups can exceed their limits.
const FLIGHT_LOCKS: usize = 64;

/// The cache's limits and lifetimes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCacheSettings {
    /// The maximum age at which an entry is used without reading the key from the store again.
    pub lifetime: Duration,
    /// The maximum age at which an entry is used while the store is unreachable. Recently used keys thus remain valid.
    pub offline_lifetime: Duration,
    /// The maximum age of an entry for an unknown key.
    pub negative_lifetime: Duration,
    /// Maximum number of keys in the cache. A full shard drops its least recently used key.
    pub entries_max: usize,
    /// The limits for digests that belong to no key.
    pub unknown: UnknownKeySettings,
    /// The interval at which the feed is read without a nudge.
    pub poll: Duration,
    /// The interval at which last uses are written to the store.
    pub flush_used: Duration,
}

/// The reason why it could not be determined whether the key exists.
#[derive(Debug, Error)]
pub(crate) enum KeyLookupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store was not called, because the client, or all clients together, have looked up too many keys that do not exist.
    #[error("too many lookups of keys that do not exist: the next lookup is allowed in {} ms", .wait.as_millis())]
    Limited {
        /// The time until a lookup is allowed again.
        wait: Duration,
    },
}

/// The bounded cache of key records in front of the store.
pub(crate) struct KeyCache {
    store: Arc<dyn KeyStore>,
    settings: KeyCacheSettings,
    lifetimes: EntryLifetimes,
    shards: Vec<Mutex<KeyCacheShard>>,
    limits: UnknownKeyLimits,
    flights: Vec<AsyncMutex<()>>,
    uses: LastUses,
    counters: KeyCacheCounters,
    reachable: AtomicBool,
}

impl std::fmt::Debug for KeyCache {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("KeyCache")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl KeyCache {
    /// Creates an empty cache. [`KeyCache::run`] must run to keep it up to date.
    pub(crate) fn new(store: Arc<dyn KeyStore>, settings: KeyCacheSettings) -> Arc<Self> {
        let shards = settings.entries_max.clamp(1, SHARDS_MAX);
        let sizes = ShardSizes {
            keys_max: settings.entries_max / shards,
            unknown_max: settings.unknown.entries_max / shards,
        };
        Arc::new(Self {
            store,
            settings,
            lifetimes: EntryLifetimes {
                key: settings.lifetime,
                unknown: settings.negative_lifetime,
            },
            shards: (0..shards).map(|_| Mutex::new(KeyCacheShard::new(sizes))).collect(),
            limits: UnknownKeyLimits::new(&settings.unknown, clock::instant()),
            flights: (0..FLIGHT_LOCKS).map(|_| AsyncMutex::default()).collect(),
            uses: LastUses::new(shards, sizes.keys_max),
            counters: KeyCacheCounters::default(),
            reachable: AtomicBool::new(false),
        })
    }

    /// Returns the record of the key with this digest: from the cache, or otherwise from the store in one round trip. `asker`
    /// returns the client's address, and is called only if the cache has no answer. Returns `None` if there is no such key.
    pub(crate) async fn find(
        &self,
        digest: &KeyDigest,
        now: Instant,
        asker: impl FnOnce() -> ClientAddress,
    ) -> Result<Option<Arc<KeyRecord>>, KeyLookupError> {
        Ok(self.find_owner(digest, now, asker).await?.and_then(into_key_record))
    }

    async fn find_owner(
        &self,
        digest: &KeyDigest,
        now: Instant,
        asker: impl FnOnce() -> ClientAddress,
    ) -> Result<Option<DigestOwner>, KeyLookupError> {
        match self.find_cached(digest, now) {
            Ok(known) => Ok(known),
            Err(cold) => self.fetch(digest, now, cold, Some(asker())).await,
        }
    }

    /// Returns the record of a key that was found before: from the cache, or otherwise from the store in one round trip. Never
    /// fails with [`KeyLookupError::Limited`].
    pub(crate) async fn find_known(
        &self,
        digest: &KeyDigest,
        now: Instant,
    ) -> Result<Option<Arc<KeyRecord>>, KeyLookupError> {
        let known = match self.find_cached(digest, now) {
            Ok(known) => known,
            Err(cold) => self.fetch(digest, now, cold, None).await?,
        };
        Ok(known.and_then(into_key_record))
    }

    /// Returns the store's current record of a key that was found before. Call this when the cached record turns out to be
    /// outdated. Never fails with [`KeyLookupError::Limited`].
    pub(crate) async fn refetch(
        &self,
        digest: &KeyDigest,
        now: Instant,
    ) -> Result<Option<Arc<KeyRecord>>, KeyLookupError> {
        if let Some(mut shard) = self.shard(digest) {
            shard.outdate(digest);
        }
        self.find_known(digest, now).await
    }

    /// Asks the store for the owner of a digest that is not in the cache. If `asker` is `None`, no limit applies.
    async fn fetch(
        &self,
        digest: &KeyDigest,
        now: Instant,
        cold: CacheMiss,
        asker: Option<ClientAddress>,
    ) -> Result<Option<DigestOwner>, KeyLookupError> {
        self.check(cold, asker, now)?;
        // One task calls the store; the others wait and then find the answer in the cache.
        let _flight = match pick(&self.flights, digest.as_bytes().first()) {
            Some(flight) => Some(flight.lock().await),
            None => None,
        };
        match self.find_cached(digest, now) {
            Ok(known) => return Ok(known),
            Err(cold) => self.check(cold, asker, now)?,
        }
        let known = self.read(digest, now).await?;
        if let (None, Some(asker)) = (&known, asker) {
            self.limits.count_failure(asker, now);
        }
        Ok(known)
    }

    async fn read(&self, digest: &KeyDigest, now: Instant) -> Result<Option<DigestOwner>, StoreError> {
        count(&self.counters.misses);
        let epoch = self.shard(digest).map(|shard| shard.epoch());
        let found = self.store.find(digest).await;
        self.record_reachability(&found);
        if let Err(StoreError::Unavailable(_)) = &found
            && let Some(known) = self.offline_owner(digest, now)
        {
            return Ok(Some(known));
        }
        let KeyLookup { record, token, version } = found?;
        let token = token.map(|grant| DigestOwner::Token(Arc::new(grant)));
        let known = record.map(|record| DigestOwner::Key(Arc::new(record))).or(token);
        if known.is_none() {
            count(&self.counters.unknown);
        }
        if let (Some(mut shard), Some(epoch)) = (self.shard(digest), epoch) {
            shard.insert(*digest, known.clone(), now, (version, epoch));
        }
        Ok(known)
    }

    /// Records that a key is used now. Uses are written to the store in batches.
    pub(crate) fn record_use(&self, id: &KeyId, now_unix: i64) {
        self.uses.record(id, now_unix);
    }

    /// Whether the store answered the last call.
    pub(crate) fn is_store_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Returns the name of each kind of event, with the number of such events since the start.
    pub(crate) fn events(&self) -> [(&'static str, u64); 8] {
        self.counters.events()
    }

    /// Follows the store's changes until `shutdown` becomes true, then writes the last uses.
    pub(crate) async fn run(self: Arc<Self>, shutdown: watch::Receiver<bool>) {
        let store = Arc::clone(&self.store);
        let background = store.run(shutdown.clone());
        tokio::select! {
            // A store without background work returns at once; the other tasks continue.
            () = async { background.await; std::future::pending::<()>().await } => {}
            () = self.follow() => {}
            // Only this task ends at the shutdown, so that no batch is lost on its way to the store.
            () = self.flush_until(shutdown) => {}
        }
    }

    async fn follow(&self) {
        let mut nudges = self.store.nudges();
        let mut known = None;
        loop {
            let changes = self.store.changes_since(known.unwrap_or(0)).await;
            self.record_reachability(&changes);
            let nudged = changes.is_ok() && self.store.nudges_all();
            if let Ok(changes) = changes {
                let version = changes.version;
                self.apply(known, changes);
                known = Some(version);
            }
            tokio::select! {
                () = tokio::time::sleep(self.settings.poll), if !nudged => {}
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
        let used = self.uses.take();
        if !used.is_empty()
            && let Err(error) = self.store.record_uses(&used).await
        {
            tracing::debug!(%error, "cannot write the keys' times of last use to the store; trying again later");
            for (id, at) in used {
                self.record_use(&id, at);
            }
        }
    }

    fn record_reachability<T>(&self, answer: &Result<T, StoreError>) {
        let reachable = !matches!(answer, Err(StoreError::Unavailable(_)));
        self.reachable.store(reachable, Ordering::Relaxed);
    }

    fn shard(&self, digest: &KeyDigest) -> Option<MutexGuard<'_, KeyCacheShard>> {
        pick(&self.shards, digest.as_bytes().last()).map(Mutex::lock)
    }

    /// Returns the cached answer for a digest, and counts the event.
    fn find_cached(&self, digest: &KeyDigest, now: Instant) -> Result<Option<DigestOwner>, CacheMiss> {
        let mut shard = self.shard(digest).ok_or(CacheMiss::Unseen)?;
        let found = shard.lookup(digest, now, &self.lifetimes)?;
        count(match found {
            Some(_) => &self.counters.hits,
            None => &self.counters.negative_hits,
        });
        Ok(found)
    }

    /// Checks that the store may be called for a digest. A digest that recently belonged to a key may always be looked up.
    fn check(&self, cold: CacheMiss, asker: Option<ClientAddress>, now: Instant) -> Result<(), KeyLookupError> {
        let (CacheMiss::Unseen, Some(asker)) = (cold, asker) else {
            return Ok(());
        };
        self.limits.check(asker, now).map_err(|reached| {
            let (counter, wait) = match reached {
                ReachedLimit::Address(wait) => (&self.counters.limited_address, wait),
                ReachedLimit::All(wait) => (&self.counters.limited_all, wait),
            };
            count(counter);
            KeyLookupError::Limited { wait }
        })
    }

    /// Applies the feed's changes after the version `known`.
    fn apply(&self, known: Option<u64>, changes: Changes) {
        let Changes { version, digests } = changes;
        let digests = digests.filter(|_| known.is_some());
        if known == Some(version) && digests.is_some() {
            return;
        }
        if digests.is_none() {
            count(&self.counters.flushes);
        }
        for (number, shard) in self.shards.iter().enumerate() {
            let is_here = |digest: &&KeyDigest| shard_index(&self.shards, digest.as_bytes().last()) == Some(number);
            let mut shard = shard.lock();
            match &digests {
                Some(digests) => shard.mark_changed(digests.iter().filter(is_here), version),
                None => shard.flush(version),
            }
        }
    }
}

/// Returns the record of a key; `None` if the digest belongs to a token.
fn into_key_record(known: DigestOwner) -> Option<Arc<KeyRecord>> {
    match known {
        DigestOwner::Key(record) => Some(record),
        DigestOwner::Token(_) => None,
    }
}

impl KeyCache {
    /// Returns the key or token that the cache has for a digest, for use while the store is unreachable. Returns `None` if it was
    /// read from the store too long ago.
    fn offline_owner(&self, digest: &KeyDigest, now: Instant) -> Option<DigestOwner> {
        let shard = self.shard(digest)?;
        let known = shard.last_read(digest, now, self.settings.offline_lifetime)?;
        count(&self.counters.offline_hits);
        Some(known)
    }

    /// Whether any key would remain valid if the store became unreachable now.
    pub(crate) fn has_offline_keys(&self, now: Instant) -> bool {
        let lifetime = self.settings.offline_lifetime;
        self.shards
            .iter()
            .any(|shard| shard.lock().has_recent_read(now, lifetime))
    }
}

/// Returns one of several locks, chosen by a byte that is random in every digest and id, so that requests do not contend for one.
fn pick<'a, T>(all: &'a [T], byte: Option<&u8>) -> Option<&'a T> {
    shard_index(all, byte).and_then(|slot| all.get(slot))
}

fn shard_index<T>(all: &[T], byte: Option<&u8>) -> Option<usize> {
    let byte = byte.map_or(0, |byte| usize::from(*byte));
    byte.checked_rem(all.len())
}

/// The last use of each key, in seconds since the Unix epoch. Uses are collected, and written to the store in one call.
struct LastUses {
    shards: Vec<Mutex<QuickMap<KeyId, i64>>>,
    /// Maximum number of keys per shard. Uses of further keys are not recorded.
    shard_max: usize,
}

impl LastUses {
    fn new(shards: usize, shard_max: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            shard_max,
        }
    }

    fn record(&self, id: &KeyId, now_unix: i64) {
        let Some(shard) = pick(&self.shards, id.as_str().as_bytes().last()) else {
            return;
        };
        let mut used = shard.lock();
        if let Some(at) = used.get_mut(id) {
            *at = now_unix.max(*at);
        } else if used.len() < self.shard_max {
            used.insert(id.clone(), now_unix);
        }
    }

    /// Removes and returns all uses, so that they can be written.
    fn take(&self) -> Vec<(KeyId, i64)> {
        let shards = self.shards.iter();
        shards.flat_map(|shard| std::mem::take(&mut *shard.lock())).collect()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
