//! One shard of the key cache, under one lock. One table has existing keys and access tokens, and a second one has digests that
//! belong to neither. Made-up keys fill only the second table, so they never displace a real key.
//!
//! A record that was read at a version of the store is cached only if the shard has not processed a later version. The shard
//! applies a change and stores the change's version in one step. So it never caches a record that is older than a processed
//! change.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lru::LruCache;

use crate::{
    domain::{
        keys::{KeyRecord, secret::KeyDigest},
        sign_in::device_request::AccessGrant,
    },
    edges::limiter::{ClientAddress, Limiter, RateAllowance},
    store::key_cache::{KeyCache, KeyLookupError},
};

/// The owner of a digest, as the store reported it.
#[derive(Clone, Debug)]
pub(super) enum DigestOwner {
    /// A key.
    Key(Arc<KeyRecord>),
    /// An access token.
    Token(Arc<AccessGrant>),
}

/// One shard of the key cache.
pub(super) struct KeyCacheShard {
    /// The version up to which the feed was processed; `None` before its first read.
    version: Option<u64>,
    epoch: FlushEpoch,
    /// Existing keys and tokens, the least recently used last. The value is `None` if the current record is not known, because
    /// the key has changed or the shard was flushed.
    keys: LruCache<KeyDigest, Option<CachedRead>>,
    /// Digests that belong to no key, each with the time at which the store said so.
    unknown: LruCache<KeyDigest, Instant>,
    sizes: ShardSizes,
}

/// The number of flushes so far. Versions from before and after a flush cannot be compared, because the store may have lost
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlushEpoch(u64);

/// Maximum numbers of entries of the two tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardSizes {
    pub(super) keys_max: usize,
    pub(super) unknown_max: usize,
}

/// The maximum ages at which entries of the two tables are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryLifetimes {
    pub(super) key: Duration,
    pub(super) unknown: Duration,
}

/// A key's record or a token's grant, with the time at which it was read.
struct CachedRead {
    known: DigestOwner,
    at: Instant,
}

/// The reason why the cache has no answer for a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheMiss {
    /// The digest recently belonged to a key, which must be read again.
    Outdated,
    /// The digest is not in the cache. This is the usual case for a made-up key.
    Unseen,
}

impl KeyCacheShard {
    pub(super) fn new(sizes: ShardSizes) -> Self {
        Self {
            version: None,
            epoch: FlushEpoch(0),
            // The tables grow with their content, instead of reserving their maximum size.
            keys: LruCache::unbounded(),
            unknown: LruCache::unbounded(),
            sizes,
        }
    }

    /// Returns the cached answer for a digest, if it is within `lifetimes`: the digest's owner, or `None` if it has none.
    pub(super) fn lookup(
        &mut self,
        digest: &KeyDigest,
        now: Instant,
        lifetimes: &EntryLifetimes,
    ) -> Result<Option<DigestOwner>, CacheMiss> {
        let lasts = |at: Instant, lifetime| now.saturating_duration_since(at) <= lifetime;
        match self.keys.get(digest) {
            Some(Some(read)) if lasts(read.at, lifetimes.key) => return Ok(Some(read.known.clone())),
            Some(_) => return Err(CacheMiss::Outdated),
            None => {}
        }
        match self.unknown.get(digest) {
            Some(at) if lasts(*at, lifetimes.unknown) => Ok(None),
            _ => Err(CacheMiss::Unseen),
        }
    }

    /// Returns the owner of a digest as it was last read from the store, if that read is not older than `lifetime`.
    pub(super) fn last_read(&self, digest: &KeyDigest, now: Instant, lifetime: Duration) -> Option<DigestOwner> {
        let read = self.keys.peek(digest)?.as_ref()?;
        (now.saturating_duration_since(read.at) <= lifetime).then(|| read.known.clone())
    }

    /// Whether any key's record was read within `lifetime`.
    pub(super) fn has_recent_read(&self, now: Instant, lifetime: Duration) -> bool {
        let mut reads = self.keys.iter().filter_map(|(_, read)| read.as_ref());
        reads.any(|read| now.saturating_duration_since(read.at) <= lifetime)
    }

    pub(super) fn epoch(&self) -> FlushEpoch {
        self.epoch
    }

    /// Caches the owner of a digest, as it was read at a version of the store. Ignores the owner if that version is older than
    /// the processed version, or if the shard was flushed after the read began.
    pub(super) fn insert(
        &mut self,
        digest: KeyDigest,
        known: Option<DigestOwner>,
        at: Instant,
        read: (u64, FlushEpoch),
    ) {
        let (version, epoch) = read;
        // Before its first read, the feed is not followed yet, and nothing would remove a wrong entry.
        let late = self.version.is_none_or(|processed| version < processed);
        if late || epoch != self.epoch {
            return;
        }
        match known {
            Some(known) => {
                self.unknown.pop(&digest);
                put(
                    &mut self.keys,
                    digest,
                    Some(CachedRead { known, at }),
                    self.sizes.keys_max,
                );
            }
            None => {
                self.keys.pop(&digest);
                put(&mut self.unknown, digest, at, self.sizes.unknown_max);
            }
        }
    }

    /// Marks a key's record as outdated.
    pub(super) fn outdate(&mut self, digest: &KeyDigest) {
        if let Some(read) = self.keys.get_mut(digest) {
            *read = None;
        }
    }

    /// Marks the keys with these digests as changed, and records that the feed has been processed up to `version`. Digests that
    /// are not in the cache belong to new keys, and are added while there is room.
    pub(super) fn mark_changed<'a>(&mut self, digests: impl Iterator<Item = &'a KeyDigest>, version: u64) {
        for digest in digests {
            self.unknown.pop(digest);
            if self.keys.contains(digest) || self.keys.len() < self.sizes.keys_max {
                self.keys.put(*digest, None);
            }
        }
        self.version = Some(version);
    }

    /// Marks all records as outdated, because anything may have changed. The shard still knows that the digests belong to keys.
    pub(super) fn flush(&mut self, version: u64) {
        for (_, read) in &mut self.keys {
            *read = None;
        }
        self.unknown.clear();
        self.epoch.0 += 1;
        self.version = Some(version);
    }

    /// Returns the numbers of entries in the two tables.
    #[cfg(test)]
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.keys.len(), self.unknown.len())
    }
}

/// Adds an entry in front, and drops the least recently used entry if there are too many.
fn put<V>(table: &mut LruCache<KeyDigest, V>, digest: KeyDigest, value: V, max: usize) {
    table.put(digest, value);
    if table.len() > max {
        table.pop_lru();
    }
}

/// The caller to which a presented digest belongs.
#[derive(Clone, Debug)]
pub(crate) enum PresentedCaller {
    /// The key with this digest, which was presented directly or through an access token.
    Key(KeyDigest, Arc<KeyRecord>),
    /// The presented access token has expired.
    TokenExpired,
}

impl KeyCache {
    /// Like [`KeyCache::find`], for a digest that may also be that of an access token. For a token that has not expired at
    /// `now_unix` (in seconds since the Unix epoch), returns the key for which the token was issued. Returns `None` if the digest
    /// is unknown, or if the secret of that key has changed since the token was issued.
    pub(crate) async fn lookup(
        &self,
        digest: &KeyDigest,
        (now, now_unix): (Instant, i64),
        asker: impl Fn() -> ClientAddress,
    ) -> Result<Option<PresentedCaller>, KeyLookupError> {
        let grant = match self.find_owner(digest, now, &asker).await? {
            None => return Ok(None),
            Some(DigestOwner::Key(record)) => return Ok(Some(PresentedCaller::Key(*digest, record))),
            Some(DigestOwner::Token(grant)) => grant,
        };
        let Some(key) = grant.key_digest_at(now_unix) else {
            return Ok(Some(PresentedCaller::TokenExpired));
        };
        let record = self.find(&key, now, asker).await?;
        Ok(record.map(|record| PresentedCaller::Key(key, record)))
    }
}

/// Numbers of events since the start of the process.
#[derive(Debug, Default)]
pub(super) struct KeyCacheCounters {
    pub(super) hits: AtomicU64,
    pub(super) negative_hits: AtomicU64,
    /// The number of lookups in the store.
    pub(super) misses: AtomicU64,
    pub(super) offline_hits: AtomicU64,
    pub(super) flushes: AtomicU64,
    /// The number of lookups in the store that found nothing.
    pub(super) unknown: AtomicU64,
    /// The number of lookups that were refused because too many earlier lookups had found no key. The earlier lookups came from
    /// the same address (`limited_address`), or from all addresses together (`limited_all`).
    pub(super) limited_address: AtomicU64,
    pub(super) limited_all: AtomicU64,
}

impl KeyCacheCounters {
    /// Returns the name of each kind of event, with the number of such events.
    pub(super) fn events(&self) -> [(&'static str, u64); 8] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("hit", read(&self.hits)),
            ("negative_hit", read(&self.negative_hits)),
            ("miss", read(&self.misses)),
            ("offline_hit", read(&self.offline_hits)),
            ("flush", read(&self.flushes)),
            ("unknown", read(&self.unknown)),
            ("limited_address", read(&self.limited_address)),
            ("limited_all", read(&self.limited_all)),
        ]
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The limits that bound the cost of made-up keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownKeySettings {
    /// Maximum number of digests that are stored as unknown.
    pub entries_max: usize,
    /// The rate of failing lookups that is allowed to one client.
    pub per_address: RateAllowance,
    /// The rate of failing lookups that is allowed to all clients together; `clients_max` is not used.
    pub in_all: RateAllowance,
}

/// The limits on lookups of unknown keys, per client address and for the whole node. Only failing lookups are counted, so that
/// many real keys can be used from one address. Beyond the limit, unknown digests are not looked up until enough time has passed.
#[derive(Debug)]
pub(super) struct UnknownKeyLimits {
    per_address: Limiter<ClientAddress>,
    in_all: Limiter<()>,
}

/// The limit that is reached, with the time until it allows a lookup again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReachedLimit {
    Address(Duration),
    All(Duration),
}

impl UnknownKeyLimits {
    /// Creates limits without any lookup so far. `start` is a time before the first use.
    pub(super) fn new(settings: &UnknownKeySettings, start: Instant) -> Self {
        let in_all = RateAllowance {
            clients_max: 1,
            ..settings.in_all
        };
        Self {
            per_address: Limiter::new(settings.per_address, start),
            in_all: Limiter::new(in_all, start),
        }
    }

    /// Checks that the store may be called for an unknown digest.
    pub(super) fn check(&self, asker: ClientAddress, now: Instant) -> Result<(), ReachedLimit> {
        self.per_address.check(asker, now).map_err(ReachedLimit::Address)?;
        self.in_all.check((), now).map_err(ReachedLimit::All)
    }

    /// Counts a lookup that found no key.
    pub(super) fn count_failure(&self, asker: ClientAddress, now: Instant) {
        self.per_address.count(asker, now);
        self.in_all.count((), now);
    }
}
