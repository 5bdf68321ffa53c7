//! The rows of a lane without a journal: what is cut, what leaves, and what readers are told.

use futures_util::FutureExt;

use super::*;
use crate::{
    domain::ledger::consumption::Row,
    sinks::{
        Linger,
        contract::{BEGIN_MS, node, row},
    },
};

const HOUR_MS: i64 = 3_600_000;

fn tail(rows_max: usize, linger: Linger, end: u64) -> LogTail {
    let batching = BatchLimits { rows_max, linger };
    LogTail::new(node(1), batching, Box::new(move || Some(end)))
}

/// Rows with these numbers, an hour apart.
fn rows(numbers: std::ops::Range<u64>) -> Vec<NumberedRow> {
    let numbered = numbers.map(|number| NumberedRow {
        number,
        row: Row {
            time_ms: BEGIN_MS + i64::try_from(number).unwrap() * HOUR_MS,
            ..row(number, BEGIN_MS)
        },
    });
    numbered.collect()
}

fn all() -> LogFilter {
    LogFilter::between(BEGIN_MS, BEGIN_MS + 1000 * HOUR_MS)
}

/// The numbers that a reader is told now; `None`: that it cannot be told.
fn numbers_of_rows(tail: &LogTail, filter: &LogFilter) -> Option<Vec<u64>> {
    let of_lane = tail.snapshot(filter, clock::instant()).now_or_never()?.ok()?;
    Some(of_lane.rows.iter().map(|row| row.number).collect())
}

fn numbers(batch: &Batch) -> Vec<u64> {
    batch.rows.iter().map(|row| row.number).collect()
}

const AT_ONCE: Linger = Linger::For(Duration::ZERO);
const LATER: Linger = Linger::For(Duration::from_secs(3600));

#[test]
fn rows_leave_behind_the_word_of_the_sink_and_not_before() {
    let tail = tail(2, AT_ONCE, 5);
    tail.reset(0, None);
    tail.push(rows(1..5), 5, true);
    let batch = tail.next_batch().now_or_never().unwrap();
    assert_eq!((batch.after, batch.upto, numbers(&batch)), (0, 3, vec![1, 2]));
    assert_eq!(
        tail.next_batch().now_or_never().unwrap(),
        batch,
        "it is the same until it is acknowledged"
    );
    assert_eq!(numbers_of_rows(&tail, &all()), Some(vec![1, 2, 3, 4]));
    assert_eq!(
        (tail.sink_position(), tail.oldest_lacking_ms()),
        (0, Some(Some(BEGIN_MS + HOUR_MS)))
    );
    tail.acknowledge(batch.upto);
    assert_eq!(numbers_of_rows(&tail, &all()), Some(vec![3, 4]));
    let batch = tail.next_batch().now_or_never().unwrap();
    assert_eq!((batch.after, batch.upto, numbers(&batch)), (3, 5, vec![3, 4]));
    tail.acknowledge(batch.upto);
    assert_eq!((tail.sink_position(), tail.oldest_lacking_ms()), (5, Some(None)));
    assert!(tail.next_batch().now_or_never().is_none(), "there are none");
}

#[test]
fn as_many_rows_are_in_memory_as_two_batches_have_and_those_behind_them_are_not_told() {
    let tail = tail(3, LATER, 100);
    tail.reset(0, None);
    assert_eq!(tail.room(), 6);
    tail.push(rows(1..6), 6, false);
    assert_eq!(tail.room(), 1);
    tail.push(rows(6..7), 7, false);
    assert_eq!((tail.room(), numbers_of_rows(&tail, &all())), (0, None));
    let batch = tail.next_batch().now_or_never().unwrap();
    assert_eq!((batch.upto, batch.rows.len()), (4, 3), "a full batch waits for nothing");
    tail.acknowledge(batch.upto);
    assert_eq!((tail.room(), numbers_of_rows(&tail, &all())), (3, None));
    // Those that were not read did not end an hour earlier than the last one that was.
    let until = |hours: i64| LogFilter::between(BEGIN_MS, BEGIN_MS + hours * HOUR_MS);
    assert_eq!(
        (numbers_of_rows(&tail, &until(5)), numbers_of_rows(&tail, &until(6))),
        (Some(vec![4]), None)
    );
    tail.push(rows(7..9), 100, true);
    assert_eq!(numbers_of_rows(&tail, &all()), Some(vec![4, 5, 6, 7, 8]));
}

#[test]
fn nothing_is_told_until_the_sink_has_said_what_it_has() {
    let tail = tail(10, LATER, 9);
    assert_eq!(numbers_of_rows(&tail, &all()), None);
    tail.reset(3, Some(BEGIN_MS + 40 * HOUR_MS));
    assert_eq!(numbers_of_rows(&tail, &all()), None);
    let before = |hours: i64| LogFilter::between(BEGIN_MS, BEGIN_MS + hours * HOUR_MS);
    assert_eq!(
        (numbers_of_rows(&tail, &before(39)), numbers_of_rows(&tail, &before(40))),
        (Some(vec![]), None)
    );
    tail.push(rows(3..9), 9, true);
    assert_eq!(numbers_of_rows(&tail, &all()), Some(vec![3, 4, 5, 6, 7, 8]));
    // It has lost some.
    tail.reset(1, None);
    assert_eq!(numbers_of_rows(&tail, &all()), None);
    tail.push(rows(1..9), 9, true);
    assert_eq!(numbers_of_rows(&tail, &all()).map(|numbers| numbers.len()), Some(8));
    // It has all.
    tail.reset(9, None);
    assert_eq!(
        (numbers_of_rows(&tail, &all()), tail.sink_position()),
        (Some(vec![]), 9)
    );
}

#[tokio::test]
async fn a_batch_waits_for_others_unless_somebody_is_in_a_hurry() {
    let tail = tail(10, LATER, 3);
    tail.reset(0, None);
    tail.push(rows(1..3), 3, true);
    let mut waiting = Box::pin(tail.next_batch());
    assert!(waiting.as_mut().now_or_never().is_none());
    tail.hurry(Duration::ZERO);
    assert_eq!(numbers(&waiting.now_or_never().unwrap()), [1, 2]);
}

#[test]
fn only_rows_that_a_filter_takes_are_told() {
    let tail = tail(10, LATER, 9);
    tail.reset(0, None);
    tail.push(rows(1..9), 9, true);
    let some = LogFilter::between(BEGIN_MS + 3 * HOUR_MS, BEGIN_MS + 5 * HOUR_MS);
    assert_eq!(numbers_of_rows(&tail, &some), Some(vec![3, 4]));
    let none = LogFilter::between(BEGIN_MS + 9 * HOUR_MS, BEGIN_MS + 50 * HOUR_MS);
    assert_eq!(numbers_of_rows(&tail, &none), Some(vec![]));
}

#[test]
fn what_is_told_says_up_to_where_no_further_rows_are_wanted() {
    let tail = tail(10, LATER, 100);
    tail.reset(0, None);
    tail.push(rows(1..9), 9, false);
    let numbers_of_rows = |filter: &LogFilter| tail.snapshot(filter, clock::instant()).now_or_never().unwrap();
    assert!(numbers_of_rows(&all()).is_err(), "some have not been read");
    // Those ended later than the filter asks for.
    let early = numbers_of_rows(&LogFilter::between(BEGIN_MS, BEGIN_MS + 2 * HOUR_MS)).unwrap();
    assert_eq!((early.node, early.reached, early.rows.len()), (node(1), 100, 1));
}

#[test]
fn a_lane_that_is_closed_has_nothing_to_tell() {
    let batching = BatchLimits {
        rows_max: 10,
        linger: LATER,
    };
    let tail = LogTail::new(node(1), batching, Box::new(|| None));
    assert_eq!(numbers_of_rows(&tail, &all()), Some(vec![]));
}

#[test]
fn a_batch_of_an_hour_that_is_over_waits_for_the_others_on_disk() {
    let tail = tail(10, AT_ONCE, 5);
    tail.reset(0, None);
    let of_one_hour = |numbers: std::ops::Range<u64>| {
        let rows = rows(numbers).into_iter().map(|mut row| {
            row.row.time_ms = BEGIN_MS;
            row
        });
        rows.collect::<Vec<_>>()
    };
    tail.push(of_one_hour(1..3), 3, false);
    assert!(tail.next_batch().now_or_never().is_none(), "there are others on disk");
    tail.push(of_one_hour(3..5), 5, true);
    assert_eq!(numbers(&tail.next_batch().now_or_never().unwrap()), [1, 2, 3, 4]);
}
