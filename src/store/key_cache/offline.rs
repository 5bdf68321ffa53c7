//! Which cached keys remain valid while the store is unreachable.

use std::{sync::Arc, time::Instant};

use super::{KeyCache, count};
use crate::domain::keys::{key::KeyRecord, secret::KeyDigest};

impl KeyCache {
    /// The last known record of a recently valid key.
    pub(super) fn offline(&self, digest: &KeyDigest, now: Instant) -> Option<Arc<KeyRecord>> {
        let shard = self.shard(digest)?;
        let record = shard.last_read(digest, now, self.settings.offline_lifetime)?;
        count(&self.counters.offline_hits);
        Some(record)
    }

    /// Whether any key would remain valid if the store became unreachable now.
    pub(crate) fn has_offline_keys(&self, now: Instant) -> bool {
        let lifetime = self.settings.offline_lifetime;
        self.shards.iter().any(|shard| shard.lock().has_read(now, lifetime))
    }
}
