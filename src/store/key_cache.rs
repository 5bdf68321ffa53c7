//! A bounded cache of key records in front of the store, invalidated by the store's change feed.
//!
//! A push from the store only says that the feed should be read now. A poll over the data connection reads it anyway,
//! so a revoked key is refused within the poll's period even if the push connection is cut. A record loaded at version
//! v is kept only if no later version has been processed, so a record read before a revocation cannot be cached after
//! it.
//!
//! The entries are divided into shards, each under one lock together with the version it has processed. Existing keys
//! and unknown digests are kept apart (`shard`), and lookups of unknown keys are rate-limited (`limits`).

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

pub(crate) use limits::UnknownSettings;

use crate::{
    domain::keys::{
        key::{KeyId, KeyRecord},
        secret::KeyDigest,
    },
    edges::{clock, limiter::client::Client},
    store::{
        Changes, KeyStore, Lookup, StoreError,
        key_cache::{
            counters::{Counters, count},
            limits::{Limits, Reached},
            shard::{Cold, Known, Lifetimes, Shard, Sizes},
            shards::{pick, slot},
            uses::Uses,
        },
    },
};

mod counters;
mod limits;
mod offline;
mod shard;
mod shards;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;
mod uses;

/// The most shards of the entries and last uses, so that requests do not contend for one lock.
const SHARDS_MAX: usize = 16;
/// Concurrent lookups of one cold key wait for each other on this many locks. This also limits the concurrent lookups,
/// and so by how many the failing ones may exceed their limits.
const FLIGHT_LOCKS: usize = 64;

/// The cache's limits and lifetimes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCacheSettings {
    /// The longest use of an entry without asking the store.
    pub lifetime: Duration,
    /// The longest use of an entry while the store is unreachable, so that recently used keys remain valid.
    pub offline_lifetime: Duration,
    /// The longest use of an entry for an unknown key.
    pub negative_lifetime: Duration,
    /// The most keys. A full shard drops its least recently used key.
    pub entries_max: usize,
    /// Limits for digests that belong to no key.
    pub unknown: UnknownSettings,
    /// How often the feed is read without a push.
    pub poll: Duration,
    /// How often last uses are written to the store.
    pub flush_used: Duration,
}

/// Why it is unknown whether the key exists.
#[derive(Debug, Error)]
pub(crate) enum KeyLookupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store was not asked, because the client, or all together, asked for too many keys that do not exist.
    #[error("too many unknown keys were asked for, the next lookup is in {} ms", .wait.as_millis())]
    Limited {
        /// How long until a lookup is allowed again.
        wait: Duration,
    },
}

/// The bounded cache of key records in front of the store.
pub(crate) struct KeyCache {
    store: Arc<dyn KeyStore>,
    settings: KeyCacheSettings,
    lifetimes: Lifetimes,
    shards: Vec<Mutex<Shard>>,
    limits: Limits,
    flights: Vec<AsyncMutex<()>>,
    uses: Uses,
    counters: Counters,
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
    /// An empty cache. [`KeyCache::run`] must run to keep it up to date.
    pub(crate) fn new(store: Arc<dyn KeyStore>, settings: KeyCacheSettings) -> Arc<Self> {
        let shards = settings.entries_max.clamp(1, SHARDS_MAX);
        let sizes = Sizes {
            keys_max: settings.entries_max / shards,
            unknown_max: settings.unknown.entries_max / shards,
        };
        Arc::new(Self {
            store,
            settings,
            lifetimes: Lifetimes {
                key: settings.lifetime,
                unknown: settings.negative_lifetime,
            },
            shards: (0..shards).map(|_| Mutex::new(Shard::new(sizes))).collect(),
            limits: Limits::new(&settings.unknown, clock::instant()),
            flights: (0..FLIGHT_LOCKS).map(|_| AsyncMutex::default()).collect(),
            uses: Uses::new(shards, sizes.keys_max),
            counters: Counters::default(),
            reachable: AtomicBool::new(false),
        })
    }

    /// The record for a digest: from the cache, or else from the store in one round trip. `asker` returns the client,
    /// and is called only if the cache has no answer.
    pub(crate) async fn find(
        &self,
        digest: &KeyDigest,
        now: Instant,
        asker: impl FnOnce() -> Client,
    ) -> Result<Option<Arc<KeyRecord>>, KeyLookupError> {
        Ok(self.known(digest, now, asker).await?.and_then(key))
    }

    async fn known(
        &self,
        digest: &KeyDigest,
        now: Instant,
        asker: impl FnOnce() -> Client,
    ) -> Result<Option<Known>, KeyLookupError> {
        match self.at_hand(digest, now) {
            Ok(known) => Ok(known),
            Err(cold) => self.fetch(digest, now, cold, Some(asker())).await,
        }
    }

    /// The record of a key that was found before: from the cache, or else from the store in one round trip. Never returns
    /// [`KeyLookupError::Limited`].
    pub(crate) async fn find_known(
        &self,
        digest: &KeyDigest,
        now: Instant,
    ) -> Result<Option<Arc<KeyRecord>>, KeyLookupError> {
        let known = match self.at_hand(digest, now) {
            Ok(known) => known,
            Err(cold) => self.fetch(digest, now, cold, None).await?,
        };
        Ok(known.and_then(key))
    }

    /// The store's current record of a key that was found before, when the cached one turned out to be outdated. Never
    /// returns [`KeyLookupError::Limited`].
    pub(crate) async fn find_anew(
        &self,
        digest: &KeyDigest,
        now: Instant,
    ) -> Result<Option<Arc<KeyRecord>>, KeyLookupError> {
        if let Some(mut shard) = self.shard(digest) {
            shard.outdate(digest);
        }
        self.find_known(digest, now).await
    }

    /// Asks the store for a `cold` digest. Without an `asker` no limit applies.
    async fn fetch(
        &self,
        digest: &KeyDigest,
        now: Instant,
        cold: Cold,
        asker: Option<Client>,
    ) -> Result<Option<Known>, KeyLookupError> {
        self.check(cold, asker, now)?;
        // One task asks; the others wait and find the answer in the cache.
        let _flight = match pick(&self.flights, digest.as_bytes().first()) {
            Some(flight) => Some(flight.lock().await),
            None => None,
        };
        match self.at_hand(digest, now) {
            Ok(known) => return Ok(known),
            Err(cold) => self.check(cold, asker, now)?,
        }
        let known = self.read(digest, now).await?;
        if let (None, Some(asker)) = (&known, asker) {
            self.limits.found_nothing(asker, now);
        }
        Ok(known)
    }

    async fn read(&self, digest: &KeyDigest, now: Instant) -> Result<Option<Known>, StoreError> {
        count(&self.counters.misses);
        let epoch = self.shard(digest).map(|shard| shard.epoch());
        let found = self.store.find(digest).await;
        self.note(&found);
        if let Err(StoreError::Unavailable(_)) = &found
            && let Some(known) = self.offline(digest, now)
        {
            return Ok(Some(known));
        }
        let Lookup { record, token, version } = found?;
        let token = token.map(|grant| Known::Token(Arc::new(grant)));
        let known = record.map(|record| Known::Key(Arc::new(record))).or(token);
        if known.is_none() {
            count(&self.counters.unknown);
        }
        if let (Some(mut shard), Some(epoch)) = (self.shard(digest), epoch) {
            shard.keep(*digest, known.clone(), now, (version, epoch));
        }
        Ok(known)
    }

    /// Notes that a key is used now. Written to the store in batches.
    pub(crate) fn touch(&self, id: &KeyId, now_unix: i64) {
        self.uses.note(id, now_unix);
    }

    /// Whether the last call to the store was answered.
    pub(crate) fn store_is_reachable(&self) -> bool {
        self.reachable.load(Ordering::Relaxed)
    }

    /// Events and how often each has happened since the start.
    pub(crate) fn events(&self) -> [(&'static str, u64); 8] {
        self.counters.events()
    }

    /// Follows the store until `shutdown` turns true, then writes the last uses.
    pub(crate) async fn run(self: Arc<Self>, shutdown: watch::Receiver<bool>) {
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
        pick(&self.shards, digest.as_bytes().last()).map(Mutex::lock)
    }

    /// The cached answer for a digest, counted as an event.
    fn at_hand(&self, digest: &KeyDigest, now: Instant) -> Result<Option<Known>, Cold> {
        let mut shard = self.shard(digest).ok_or(Cold::Unseen)?;
        let found = shard.look(digest, now, &self.lifetimes)?;
        count(match found {
            Some(_) => &self.counters.hits,
            None => &self.counters.negative_hits,
        });
        Ok(found)
    }

    /// Whether the store may be asked. A digest that recently belonged to a key may always be looked up.
    fn check(&self, cold: Cold, asker: Option<Client>, now: Instant) -> Result<(), KeyLookupError> {
        let (Cold::Unseen, Some(asker)) = (cold, asker) else {
            return Ok(());
        };
        self.limits.check(asker, now).map_err(|reached| {
            let (counter, wait) = match reached {
                Reached::Address(wait) => (&self.counters.limited_address, wait),
                Reached::All(wait) => (&self.counters.limited_all, wait),
            };
            count(counter);
            KeyLookupError::Limited { wait }
        })
    }

    /// Applies the changes after the version `known`.
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
            let is_here = |digest: &&KeyDigest| slot(&self.shards, digest.as_bytes().last()) == Some(number);
            let mut shard = shard.lock();
            match &digests {
                Some(digests) => shard.change(digests.iter().filter(is_here), version),
                None => shard.flush(version),
            }
        }
    }
}

/// What is known as a key; a token is none.
fn key(known: Known) -> Option<Arc<KeyRecord>> {
    match known {
        Known::Key(record) => Some(record),
        Known::Token(_) => None,
    }
}
