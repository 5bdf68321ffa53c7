//! What a server's settings mean for the store.

use super::*;
use crate::domain::secret::Secret;
use crate::store::StoreWarning;

#[tokio::test]
async fn a_redis_that_may_evict_any_key_serves_nothing_until_it_is_mended() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let joined = Joined::begin(&server.settings("weir", BUDGET));
    let refused = async || match joined.store.find(&digest(1)).await {
        Err(StoreError::Unavailable(reason)) => reason.contains("set maxmemory-policy to noeviction"),
        _ => false,
    };
    until("the reason is said", refused).await;
    assert!(joined.store.warnings().contains(&StoreWarning::Eviction));
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    until("it serves", async || {
        joined.store.init(Adopt::Refuse).await.is_ok() && joined.store.find(&digest(1)).await.is_ok()
    })
    .await;
    assert!(!joined.store.warnings().contains(&StoreWarning::Eviction));
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"]).await;
    until("a change under way is noticed too", refused).await;
}

#[tokio::test]
async fn settings_that_may_lose_data_are_warned_of_while_they_last() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]).await;
    let joined = server.join("weir").await;
    let store = &joined.store;
    let warnings = store.warnings();
    assert_eq!(
        warnings,
        BTreeSet::from([StoreWarning::Eviction, StoreWarning::NoAppendOnlyFile])
    );
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    let () = server.ask(&["CONFIG", "SET", "appendonly", "yes"]).await;
    until("the warnings end", async || store.warnings().is_empty()).await;
}

#[tokio::test]
async fn a_user_that_may_not_ask_for_settings_is_served() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let rights = ["ACL", "SETUSER", "weir", "on", ">pw", "~{weir:*", "+@all", "-info"];
    let () = server.ask(&rights).await;
    let mut settings = server.settings("weir", BUDGET);
    settings.username = Some("weir".to_owned());
    settings.password = Some(Secret::new("pw"));
    let joined = Joined::with(&settings).await;
    joined.store.create(&digest(1), &record(1, 100)).await.unwrap();
    assert!(joined.store.warnings().is_empty());
}
