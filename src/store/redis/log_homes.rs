//! The log backends of the nodes that share this Redis. Each node records its own repeatedly; a record that is not renewed expires.

use std::collections::BTreeMap;

use super::{ADMIN_BUDGET, RedisStore, link::CallPolicy};
use crate::{
    domain::ledger::{NodeId, ids::LEASE_MS, log_query::LogHomeMark},
    store::{StoreError, redis::scripts::ScriptReply},
};

impl RedisStore {
    /// Records the log backend of a node for [`LEASE_MS`], and returns those of all nodes.
    pub(crate) async fn record_log_home(
        &self,
        node: &NodeId,
        home: &LogHomeMark,
    ) -> Result<BTreeMap<NodeId, LogHomeMark>, StoreError> {
        let mut call = self.prepare(&self.scripts.log_homes);
        call.key(&self.log_homes_key);
        call.arg(node.as_str()).arg(home.as_str()).arg(LEASE_MS);
        Ok(read(self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?))
    }

    /// Returns the log backends of all nodes that run.
    pub(crate) async fn log_homes(&self) -> Result<BTreeMap<NodeId, LogHomeMark>, StoreError> {
        let mut call = self.prepare(&self.scripts.log_homes);
        call.key(&self.log_homes_key);
        call.arg("").arg("").arg(0);
        Ok(read(self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?))
    }
}

/// Reads the reply. Records that weir did not write are skipped.
fn read(reply: ScriptReply) -> BTreeMap<NodeId, LogHomeMark> {
    let mut texts = reply.texts();
    let mut homes = BTreeMap::new();
    while let (Some(node), Some(home)) = (texts.next(), texts.next()) {
        if let (Some(node), Some(home)) = (NodeId::parse(&node), LogHomeMark::parse(&home)) {
            homes.insert(node, home);
        }
    }
    homes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ledger::contract::node, redis::test_server::TestServer};

    #[tokio::test]
    async fn each_node_finds_the_log_backends_of_those_that_run() {
        let Some(server) = TestServer::start().await else {
            return;
        };
        let (one, other) = (server.join("weir").await, server.join("weir").await);
        let (folder, postgres) = (
            LogHomeMark::new("files (folder)", "/log"),
            LogHomeMark::new("postgres", "db"),
        );
        assert_eq!(one.store.log_homes().await, Ok(BTreeMap::new()));
        one.store.record_log_home(&node(1), &folder).await.unwrap();
        let both = BTreeMap::from([(node(1), folder.clone()), (node(2), postgres.clone())]);
        let found = other.store.record_log_home(&node(2), &postgres).await;
        assert_eq!(found, Ok(both.clone()));
        assert_eq!(one.store.log_homes().await, Ok(both));
        let ends: i64 = server.ask(&["PEXPIRETIME", "{weir:keys}:log-homes"]).await;
        assert!(ends > 0, "{ends}");
        // A node that has not renewed its record, and a field that weir did not write.
        let text = format!("1 {}", folder.as_str());
        let () = server
            .ask(&["HSET", "{weir:keys}:log-homes", node(1).as_str(), &text, "x", "y"])
            .await;
        let left = BTreeMap::from([(node(2), postgres.clone())]);
        assert_eq!(other.store.log_homes().await, Ok(left.clone()));
        assert_eq!(other.store.record_log_home(&node(2), &postgres).await, Ok(left));
        let fields: Vec<String> = server.ask(&["HKEYS", "{weir:keys}:log-homes"]).await;
        assert_eq!(fields, [node(2).to_string()]);
    }
}
