//! Keys that Redis may have forgotten are told to it again.

use async_trait::async_trait;

use super::{ADMIN_BUDGET, CONFLICTS_MAX, RedisStore, contended, link::Effort};
use crate::domain::keys::key::{KeyId, KeyRecord};
use crate::domain::keys::secret::KeyDigest;
use crate::store::{KeyHealer, StoreError};

#[async_trait]
impl KeyHealer for RedisStore {
    async fn heal(&self, digest: &KeyDigest, told: &KeyRecord) -> Result<(), StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let is_done = match self.read(&told.id).await? {
                None => {
                    let call = self.adding(&self.scripts.heal, digest, told)?;
                    !self.call(&call, Effort::Write(ADMIN_BUDGET)).await?.is_conflict()
                }
                Some((text, before)) => match before.healed(digest, told) {
                    None => true,
                    Some(after) => self.replace(&text, &before, &after).await?,
                },
            };
            if is_done {
                return Ok(());
            }
        }
        Err(contended(&told.id))
    }

    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let is_done = match self.read(id).await? {
                Some((_, view)) if view.record.revision > revision => true,
                Some((text, _)) => self.remove_record(id, &text).await?,
                None => {
                    let mut call = self.prepare(&self.scripts.gone);
                    call.key(&self.gone_key).arg(id.as_str());
                    !self.call(&call, Effort::Write(ADMIN_BUDGET)).await?.is_conflict()
                }
            };
            if is_done {
                return Ok(());
            }
        }
        Err(contended(id))
    }
}
