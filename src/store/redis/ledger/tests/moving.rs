//! A cluster moves an account's slot from master to master, key by key, as `redis-cli --cluster reshard` does, while nodes
//! admit and settle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{ops::RangeInclusive, sync::Arc};

use super::{TestClock, ask, granted, nanos, open_with, settled, steps};
use crate::domain::ledger::{AccountChange, NodeId};
use crate::store::contract::until;
use crate::store::ledger::contract::{key_id, node};
use crate::store::ledger::{LedgerStore, LogLists};
use crate::store::redis::test_server::cluster::{Move, TestCluster};
use crate::store::redis::test_server::{AMPLE_BUDGET, Joined};
use crate::store::redis::{RedisLedger, RedisSettings};
use crate::store::{KeyStore, StoreError, StoreWarning};

const ACCOUNT: &str = "acme";
const OLD_DAYS: i64 = 6;
/// The rows of this many of those are removed meanwhile.
const REMOVED: i64 = 3;
const DAY_MS: i64 = 86_400_000;
/// How long a call of an account may wait whose move does not end.
const QUEUE: Duration = Duration::from_millis(100);
/// How many calls of scripts come between two keys of a move at least.
const CALLS: u64 = 6;

/// What one node sends until it is told to stop: admissions, and a settlement for each. How many it has settled.
async fn work(ledger: &RedisLedger, by: &NodeId, first: u64, is_over: &AtomicBool) -> u64 {
    let mut done = 0;
    while !is_over.load(Ordering::Relaxed) {
        let (seq, request) = (first + done, format!("{}-{done}", by.as_str()));
        let at_ms = loop {
            match ledger.admit(&ask(by, &request, 7)).await {
                Err(StoreError::Unavailable(_)) => {}
                admission => break granted(admission).at_ms,
            }
        };
        let end = steps(seq, [settled(&request, at_ms, 5)]);
        loop {
            match ledger.apply(by, ACCOUNT, &end, 0).await {
                Err(StoreError::Unavailable(_)) => {}
                watermark => break assert_eq!(watermark, Ok(seq)),
            }
        }
        done += 1;
    }
    done
}

/// Removes the rows of some days.
async fn remove(ledger: &RedisLedger, days: RangeInclusive<i64>) {
    loop {
        let Ok(standing) = ledger.log_days(ACCOUNT, days.clone()).await else {
            continue;
        };
        let Some(seen) = standing.first() else { return };
        let done = ledger.remove(ACCOUNT, seen).await;
        assert!(matches!(done, Ok(true) | Err(StoreError::Unavailable(_))), "{done:?}");
    }
}

/// Moves the account's slot. The state's key goes first or last; before each key and behind the last calls come.
async fn move_slot(cluster: &TestCluster, from: usize, to: usize, state_first: bool) {
    let state = format!("{{weir:a:{ACCOUNT}}}:state");
    let slot = cluster.slot_of(&state).await;
    let moving = Move::begin(cluster, from, to, slot).await;
    cluster.until_called(CALLS).await;
    loop {
        let mut names = moving.names().await;
        names.sort_by_key(|name| (*name == state) != state_first);
        let Some(name) = names.first() else { break };
        moving.take(name).await;
        cluster.until_called(CALLS).await;
    }
    moving.end().await;
    assert!(moving.names().await.is_empty(), "something stayed behind");
}

#[tokio::test]
async fn an_account_stays_whole_while_its_slot_moves() {
    let Some(cluster) = TestCluster::start().await else {
        return;
    };
    let clock = TestClock::new();
    let ledger = |joined: &Joined| RedisLedger::with_clock(joined.store.clone(), clock.source());
    let joined = cluster.join("weir", AMPLE_BUDGET).await;
    let (first, second) = (ledger(&joined), ledger(&joined));
    let today = clock.now_ms();
    let mut history = vec![open_with(1_000_000)];
    history.extend((1..=OLD_DAYS).map(|day| settled(&format!("old-{day}"), today - day * DAY_MS, 3)));
    let next = u64::try_from(history.len()).unwrap() + 1;
    first.apply(&node(1), ACCOUNT, &steps(1, history), 0).await.unwrap();
    let begun = [AccountChange::nothing()];
    second.apply(&node(2), ACCOUNT, &steps(1, begun), 0).await.unwrap();

    let is_over = AtomicBool::new(false);
    let place = cluster.place_of(&format!("{{weir:a:{ACCOUNT}}}")).await;
    let moves = async {
        move_slot(&cluster, place, (place + 1) % 3, true).await;
        move_slot(&cluster, (place + 1) % 3, (place + 2) % 3, false).await;
        is_over.store(true, Ordering::Relaxed);
    };
    let (one, two) = (node(1), node(2));
    let oldest = today.div_euclid(DAY_MS) - OLD_DAYS;
    let ((), (), done_one, done_two) = tokio::join!(
        moves,
        remove(&second, oldest..=oldest + REMOVED - 1),
        work(&first, &one, next, &is_over),
        work(&second, &two, 2, &is_over)
    );

    let done = i64::try_from(done_one + done_two).unwrap();
    let mut rows = 0;
    for day in today.div_euclid(DAY_MS) - OLD_DAYS..=today.div_euclid(DAY_MS) {
        rows += first.rows(ACCOUNT, day, 0, 1000).await.unwrap().len();
    }
    assert_eq!(i64::try_from(rows).unwrap(), OLD_DAYS - REMOVED + done);
    let spent = nanos(3 * OLD_DAYS + 5 * done);
    let view = first.account(ACCOUNT).await.unwrap().unwrap();
    assert_eq!((view.spent, view.balance), (spent, nanos(1_000_000 - spent.nanos())));
    assert_eq!((view.held, view.running), (nanos(0), 0));
    let key = first.key_spend(ACCOUNT, &key_id(1)).await.unwrap();
    assert_eq!((key.all, key.day), (spent, nanos(5 * done)));
    eprintln!("{done} requests while the slot moved twice");
    // Behind it, as a cluster takes seconds to make.
    a_move_that_does_not_end_is_said(&cluster).await;
    a_split_slot_is_found_and_told(&cluster).await;
}

async fn a_split_slot_is_found_and_told(cluster: &TestCluster) {
    let name = "{weir:a:torn}:log:1";
    let place = cluster.place_of(name).await;
    let (owner, other) = (place, (place + 1) % 3);
    let slot = cluster.slot_of(name).await;
    let () = cluster.servers[owner].ask(&["RPUSH", name, "a row"]).await;
    let cut_off = Move::begin(cluster, owner, other, slot).await;
    cut_off.take(name).await;
    let joined = cluster.join("weir", AMPLE_BUDGET).await;
    let strangers = cluster.join("another", AMPLE_BUDGET).await;
    let is_told = |joined: &Joined| joined.store.warnings().contains(&StoreWarning::SplitSlot);
    until("the split is told", async || is_told(&joined)).await;
    assert!(!is_told(&strangers), "the key is not one of theirs");
    cut_off.undo(name).await;
    until("the split is over", async || !is_told(&joined)).await;
}

async fn a_move_that_does_not_end_is_said(cluster: &TestCluster) {
    let settings = cluster.settings("weir", QUEUE);
    let joined = Joined::with(&RedisSettings {
        queue: QUEUE,
        ..settings
    })
    .await;
    let ledger = RedisLedger::new(joined.store.clone(), true);
    let opened = steps(1, [open_with(10)]);
    ledger.apply(&node(1), "stuck", &opened, 0).await.unwrap();
    let mut asked = ask(&node(1), "r1", 7);
    Arc::make_mut(&mut asked.key).account = "stuck".into();
    let state = "{weir:a:stuck}:state";
    let place = cluster.place_of(state).await;
    let slot = cluster.slot_of(state).await;
    let stuck = Move::begin(cluster, place, (place + 1) % 3, slot).await;
    stuck.take(state).await;
    until("the move is said", async || {
        let error = ledger.admit(&asked).await.unwrap_err();
        error.to_string().contains("is still moving the hash slot")
    })
    .await;
    stuck.end().await;
    assert_eq!(ledger.account("stuck").await.unwrap().unwrap().balance, nanos(10));
}
