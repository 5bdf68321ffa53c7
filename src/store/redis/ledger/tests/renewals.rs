//! Leases in a cluster of which one master is dead.

use std::sync::Arc;

use super::{TestClock, ask, granted, open_with, steps};
use crate::domain::ledger::LEASE_MS;
use crate::store::ledger::LedgerStore;
use crate::store::ledger::contract::{node, record};
use crate::store::redis::RedisLedger;
use crate::store::redis::test_server::AMPLE_BUDGET;
use crate::store::redis::test_server::cluster::TestCluster;

#[tokio::test]
async fn holds_at_living_masters_are_kept_alive_while_one_is_dead() {
    // More than are asked about at once, so that those behind them wait for their turn.
    const OF_THE_DEAD: usize = 40;
    let Some(mut cluster) = TestCluster::start().await else {
        return;
    };
    for server in &cluster.servers {
        let () = server
            .ask(&["CONFIG", "SET", "cluster-require-full-coverage", "no"])
            .await;
    }
    let clock = TestClock::new();
    let joined = cluster.join("weir", AMPLE_BUDGET).await;
    let ledger = RedisLedger::with_clock(joined.store.clone(), clock.source());
    let mut dead = Vec::new();
    let mut living = None;
    // The generation is with the master that has the keys.
    let kept = cluster.place_of("{weir:keys}").await;
    let doomed = (kept + 1) % 3;
    let mut number = 0;
    while dead.len() < OF_THE_DEAD || living.is_none() {
        let account = format!("account-{number}");
        number += 1;
        let place = cluster.place_of(&format!("{{weir:a:{account}}}:state")).await;
        if place == doomed {
            dead.push(account);
        } else if living.is_none() {
            living = Some(account);
        }
    }
    let living = living.unwrap();
    ledger
        .apply(&node(1), &living, &steps(1, [open_with(100)]), 0)
        .await
        .unwrap();
    let mut request = ask(&node(1), "r1", 30);
    request.key = Arc::new(crate::domain::keys::KeyRecord {
        account: living.clone().into(),
        ..record(1)
    });
    granted(ledger.admit(&request).await);
    cluster.servers[doomed].kill();
    clock.advance(LEASE_MS - 1_000);
    let mut accounts = dead;
    accounts.push(living.clone());
    assert!(ledger.renew(&node(1), &accounts).await.is_err(), "one master is dead");
    clock.advance(2_000);
    let view = ledger.account(&living).await.unwrap().unwrap();
    assert_eq!(view.running, 1, "the lease was renewed");
}
