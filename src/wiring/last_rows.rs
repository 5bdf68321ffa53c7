//! The last rows of a key for `/web/v1/me`, from this process's admin API, so that they are the same as in the portal.

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    admin::{Admin, AdminPeer},
    api::{error::AdminError, log::ListLatestRows},
    domain::keys::key::KeyRecord,
    gateway::reply::own_usage::LastRows,
};

/// Reads the last rows of a key for `/web/v1/me` as the key's owner, from this process's admin API like the portal.
pub(super) struct OwnerLogRows(Admin);

impl OwnerLogRows {
    pub(super) fn new(admin: Admin) -> Self {
        Self(admin)
    }

    async fn rows(&self, key: &KeyRecord, limit: usize) -> Result<Value, AdminError> {
        let asked = ListLatestRows {
            account: key.account.parse().map_err(|why: String| AdminError::failed(why))?,
            key: key.id.clone(),
            limit: Some(limit),
            lines: Some(true),
        };
        let answer = self.0.call(AdminPeer::Owner(key.id.clone()).into(), asked).await?;
        serde_json::to_value(answer.rows).map_err(|error| AdminError::failed(error.to_string()))
    }
}

#[async_trait]
impl LastRows for OwnerLogRows {
    async fn read(&self, key: &KeyRecord, limit: usize) -> Option<Value> {
        let rows = self.rows(key, limit).await;
        let told = |refused: &AdminError| tracing::warn!(error = %refused, "the last rows of a key cannot be read");
        rows.inspect_err(told).ok()
    }
}
