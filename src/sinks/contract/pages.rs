//! Tests of reading rows. Every log backend must pass them. For each query, the log backend must return the same pages as a
//! search of the rows in memory.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            consumption::Row,
            ids::Tag,
            log_query::{self, LogFilter, LogPosition},
        },
    },
    edges::clock,
    journal::NumberedRow,
    sinks::{
        Batch, FedLogBackend, LatestKeyRows, LogBackend, LogPageQuery, NewestRowsQuery,
        contract::{BEGIN_MS, node, row},
    },
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const ROWS: u64 = 600;

/// Returns the rows of a lane over two days, in batches of an hour. Some requests ended in the same millisecond as other requests
/// of this or another lane.
fn batches(lane: u32) -> Vec<Batch> {
    let rows = (1..=ROWS).map(|number| NumberedRow {
        number,
        row: row(
            number * 2 + u64::from(lane),
            BEGIN_MS + i64::try_from(number / 7).unwrap() * DAY_MS / 60,
        ),
    });
    let rows: Vec<Arc<NumberedRow>> = rows.map(Arc::new).collect();
    let hour = |row: &NumberedRow| row.row.time_ms.div_euclid(HOUR_MS);
    let of_hours = rows.chunk_by(|one, next| hour(one) == hour(next));
    let batches = of_hours.map(|rows| Batch {
        node: node(lane),
        after: if rows[0].number == 1 { 0 } else { rows[0].number },
        upto: rows[rows.len() - 1].number + 1,
        rows: rows.to_vec(),
    });
    batches.collect()
}

/// Returns filters for each property of a row, and some that combine several properties.
fn filters(rows: &[Row]) -> Vec<LogFilter> {
    let all = LogFilter::between(BEGIN_MS - DAY_MS, BEGIN_MS + 3 * DAY_MS);
    let some = &rows[rows.len() / 2];
    let half_day = LogFilter::between(BEGIN_MS + DAY_MS / 4, BEGIN_MS + DAY_MS);
    let account = Some(some.account.clone());
    vec![
        half_day.clone(),
        LogFilter {
            account: account.clone().map(String::from),
            ..all.clone()
        },
        LogFilter {
            key: Some(some.key_id.clone()),
            ..all.clone()
        },
        LogFilter {
            model: Some("gpt-5.2".to_owned()),
            ..all.clone()
        },
        LogFilter {
            status: Some(500..=599),
            ..all.clone()
        },
        LogFilter {
            tag: Tag::parse("cost-center=42"),
            ..all.clone()
        },
        LogFilter {
            account: account.map(String::from),
            model: Some("claude-opus-4-8".to_owned()),
            status: Some(200..=200),
            tag: Tag::parse("team=research"),
            ..half_day
        },
        LogFilter {
            account: Some("nobody".to_owned()),
            ..all.clone()
        },
        all,
    ]
}

/// Returns the rows of both test lanes, in the order of the log.
pub(crate) fn rows() -> Vec<Row> {
    let batches = [batches(1), batches(2)].concat();
    let numbered = batches.into_iter().flat_map(|batch| batch.rows);
    let mut rows: Vec<Row> = numbered.map(|numbered| numbered.row.clone()).collect();
    rows.sort_by(|one, other| log_query::row_sort_key(one).cmp(&log_query::row_sort_key(other)));
    rows
}

/// Reads an account's rows whose requests ended on a day, in pages of `limit` rows.
pub(crate) async fn of_day(home: &dyn LogBackend, account: &str, day: i64, limit: usize) -> Vec<Row> {
    let (mut found, mut ask) = (Vec::new(), LogPageQuery::for_day(account, day, limit));
    loop {
        let page = home.page(&ask).await.unwrap();
        found.extend(page.rows);
        let Some(next) = page.next else { return found };
        ask.after = next;
    }
}

/// Appends rows to an empty log backend, and tests all queries of these rows.
pub(crate) async fn obeys(home: &dyn FedLogBackend) {
    for batch in [batches(1), batches(2)].concat() {
        home.append(&batch).await.unwrap();
    }
    reads(home, &rows()).await;
    let watermarks = home.watermarks().await.unwrap().unwrap();
    let ends = [1, 2].map(|lane| (node(lane), batches(lane).last().unwrap().upto));
    assert_eq!(watermarks, ends.into());
    rows_that_are_there_twice_come_together(home).await;
}

/// Tests queries of a log backend that has the rows `rows`.
pub(crate) async fn reads(home: &dyn LogBackend, rows: &[Row]) {
    for filter in filters(rows) {
        for limit in [1000, 17] {
            are_those_of(home, rows, &filter, limit).await;
        }
    }
    the_latest_of_a_key_come_first(home, rows).await;
    the_newest_come_first(home, rows).await;
}

async fn are_those_of(home: &dyn LogBackend, rows: &[Row], filter: &LogFilter, limit: usize) {
    for day in filter.first_day()..=filter.last_day() {
        let on_day = filter.within_day(day);
        let mut expected = rows.iter().filter(|row| on_day.matches(row));
        let mut ask = LogPageQuery::new(filter.clone(), day, limit);
        loop {
            let page = home.page(&ask).await.unwrap();
            for row in &page.rows {
                assert_eq!(Some(row), expected.next(), "{filter:?}");
            }
            let Some(next) = page.next else { break };
            assert_eq!(
                (page.rows.len(), page.rows.last().map(LogPosition::of)),
                (limit, Some(next.clone()))
            );
            ask.after = next;
        }
        assert_eq!(expected.next(), None, "{filter:?}");
    }
}

/// Appends some rows a second time, in a lane of their own, and tests that both copies are on the same page.
async fn rows_that_are_there_twice_come_together(home: &dyn FedLogBackend) {
    let (account, day) = ("account-1", BEGIN_MS.div_euclid(DAY_MS));
    let again: Vec<Row> = rows()
        .into_iter()
        .filter(|row| row.account == account && row.time_ms < BEGIN_MS + HOUR_MS)
        .collect();
    assert!(again.len() > 3);
    let numbered = std::iter::zip(1.., &again).map(|(number, row)| NumberedRow {
        number,
        row: row.clone(),
    });
    let batch = Batch {
        node: node(3),
        after: 0,
        upto: again.len() as u64 + 1,
        rows: numbered.map(Arc::new).collect(),
    };
    home.append(&batch).await.unwrap();
    let filter = LogFilter::of_day(account, day);
    let there = rows().iter().filter(|row| filter.matches(row)).count() + again.len();
    for limit in [1, 2, 1000] {
        let found = of_day(home, account, day, limit).await;
        assert!(found.is_sorted_by_key(LogPosition::of));
        assert_eq!(found.len(), there, "pages of {limit}");
    }
}

async fn the_latest_of_a_key_come_first(home: &dyn LogBackend, rows: &[Row]) {
    let (account, key): (&str, &KeyId) = (&rows[0].account, &rows[0].key_id);
    let day = BEGIN_MS.div_euclid(DAY_MS);
    let of_key = rows.iter().filter(|row| row.key_id == *key);
    let mut expected: Vec<&Row> = of_key.collect();
    expected.sort_by_key(|row| (row.time_ms, &row.request_id));
    expected.reverse();
    for limit in [1000, 5] {
        let found = home.latest(account, key, day - 3..=day + 5, limit).await.unwrap();
        assert!(found.is_complete && found.rows.iter().eq(expected.iter().copied().take(limit)));
    }
    let LatestKeyRows {
        rows,
        is_complete: is_whole,
    } = home.latest(account, key, day - 3..=day - 1, 5).await.unwrap();
    assert!(rows.is_empty() && is_whole);
}

async fn the_newest_come_first(home: &dyn LogBackend, rows: &[Row]) {
    let filters = filters(rows);
    for (filter, limit) in filters.iter().zip([7, 1000, 25].into_iter().cycle()) {
        let mut ask = NewestRowsQuery {
            filter: filter.clone(),
            from: None,
            limit,
            until: clock::instant() + Duration::from_secs(3600),
        };
        let mut found: Vec<Row> = Vec::new();
        loop {
            let newest = home.newest(&ask).await.unwrap();
            assert!(newest.rows.len() <= limit);
            found.extend(newest.rows);
            ask.from = newest.next;
            if ask.from.is_none() {
                break;
            }
        }
        assert!(
            found.is_sorted_by(|one, next| one.time_ms >= next.time_ms),
            "{filter:?}"
        );
        let expected = rows.iter().filter(|row| filter.matches(row));
        assert_eq!(places(&found), places(expected.clone()), "{filter:?}");
        assert_eq!(found.len(), expected.count(), "each once");
    }
}

fn places<'r>(rows: impl IntoIterator<Item = &'r Row>) -> BTreeSet<LogPosition> {
    rows.into_iter().map(LogPosition::of).collect()
}
