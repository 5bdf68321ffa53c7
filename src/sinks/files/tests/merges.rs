//! Which files become one, and when.

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::sinks::files::merge::similar_files;

/// How many files of today become one in most of these tests.
const MANY: usize = 3;

/// Files of which so many of today become one.
pub(super) fn merging(files: LogFiles, count: usize) -> LogFiles {
    LogFiles {
        merger: Arc::new(FileMerger::with_count(count)),
        merges_today: true,
        ..files
    }
}

fn place_of(after: u64, upto: u64) -> FileName {
    FileName {
        day: crate::sinks::files::day_of(BEGIN_MS),
        node: node(1),
        after,
        upto,
    }
}

#[test]
fn a_name_says_whose_rows_a_file_has_and_which() {
    let name = "2026-11-01/node_0000000000000001-0000000000000010-00000002000000ff.parquet";
    let place = place_of(0x10, 0x2_0000_00ff);
    assert_eq!((place.name(), FileName::parse(name)), (name.to_owned(), Some(place)));
    for wrong in [
        name.replace("2026-11-01", "2026-11-31"),
        name.replace("2026-11-01/", ""),
        name.replace("node_", "lane_"),
        name.replace(".parquet", ".csv"),
        name.replace("ff.parquet", "f.parquet"),
        name.replace("ff.parquet", "FF.parquet"),
        name.replace("00000002000000ff", "0000000000000010"),
        name.replace(".parquet", "-0000000000000000.parquet"),
    ] {
        assert_eq!(FileName::parse(&wrong), None, "{wrong}");
    }
}

proptest! {
    #[test]
    fn files_count_that_no_other_has_all_rows_of(
        ends in prop::collection::btree_set((0..8_u64, 1..8_u64, 0..2_u32, 0..2_i64), 0..20),
    ) {
        let mut all: Vec<FileName> = ends
            .into_iter()
            .map(|(after, length, lane, day)| FileName {
                day: crate::sinks::files::day_of(BEGIN_MS + day * DAY_MS),
                node: node(lane),
                after,
                upto: after + length,
            })
            .collect();
        all.sort_unstable();
        let is_in = |one: &FileName, other: &FileName| {
            (one.day, &one.node) == (other.day, &other.node)
                && other.after <= one.after
                && one.upto <= other.upto
                && one != other
        };
        let expected: Vec<FileName> = all
            .iter()
            .filter(|one| !all.iter().any(|other| is_in(one, other)))
            .cloned()
            .collect();
        prop_assert_eq!(without_merged(&all), expected);
    }
}

/// A day of files that follow each other, of so many bytes each, as they are written and merged: the most files that there are at a time,
/// and how often a byte is written again, times ten.
fn day_of(bytes: impl Iterator<Item = u64>) -> (usize, u64) {
    let (mut run, mut sizes) = (Vec::<FileName>::new(), BTreeMap::new());
    let (mut all, mut again, mut most) = (0, 0, 0);
    for (number, bytes) in (0..).zip(bytes) {
        run.push(place_of(number, number + 1));
        sizes.insert(place_of(number, number + 1), bytes);
        all += bytes;
        while let Some(merged) = similar_files(&run, &sizes, 24) {
            let begin = run.iter().position(|place| *place == merged[0]).unwrap();
            assert_eq!(run[begin..begin + 24], merged, "they follow each other");
            let one = place_of(merged[0].after, merged[23].upto);
            let bytes: u64 = merged.iter().map(|place| sizes[place]).sum();
            again += bytes;
            run.splice(begin..begin + 24, [one.clone()]);
            sizes.insert(one, bytes);
        }
        most = most.max(run.len());
    }
    (most, again * 10 / all)
}

#[test]
fn a_day_of_files_each_half_minute_has_some_fifty_and_writes_each_row_a_few_times() {
    const FILES: u64 = 2880;
    let steady = day_of((0..FILES).map(|_| 60_000));
    assert!(steady.0 <= 51 && steady.1 <= 20, "{steady:?}");
    type Bytes = fn(u64) -> u64;
    let days: [(&str, Bytes); 3] = [
        ("more and more", |number| 1_000 + number * 500),
        ("a large one now and then", |number| {
            if number.is_multiple_of(10) { 1_000_000 } else { 5_000 }
        }),
        ("a large one seldom", |number| {
            if number.is_multiple_of(30) { 1_000_000 } else { 5_000 }
        }),
    ];
    for (what, bytes) in days {
        let day = day_of((0..FILES).map(bytes));
        assert!(day.0 <= 75 && day.1 <= 50, "{what}: {day:?}");
    }
}

#[tokio::test]
async fn many_files_of_today_become_one_with_the_same_rows() {
    let place = OnDisk(scratch());
    let files = merging(place.files(), MANY);
    let batches = hours(&node(1), 8, 10);
    let now = BEGIN_MS + 9 * HOUR_MS;
    for batch in &batches[..2] {
        files.append(batch).await.unwrap();
    }
    assert!(files.wait_for_many_files().now_or_never().is_none());
    files.housekeep(now, 180).unwrap();
    assert_eq!(count(&files), 2, "these are few");
    files.append(&batches[2]).await.unwrap();
    assert!(files.wait_for_many_files().now_or_never().is_some());
    files.housekeep(now, 180).unwrap();
    assert_eq!((names(&files), count(&files)), (vec![place_of(0, 3 * 40).name()], 4));
    let mut there = batches[..3].to_vec();
    for batch in &batches[3..] {
        files.append(batch).await.unwrap();
        files.housekeep(now, 180).unwrap();
        there.push(batch.clone());
        let rows: Vec<_> = there.iter().flat_map(|batch| batch.rows.clone()).collect();
        assert_eq!(all_rows(&files, &node(1)), rows);
        assert_eq!(files.watermark(&node(1)).await, Ok(batch.upto));
        assert!(names(&files).len() <= MANY);
    }
    files.housekeep(now + 2 * DAY_MS, 180).unwrap();
    assert_eq!(names(&files), [place_of(0, 8 * 40).name()]);
}

#[tokio::test]
async fn files_of_today_are_merged_by_the_process_that_writes_them_alone() {
    let place = OnDisk(scratch());
    let [one, other] = [place.files(), place.files()].map(|files| merging(files, MANY));
    let now = BEGIN_MS + 9 * HOUR_MS;
    for (files, lane) in [(&one, node(1)), (&other, node(2))] {
        for batch in hours(&lane, 3, 10) {
            files.append(&batch).await.unwrap();
        }
    }
    // What was brought from elsewhere is nobody's.
    for batch in hours(&NodeId::none(), 3, 10) {
        one.append(&batch).await.unwrap();
    }
    let of = |lane: &NodeId| {
        let names = names(&one);
        names.iter().filter(|name| name.contains(lane.as_str())).count()
    };
    merging(place.files(), MANY).housekeep(now, 180).unwrap();
    assert_eq!([of(&node(1)), of(&node(2)), of(&NodeId::none())], [3, 3, 3]);
    one.housekeep(now, 180).unwrap();
    assert_eq!([of(&node(1)), of(&node(2)), of(&NodeId::none())], [1, 3, 3]);
    other.housekeep(now, 180).unwrap();
    assert_eq!([of(&node(1)), of(&node(2)), of(&NodeId::none())], [1, 1, 3]);
    other.housekeep(now + DAY_MS, 180).unwrap();
    assert_eq!([of(&node(1)), of(&node(2)), of(&NodeId::none())], [1, 1, 1]);
}

#[tokio::test]
async fn files_of_an_hour_each_are_left_until_their_day_is_over() {
    let place = OnDisk(scratch());
    let files = LogFiles {
        merger: Arc::new(FileMerger::with_count(MANY)),
        ..place.files()
    };
    for batch in hours(&node(1), 5, 10) {
        files.append(&batch).await.unwrap();
    }
    assert!(files.wait_for_many_files().now_or_never().is_none());
    files.housekeep(BEGIN_MS + 9 * HOUR_MS, 180).unwrap();
    assert_eq!(count(&files), 5);
}
