//! The newest rows of the lists: each row once, in order, at a cost that does not depend on how many there are.

use std::collections::BTreeSet;

use super::*;
use crate::sinks::NewestRows;

const LONG: Duration = Duration::from_secs(3600);

/// Rows of some accounts over some days, one a second, in the order in which they ended.
fn rows(count: u64, accounts: u64, days: i64) -> Vec<Row> {
    let rows = (0..count).map(|seed| {
        let second = i64::try_from(seed).unwrap();
        Row {
            account: format!("account-{}", seed % accounts).into(),
            ..row(seed, BEGIN_MS + second % days * DAY_MS + second * 1000)
        }
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_by_key(|row| row.time_ms);
    rows
}

fn whole(days: i64) -> LogFilter {
    LogFilter::between(BEGIN_MS, BEGIN_MS + days * DAY_MS)
}

fn ask(filter: &LogFilter, from: Option<NewestCursor>, limit: usize, time: Duration) -> NewestRowsQuery {
    NewestRowsQuery {
        filter: filter.clone(),
        from,
        limit,
        until: clock::instant() + time,
    }
}

/// All pages, each with as much time as that.
async fn pages(log: &StoreLog, filter: &LogFilter, limit: usize, time: Duration) -> Vec<NewestRows> {
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let page = log.newest(&ask(filter, cursor, limit, time)).await.unwrap();
        cursor = page.next.clone();
        pages.push(page);
        if cursor.is_none() {
            return pages;
        }
    }
}

fn ids<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<&'a str> {
    rows.into_iter().map(|row| row.request_id.as_str()).collect()
}

#[tokio::test]
async fn the_newest_rows_of_all_accounts_come_first_page_by_page() {
    let rows = rows(300, 3, 4);
    let (_, log) = log_of(&rows, 100);
    for limit in [1, 7, 25, 1000] {
        let pages = pages(&log, &whole(4), limit, LONG).await;
        assert!(pages.iter().all(|page| page.rows.len() <= limit));
        let found = pages.iter().flat_map(|page| &page.rows);
        assert_eq!(ids(found), ids(rows.iter().rev()), "pages of {limit}");
    }
}

#[tokio::test]
async fn only_rows_that_the_filter_takes_are_found_and_each_look_ends_in_time() {
    let rows = rows(3_000, 2, 2);
    let (_, log) = log_of(&rows, 100);
    let wanted = &rows[17];
    let filter = LogFilter {
        account: Some(wanted.account.to_string()),
        ..LogFilter::between(wanted.time_ms, wanted.time_ms + 1)
    };
    let pages = pages(&log, &filter, 25, Duration::ZERO).await;
    assert_eq!(ids(pages.iter().flat_map(|page| &page.rows)), [&*wanted.request_id]);
    assert!(pages.len() > 1, "there is no time at all");
    assert!(pages.iter().all(|page| page.looked_at <= 256));
}

#[tokio::test]
async fn a_page_costs_what_it_shows_however_many_rows_there_are() {
    let mut costs = BTreeSet::new();
    for count in [2_000, 20_000] {
        let (shelf, log) = log_of(&rows(count, 1, 1), 100);
        let mut cursor = None;
        for _ in 0..3 {
            let before = shelf.calls();
            let page = log.newest(&ask(&whole(1), cursor, 25, LONG)).await;
            cursor = page.unwrap().next;
            costs.insert(shelf.calls() - before);
        }
    }
    assert_eq!(costs, [2].into(), "the end of the day, and one piece before it");
}

#[tokio::test]
async fn rows_that_come_meanwhile_move_no_others() {
    let rows = rows(40, 2, 1);
    let (shelf, log) = log_of(&rows[..20], 100);
    let first = log.newest(&ask(&whole(1), None, 10, LONG)).await.unwrap();
    rows[20..].iter().for_each(|row| shelf.put(row.clone()));
    let second = log.newest(&ask(&whole(1), first.next, 10, LONG)).await.unwrap();
    let found = first.rows.iter().chain(&second.rows);
    assert_eq!(ids(found), ids(rows[..20].iter().rev()));
}

#[tokio::test]
async fn rows_that_the_store_loses_meanwhile_are_passed_over() {
    let rows = rows(300, 3, 4);
    let (shelf, log) = log_of(&rows, 100);
    let first = log.newest(&ask(&whole(4), None, 10, LONG)).await.unwrap();
    shelf.lose(10);
    let second = log.newest(&ask(&whole(4), first.next, 1000, LONG)).await.unwrap();
    assert!(second.next.is_none());
    let found = first.rows.iter().chain(&second.rows);
    let once: BTreeSet<&str> = ids(found.clone()).into_iter().collect();
    assert_eq!(once.len(), found.count(), "none twice");
    assert!(second.rows.len() >= rows.len() - first.rows.len() - 3 * 4 * 10);
}
