//! A master that sentinels watch.

use super::*;
use crate::store::redis::test_server::AMPLE_BUDGET;
use crate::store::redis::test_server::Watched;

/// How long a change may wait after another server has become the master. How long that takes is the sentinels' business:
/// when they do not agree on one of them, they wait for 10 s here before they vote again.
const RESUME_MAX: Duration = Duration::from_secs(4);

async fn until_replicated(replica: &TestServer, number: u8) {
    until("the replica has the change", async || {
        let words = ["HEXISTS", "{weir:keys}:ids", &digest(number).to_hex()];
        replica.ask::<u64>(&words).await == 1
    })
    .await;
}

#[tokio::test]
async fn a_watched_master_keeps_the_contract() {
    let Some(watched) = Watched::start(0, 1).await else {
        return;
    };
    let join = async |namespace| watched.join(namespace, AMPLE_BUDGET).await;
    suite!(in_turn join);
}

#[tokio::test]
async fn a_planned_failover_is_followed_and_told() {
    let Some(watched) = Watched::start(1, 1).await else {
        return;
    };
    let joined = watched.join("weir", BUDGET).await;
    until_written(&*joined.store, 0).await;
    let rounds = if std::env::var("WEIR_FULL").is_ok_and(|value| value == "1") {
        10
    } else {
        1
    };
    for round in 0..rounds {
        let [one, two] = [&watched.servers[0], &watched.servers[1]];
        let (old, new) = if round % 2 == 0 { (one, two) } else { (two, one) };
        until("the replica is in step", async || {
            new.info_has("replication", "master_link_status:up").await
        })
        .await;
        a_planned_failover(&watched, &joined, [old, new], round + 1).await;
    }
}

async fn a_planned_failover(watched: &Watched, joined: &Joined, [old, new]: [&TestServer; 2], number: u8) {
    let store = &joined.store;
    let version = store.changes_since(0).await.unwrap().version;
    let mut epochs = store.link.epochs();
    epochs.mark_unchanged();
    until_replicated(new, number - 1).await;
    watched.fail_over().await;
    until("the replica is the master", async || {
        new.info_has("replication", "role:master").await
    })
    .await;
    let start = clock::instant();
    until("the node is with the new master", async || {
        store.link.master_of("").is_some_and(|master| master.port == new.port())
    })
    .await;
    assert!(
        start.elapsed() < Duration::from_millis(1500) + SLACK,
        "{:?}",
        start.elapsed()
    );
    assert!(epochs.has_changed().unwrap());
    let flushed = async || {
        store
            .changes_since(version)
            .await
            .is_ok_and(|changes| changes.digests.is_none())
    };
    until("the cache is told to flush", flushed).await;
    until_written(&**store, number).await;
    let stored: u64 = new.ask(&["HEXISTS", "{weir:keys}:ids", &digest(number).to_hex()]).await;
    assert_eq!(stored, 1);
    until("changes are pushed from the new master", async || {
        !new.push_clients().await.is_empty()
    })
    .await;
    until("the old master is left", async || old.push_clients().await.is_empty()).await;
}

#[tokio::test]
async fn a_failover_that_the_sentinels_know_nothing_of_is_followed() {
    let Some(watched) = Watched::start(1, 1).await else {
        return;
    };
    let joined = watched.join("weir", BUDGET).await;
    until_written(&*joined.store, 1).await;
    let port = watched.servers[1].port().to_string();
    let start = clock::instant();
    until("the master hands over", async || {
        let words = ["FAILOVER", "TO", "127.0.0.1", &port, "TIMEOUT", "2000"];
        watched.servers[0].try_ask::<()>(&words).await.is_ok()
    })
    .await;
    until_written(&*joined.store, 2).await;
    assert!(
        start.elapsed() < Duration::from_secs(2) + SLACK,
        "{:?}",
        start.elapsed()
    );
    assert!(is_found(&*joined.store, 1).await);
}

#[tokio::test]
async fn a_killed_master_is_replaced() {
    let Some(mut watched) = Watched::start(2, 3).await else {
        return;
    };
    let joined = watched.join("weir", BUDGET).await;
    until_written(&*joined.store, 1).await;
    for replica in &watched.servers[1..] {
        until_replicated(replica, 1).await;
    }
    watched.servers[0].kill();
    // One sentinel is away too.
    watched.sentinels[0].kill();
    until("a replica has become the master", async || {
        let [one, two] = [&watched.servers[1], &watched.servers[2]];
        one.info_has("replication", "role:master").await || two.info_has("replication", "role:master").await
    })
    .await;
    let took = until_written(&*joined.store, 2).await;
    eprintln!("writes resumed after {took:?}");
    assert!(took < RESUME_MAX, "{took:?}");
    assert!(is_found(&*joined.store, 1).await);
}

#[tokio::test]
async fn a_frozen_master_is_left_and_stays_left() {
    let Some(watched) = Watched::start(1, 1).await else {
        return;
    };
    let joined = watched.join("weir", BUDGET).await;
    until_written(&*joined.store, 1).await;
    until_replicated(&watched.servers[1], 1).await;
    watched.servers[0].signal("-STOP");
    until_written(&*joined.store, 2).await;
    watched.servers[0].signal("-CONT");
    until("the old master has become a replica", async || {
        let role = watched.servers[0].try_ask::<String>(&["INFO", "replication"]).await;
        // It has the data of before, and would be believed.
        let asked = joined.store.link.master_of("").map(|master| master.port);
        assert_ne!(asked, Some(watched.servers[0].port()));
        is_found(&*joined.store, 2).await;
        role.is_ok_and(|role| role.contains("role:slave"))
    })
    .await;
}

#[tokio::test]
async fn a_name_that_the_sentinels_do_not_know_is_said() {
    let Some(watched) = Watched::start(0, 1).await else {
        return;
    };
    let mut settings = watched.settings("weir", BUDGET);
    if let super::super::RedisMode::Sentinel { master_name, .. } = &mut settings.mode {
        *master_name = "other".to_owned();
    }
    let joined = Joined::begin(&settings);
    until("the reason is said", async || {
        let error = joined.store.by_id(&id(1)).await.unwrap_err().to_string();
        error.contains("store.redis.master_name")
    })
    .await;
}
