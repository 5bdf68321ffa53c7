//! A Redis that is not the home of the log.

use super::*;
use crate::domain::ledger::daily_sums::{DailySums, SumSelector, SumSubject};
use crate::domain::ledger::lease::LeaseId;
use crate::store::ledger::APPLY_STEPS_MAX;

/// A ledger that keeps no rows, on the server of a node.
pub(super) fn ledger(node: &Node, clock: &TestClock) -> RedisLedger {
    RedisLedger {
        keeps_rows: false,
        ..RedisLedger::with_clock(node.joined.store.clone(), clock.source())
    }
}

async fn open() -> Option<Fixture> {
    let (server, clock, node) = start().await?;
    Some(Fixture {
        store: Arc::new(ledger(&node, &clock)),
        lists: None,
        clock,
        failover: None,
        kept: Box::new((node, server)),
    })
}

ledger_suite!(open);

/// A settlement of its own, and some that are told together.
fn settlements(at_ms: i64) -> Vec<Step> {
    let in_lease = |request: &str| {
        let row = row("acme", 1, request, at_ms, nanos(3));
        let (holder, number) = (node(7), 1);
        let settlement = Settlement::of(row, 0).with_lease(Some(LeaseId { holder, number }));
        AccountChange::Settle(Box::new(settlement))
    };
    let alone = settled("r1", at_ms, 3);
    steps(1, [alone, in_lease("r2"), in_lease("r3"), in_lease("r4")])
}

#[tokio::test]
async fn it_has_the_sums_of_all_rows_and_no_list() {
    let Some((server, clock, first)) = start().await else {
        return;
    };
    let (ledger, now) = (ledger(&first, &clock), clock.now_ms());
    assert_eq!(ledger.apply(&node(1), "acme", &settlements(now), 40).await, Ok(4));
    let names: Vec<String> = server.ask(&["KEYS", "*:log:*"]).await;
    assert_eq!(names, Vec::<String>::new());
    let day = now / 86_400_000;
    assert_eq!(ledger.log_days("acme", day..=day).await, Ok(vec![]));
    let rows = settlements(now).into_iter().map(|step| match step.change {
        AccountChange::Settle(settlement) => Arc::unwrap_or_clone(settlement.row.unwrap()),
        other => panic!("{other:?}"),
    });
    let expected = DailySums::of_day(&rows.collect::<Vec<_>>());
    for of in [SumSelector::One(SumSubject::Account), SumSelector::Keys] {
        let days = day..=day;
        assert_eq!(
            ledger.sums("acme", days.clone(), &of).await,
            Ok(expected.select(&days, &of))
        );
    }
}

#[tokio::test]
async fn rows_from_before_are_read_and_removed_and_no_others_come() {
    let Some((_server, clock, first)) = start().await else {
        return;
    };
    let (ledger, now) = (ledger(&first, &clock), clock.now_ms());
    let (before, day) = (steps(1, [settled("before", now, 1)]), now / 86_400_000);
    first.ledger.apply(&node(1), "acme", &before, 0).await.unwrap();
    let after = steps(2, [settled("after", now, 1)]);
    ledger.apply(&node(1), "acme", &after, 0).await.unwrap();
    let rows = ledger.rows("acme", day, 0, 10).await;
    assert_eq!(rows, Ok(vec![row("acme", 1, "before", now, nanos(1))]));
    assert_eq!(ledger.remove("acme", &LogDay { day, rows: 1 }).await, Ok(true));
    assert_eq!(ledger.log_days("acme", day..=day).await, Ok(vec![]));
}

#[tokio::test]
async fn many_settlements_of_leases_are_one_call_and_one_by_one_only_a_part_of_them() {
    let Some((_server, clock, first)) = start().await else {
        return;
    };
    let (ledger, now) = (ledger(&first, &clock), clock.now_ms());
    let leased = |count: usize| leased_steps(count, now);
    let most = ledger.batch_steps_max();
    assert!(most > APPLY_STEPS_MAX);
    let all = leased(most + 1);
    let (node, first_part) = (node(1), u64::try_from(most).unwrap());
    assert_eq!(ledger.apply(&node, "acme", &all, 0).await, Ok(first_part));
    assert_eq!(ledger.apply(&node, "acme", &all[most..], 0).await, Ok(first_part + 1));
    let account = ledger.account("acme").await.unwrap().unwrap();
    assert_eq!(account.balance, nanos(-3 * (i64::try_from(most).unwrap() + 1)));
    // With another step among them, all cost as much as that one.
    let mut mixed = leased(APPLY_STEPS_MAX + 1);
    mixed[0] = steps(1, [settled("alone", now, 3)]).remove(0);
    let other = contract::node(2);
    let applied = ledger.apply(&other, "acme", &mixed, 0).await;
    assert_eq!(applied, Ok(u64::try_from(APPLY_STEPS_MAX).unwrap()));
}

#[tokio::test]
async fn a_large_batch_of_which_a_part_was_applied_is_applied_one_by_one_and_each_step_once() {
    let Some((_server, clock, first)) = start().await else {
        return;
    };
    let (ledger, now) = (ledger(&first, &clock), clock.now_ms());
    let most = ledger.batch_steps_max();
    let all = leased_steps(most, now);
    let (applied, overlap) = (APPLY_STEPS_MAX + 100, 200);
    let watermark = |steps: usize| Ok(u64::try_from(steps).unwrap());
    let node = node(1);
    assert_eq!(
        ledger.apply(&node, "acme", &all[..applied], 0).await,
        watermark(applied)
    );
    let again = ledger.apply(&node, "acme", &all[overlap..], 0).await;
    assert_eq!(again, watermark(overlap + APPLY_STEPS_MAX));
    let account = ledger.account("acme").await.unwrap().unwrap();
    let charged = i64::try_from(overlap + APPLY_STEPS_MAX).unwrap() * 3;
    assert_eq!(account.balance, nanos(-charged));
}

/// Settlements of requests from one lease, at 3 nano-USD each.
fn leased_steps(count: usize, now: i64) -> Vec<Step> {
    let changes = (0..count).map(|number| {
        let row = row("acme", 1, &format!("r{number}"), now, nanos(3));
        let lease = LeaseId {
            holder: node(7),
            number: 1,
        };
        AccountChange::Settle(Box::new(Settlement::of(row, 0).with_lease(Some(lease))))
    });
    steps(1, changes)
}
