//! Pages of the newest rows of a store and of the home before it, and of those on their way to one.

use super::*;
use crate::sinks::{NewestRows, NewestRowsQuery};

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
async fn pages(reading: &LogReader, filter: &LogFilter, limit: usize, time: Duration) -> Vec<NewestRows> {
    let (mut pages, mut from) = (Vec::new(), None);
    loop {
        let page = reading.newest(NewestRowsQuery {
            filter: filter.clone(),
            from,
            limit,
            until: clock::instant() + time,
        });
        let page = page.await.unwrap();
        from = page.next.clone();
        pages.push(page);
        if from.is_none() {
            return pages;
        }
    }
}

fn found(pages: &[NewestRows]) -> Vec<Row> {
    pages.iter().flat_map(|page| &page.rows).cloned().collect()
}

fn reversed(rows: &[Row]) -> Vec<Row> {
    rows.iter().rev().cloned().collect()
}

/// A store that has the rows of the last day, and a home before it that has the others; some are in both.
fn reading_of_both(rows: &[Row], days: i64) -> LogReader {
    let (store, home) = (Arc::<StoreShelf>::default(), Arc::<HomeShelf>::default());
    let last = BEGIN_MS.div_euclid(DAY_MS) + days - 1;
    for (number, row) in rows.iter().enumerate() {
        let (is_of_last, is_in_both) = (row.time_ms.div_euclid(DAY_MS) == last, number.is_multiple_of(7));
        if is_of_last || is_in_both {
            store.put(row.clone());
        }
        if !is_of_last || is_in_both {
            home.put(row.clone());
        }
    }
    let store = StoreLog::new(Arc::clone(&store) as _, store);
    LogReader::new(Arc::new(store), Some(home))
}

#[tokio::test]
async fn rows_of_a_store_and_of_the_home_before_it_come_by_time() {
    let rows = rows(300, 3, 4);
    let reading = reading_of_both(&rows, 4);
    for (limit, time) in [(1, LONG), (7, LONG), (25, Duration::ZERO), (1000, LONG)] {
        let pages = pages(&reading, &whole(4), limit, time).await;
        assert!(pages.iter().all(|page| page.rows.len() <= limit));
        assert_eq!(ids(&found(&pages)), ids(&reversed(&rows)), "pages of {limit}");
    }
}

#[tokio::test]
async fn rows_on_their_way_and_of_a_store_before_come_by_time() {
    let rows = rows(90, 2, 2);
    let (home, former, tails) = (
        Arc::<HomeShelf>::default(),
        Arc::<StoreShelf>::default(),
        LogTails::default(),
    );
    let (old, new) = rows.split_at(60);
    old.iter().for_each(|row| former.put(row.clone()));
    let tail = tail_of(new);
    tails.add(&tail);
    let former = StoreLog::new(Arc::clone(&former) as _, former);
    let reading = LogReader::new(home, Some(Arc::new(former))).with_tails(tails);
    for limit in [1, 7, 1000] {
        let pages = pages(&reading, &whole(2), limit, LONG).await;
        assert_eq!(ids(&found(&pages)), ids(&reversed(&rows)), "pages of {limit}");
    }
}

#[tokio::test]
async fn rows_on_their_way_and_of_both_homes_come_by_time() {
    let rows = rows(300, 3, 4);
    let (home, former, tails) = (
        Arc::<HomeShelf>::default(),
        Arc::<HomeShelf>::default(),
        LogTails::default(),
    );
    // Some are in two places, and none of them has all of a time.
    let of = |places: [usize; 3]| -> Vec<Row> {
        let numbered = rows.iter().enumerate();
        let there = numbered.filter(|(number, _)| places.contains(&(number % 5)));
        there.map(|(_, row)| row.clone()).collect()
    };
    let tail = tail_of(&of([0, 1, 1]));
    tails.add(&tail);
    of([1, 2, 3]).into_iter().for_each(|row| home.put(row));
    of([3, 4, 4]).into_iter().for_each(|row| former.put(row));
    let reading = LogReader::new(home, Some(former)).with_tails(tails);
    for (limit, time) in [(1, LONG), (7, LONG), (25, Duration::ZERO), (1000, LONG)] {
        let pages = pages(&reading, &whole(4), limit, time).await;
        assert!(pages.iter().all(|page| page.rows.len() <= limit));
        assert_eq!(ids(&found(&pages)), ids(&reversed(&rows)), "pages of {limit}");
    }
}

#[tokio::test]
async fn rows_of_one_moment_come_once_each_however_many_there_are() {
    let moment = |seed| row(seed, BEGIN_MS + 7);
    let others = [row(900, BEGIN_MS + 2), row(901, BEGIN_MS + DAY_MS)];
    let rows: Vec<Row> = (0..100).map(moment).chain(others).collect();
    let reading = reading_of_both(&rows, 2);
    // The less a page has, the shorter slices become: a millisecond in the end.
    for limit in [40, 1] {
        let found = found(&pages(&reading, &whole(2), limit, LONG).await);
        let times: Vec<i64> = found.iter().map(|row| row.time_ms).collect();
        assert!(times.is_sorted_by(|one, other| one >= other), "pages of {limit}");
        assert_eq!(found.len(), rows.len());
        let once: BTreeSet<&str> = ids(&found).into_iter().collect();
        assert_eq!(once.len(), rows.len());
    }
}

#[tokio::test]
async fn a_filter_holds_in_both_and_each_look_ends() {
    let rows = rows(3_000, 2, 3);
    let reading = reading_of_both(&rows, 3);
    let wanted = rows.iter().find(|row| row.time_ms < BEGIN_MS + DAY_MS).unwrap();
    let filter = LogFilter {
        account: Some(wanted.account.to_string()),
        ..LogFilter::between(wanted.time_ms, wanted.time_ms + 1)
    };
    let pages = pages(&reading, &filter, 25, Duration::ZERO).await;
    assert_eq!(ids(&found(&pages)), [&*wanted.request_id]);
}

#[tokio::test]
async fn the_first_page_of_a_day_that_is_not_over_has_the_rows_of_the_last_hour_however_little_time_it_has() {
    let now_ms = clock::unix_millis();
    let rows = [row(1, now_ms - HOUR_MS / 2), row(2, now_ms)];
    let home = Arc::<HomeShelf>::default();
    rows.iter().for_each(|row| home.put(row.clone()));
    let reading = LogReader::new(home, Some(Arc::<HomeShelf>::default()));
    let filter = LogFilter::between(now_ms - DAY_MS, now_ms + DAY_MS);
    let pages = pages(&reading, &filter, 25, Duration::ZERO).await;
    assert_eq!(ids(&pages[0].rows), ids(&reversed(&rows)));
    assert_eq!(ids(&found(&pages)), ids(&reversed(&rows)));
}
