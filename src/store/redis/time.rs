//! The server's clock.

use super::{ADMIN_BUDGET, RedisStore, link::CallPolicy};
use crate::store::StoreError;

impl RedisStore {
    /// The server's time in milliseconds since the Unix epoch; in a cluster that of the master that owns the slot of the
    /// keys.
    pub(super) async fn now_ms(&self) -> Result<i64, StoreError> {
        let call = self.call_with_keys(&self.scripts.time);
        let told = self.call_alone(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.text()?;
        told.parse()
            .map_err(|_| StoreError::Corrupt("redis did not return its time".to_owned()))
    }
}
