//! One shard of the cache, under one lock: existing keys and access tokens, and in a second table digests that belong to
//! neither. Made-up keys fill only the second table, so they never displace a real key.
//!
//! A record read at version v is kept only if no later version has been processed. The rule holds for each digest
//! because it holds for its shard: a change and its version take effect here in one step.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;

use crate::domain::{
    keys::{key::KeyRecord, secret::KeyDigest},
    sign_in::access_token::AccessGrant,
};

/// The owner of a digest, as the store knows it.
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
    /// `None` if the key was changed since, or the store was replaced. Least recently used last.
    keys: LruCache<KeyDigest, Option<CachedRead>>,
    /// Digests that belong to no key, with the time of that answer of the store.
    unknown: LruCache<KeyDigest, Instant>,
    sizes: ShardSizes,
}

/// Counts the flushes. Versions from before a flush are not comparable, because the store may have gone back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlushEpoch(u64);

/// The maximum number of entries of the two tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardSizes {
    pub(super) keys_max: usize,
    pub(super) unknown_max: usize,
}

/// How long entries of the two tables are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryLifetimes {
    pub(super) key: Duration,
    pub(super) unknown: Duration,
}

/// A key's record, or a token's grant, as it was read.
struct CachedRead {
    known: DigestOwner,
    at: Instant,
}

/// Why the cache has no answer for a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheMiss {
    /// It recently belonged to a key, which must be read again.
    Outdated,
    /// Nothing is known of it; any made-up text looks like this.
    Unseen,
}

impl KeyCacheShard {
    pub(super) fn new(sizes: ShardSizes) -> Self {
        Self {
            version: None,
            epoch: FlushEpoch(0),
            // They grow with their content, instead of reserving their limit.
            keys: LruCache::unbounded(),
            unknown: LruCache::unbounded(),
            sizes,
        }
    }

    /// The cached answer for a digest, within the `lifetimes`: its owner, or `None` if it has none.
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

    /// The owner of an outdated digest, if it was read within `lifetime`.
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

    /// Caches what was read at `version`, from the store of `epoch`.
    pub(super) fn insert(
        &mut self,
        digest: KeyDigest,
        known: Option<DigestOwner>,
        at: Instant,
        read: (u64, FlushEpoch),
    ) {
        let (version, epoch) = read;
        // Without a version the feed is not followed yet, and nothing would remove a wrong entry.
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

    /// Marks the keys of these digests as changed, up to `version`. Unknown digests are those of new keys, and are
    /// remembered as such while there is room.
    pub(super) fn mark_changed<'a>(&mut self, digests: impl Iterator<Item = &'a KeyDigest>, version: u64) {
        for digest in digests {
            self.unknown.pop(digest);
            if self.keys.contains(digest) || self.keys.len() < self.sizes.keys_max {
                self.keys.put(*digest, None);
            }
        }
        self.version = Some(version);
    }

    /// Drops all records, because anything may have changed. Which digests belong to keys stays known.
    pub(super) fn flush(&mut self, version: u64) {
        for (_, read) in &mut self.keys {
            *read = None;
        }
        self.unknown.clear();
        self.epoch.0 += 1;
        self.version = Some(version);
    }

    /// The number of entries in the two tables.
    #[cfg(test)]
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.keys.len(), self.unknown.len())
    }
}

/// Adds an entry in front, and drops the least recently used one if there are too many.
fn put<V>(table: &mut LruCache<KeyDigest, V>, digest: KeyDigest, value: V, max: usize) {
    table.put(digest, value);
    if table.len() > max {
        table.pop_lru();
    }
}
