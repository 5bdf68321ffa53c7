//! Collects the last uses of keys, to be written to the store in one call.

use parking_lot::Mutex;

use crate::{
    domain::{keys::key::KeyId, quick_map::QuickMap},
    store::key_cache::shards::pick,
};

/// The last use of each key, in seconds since the Unix epoch, collected to be written to the store in one call.
pub(super) struct LastUses {
    shards: Vec<Mutex<QuickMap<KeyId, i64>>>,
    /// The maximum number of keys per shard. Uses of further keys are not recorded.
    shard_max: usize,
}

impl LastUses {
    pub(super) fn new(shards: usize, shard_max: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            shard_max,
        }
    }

    pub(super) fn record(&self, id: &KeyId, now_unix: i64) {
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

    /// Removes and returns all uses, to write them.
    pub(super) fn take(&self) -> Vec<(KeyId, i64)> {
        let shards = self.shards.iter();
        shards.flat_map(|shard| std::mem::take(&mut *shard.lock())).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
