//! What leaves a Redis gives its memory back.

use super::*;
use crate::store::{
    contract::until,
    redis::{RedisLedger, test_server::TestServer},
};

/// How many rows there are, over four days; a measurement takes more.
const ROWS: &str = "WEIR_TRIM_ROWS";
const ROWS_DEFAULT: u64 = 20_000;
const DAYS: i64 = 4;
/// Rows that are made at once.
const PORTION: u64 = 10_000;

/// The server's memory, when nothing is left to be freed.
async fn used(server: &TestServer) -> u64 {
    let mut told = String::new();
    until("what was removed to be freed", async || {
        told = server.ask(&["INFO", "memory"]).await;
        told.contains("lazyfree_pending_objects:0\r\n")
    })
    .await;
    let line = told.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_rows_that_have_left_is_free_and_two_days_stay() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let ledger: Arc<dyn LedgerStore> = Arc::new(RedisLedger::new(Arc::clone(&joined.store)));
    let both = Both::new(Arc::clone(&ledger));
    let count = std::env::var(ROWS).ok().and_then(|text| text.parse().ok());
    let of_day = count.unwrap_or(ROWS_DEFAULT) / u64::try_from(DAYS).unwrap();
    let today = ledger.now_ms().await.unwrap().div_euclid(DAY_MS);
    let mut trimmer = both.trimmer(false);
    let (mut number, mut lane, mut drawn) = (0, 100, Vec::new());
    let empty = used(&server).await;
    for day in today - DAYS + 1..=today {
        let mut left = of_day;
        while left > 0 {
            let portion = left.min(PORTION);
            let of = |seed: u64| Row {
                account: "acme".into(),
                ..row(seed, day * DAY_MS + i64::try_from(seed % 80_000_000).unwrap())
            };
            let rows: Vec<Row> = (number..number + portion).map(of).collect();
            both.charge(number + 1, &rows).await;
            both.feed(lane, &rows).await;
            (number, left, lane) = (number + portion, left - portion, lane + 1);
        }
        let before = used(&server).await;
        let began = clock::instant();
        // As at the end of that day: its rows and those of the day before it stay.
        trimmer.round(today - 10, day - 1).await.unwrap();
        drawn.push((before - empty, used(&server).await - empty, began.elapsed()));
    }
    let per_row = drawn[0].0 / of_day;
    eprintln!(
        "{of_day} rows a day, {per_row} bytes a row; bytes before and after each day's round, and its time: {drawn:?}"
    );
    let days = ledger.log_days("acme", today - 10..=today).await.unwrap();
    let standing: Vec<(u64, u64)> = days.iter().map(|day| (day.rows, day.trimmed)).collect();
    assert_eq!(standing, [(0, of_day), (0, of_day), (of_day, 0), (of_day, 0)]);
    let of_days = |days: u64| per_row * of_day * days;
    for (before, after, _) in &drawn {
        assert!(*before < of_days(7) / 2, "{before} bytes, of {} a day", of_days(1));
        assert!(*after < of_days(5) / 2, "{after} bytes, of {} a day", of_days(1));
    }
    assert_eq!(both.figures.rows(), 2 * of_day);
}
