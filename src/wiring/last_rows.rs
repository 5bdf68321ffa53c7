//! The last rows of a key, from the admin API of this process: what the portal shows and `/web/v1/me` tells is the same.

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    admin::{Admin, Peer},
    api::{error::AdminError, log::ListLatestRows},
    domain::keys::key::KeyRecord,
    gateway::reply::own_usage::LastRows,
};

/// Asks in the name of the key's owner.
pub(super) struct RowsOfLog(Admin);

impl RowsOfLog {
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
        let answer = self.0.ask(Peer::Owner(key.id.clone()).into(), asked).await?;
        serde_json::to_value(answer.rows).map_err(|error| AdminError::failed(error.to_string()))
    }
}

#[async_trait]
impl LastRows for RowsOfLog {
    async fn of_key(&self, key: &KeyRecord, limit: usize) -> Option<Value> {
        let rows = self.rows(key, limit).await;
        let told = |refused: &AdminError| tracing::warn!(error = %refused, "the last rows of a key cannot be read");
        rows.inspect_err(told).ok()
    }
}
