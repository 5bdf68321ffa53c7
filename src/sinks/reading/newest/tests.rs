//! Pages of the newest rows: each row once, in order, at a cost that does not depend on how many there are.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    super::tests::shelves::{HomeShelf, StoreShelf},
    *,
};
use crate::{
    edges::clock,
    sinks::{
        Home,
        contract::samples::{BEGIN_MS, row},
        homes::Homes,
    },
};

const DAY_MS: i64 = 24 * 3_600_000;
const LONG: Duration = Duration::from_secs(3600);

fn reading(rows: &[Row]) -> (Arc<StoreShelf>, Arc<LogReading>) {
    let store = Arc::<StoreShelf>::default();
    rows.iter().for_each(|row| store.put(row.clone()));
    let reading = LogReading::new(Arc::clone(&store) as _, Homes::default());
    (store, Arc::new(reading))
}

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

/// All pages, each with as much time as that.
async fn pages(reading: &Arc<LogReading>, filter: &LogFilter, limit: usize, time: Duration) -> Vec<Newest> {
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let page = reading.newest(filter, cursor, limit, clock::instant() + time).await;
        let page = page.unwrap();
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
    let (_, reading) = reading(&rows);
    for limit in [1, 7, 25, 1000] {
        let pages = pages(&reading, &whole(4), limit, LONG).await;
        assert!(pages.iter().all(|page| page.rows.len() <= limit));
        let found = pages.iter().flat_map(|page| &page.rows);
        assert_eq!(ids(found), ids(rows.iter().rev()), "pages of {limit}");
    }
}

#[tokio::test]
async fn only_rows_that_the_filter_takes_are_found_and_each_look_ends_in_time() {
    let rows = rows(3_000, 2, 2);
    let (_, reading) = reading(&rows);
    let wanted = &rows[17];
    let filter = LogFilter {
        account: Some(wanted.account.to_string()),
        ..LogFilter::between(wanted.time_ms, wanted.time_ms + 1)
    };
    let pages = pages(&reading, &filter, 25, Duration::ZERO).await;
    assert_eq!(ids(pages.iter().flat_map(|page| &page.rows)), [&*wanted.request_id]);
    assert!(pages.len() > 1, "there is no time at all");
    assert!(pages.iter().all(|page| page.looked_at <= STEP));
}

#[tokio::test]
async fn a_page_costs_what_it_shows_however_many_rows_there_are() {
    let mut costs = BTreeSet::new();
    for count in [2_000, 20_000] {
        let (store, reading) = reading(&rows(count, 1, 1));
        let mut cursor = None;
        for _ in 0..3 {
            let before = store.calls();
            let page = reading.newest(&whole(1), cursor, 25, clock::instant() + LONG).await;
            cursor = page.unwrap().next;
            costs.insert(store.calls() - before);
        }
    }
    assert_eq!(costs, [2].into(), "the end of the day, and one piece before it");
}

#[tokio::test]
async fn rows_that_come_meanwhile_move_no_others() {
    let rows = rows(40, 2, 1);
    let (store, reading) = reading(&rows[..20]);
    let until = clock::instant() + LONG;
    let first = reading.newest(&whole(1), None, 10, until).await.unwrap();
    rows[20..].iter().for_each(|row| store.put(row.clone()));
    let second = reading.newest(&whole(1), first.next, 10, until).await.unwrap();
    let found = first.rows.iter().chain(&second.rows);
    assert_eq!(ids(found), ids(rows[..20].iter().rev()));
}

/// The same where the rows of all days but the last are at home.
fn reading_of_home(rows: &[Row], days: i64) -> Arc<LogReading> {
    let (store, home) = (Arc::<StoreShelf>::default(), Arc::<HomeShelf>::default());
    rows.iter().for_each(|row| store.put(row.clone()));
    for day in store.days() {
        while day.1 < BEGIN_MS.div_euclid(DAY_MS) + days - 1 {
            let gone = store.trim(&day);
            if gone.is_empty() {
                break;
            }
            gone.into_iter().for_each(|row| home.put(row));
        }
    }
    let homes: [Arc<dyn Home>; 1] = [home];
    Arc::new(LogReading::new(store, Homes::of(homes)))
}

#[tokio::test]
async fn rows_that_have_left_the_store_follow_those_that_have_not() {
    let rows = rows(300, 3, 4);
    let reading = reading_of_home(&rows, 4);
    for (limit, time) in [(1, LONG), (7, LONG), (25, Duration::ZERO), (1000, LONG)] {
        let pages = pages(&reading, &whole(4), limit, time).await;
        assert!(pages.iter().all(|page| page.rows.len() <= limit));
        let found = pages.iter().flat_map(|page| &page.rows);
        assert_eq!(ids(found), ids(rows.iter().rev()), "pages of {limit}");
    }
}

#[tokio::test]
async fn rows_of_one_moment_come_once_each_however_many_there_are() {
    let moment = |seed| row(seed, BEGIN_MS + 7);
    let others = [row(900, BEGIN_MS + 2), row(901, BEGIN_MS + DAY_MS)];
    let rows: Vec<Row> = (0..100).map(moment).chain(others).collect();
    let reading = reading_of_home(&rows, 2);
    // The less a page has, the shorter slices become: a millisecond in the end.
    for limit in [40, 1] {
        let pages = pages(&reading, &whole(2), limit, LONG).await;
        let found: Vec<&Row> = pages.iter().flat_map(|page| &page.rows).collect();
        let times: Vec<i64> = found.iter().map(|row| row.time_ms).collect();
        assert!(times.is_sorted_by(|one, other| one >= other), "pages of {limit}");
        assert_eq!(found.len(), rows.len());
        let once: BTreeSet<&str> = ids(found).into_iter().collect();
        assert_eq!(once.len(), rows.len());
    }
}

#[tokio::test]
async fn a_filter_holds_at_home_too_and_each_look_ends() {
    let rows = rows(3_000, 2, 3);
    let reading = reading_of_home(&rows, 3);
    let wanted = rows.iter().find(|row| row.time_ms < BEGIN_MS + DAY_MS).unwrap();
    let filter = LogFilter {
        account: Some(wanted.account.to_string()),
        ..LogFilter::between(wanted.time_ms, wanted.time_ms + 1)
    };
    let pages = pages(&reading, &filter, 25, Duration::ZERO).await;
    assert_eq!(ids(pages.iter().flat_map(|page| &page.rows)), [&*wanted.request_id]);
}
