//! The store's rows, as a home of the log.

use std::time::{Duration, Instant};

use super::*;
use crate::{
    domain::ledger::{
        AccountChange, Settlement, Step,
        consumption::Row,
        log_query::{self, LogFilter},
    },
    edges::clock,
    sinks::contract::{BEGIN_MS, node, pages, row},
    store::ledger::contract::memory,
};

mod newest;
pub(in crate::sinks) mod shelf;

use crate::sinks::store_log::tests::shelf::StoreShelf;

const DAY_MS: i64 = 24 * 3_600_000;

#[tokio::test]
async fn pages_are_those_of_the_rows_whatever_is_asked_for() {
    let ledger = memory::ledger();
    let rows = pages::rows();
    for of_account in rows.chunk_by(|one, next| one.account == next.account) {
        let mut by_time: Vec<&Row> = of_account.iter().collect();
        by_time.sort_by_key(|row| (row.time_ms, &row.request_id));
        let steps = std::iter::zip(1.., by_time).map(|(seq, row)| Step {
            seq,
            change: AccountChange::Settle(Box::new(Settlement::of(row.clone(), 0))),
        });
        for some in steps.collect::<Vec<_>>().chunks(200) {
            let account = &of_account[0].account;
            ledger.apply(&node(1), account, some, 0).await.unwrap();
        }
    }
    let log = StoreLog::new(Arc::clone(&ledger) as _, ledger);
    pages::reads(&log, &rows).await;
    assert_eq!(log.watermarks().await, Ok(None), "rows come with their settlement");
}

/// A log of a shelf, with at most so many places of rows in memory.
fn log_of(rows: &[Row], places_max: usize) -> (Arc<StoreShelf>, StoreLog) {
    let shelf = Arc::<StoreShelf>::default();
    rows.iter().for_each(|row| shelf.put(row.clone()));
    let mut log = StoreLog::new(Arc::clone(&shelf) as _, Arc::clone(&shelf) as _);
    log.places_max = places_max;
    (shelf, log)
}

/// What a filter takes of the first day, page by page, each within some time; and how many times each asked for rows.
async fn read(
    (shelf, log): &(Arc<StoreShelf>, StoreLog),
    filter: &LogFilter,
    limit: usize,
    until: impl Fn() -> Option<Instant>,
) -> (Vec<Row>, Vec<usize>) {
    let (mut found, mut calls) = (Vec::new(), Vec::new());
    let mut next = Some(LogPosition::default());
    while let Some(after) = next {
        let before = shelf.calls();
        let ask = LogPageQuery {
            after: after.clone(),
            until: until(),
            ..LogPageQuery::new(filter.clone(), BEGIN_MS / DAY_MS, limit)
        };
        let page = log.page(&ask).await.unwrap();
        assert!(page.rows.len() <= limit);
        assert!(page.next.as_ref().is_none_or(|next| *next >= after));
        found.extend(page.rows);
        next = page.next;
        calls.push(shelf.calls() - before);
    }
    (found, calls)
}

fn ids(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.request_id.as_str()).collect()
}

/// What a filter takes of a day, in the order of the log.
fn expected(rows: &[Row], filter: &LogFilter) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.iter().filter(|row| filter.matches(row)).cloned().collect();
    rows.sort_by(|one, other| log_query::row_sort_key(one).cmp(&log_query::row_sort_key(other)));
    rows
}

/// Rows of one account and day that were settled in another order than they ended in.
fn busy_day(count: u64) -> Vec<Row> {
    let rows = (0..count).map(|seed| Row {
        account: "busy".into(),
        ..row(seed, BEGIN_MS + i64::try_from(seed * 7919 % count).unwrap() * 100)
    });
    rows.collect()
}

#[tokio::test]
async fn a_busy_day_is_read_in_order_with_few_places_in_memory() {
    let rows = busy_day(5_300);
    for (places_max, limit) in [(100_000, 4000), (1_500, 700), (1_000, 1_000)] {
        let filter = LogFilter::of_day("busy", BEGIN_MS / DAY_MS);
        let (found, _) = read(&log_of(&rows, places_max), &filter, limit, || None).await;
        assert!(ids(&found) == ids(&expected(&rows, &filter)), "{places_max} places");
    }
}

#[tokio::test]
async fn a_page_behind_another_does_not_look_through_the_day_again() {
    let log = log_of(&busy_day(20_000), 100_000);
    let filter = LogFilter::of_day("busy", BEGIN_MS / DAY_MS);
    let (found, calls) = read(&log, &filter, 50, || None).await;
    assert_eq!(found.len(), 20_000);
    // Each page at most reads the pieces that its rows are in, and asks what has come.
    let most = calls.iter().skip(1).max().unwrap();
    assert!(*most <= 52, "{most} calls for a page");
}

#[tokio::test]
async fn a_look_at_a_busy_day_ends_in_time_and_goes_on_where_it_was() {
    let mut rows = busy_day(5_300);
    for (number, account) in (0..).zip(["a", "c", "z"]) {
        rows.push(Row {
            account: account.into(),
            ..row(100_000 + number, BEGIN_MS + 7)
        });
    }
    let log = log_of(&rows, 100_000);
    let few = LogFilter {
        status: Some(500..=599),
        ..LogFilter::between(BEGIN_MS, BEGIN_MS + 60_000)
    };
    for filter in [few, LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS)] {
        let (found, calls) = read(&log, &filter, 1000, || Some(clock::instant())).await;
        assert_eq!(ids(&found), ids(&expected(&rows, &filter)));
        assert!(calls.len() > 6, "a piece of the day at a time: {calls:?}");
        assert!(calls.iter().all(|calls| *calls <= 3), "{calls:?}");
    }
}

#[tokio::test]
async fn a_reading_knows_of_accounts_with_rows_from_before_it_began() {
    let rows: Vec<Row> = (0..3)
        .map(|number| Row {
            account: format!("account-{number}").into(),
            ..row(number, BEGIN_MS)
        })
        .collect();
    let (shelf, log) = log_of(&rows[..1], 100);
    let filter = LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS);
    for number in 1..=rows.len() {
        let page = log
            .page(&LogPageQuery::new(filter.clone(), BEGIN_MS / DAY_MS, 10))
            .await;
        assert_eq!(page.unwrap().rows.len(), number);
        if let Some(row) = rows.get(number) {
            clock_moves().await;
            shelf.put(row.clone());
        }
    }
}

/// Waits until the clock says something else.
async fn clock_moves() {
    let now = clock::instant();
    while clock::instant() == now {
        tokio::time::sleep(Duration::from_micros(10)).await;
    }
}
