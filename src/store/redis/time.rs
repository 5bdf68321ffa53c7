//! The server's clock; in a cluster that of the master which has the keys' slot.

use super::{ADMIN_BUDGET, RedisStore, link::Effort, reply::ScriptReply};
use crate::store::StoreError;

impl RedisStore {
    /// What it says, in milliseconds since the Unix epoch.
    pub(super) async fn now_ms(&self) -> Result<i64, StoreError> {
        let mut call = self.scripts.time.script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        let mut reply = ScriptReply::read(self.link.call(&call, Effort::Read(ADMIN_BUDGET)).await?)?;
        let told = reply.text()?;
        told.parse()
            .map_err(|_| StoreError::Corrupt("redis tells no time".to_owned()))
    }
}
