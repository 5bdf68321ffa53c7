//! Tests of the Redis ledger, against a real server.

use std::sync::Arc;

use async_trait::async_trait;

use super::RedisLedger;
use crate::domain::ledger::account::operations::OPERATIONS_MAX;
use crate::domain::ledger::consumption::RETENTION_DAYS;
use crate::domain::ledger::lease::{ALL_PART_OF_LEFT, PART_OF_LEFT, PART_OF_WANTED, RECALL_MS};
use crate::domain::ledger::{
    AccountChange, AdmitCall, AdmitReply, Denial, Grant, KeyTerms, LEASE_MS, LogDay, NodeId, RateLimits, Settlement,
    Step,
};
use crate::domain::money::NanoUsd;
use crate::store::StoreError;
use crate::store::contract::until;
use crate::store::ledger::contract::{
    Failover, Fixture, TestClock, key_id, ledger_suite, lists_suite, node, record, row,
};
use crate::store::ledger::{LedgerStore, LogLists, contract};
use crate::store::redis::test_server::{Joined, TestServer};

mod archives;
mod faults;
mod lost_answers;
mod moving;
mod periods;
mod renewals;
mod without_rows;

/// One of several ledgers on a server, and what has to live as long as it.
struct Node {
    ledger: Arc<RedisLedger>,
    joined: Joined,
}

async fn join(server: &TestServer, clock: &TestClock) -> Node {
    let joined = server.join("weir").await;
    let ledger = Arc::new(RedisLedger::with_clock(joined.store.clone(), clock.source()));
    Node { ledger, joined }
}

async fn start() -> Option<(TestServer, TestClock, Node)> {
    let (server, clock) = (TestServer::start().await?, TestClock::new());
    let node = join(&server, &clock).await;
    Some((server, clock, node))
}

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

fn steps(first: u64, changes: impl IntoIterator<Item = AccountChange>) -> Vec<Step> {
    let numbered = changes.into_iter().zip(first..);
    numbered.map(|(change, seq)| Step { seq, change }).collect()
}

fn open_with(balance: i64) -> AccountChange {
    let balance = nanos(balance);
    AccountChange::Open {
        balance,
        at: 1,
        operation: None,
    }
}

fn settled(request: &str, at_ms: i64, cost: i64) -> AccountChange {
    AccountChange::Settle(Box::new(Settlement {
        lease: None,
        request: request.into(),
        key: key_id(1),
        at_ms,
        tokens_estimated: 0,
        tokens_used: 0,
        cost: nanos(cost),
        row: Some(row("acme", 1, request, at_ms, nanos(cost)).into()),
    }))
}

fn ask(by: &NodeId, request: &str, estimate: i64) -> AdmitCall {
    AdmitCall {
        node: by.clone(),
        request: request.into(),
        key: Arc::new(record(1)),
        estimate: nanos(estimate),
        tokens: 0,
        ended_key: 0,
        ended_account: 0,
    }
}

fn granted(admission: Result<AdmitReply, StoreError>) -> Grant {
    match admission {
        Ok(AdmitReply::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// The state before a failover, in the server's second database.
struct SecondDatabase(Arc<TestServer>);

const REMEMBER: &str = "redis.call('SELECT', 1) redis.call('FLUSHDB') redis.call('SELECT', 0)
    for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 1) end";
const ROLL_BACK: &str = "redis.call('SELECT', 0) redis.call('FLUSHDB') redis.call('SELECT', 1)
    for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 0) end";

#[async_trait]
impl Failover for SecondDatabase {
    async fn remember(&self) {
        let () = self.0.ask(&["EVAL", REMEMBER, "0"]).await;
    }

    async fn roll_back(&self) -> bool {
        let () = self.0.ask(&["EVAL", ROLL_BACK, "0"]).await;
        true
    }
}

async fn open() -> Option<Fixture> {
    let (server, clock, node) = start().await?;
    Some(Fixture {
        store: node.ledger.clone(),
        lists: Some(node.ledger.clone()),
        clock,
        failover: None,
        kept: Box::new((node, server)),
    })
}

ledger_suite!(open);
lists_suite!(open);

#[tokio::test]
async fn what_a_failover_lost_is_sent_again_and_exact() {
    let Some((server, clock, node)) = start().await else {
        return;
    };
    let server = Arc::new(server);
    // A replica has at least what it was set up with.
    SecondDatabase(server.clone()).remember().await;
    let fixture = Fixture {
        store: node.ledger.clone(),
        lists: Some(node.ledger.clone()),
        clock,
        failover: Some(Box::new(SecondDatabase(server.clone()))),
        kept: Box::new((node, server)),
    };
    contract::an_engine_answers_as_the_model_does(&fixture).await;
}

#[tokio::test]
async fn a_quota_is_used_up_to_the_last_nano_by_many_at_once() {
    let Some((server, clock, first)) = start().await else {
        return;
    };
    let second = join(&server, &clock).await;
    first
        .ledger
        .apply(&node(1), "acme", &steps(1, [open_with(1_000_000)]), 0)
        .await
        .unwrap();
    let asked = (0..200).map(|number| {
        let ledger = if number % 2 == 0 { &first.ledger } else { &second.ledger }.clone();
        tokio::spawn(async move {
            let mut ask = ask(&node(1 + number % 2), &format!("r{number}"), 7);
            Arc::make_mut(&mut ask.key).terms = KeyTerms {
                quota: Some(nanos(64)),
                ..KeyTerms::default()
            };
            ledger.admit(&ask).await.unwrap()
        })
    });
    let mut holds = Vec::new();
    for admission in asked.collect::<Vec<_>>() {
        match admission.await.unwrap() {
            AdmitReply::Granted(grant) => holds.push(grant.hold.nanos()),
            other => assert!(
                matches!(other, AdmitReply::Refused(Denial::QuotaHeld(standing)) if standing.quota == nanos(64)),
                "{other:?}"
            ),
        }
    }
    holds.sort_unstable();
    assert_eq!(holds, [1, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
}

#[tokio::test]
async fn a_dead_nodes_holds_stop_counting_and_its_steps_still_settle() {
    let Some((server, clock, dead)) = start().await else {
        return;
    };
    let living = join(&server, &clock).await;
    dead.ledger
        .apply(&node(1), "acme", &steps(1, [open_with(10)]), 0)
        .await
        .unwrap();
    let at_ms = granted(dead.ledger.admit(&ask(&node(1), "r1", 10)).await).at_ms;
    clock.advance(LEASE_MS - 1);
    let refused = Ok(AdmitReply::Refused(Denial::BalanceHeld));
    assert_eq!(living.ledger.admit(&ask(&node(2), "r2", 4)).await, refused);
    clock.advance(1);
    assert_eq!(
        granted(living.ledger.admit(&ask(&node(2), "r2", 4)).await).hold,
        nanos(4)
    );
    let late = steps(2, [settled("r1", at_ms, 9)]);
    assert_eq!(living.ledger.apply(&node(1), "acme", &late, 0).await, Ok(2));
    let view = living.ledger.account("acme").await.unwrap().unwrap();
    assert_eq!((view.balance, view.spent, view.held), (nanos(1), nanos(9), nanos(4)));
    assert_eq!(view.running, 1);
}

#[tokio::test]
async fn the_servers_clock_is_the_time_where_no_test_has_another() {
    let Some((_server, _clock, node_1)) = start().await else {
        return;
    };
    let ledger = RedisLedger::new(node_1.joined.store.clone(), true);
    ledger
        .apply(&node(1), "acme", &steps(1, [open_with(10)]), 0)
        .await
        .unwrap();
    let before = crate::edges::clock::unix_seconds();
    let at_ms = granted(ledger.admit(&ask(&node(1), "r1", 10)).await).at_ms;
    let after = crate::edges::clock::unix_seconds();
    assert!(
        (before..=after).contains(&at_ms.div_euclid(1000)),
        "{before} {at_ms} {after}"
    );
}

#[tokio::test]
async fn an_admission_is_one_round_trip_and_so_is_a_settlement() {
    const REQUESTS: u64 = 10;
    let Some((server, _clock, first)) = start().await else {
        return;
    };
    let ledger = &first.ledger;
    let opened = steps(1, [open_with(1_000)]);
    ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    let () = server.ask(&["CONFIG", "RESETSTAT"]).await;
    for number in 0..REQUESTS {
        let request = format!("r{number}");
        let at_ms = granted(ledger.admit(&ask(&node(1), &request, 5)).await).at_ms;
        let end = steps(2 + number, [settled(&request, at_ms, 5)]);
        ledger.apply(&node(1), "acme", &end, 0).await.unwrap();
    }
    let stats: String = server.ask(&["INFO", "commandstats"]).await;
    let calls = format!("cmdstat_evalsha:calls={},", 2 * REQUESTS);
    assert!(stats.contains(&calls), "{stats}");
    assert!(
        !stats.contains("cmdstat_eval:") && !stats.contains("cmdstat_script|load:"),
        "{stats}"
    );
}

#[tokio::test]
async fn no_moment_and_no_amount_is_too_far_out_to_be_settled() {
    let Some((_server, clock, first)) = start().await else {
        return;
    };
    let ledger = &first.ledger;
    let ends = [i64::MIN + 5, -1, i64::MAX].map(|at_ms| settled("r", at_ms, 1));
    let mut all = vec![open_with(i64::MAX), open_with(i64::MAX)];
    all.extend(ends);
    assert_eq!(ledger.apply(&node(1), "acme", &steps(1, all), 0).await, Ok(5));
    let view = ledger.account("acme").await.unwrap().unwrap();
    assert_eq!((view.balance, view.spent), (nanos(NanoUsd::MAX.nanos() - 3), nanos(3)));
    let key = ledger.key_spend("acme", &key_id(1)).await.unwrap();
    assert_eq!((key.all, key.day), (nanos(3), nanos(0)));
    let end = settled("r", clock.now_ms(), i64::MAX);
    assert_eq!(
        ledger.apply(&node(1), "acme", &steps(6, [end.clone(), end]), 0).await,
        Ok(7)
    );
    let view = ledger.account("acme").await.unwrap().unwrap();
    assert_eq!(
        (view.balance.nanos(), view.spent),
        (-NanoUsd::MAX.nanos(), NanoUsd::MAX)
    );
}

#[tokio::test]
async fn an_epoch_begins_when_the_server_is_back() {
    let Some(mut server) = TestServer::start_durable().await else {
        return;
    };
    let clock = TestClock::new();
    let first = join(&server, &clock).await;
    let epochs = first.ledger.epochs();
    let opened = steps(1, [open_with(1)]);
    first.ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    let before = *epochs.borrow();
    server.kill();
    until("the loss is noticed", async || {
        first.ledger.watermark(&node(1), "acme").await.is_err()
    })
    .await;
    server.restart().await;
    until("the server is back", async || {
        first.ledger.watermark(&node(1), "acme").await == Ok(1)
    })
    .await;
    until("the new epoch is told", async || *epochs.borrow() != before).await;
}

#[tokio::test]
async fn an_account_that_is_missing_in_the_list_comes_back_with_the_next_process() {
    let Some((server, clock, first)) = start().await else {
        return;
    };
    let opened = steps(1, [open_with(10)]);
    first.ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    let () = server.ask(&["DEL", "{weir:accounts}:index"]).await;
    assert_eq!(first.ledger.accounts(None, 9).await, Ok(vec![]));
    let second = join(&server, &clock).await;
    second.ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    assert_eq!(first.ledger.accounts(None, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_kept_for_a_time_has_an_end_and_the_rest_has_none() {
    const DAY_S: i64 = 86_400;
    let Some((server, clock, first)) = start().await else {
        return;
    };
    let now = clock.now_ms();
    first
        .ledger
        .apply(&node(1), "acme", &steps(1, [open_with(10), settled("r0", now, 1)]), 0)
        .await
        .unwrap();
    granted(first.ledger.admit(&ask(&node(1), "r1", 1)).await);
    let ttl = async |name: &str| server.ask::<i64>(&["TTL", &format!("{{weir:a:acme}}:{name}")]).await;
    let days = async |name: &str| (ttl(name).await + DAY_S - 1) / DAY_S;
    // It is noon on a Saturday, the 21st of a month of 30 days.
    assert_eq!(days("spent:d20261121").await, 8);
    assert_eq!(days("spent:w2026W47").await, 9);
    assert_eq!(days("spent:m202611").await, 17);
    for of_day in ["log", "sums"] {
        let name = format!("{of_day}:{}", now / 86_400_000);
        assert_eq!(days(&name).await, i64::from(RETENTION_DAYS) + 1, "{name}");
    }
    assert!(ttl("held:node_0000000000000001").await * 1000 > 10 * LEASE_MS);
    for name in ["state", "nodes", "spent:all"] {
        assert_eq!(ttl(name).await, -1, "{name}");
    }
}

#[tokio::test]
async fn rows_are_removed_from_a_redis_that_is_full() {
    let Some((server, clock, first)) = start().await else {
        return;
    };
    let (ledger, now) = (&first.ledger, clock.now_ms());
    let opened = steps(1, [open_with(10), settled("r0", now, 1)]);
    ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    let () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = steps(3, [settled("no-room", now, 1)]);
    let full = ledger.apply(&node(1), "acme", &refused, 0).await;
    assert!(full.is_err(), "{full:?}");
    let day = now / 86_400_000;
    assert_eq!(ledger.remove("acme", &LogDay { day, rows: 1 }).await, Ok(true));
    assert_eq!(ledger.log_days("acme", day..=day).await, Ok(vec![]));
}

#[test]
fn the_scripts_have_the_same_limits_as_the_rest() {
    let scripts = [
        include_str!("prelude.lua"),
        include_str!("holds.lua"),
        include_str!("buckets.lua"),
        include_str!("recalls.lua"),
        include_str!("lease.lua"),
    ];
    let scripts = scripts.concat() + include_str!("operations.lua") + include_str!("settling.lua");
    for (name, value) in [
        ("MAX", NanoUsd::MAX.nanos()),
        ("LEASE_MS", LEASE_MS),
        ("PART_OF_LEFT", PART_OF_LEFT),
        ("ALL_PART_OF_LEFT", ALL_PART_OF_LEFT),
        ("PART_OF_WANTED", PART_OF_WANTED),
        ("RECALL_MS", RECALL_MS),
        ("RATE_MAX", i64::try_from(RateLimits::MAX).unwrap()),
        ("RETENTION_DAYS", i64::from(RETENTION_DAYS)),
        ("OPERATIONS_MAX", i64::try_from(OPERATIONS_MAX).unwrap()),
    ] {
        assert!(scripts.contains(&format!("local {name} = {value}\n")), "{name}");
    }
}
