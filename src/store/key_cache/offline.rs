//! Which cached keys remain valid while the store is unreachable.

use std::time::Instant;

use super::{KeyCache, counters::count, shard::DigestOwner};
use crate::domain::keys::secret::KeyDigest;

impl KeyCache {
    /// The cached key or token of a recently valid digest, for use while the store is unreachable.
    pub(super) fn offline_owner(&self, digest: &KeyDigest, now: Instant) -> Option<DigestOwner> {
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
