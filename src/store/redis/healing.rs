//! Repeats keys to Redis that it may have lost.

use async_trait::async_trait;

use super::{ADMIN_BUDGET, CONFLICTS_MAX, RedisStore, contention_error, link::CallPolicy};
use crate::domain::keys::key::{KeyId, KeyRecord};
use crate::domain::keys::secret::KeyDigest;
use crate::store::{KeyHealer, StoreError};

#[async_trait]
impl KeyHealer for RedisStore {
    async fn heal(&self, digest: &KeyDigest, told: &KeyRecord) -> Result<(), StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let is_done = match self.read(&told.id).await? {
                None => {
                    let call = self.creation_call(&self.scripts.heal, digest, told)?;
                    !self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict()
                }
                Some((text, before)) => match before.merged_with(digest, told) {
                    None => true,
                    Some(after) => self.replace(&text, &before, &after).await?,
                },
            };
            if is_done {
                return Ok(());
            }
        }
        Err(contention_error(&told.id))
    }

    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let is_done = match self.read(id).await? {
                Some((_, view)) if view.record.revision > revision => true,
                Some((text, _)) => self.remove_record(id, &text).await?,
                None => {
                    let mut call = self.prepare(&self.scripts.gone);
                    call.key(&self.gone_key).arg(id.as_str());
                    !self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict()
                }
            };
            if is_done {
                return Ok(());
            }
        }
        Err(contention_error(id))
    }
}
