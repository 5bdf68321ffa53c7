//! The last rows of a key, from the admin API of this process: what the portal shows and `/web/v1/me` tells is the same.

use async_trait::async_trait;
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::{
    admin::{Admin, Peer, local::LocalApi},
    domain::keys::key::KeyRecord,
    gateway::reply::own_usage::LastRows,
};

/// Asks in the name of the key's owner.
pub(super) struct RowsOfLog(LocalApi);

impl RowsOfLog {
    pub(super) fn new(state: Admin) -> Self {
        Self(LocalApi::new(state))
    }
}

#[async_trait]
impl LastRows for RowsOfLog {
    async fn of_key(&self, key: &KeyRecord, limit: usize) -> Option<Value> {
        let account = utf8_percent_encode(&key.account, NON_ALPHANUMERIC);
        let path = format!(
            "/v1/log/latest?account={account}&key={}&limit={limit}&lines=true",
            key.id.as_str()
        );
        let answer = self.0.call(Peer::Owner(key.id.clone()), Method::GET, &path, None).await;
        match answer {
            Ok(mut answer) => answer.get_mut("rows").map(Value::take),
            Err(refused) => {
                tracing::warn!(error = %refused, "the last rows of a key cannot be read");
                None
            }
        }
    }
}
