//! One shard of the cache, under one lock: existing keys, and in a second table digests that belong to no key. Made-up
//! keys fill only the second table, so they never displace a real key.
//!
//! A record read at version v is kept only if no later version has been processed. The rule holds for each digest
//! because it holds for its shard: a change and its version take effect here in one step.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lru::LruCache;

use crate::domain::{key::KeyRecord, secret::KeyDigest};

/// One shard of the key cache.
pub(super) struct Shard {
    /// The version up to which the feed has been followed; none before it was read first.
    version: Option<u64>,
    epoch: Epoch,
    /// Who was used last in front.
    keys: LruCache<KeyDigest, Option<Read>>,
    /// When the store said that there is no such key.
    unknown: LruCache<KeyDigest, Instant>,
    sizes: Sizes,
}

/// Counts the flushes. After one, versions from before it say nothing: the store may have gone back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u64);

/// The most entries of the two tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) keys_max: usize,
    pub(super) unknown_max: usize,
}

/// How long entries of the two tables are believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) key: Duration,
    pub(super) unknown: Duration,
}

/// A key's record as it was read. A key without one was changed since, or its store was replaced.
struct Read {
    record: Arc<KeyRecord>,
    at: Instant,
}

/// Why nothing at hand answers for a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cold {
    /// It stood for a key not long ago, which has to be read again.
    Outdated,
    /// Nothing is known of it: any text that somebody made up looks like this.
    Unseen,
}

impl Shard {
    pub(super) fn new(sizes: Sizes) -> Self {
        Self {
            version: None,
            epoch: Epoch(0),
            // They grow with what there is, not to the limit at once.
            keys: LruCache::unbounded(),
            unknown: LruCache::unbounded(),
            sizes,
        }
    }

    /// What is at hand of a digest, believed for as long as `lifetimes` say: a key's record, or that there is none.
    pub(super) fn look(
        &mut self,
        digest: &KeyDigest,
        now: Instant,
        lifetimes: &Lifetimes,
    ) -> Result<Option<Arc<KeyRecord>>, Cold> {
        let lasts = |at: Instant, lifetime| now.saturating_duration_since(at) <= lifetime;
        match self.keys.get(digest) {
            Some(Some(read)) if lasts(read.at, lifetimes.key) => return Ok(Some(Arc::clone(&read.record))),
            Some(_) => return Err(Cold::Outdated),
            None => {}
        }
        match self.unknown.get(digest) {
            Some(at) if lasts(*at, lifetimes.unknown) => Ok(None),
            _ => Err(Cold::Unseen),
        }
    }

    /// The record of a key that is not believed any more, if it is not older than `lifetime`.
    pub(super) fn last_read(&self, digest: &KeyDigest, now: Instant, lifetime: Duration) -> Option<Arc<KeyRecord>> {
        let read = self.keys.peek(digest)?.as_ref()?;
        (now.saturating_duration_since(read.at) <= lifetime).then(|| Arc::clone(&read.record))
    }

    /// Whether the record of any key is not older than `lifetime`.
    pub(super) fn has_read(&self, now: Instant, lifetime: Duration) -> bool {
        let mut reads = self.keys.iter().filter_map(|(_, read)| read.as_ref());
        reads.any(|read| now.saturating_duration_since(read.at) <= lifetime)
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Keeps what was read at `version`, from a store that was the one of `epoch`.
    pub(super) fn keep(&mut self, digest: KeyDigest, record: Option<Arc<KeyRecord>>, at: Instant, read: (u64, Epoch)) {
        let (version, epoch) = read;
        // Without a version the feed is not followed yet, and nothing would end a wrong entry.
        let late = self.version.is_none_or(|processed| version < processed);
        if late || epoch != self.epoch {
            return;
        }
        match record {
            Some(record) => {
                self.unknown.pop(&digest);
                put(&mut self.keys, digest, Some(Read { record, at }), self.sizes.keys_max);
            }
            None => {
                self.keys.pop(&digest);
                put(&mut self.unknown, digest, at, self.sizes.unknown_max);
            }
        }
    }

    /// What was read of a key holds no more.
    pub(super) fn outdate(&mut self, digest: &KeyDigest) {
        if let Some(read) = self.keys.get_mut(digest) {
            *read = None;
        }
    }

    /// Takes in that the keys of these digests have changed, up to `version`. Digests that are new here are those of keys that
    /// were created, so they are remembered as such while there is room.
    pub(super) fn change<'a>(&mut self, digests: impl Iterator<Item = &'a KeyDigest>, version: u64) {
        for digest in digests {
            self.unknown.pop(digest);
            if self.keys.contains(digest) || self.keys.len() < self.sizes.keys_max {
                self.keys.put(*digest, None);
            }
        }
        self.version = Some(version);
    }

    /// Takes in that anything may have changed. Which digests stand for keys is remembered, nothing of the keys.
    pub(super) fn flush(&mut self, version: u64) {
        for (_, read) in &mut self.keys {
            *read = None;
        }
        self.unknown.clear();
        self.epoch.0 += 1;
        self.version = Some(version);
    }

    /// How many entries the two tables have.
    #[cfg(test)]
    pub(super) fn lengths(&self) -> (usize, usize) {
        (self.keys.len(), self.unknown.len())
    }
}

/// Puts an entry in front; when there are too many, that goes which was not used for the longest time.
fn put<V>(table: &mut LruCache<KeyDigest, V>, digest: KeyDigest, value: V, max: usize) {
    table.put(digest, value);
    if table.len() > max {
        table.pop_lru();
    }
}
