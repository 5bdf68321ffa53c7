//! Rows leave Redis: also when it is full, and whole when it is killed meanwhile.

use super::*;
use crate::domain::ledger::{
    LogDay,
    daily_sums::{Subject, SumsOf},
};
use crate::store::ledger::contract::START_MS;

const DAY_MS: i64 = 24 * 3600 * 1000;
const TODAY: i64 = START_MS / DAY_MS;
const ROWS: u64 = 50;

/// Charges so many rows on each of some days before today.
async fn fill(ledger: &dyn LedgerStore, days: i64) {
    let mut first = 2;
    ledger
        .apply(&node(1), "acme", &steps(1, [open_with(1_000_000)]), 0)
        .await
        .unwrap();
    for day in TODAY - days..TODAY {
        let charges = (first..first + ROWS).map(|number| settled(&format!("r{number}"), day * DAY_MS + 7, 3));
        ledger.apply(&node(1), "acme", &steps(first, charges), 0).await.unwrap();
        first += ROWS;
    }
}

fn seen(day: i64) -> LogDay {
    LogDay {
        day,
        rows: ROWS,
        trimmed: 0,
    }
}

#[tokio::test]
async fn rows_leave_a_redis_that_is_full() {
    let Some((server, _clock, first)) = start().await else {
        return;
    };
    fill(&*first.ledger, 3).await;
    let () = server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = steps(2 + 3 * ROWS, [settled("no-room", START_MS, 1)]);
    assert!(
        first.ledger.apply(&node(1), "acme", &refused, 0).await.is_err(),
        "it is full"
    );
    assert_eq!(first.ledger.trim("acme", &seen(TODAY - 3)).await, Ok(true));
    let days = first.ledger.log_days("acme", TODAY - 3..=TODAY - 3).await.unwrap();
    assert_eq!((days[0].rows, days[0].trimmed), (0, ROWS));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_has_left_or_has_not_when_redis_is_killed_meanwhile() {
    const DAYS: i64 = 20;
    let Some(mut server) = TestServer::start_durable().await else {
        return;
    };
    let first = join(&server, &TestClock::new()).await;
    fill(&*first.ledger, DAYS).await;
    let ledger = Arc::clone(&first.ledger);
    let trims = tokio::spawn(async move {
        for day in TODAY - DAYS..TODAY {
            if ledger.trim("acme", &seen(day)).await.is_err() {
                return;
            }
        }
    });
    until("some days to have left", async || {
        let log: i64 = server
            .ask(&["EXISTS", &format!("{{weir:a:acme}}:log:{}", TODAY - DAYS + 2)])
            .await;
        log == 0
    })
    .await;
    server.kill();
    trims.await.unwrap();
    server.restart().await;
    until("the ledger to be there again", async || {
        first.ledger.account("acme").await.is_ok()
    })
    .await;
    let days = first.ledger.log_days("acme", TODAY - DAYS..=TODAY).await.unwrap();
    assert_eq!(days.len(), usize::try_from(DAYS).unwrap());
    for day in days {
        assert!([(0, ROWS), (ROWS, 0)].contains(&(day.rows, day.trimmed)), "{day:?}");
        let there = first.ledger.rows("acme", day.day, 0, 1000).await.unwrap().len() as u64;
        let sums = first
            .ledger
            .sums("acme", day.day..=day.day, &SumsOf::One(Subject::Account));
        assert_eq!((there, sums.await.unwrap()[0].sums.requests), (day.rows, ROWS));
    }
}

#[tokio::test]
async fn one_node_at_a_time_has_the_turn_at_a_task() {
    let Some((server, clock, first)) = start().await else {
        return;
    };
    let second = join(&server, &clock).await;
    let asked = async |by: &Node, number: u8, for_ms| by.ledger.take_turn("a task", &node(number), for_ms).await;
    assert_eq!(asked(&first, 1, 600_000).await, Ok(true));
    assert_eq!(asked(&second, 2, 1).await, Ok(false));
    assert_eq!(second.ledger.take_turn("another", &node(2), 600_000).await, Ok(true));
    assert_eq!(asked(&first, 1, 1).await, Ok(true), "who has it may have it again");
    until("the turn to end", async || asked(&second, 2, 600_000).await == Ok(true)).await;
    assert_eq!(asked(&first, 1, 1).await, Ok(false));
}
