//! A Redis that refuses or has lost something: unavailable, nothing half done, and never "there is no such account".

use std::fmt::Debug;

use super::{ask, granted, nanos, open_with, settled, start, steps};
use crate::domain::ledger::{AccountChange, TopUp};
use crate::store::contract::{digest, until};
use crate::store::ledger::contract::{key_id, node};
use crate::store::ledger::{LedgerStore, LogLists};
use crate::store::{KeyStore, StoreError};

fn is_unavailable<T: Debug>(answer: &Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
}

#[tokio::test]
async fn a_redis_that_refuses_to_write_is_unavailable_with_nothing_half_done() {
    let Some((server, _clock, first)) = start().await else {
        return;
    };
    let ledger = &first.ledger;
    ledger
        .apply(&node(1), "acme", &steps(1, [open_with(100)]), 0)
        .await
        .unwrap();
    let grant = granted(ledger.admit(&ask(&node(1), "r1", 30)).await);
    let top_up = TopUp {
        node: node(1),
        request: "r1".into(),
        account: "acme".into(),
        key: key_id(1),
        at_ms: grant.at_ms,
        more: nanos(5),
    };
    let end = steps(2, [settled("r1", grant.at_ms, 42), AccountChange::nothing()]);
    let names = async || {
        let mut names: Vec<String> = server.ask(&["KEYS", "*"]).await;
        names.sort();
        names
    };
    let (before, names_before) = (ledger.account("acme").await.unwrap(), names().await);
    let out_of_memory = [["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]];
    let no_replicas = [
        ["CONFIG", "SET", "min-replicas-to-write", "1"],
        ["CONFIG", "SET", "min-replicas-to-write", "0"],
    ];
    // Nothing listens at port 1, so it stays what it is.
    let read_only: [&[&str]; 2] = [&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]];
    let faults: [[&[&str]; 2]; 3] = [
        [&out_of_memory[0], &out_of_memory[1]],
        [&no_replicas[0], &no_replicas[1]],
        read_only,
    ];
    for [begin, over] in faults {
        let () = server.ask(begin).await;
        is_unavailable(&ledger.admit(&ask(&node(1), "r2", 30)).await);
        is_unavailable(&ledger.admit(&ask(&node(2), "r3", 30)).await);
        is_unavailable(&ledger.top_up(&top_up).await);
        is_unavailable(&ledger.apply(&node(1), "acme", &end, 0).await);
        is_unavailable(&ledger.apply(&node(1), "beta", &steps(1, [open_with(1)]), 0).await);
        let () = server.ask(over).await;
        until("the fault is over", async || ledger.account("acme").await.is_ok()).await;
        assert_eq!(ledger.account("acme").await.unwrap(), before, "{begin:?}");
        assert_eq!(ledger.watermark(&node(1), "acme").await, Ok(1));
        assert_eq!(names().await, names_before);
    }
    let () = server.ask(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(ledger.apply(&node(1), "acme", &end, 0).await, Ok(3));
}

#[tokio::test]
async fn a_redis_that_is_busy_or_cut_off_from_its_master_is_unavailable() {
    let Some((server, _clock, first)) = start().await else {
        return;
    };
    let ledger = &first.ledger;
    let opened = steps(1, [open_with(100)]);
    ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    let () = server.ask(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    let () = server.ask(&["REPLICAOF", "127.0.0.1", "1"]).await;
    is_unavailable(&ledger.watermark(&node(1), "acme").await);
    is_unavailable(&ledger.account("acme").await);
    let () = server.ask(&["REPLICAOF", "NO", "ONE"]).await;
    until("it is a master again", async || ledger.account("acme").await.is_ok()).await;
    let () = server.ask(&["CONFIG", "SET", "busy-reply-threshold", "1"]).await;
    let busy = server.ask_in_background(&["EVAL", "while true do end", "0"]);
    until("it is busy", async || ledger.watermark(&node(1), "acme").await.is_err()).await;
    is_unavailable(&ledger.admit(&ask(&node(1), "r1", 1)).await);
    let () = server.ask(&["SCRIPT", "KILL"]).await;
    busy.await.unwrap();
    until("it answers again", async || ledger.account("acme").await.is_ok()).await;
    granted(ledger.admit(&ask(&node(1), "r1", 1)).await);
}

#[tokio::test]
async fn an_emptied_redis_is_unavailable_and_not_without_accounts() {
    let Some((server, _clock, first)) = start().await else {
        return;
    };
    let ledger = &first.ledger;
    let opened = steps(1, [open_with(100)]);
    ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    let key = crate::store::contract::record(1, 100);
    first.joined.store.create(&digest(1), &key).await.unwrap();
    granted(ledger.admit(&ask(&node(1), "r1", 1)).await);
    let () = server.ask(&["FLUSHALL"]).await;
    is_unavailable(&ledger.admit(&ask(&node(1), "r2", 1)).await);
    is_unavailable(&ledger.apply(&node(1), "acme", &opened, 0).await);
    is_unavailable(
        &ledger
            .apply(&node(1), "acme", &steps(2, [AccountChange::nothing()]), 0)
            .await,
    );
    is_unavailable(&ledger.watermark(&node(1), "acme").await);
    is_unavailable(&ledger.account("acme").await);
    is_unavailable(&ledger.accounts(None, 9).await);
    is_unavailable(&ledger.key_spend("acme", &key_id(1)).await);
    is_unavailable(&ledger.rows("acme", 1, 0, 9).await);
    assert_eq!(server.ask::<u64>(&["DBSIZE"]).await, 0);
}

#[tokio::test]
async fn an_account_of_another_installation_is_not_used() {
    let Some((server, _clock, first)) = start().await else {
        return;
    };
    let ledger = &first.ledger;
    let key = crate::store::contract::record(1, 100);
    first.joined.store.create(&digest(1), &key).await.unwrap();
    let opened = steps(1, [open_with(100)]);
    ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    let () = server.ask(&["HSET", "{weir:a:acme}:state", "gen", "another"]).await;
    is_unavailable(&ledger.admit(&ask(&node(1), "r1", 1)).await);
    is_unavailable(
        &ledger
            .apply(&node(1), "acme", &steps(2, [AccountChange::nothing()]), 0)
            .await,
    );
    is_unavailable(&ledger.watermark(&node(1), "acme").await);
}
