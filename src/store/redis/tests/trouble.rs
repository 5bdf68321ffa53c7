//! A server that is slow, frozen, restarted, or no master any more.

use super::*;

#[tokio::test]
async fn a_frozen_redis_is_probed_once_a_second_and_back_within_one() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join_within("weir", BUDGET).await;
    let store = &joined.store;
    until_written(&**store, 1).await;
    server.signal("-STOP");
    let start = clock::instant();
    until("the breaker opens", async || {
        let began = clock::instant();
        assert!(!is_found(&**store, 1).await);
        began.elapsed() < BUDGET / 10
    })
    .await;
    assert!(start.elapsed() < 3 * BUDGET + SLACK, "{:?}", start.elapsed());
    let closed = (0..1000).map(async |_| store.find(&digest(1)).await.is_err());
    let began = clock::instant();
    for call in closed {
        assert!(call.await);
    }
    assert!(
        began.elapsed() < BUDGET + SLACK,
        "calls cost nothing: {:?}",
        began.elapsed()
    );
    server.signal("-CONT");
    let back = clock::instant();
    until("the key is found again", async || is_found(&**store, 1).await).await;
    assert!(back.elapsed() < Duration::from_secs(1) + SLACK, "{:?}", back.elapsed());
    assert!(*store.link.epochs().borrow() > 0, "what was acknowledged is checked");
}

#[tokio::test]
async fn a_closed_connection_is_noticed_before_the_next_call() {
    let Some(mut server) = TestServer::start_durable().await else {
        return;
    };
    let joined = server.join("weir").await;
    until_written(&*joined.store, 1).await;
    assert!(joined.store.link.master_of("").is_some());
    server.kill();
    until("the loss is noticed without a call", async || {
        joined.store.link.master_of("").is_none()
    })
    .await;
    server.restart().await;
    until("the return too", async || joined.store.link.master_of("").is_some()).await;
    joined.store.revoke(&id(1), 7).await.unwrap();
}

#[tokio::test]
async fn every_reconnect_is_an_epoch_and_flushes_once() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = &joined.store;
    until_written(&**store, 1).await;
    let mut epochs = store.link.epochs();
    let version = store.changes_since(0).await.unwrap();
    assert!(version.digests.is_some(), "the first connection is no reconnect");
    epochs.mark_unchanged();
    let nudges = store.nudges();
    let () = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    epochs.changed().await.unwrap();
    until("whoever caches is nudged", async || nudges.has_changed().unwrap()).await;
    let changes = store.changes_since(version.version).await.unwrap();
    assert_eq!((changes.version, changes.digests), (version.version, None));
    let changes = store.changes_since(version.version).await.unwrap();
    assert_eq!(changes.digests, Some(vec![]));
}

#[tokio::test]
async fn a_replica_is_not_used_and_another_history_is_an_epoch() {
    let (Some(server), Some(other)) = (TestServer::start().await, TestServer::start().await) else {
        return;
    };
    let joined = server.join_within("weir", BUDGET).await;
    let store = &joined.store;
    until_written(&**store, 1).await;
    let mut epochs = store.link.epochs();
    epochs.mark_unchanged();
    let () = server.ask(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    // Nobody answers there, so the data stays.
    let closed = other.port().to_string();
    drop(other);
    let () = server.ask(&["REPLICAOF", "127.0.0.1", &closed]).await;
    until("the replica is not used", async || {
        let answer = store.revoke(&id(1), 7).await;
        assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        answer.unwrap_err().to_string().contains("is a replica")
    })
    .await;
    assert!(!is_found(&**store, 1).await);
    let () = server.ask(&["REPLICAOF", "NO", "ONE"]).await;
    epochs.changed().await.unwrap();
    until("the key is found again", async || is_found(&**store, 1).await).await;
}

#[tokio::test]
async fn a_history_that_changes_under_a_connection_is_an_epoch() {
    let Some(server) = TestServer::start_with(&["--enable-debug-command", "yes"]).await else {
        return;
    };
    let joined = server.join("weir").await;
    let mut epochs = joined.store.link.epochs();
    epochs.mark_unchanged();
    until("the push connection is up", async || {
        server.push_clients().await.len() == 1
    })
    .await;
    let clients = server.push_clients().await;
    let () = server.ask(&["DEBUG", "CHANGE-REPL-ID"]).await;
    epochs.changed().await.unwrap();
    assert_eq!(server.push_clients().await, clients, "no connection was lost");
}

#[tokio::test]
async fn forgotten_scripts_fail_no_call_and_are_given_once() {
    const CALLS: usize = 200;
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    until_written(&*joined.store, 1).await;
    let () = server.ask(&["CONFIG", "RESETSTAT"]).await;
    let () = server.ask(&["SCRIPT", "FLUSH"]).await;
    let calls = (0..CALLS).map(async |_| joined.store.find(&digest(1)).await);
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(Result::is_ok));
    let stats: String = server.ask(&["INFO", "commandstats"]).await;
    assert!(stats.contains("cmdstat_script|load:calls=1,"), "{stats}");
}

#[tokio::test]
async fn more_calls_than_a_connection_takes_wait_no_longer_than_their_budget() {
    const CALLS: usize = 5000;
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join_within("weir", BUDGET).await;
    until_written(&*joined.store, 1).await;
    server.signal("-STOP");
    let start = clock::instant();
    let calls = (0..CALLS).map(async |_| joined.store.find(&digest(1)).await);
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(Result::is_err));
    // Thousands of futures in one task take their time to be begun, the more on a busy machine. One after the other would take
    // minutes.
    assert!(start.elapsed() < 100 * BUDGET, "{:?}", start.elapsed());
    server.signal("-CONT");
    until("the key is found again", async || is_found(&*joined.store, 1).await).await;
}

#[tokio::test]
async fn a_key_is_revoked_and_deleted_while_redis_is_out_of_memory() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = &joined.store;
    for number in 1..=3 {
        store.create(&digest(number), &record(number, 100)).await.unwrap();
    }
    let version = store.changes_since(0).await.unwrap().version;
    let () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = |error| matches!(error, Some(StoreError::Unavailable(_)));
    assert!(refused(store.create(&digest(4), &record(4, 100)).await.err()));
    assert!(refused(store.rotate(&id(1), &to(5, "hint", None)).await.err()));
    let revoked = store.revoke(&id(1), 700).await.unwrap();
    assert_eq!(
        store.find(&digest(1)).await.unwrap().record.unwrap().state,
        revoked.record.state
    );
    store.heal(&digest(2), &record(2, 100).revoked(700)).await.unwrap();
    store.remove(&id(3)).await.unwrap();
    let told = store.changes_since(version).await.unwrap();
    assert_eq!(told.digests, Some(vec![digest(1), digest(2), digest(3)]));
}

#[tokio::test]
async fn a_revocation_that_redis_refuses_is_not_half_done() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let store = &joined.store;
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let before = store.changes_since(0).await.unwrap();
    let () = server.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let refused = |error| matches!(error, Some(StoreError::Unavailable(_)));
    assert!(refused(store.revoke(&id(1), 700).await.err()));
    assert!(refused(store.remove(&id(1)).await.err()));
    assert_eq!(store.changes_since(0).await.unwrap(), before);
    assert!(is_found(&**store, 1).await);
}
