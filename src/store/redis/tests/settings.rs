//! What a server's settings mean for the store.

use super::*;
use crate::store::redis::test_server::cluster::TestCluster;
use crate::store::redis::{RedisMode, RedisSettings};
use crate::store::{StoreTrouble, StoreWarning};

#[tokio::test]
async fn a_redis_that_may_evict_anything_serves_nothing_until_it_is_mended() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).await;
    let joined = Joined::begin(&server.settings("weir", BUDGET));
    let refused = async || match joined.store.find(&digest(1)).await {
        Err(StoreError::Unavailable(reason)) => reason.contains("set maxmemory-policy to noeviction"),
        _ => false,
    };
    until("the reason is said", refused).await;
    assert!(joined.store.warnings().contains(&StoreWarning::Eviction));
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    assert!(joined.store.trouble().refused);
    until("it serves", async || {
        joined.store.init(AdoptPolicy::Refuse).await.is_ok() && joined.store.find(&digest(1)).await.is_ok()
    })
    .await;
    assert!(!joined.store.warnings().contains(&StoreWarning::Eviction));
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"]).await;
    until("a change under way is noticed too", refused).await;
    assert!(joined.store.trouble().refused);
}

#[tokio::test]
async fn settings_that_may_lose_data_are_warned_of_while_they_last() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = &joined.store;
    assert_eq!(store.warnings(), BTreeSet::from([StoreWarning::NoAppendOnlyFile]));
    assert_eq!(store.trouble(), StoreTrouble::default());
    let () = server.ask(&["CONFIG", "SET", "appendonly", "yes"]).await;
    until("the warnings end", async || store.warnings().is_empty()).await;
}

#[tokio::test]
async fn a_standalone_server_is_no_node_of_a_cluster() {
    let Some(cluster) = TestCluster::start().await else {
        return;
    };
    let joined = Joined::begin(&cluster.servers[0].settings("weir", BUDGET));
    until("the reason is said", async || {
        let said = joined.store.by_id(&id(1)).await.unwrap_err().to_string();
        said.contains("is a node of a cluster; set store.redis.mode = \"cluster\"")
    })
    .await;
    assert!(joined.store.trouble().refused);
}

#[tokio::test]
async fn a_server_alone_is_no_cluster() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let settings = RedisSettings {
        mode: RedisMode::Cluster,
        ..server.settings("weir", BUDGET)
    };
    let joined = Joined::begin(&settings);
    until("the reason is said", async || {
        let said = joined.store.by_id(&id(1)).await.unwrap_err().to_string();
        said.contains("is not a node of a cluster; set store.redis.mode")
    })
    .await;
}

#[tokio::test]
async fn how_full_the_server_is_and_whether_it_compresses_rows_is_seen() {
    let Some(server) = TestServer::start_with(&["--maxmemory", "100mb"]).await else {
        return;
    };
    let joined = server.join("weir").await;
    let memory = joined.store.memory().unwrap();
    assert_eq!(memory.limit, 100 << 20);
    assert!(memory.used > 0 && memory.used < memory.limit);
    let advice = joined.store.advice().await;
    assert!(
        matches!(advice.as_slice(), [only] if only.contains("set list-compress-depth to 1")),
        "{advice:?}"
    );
    let () = server.ask(&["CONFIG", "SET", "list-compress-depth", "1"]).await;
    assert_eq!(joined.store.advice().await, [""; 0]);
}
