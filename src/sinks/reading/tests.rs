//! Rows of the homes and of those on their way there come once each, however they are shared between these and whatever happens
//! meanwhile.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    domain::ledger::{consumption::Row, ids::Tag, log_query},
    edges::clock,
    sinks::{
        BatchLimits, Linger,
        contract::{BEGIN_MS, node, row},
        store_log::{StoreLog, tests::shelf::StoreShelf},
        tail::LogTail,
    },
};

mod newest;
mod program;
mod shelves;

use crate::sinks::reading::tests::shelves::HomeShelf;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const LONG: Duration = Duration::from_secs(3600);

fn ids(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.request_id.as_str()).collect()
}

/// What a filter takes, in the order of the log.
fn expected(rows: &[Row], filter: &LogFilter) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.iter().filter(|row| filter.matches(row)).cloned().collect();
    rows.sort_by(|one, other| {
        let place = |row: &Row| row.time_ms.div_euclid(DAY_MS);
        (place(one), log_query::row_sort_key(one)).cmp(&(place(other), log_query::row_sort_key(other)))
    });
    rows
}

/// Reads page by page, each as a request of its own, with some time for each.
async fn read(
    reading: &Arc<LogReader>,
    filter: &LogFilter,
    limit: usize,
    time: Duration,
) -> Result<Vec<Row>, LogReadError> {
    let (mut found, mut cursor) = (Vec::new(), Some(LogCursor::before(filter)));
    while let Some(from) = cursor {
        let rows = reading.rows(filter.clone(), from);
        let mut rows = rows.with_deadline(clock::instant() + time);
        let some = rows.next(limit).await?;
        assert!(some.len() <= limit);
        found.extend(some);
        cursor = rows.cursor().cloned();
    }
    Ok(found)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(work)
}

/// The tail of a lane that has these rows, all of which have been read and none acknowledged.
fn tail_of(rows: &[Row]) -> Arc<LogTail> {
    let numbered = std::iter::zip(1.., rows).map(|(number, row)| NumberedRow {
        number,
        row: row.clone(),
    });
    let end = rows.len() as u64 + 1;
    let batching = BatchLimits {
        rows_max: rows.len().max(1),
        linger: Linger::For(LONG),
    };
    let tail = LogTail::new(node(1), batching, Box::new(move || Some(end)));
    tail.reset(0, None);
    tail.push(numbered.collect(), end, true);
    Arc::new(tail)
}

/// One of some rows: few different times and accounts, so that many are equal in them.
fn any_row() -> impl Strategy<Value = Row> {
    (any::<u64>(), 0..40_i64).prop_map(|(seed, time)| row(seed, BEGIN_MS + time * DAY_MS / 10))
}

fn any_filter() -> impl Strategy<Value = LogFilter> {
    let optional = |choices: Vec<&'static str>| prop::option::of(prop::sample::select(choices));
    let account = optional(vec!["account-0", "account-3", "nobody"]);
    let model = optional(vec!["gpt-5.2", "claude-opus-4-8"]);
    let status = prop::option::of(prop::sample::select(vec![200..=200, 500..=599]));
    let tag = optional(vec!["team=research", "cost-center=42"]);
    let times = (0..40_i64, 0..40_i64);
    (account, model, status, tag, times).prop_map(|(account, model, status, tag, (from, until))| LogFilter {
        account: account.map(str::to_owned),
        model: model.map(str::to_owned),
        status,
        tag: tag.and_then(Tag::parse),
        ..LogFilter::between(
            BEGIN_MS + from.min(until) * DAY_MS / 10,
            BEGIN_MS + from.max(until) * DAY_MS / 10,
        )
    })
}

/// Where a row is: in some of three places, at least in one.
fn anywhere() -> impl Strategy<Value = [bool; 3]> {
    (1..8_u8).prop_map(|places| [0, 1, 2].map(|place| places & (1 << place) != 0))
}

/// As much time as is needed for a page, or none.
fn any_time() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![LONG, Duration::ZERO])
}

/// The rows of one place.
fn of_place(rows: &[(Row, [bool; 3])], place: usize) -> Vec<Row> {
    let there = rows.iter().filter(|(_, places)| places[place]);
    there.map(|(row, _)| row.clone()).collect()
}

proptest! {
    #[test]
    fn rows_on_their_way_and_of_the_home_and_of_the_home_before_come_once_each_in_order(
        rows in prop::collection::vec((any_row(), anywhere()), 0..80),
        filter in any_filter(),
        limit in 1..20_usize,
    ) {
        let (home, former, tails) = (Arc::<HomeShelf>::default(), Arc::<HomeShelf>::default(), LogTails::default());
        let tail = tail_of(&of_place(&rows, 0));
        tails.add(&tail);
        of_place(&rows, 1).into_iter().for_each(|row| home.put(row));
        of_place(&rows, 2).into_iter().for_each(|row| former.put(row));
        let reading = Arc::new(LogReader::new(home, Some(former)).with_tails(tails));
        let found = block_on(read(&reading, &filter, limit, LONG)).unwrap();
        let rows: Vec<Row> = rows.into_iter().map(|(row, _)| row).collect();
        let mut expected = expected(&rows, &filter);
        expected.dedup();
        prop_assert_eq!(ids(&found), ids(&expected));
    }

    #[test]
    fn rows_of_the_store_and_of_the_home_before_come_once_each_however_little_time_a_page_has(
        rows in prop::collection::vec((any_row(), anywhere()), 0..80),
        filter in any_filter(),
        limit in 1..20_usize,
        time in any_time(),
    ) {
        let (store, former) = (Arc::<StoreShelf>::default(), Arc::<HomeShelf>::default());
        of_place(&rows, 0).into_iter().for_each(|row| store.put(row));
        of_place(&rows, 1).into_iter().for_each(|row| former.put(row));
        let rows: Vec<Row> = [of_place(&rows, 0), of_place(&rows, 1)].concat();
        let store = StoreLog::new(Arc::clone(&store) as _, store);
        let reading = Arc::new(LogReader::new(Arc::new(store), Some(former)));
        let found = block_on(read(&reading, &filter, limit, time)).unwrap();
        let mut expected = expected(&rows, &filter);
        expected.dedup();
        prop_assert_eq!(ids(&found), ids(&expected));
    }
}

#[tokio::test]
async fn a_home_that_is_away_is_an_error_and_never_a_part_of_the_rows() {
    let (home, tails) = (Arc::<HomeShelf>::default(), LogTails::default());
    let tail = tail_of(&[row(1, BEGIN_MS)]);
    tails.add(&tail);
    let reading = Arc::new(LogReader::new(Arc::clone(&home) as _, None).with_tails(tails));
    let filter = LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS);
    home.set_away(true);
    let error = read(&reading, &filter, 10, LONG).await.unwrap_err().to_string();
    assert!(
        error.contains("the log backend cannot be read")
            && error.contains("no rows are returned, because the result would be incomplete"),
        "{error}"
    );
    home.set_away(false);
    assert_eq!(read(&reading, &filter, 10, LONG).await.unwrap().len(), 1);
}

#[tokio::test]
async fn rows_that_have_not_been_read_are_an_error_for_those_who_may_want_them() {
    let (home, tails) = (
        Arc::<HomeShelf>::default(),
        LogTails::waiting(Duration::from_millis(20)),
    );
    let batching = BatchLimits {
        rows_max: 10,
        linger: Linger::For(LONG),
    };
    let tail = Arc::new(LogTail::new(node(1), batching, Box::new(|| Some(30))));
    tails.add(&tail);
    let reading = Arc::new(LogReader::new(Arc::clone(&home) as _, None).with_tails(tails));
    let (old, new) = (row(1, BEGIN_MS), row(2, BEGIN_MS + 5 * HOUR_MS));
    home.put(old.clone());
    let all = LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS);
    let early = LogFilter::between(BEGIN_MS, BEGIN_MS + 4 * HOUR_MS);
    let behind = async |filter: &LogFilter| {
        let found = read(&reading, filter, 10, LONG).await;
        match found {
            Err(LogReadError::Behind(why)) => Some(why),
            _ => None,
        }
    };
    assert_eq!(behind(&early).await, Some(TailBehind::BackendSilent(node(1))));
    tail.reset(10, None);
    let unread = Some(TailBehind::Unread(node(1)));
    assert_eq!(behind(&early).await, unread, "nothing is known of the rows");
    let numbered = NumberedRow {
        number: 10,
        row: new.clone(),
    };
    tail.push(vec![numbered], 11, false);
    assert_eq!(behind(&all).await, unread);
    let later = LogFilter::between(BEGIN_MS, BEGIN_MS + 4 * HOUR_MS + 1);
    assert_eq!(
        behind(&later).await,
        unread,
        "it may have ended an hour before one that was read"
    );
    assert_eq!(
        ids(&read(&reading, &early, 10, LONG).await.unwrap()),
        ids(std::slice::from_ref(&old))
    );
    tail.push(Vec::new(), 30, true);
    assert_eq!(read(&reading, &all, 10, LONG).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_reader_waits_until_what_is_on_disk_has_been_read() {
    let (home, tails) = (Arc::<HomeShelf>::default(), LogTails::waiting(LONG));
    let batching = BatchLimits {
        rows_max: 10,
        linger: Linger::For(LONG),
    };
    let tail = Arc::new(LogTail::new(node(1), batching, Box::new(|| Some(8))));
    tails.add(&tail);
    let reading = Arc::new(LogReader::new(home, None).with_tails(tails));
    let filter = LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS);
    let found = tokio::spawn(async move { read(&reading, &filter, 10, LONG).await.unwrap().len() });
    tail.reset(0, None);
    tail.wait_for_reader().await;
    assert!(!found.is_finished());
    let numbered = NumberedRow {
        number: 7,
        row: row(1, BEGIN_MS),
    };
    tail.push(vec![numbered], 8, true);
    assert_eq!(found.await.unwrap(), 1);
}

#[tokio::test]
async fn the_latest_rows_of_a_key_are_those_on_their_way_and_of_both_homes() {
    let (home, former, tails) = (
        Arc::<HomeShelf>::default(),
        Arc::<HomeShelf>::default(),
        LogTails::default(),
    );
    let of_key = |number: i64| Row {
        account: "acme".into(),
        key_id: row(1, BEGIN_MS).key_id,
        ..row(number.unsigned_abs(), BEGIN_MS + number * HOUR_MS)
    };
    let tail = tail_of(&[of_key(5), of_key(6)]);
    tails.add(&tail);
    [3, 4, 5].iter().for_each(|number| home.put(of_key(*number)));
    [1, 2, 3].iter().for_each(|number| former.put(of_key(*number)));
    let reading = LogReader::new(Arc::clone(&home) as _, Some(former)).with_tails(tails);
    let (day, key) = (BEGIN_MS / DAY_MS, of_key(1).key_id);
    let latest = async |limit: usize| reading.latest("acme", &key, day..=day, limit).await.unwrap();
    let wanted: Vec<Row> = (1..=6).rev().map(of_key).collect();
    for limit in [3, 6, 10] {
        let (found, not_read) = latest(limit).await;
        assert_eq!(ids(&found.rows), ids(&wanted[..limit.min(6)]));
        assert!(found.is_complete && not_read.is_none());
    }
    home.set_away(true);
    let (found, not_read) = latest(2).await;
    assert_eq!(ids(&found.rows), ids(&wanted[..2]));
    assert!(!found.is_complete && not_read.is_some(), "others may be at home");
}
