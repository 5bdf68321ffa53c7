//! A cluster.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::store::redis::link::{CallPolicy, KeyNaming};
use crate::store::redis::scripts::RedisScript;
use crate::store::redis::test_server::AMPLE_BUDGET;
use crate::store::redis::test_server::cluster::TestCluster;

/// How long a change may wait after another server has become the master. How long that takes is the cluster's business.
const RESUME_MAX: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_cluster_keeps_the_contract() {
    let Some(cluster) = TestCluster::start().await else {
        return;
    };
    let join = async |namespace| cluster.join(namespace, AMPLE_BUDGET).await;
    suite!(in_turn join);
    // Behind the contract, as a cluster takes seconds to make.
    crate::store::ledger::stability_contract::stability_suite!(in_turn join);
    a_slot_moves_under_load(&cluster).await;
    a_frozen_master_does_not_stop_the_others(&cluster).await;
}

async fn a_slot_moves_under_load(cluster: &TestCluster) {
    let joined = cluster.join("moving", AMPLE_BUDGET).await;
    let store = &joined.store;
    until_written(&**store, 1).await;
    let place = cluster.place_of("{moving:keys}").await;
    let (from, to) = (&cluster.servers[place], &cluster.servers[(place + 1) % 3]);
    let slot: u64 = from.ask(&["CLUSTER", "KEYSLOT", "{moving:keys}"]).await;
    let slot = slot.to_string();
    let (from_id, to_id): (String, String) = (from.ask(&["CLUSTER", "MYID"]).await, to.ask(&["CLUSTER", "MYID"]).await);
    let done = AtomicBool::new(false);
    let load = async {
        let mut rounds = 0;
        while !done.load(Ordering::Relaxed) || rounds < 10 {
            store.rename(&id(1), &rounds.to_string()).await.unwrap();
            assert!(is_found(&**store, 1).await);
            rounds += 1;
        }
    };
    let moving = async {
        let () = to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
        let () = from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
        let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
        let port = to.port().to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend(keys.iter().map(String::as_str));
        let () = from.ask(&migrate).await;
        // For a while the slot has no keys here and is not owned there: calls are sent with ASKING.
        for node in [to, from] {
            let () = node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(load, moving);
    until("another master is an epoch", async || *store.link.epochs().borrow() > 0).await;
    until("changes are pushed from the new master", async || {
        !to.push_clients().await.is_empty()
    })
    .await;
    until_written(&**store, 2).await;
}

/// Sets at some masters whether they refuse all calls while a slot has no master.
async fn require_full_coverage(cluster: &TestCluster, places: &[usize], value: &str) {
    for place in places {
        let set = ["CONFIG", "SET", "cluster-require-full-coverage", value];
        let () = cluster.servers[*place].ask(&set).await;
    }
}

async fn a_frozen_master_does_not_stop_the_others(cluster: &TestCluster) {
    let joined = cluster.join("weir", BUDGET).await;
    let advised = async || {
        joined
            .store
            .advice()
            .await
            .concat()
            .contains("cluster-require-full-coverage to no")
    };
    assert!(advised().await, "as Redis has it by default");
    let script = RedisScript::new("return {redis.call('INCR', KEYS[1])}");
    let mut names = [None, None, None];
    for number in 0..50 {
        let name = format!("{{account-{number}}}:spent");
        let place = cluster.place_of(&name).await;
        names[place] = Some(name);
    }
    let names = names.map(Option::unwrap);
    let count = async |name: &str, budget| {
        let mut call = script.call();
        call.key(name);
        joined
            .store
            .link
            .call(&call, CallPolicy::Write(budget), KeyNaming::Named)
            .await
    };
    for name in &names {
        until("each master is connected", async || count(name, BUDGET).await.is_ok()).await;
    }
    cluster.servers[1].signal("-STOP");
    until("its breaker opens", async || {
        let start = clock::instant();
        count(&names[1], BUDGET).await.unwrap_err();
        start.elapsed() < BUDGET / 2
    })
    .await;
    let others = [&names[0], &names[2]];
    for name in others {
        // Without a replica the cluster is down in the end, so this has to be quick.
        count(name, AMPLE_BUDGET).await.unwrap();
    }
    until("the others refuse as well, with full coverage required", async || {
        let answer = count(&names[0], AMPLE_BUDGET).await;
        answer.is_err_and(|error| error.to_string().contains("The cluster is down"))
    })
    .await;
    require_full_coverage(cluster, &[0, 2], "no").await;
    for name in others {
        until("without it they serve", async || count(name, BUDGET).await.is_ok()).await;
    }
    cluster.servers[1].signal("-CONT");
    for name in &names {
        until("all serve again", async || count(name, BUDGET).await.is_ok()).await;
    }
    assert!(advised().await, "as one still requires it");
    require_full_coverage(cluster, &[1], "no").await;
    assert!(!advised().await);
}

#[tokio::test]
async fn failovers_are_followed_and_told() {
    let Some(mut cluster) = TestCluster::start_replicated().await else {
        return;
    };
    let joined = cluster.join("weir", AMPLE_BUDGET).await;
    let store = &joined.store;
    until_written(&**store, 1).await;
    let place = cluster.place_of("{weir:keys}").await;
    let mut epochs = store.link.epochs();
    epochs.mark_unchanged();
    // Planned: no call fails.
    let replica = &cluster.servers[place + 3];
    let () = replica.ask(&["CLUSTER", "FAILOVER"]).await;
    let (mut longest, mut changes) = (Duration::ZERO, 0);
    until("the replica has taken over", async || {
        let start = clock::instant();
        changes += 1;
        store.rename(&id(1), &changes.to_string()).await.unwrap();
        longest = longest.max(start.elapsed());
        store
            .link
            .master_of("{weir:keys}")
            .is_some_and(|master| master.port == replica.port())
    })
    .await;
    eprintln!("planned failover: the longest call took {longest:?}");
    assert!(epochs.has_changed().unwrap());
    epochs.mark_unchanged();
    until("the old master is in step as a replica", async || {
        let old = &cluster.servers[place];
        old.info_has("replication", "master_link_status:up").await
    })
    .await;
    // Unplanned: what replaced it dies.
    cluster.servers[place + 3].kill();
    until("the replica has become the master", async || {
        cluster.servers[place].info_has("replication", "role:master").await
    })
    .await;
    let took = until_written(&**store, 2).await;
    eprintln!("killed master: writes resumed after {took:?}");
    assert!(took < RESUME_MAX, "{took:?}");
    assert!(epochs.has_changed().unwrap());
    assert!(is_found(&**store, 1).await);
}
