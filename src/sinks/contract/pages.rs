//! What every home is held to as a reader: pages are those of the rows in memory, whatever is asked for.

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            consumption::Row,
            log_filter::LogFilter,
            log_place::{self, LogPlace},
            tag::Tag,
        },
    },
    journal::NumberedRow,
    sinks::{
        contract::samples::{BEGIN_MS, node, row},
        home::Home,
        sink::Batch,
    },
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const ROWS: u64 = 600;

/// The rows of a lane over two days, in batches of an hour. Several ended in the same millisecond, and in that of another lane's.
fn batches(lane: u32) -> Vec<Batch> {
    let rows = (1..=ROWS).map(|number| NumberedRow {
        number,
        row: row(
            number * 2 + u64::from(lane),
            BEGIN_MS + i64::try_from(number / 7).unwrap() * DAY_MS / 60,
        ),
    });
    let rows: Vec<NumberedRow> = rows.collect();
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

/// Asks for each of these, for some with several conditions at once.
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

/// Holds an empty home to it.
pub(crate) async fn obeys(home: &dyn Home) {
    let batches = [batches(1), batches(2)].concat();
    for batch in &batches {
        home.append(batch).await.unwrap();
    }
    let mut rows: Vec<Row> = batches
        .into_iter()
        .flat_map(|batch| batch.rows)
        .map(|numbered| numbered.row)
        .collect();
    rows.sort_by(|one, other| log_place::order(one).cmp(&log_place::order(other)));
    for filter in filters(&rows) {
        for limit in [1000, 17] {
            are_those_of(home, &rows, &filter, limit).await;
        }
    }
    the_latest_of_a_key_come_first(home, &rows).await;
}

async fn are_those_of(home: &dyn Home, rows: &[Row], filter: &LogFilter, limit: usize) {
    for day in filter.first_day()..=filter.last_day() {
        let on_day = filter.on(day);
        let mut expected = rows.iter().filter(|row| on_day.takes(row));
        let mut after = LogPlace::default();
        loop {
            let page = home.page(filter, day, &after, limit).await.unwrap();
            for row in &page {
                assert_eq!(Some(row), expected.next(), "{filter:?}");
            }
            match page.last() {
                Some(last) if page.len() == limit => after = LogPlace::of(last),
                _ => break,
            }
        }
        assert_eq!(expected.next(), None, "{filter:?}");
    }
}

async fn the_latest_of_a_key_come_first(home: &dyn Home, rows: &[Row]) {
    let (account, key): (&str, &KeyId) = (&rows[0].account, &rows[0].key_id);
    let day = BEGIN_MS.div_euclid(DAY_MS);
    let of_key = rows.iter().filter(|row| row.key_id == *key);
    let mut expected: Vec<&Row> = of_key.collect();
    expected.sort_by_key(|row| (row.time_ms, &row.request_id));
    expected.reverse();
    for limit in [1000, 5] {
        let found = home.latest(account, key, day - 3..=day + 5, limit).await.unwrap();
        assert!(found.iter().eq(expected.iter().copied().take(limit)));
    }
    assert!(
        home.latest(account, key, day - 3..=day - 1, 5)
            .await
            .unwrap()
            .is_empty()
    );
}
