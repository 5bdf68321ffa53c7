//! The server's clock; in a cluster that of the master which has the keys' slot.

use super::{ADMIN_BUDGET, RedisStore, link::Effort};
use crate::store::StoreError;

impl RedisStore {
    /// What it says, in milliseconds since the Unix epoch.
    pub(super) async fn now_ms(&self) -> Result<i64, StoreError> {
        let call = self.keyed(&self.scripts.time);
        let told = self.call_alone(&call, Effort::Read(ADMIN_BUDGET)).await?.text()?;
        told.parse()
            .map_err(|_| StoreError::Corrupt("redis tells no time".to_owned()))
    }
}
