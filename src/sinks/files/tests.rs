//! Log files on a real disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
};

use super::*;
use crate::{
    domain::ledger::{consumption::Row, log_query::LogFilter},
    edges::web_client::{WebClient, WebLimits},
    journal::{NumberedRow, tests::scratch},
    sinks::contract::{self, BEGIN_MS, batch, node, row, rows},
};

mod bucket;
mod earlier;
mod groups;
mod merges;
mod program;
mod server;
mod way;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

struct OnDisk(tempfile::TempDir);

impl OnDisk {
    fn files(&self) -> LogFiles {
        LogFiles::open(self.0.path(), Duration::from_secs(3600), 50_000).unwrap()
    }
}

/// An authority that no server here is certified by: they speak without TLS.
fn authority() -> Vec<u8> {
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    own.cert.pem().into_bytes()
}

/// Speaks with the servers of these tests.
fn client() -> WebClient {
    let limits = WebLimits {
        connect: Duration::from_secs(60),
        total: None,
        answer_bytes_max: 64 * 1024 * 1024,
        idle_max: 8,
    };
    WebClient::new(Some(&authority()), limits).unwrap()
}

/// All rows of a lane, by number, each as often as it is there.
fn all_rows(files: &LogFiles, node: &NodeId) -> Vec<Arc<NumberedRow>> {
    let mut rows = Vec::new();
    for day in files.storage.days().unwrap() {
        for place in files.storage.unmerged_files(day).unwrap() {
            if place.node != *node {
                continue;
            }
            let table = files.storage.open(&place).unwrap();
            for group in 0..table.group_count() {
                let there = table.read_group(group).unwrap().read(usize::MAX).unwrap();
                assert!(there.is_sorted_by_key(|row| (row.row.account.clone(), row.row.time_ms, row.number)));
                rows.extend(there.into_iter().map(Arc::new));
            }
        }
    }
    rows.sort_by_key(|row| row.number);
    rows
}

#[async_trait]
impl contract::Place for OnDisk {
    async fn open(&self) -> Arc<dyn Sink> {
        Arc::new(self.files())
    }

    async fn rows(&self, node: &NodeId) -> Vec<Arc<NumberedRow>> {
        all_rows(&self.files(), node)
    }
}

/// Batches of a lane, an hour each, from the beginning of 1 November on.
fn hours(node: &NodeId, hours: i64, rows_each: u64) -> Vec<Batch> {
    let begin = |hour: i64| u64::try_from(hour).unwrap() * rows_each * 4;
    let batches = (0..hours).map(|hour| {
        let rows = (0..rows_each).map(|place| NumberedRow {
            number: begin(hour) + 1 + place * 3,
            row: row(
                begin(hour) + place,
                BEGIN_MS + hour * HOUR_MS + i64::try_from(place).unwrap(),
            ),
        });
        Batch {
            node: node.clone(),
            after: begin(hour),
            upto: begin(hour + 1),
            rows: rows.map(Arc::new).collect(),
        }
    });
    batches.collect()
}

/// The names of the files that count.
fn names(files: &LogFiles) -> Vec<String> {
    let counting = without_merged(&files.storage.all_files().unwrap());
    counting.iter().map(FileName::name).collect()
}

/// How many files there are in all.
fn count(files: &LogFiles) -> usize {
    files.storage.all_files().unwrap().len()
}

#[tokio::test]
async fn files_obey_the_contract() {
    contract::obeys(&OnDisk(scratch())).await;
}

#[tokio::test]
async fn pages_are_those_of_the_rows_whatever_is_asked_for() {
    contract::pages::obeys(&OnDisk(scratch()).files()).await;
}

#[tokio::test]
async fn pages_go_on_while_files_are_merged() {
    let place = OnDisk(scratch());
    let files = place.files();
    for batch in hours(&node(1), 20, 40) {
        files.append(&batch).await.unwrap();
    }
    let expected = all_rows(&files, &node(1)).len();
    let filter = LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS);
    let (mut ask, mut found) = (LogPageQuery::new(filter, BEGIN_MS / DAY_MS, 100), BTreeSet::new());
    let mut merged = false;
    loop {
        // Another reader comes in between, so that the one before is not remembered.
        let reader = place.files();
        let page = reader.page(&ask).await.unwrap();
        let count = found.len() + page.rows.len();
        found.extend(page.rows.into_iter().map(|row| row.request_id.to_string()));
        assert_eq!(found.len(), count, "none comes twice");
        let Some(next) = page.next else { break };
        ask.after = next;
        if !merged {
            files.housekeep(BEGIN_MS + 30 * HOUR_MS, 180).unwrap();
            assert_eq!(names(&files).len(), 1);
            merged = true;
        }
    }
    assert_eq!(found.len(), expected);
}

#[tokio::test]
async fn writing_again_makes_the_same_bytes() {
    let (one, other) = (OnDisk(scratch()), OnDisk(scratch()));
    let batch = batch(&node(1), 0, 2_000);
    let mut bytes = Vec::new();
    for place in [&one, &other] {
        let files = place.files();
        files.append(&batch).await.unwrap();
        bytes.push(fs::read(place.0.path().join(&names(&files)[0])).unwrap());
    }
    assert!(bytes[0] == bytes[1]);
    assert!(bytes[0].starts_with(b"PAR1"));
}

#[tokio::test]
async fn days_that_are_over_become_one_file_for_each_lane_with_the_same_rows() {
    let place = OnDisk(scratch());
    let files = place.files();
    let nodes = [node(1), node(2)];
    for node in &nodes {
        for batch in hours(node, 30, 10) {
            files.append(&batch).await.unwrap();
        }
    }
    let before: Vec<_> = nodes.iter().map(|node| all_rows(&files, node)).collect();
    assert_eq!(names(&files).len(), 60);
    files.housekeep(BEGIN_MS + DAY_MS + HOUR_MS, 180).unwrap();
    assert_eq!(names(&files).len(), 60, "an hour later a day may still get rows");
    let merged = BEGIN_MS + 30 * HOUR_MS;
    files.housekeep(merged, 180).unwrap();
    files.housekeep(merged, 180).unwrap();
    assert_eq!(names(&files).len(), 2 * (1 + 6), "the second day is not over");
    for (node, before) in std::iter::zip(&nodes, before) {
        assert_eq!(all_rows(&files, node), before);
        assert_eq!(files.watermark(node).await, Ok(30 * 40));
    }
}

#[tokio::test]
async fn files_that_were_merged_stay_for_a_minute_and_show_no_row_twice() {
    let place = OnDisk(scratch());
    let files = place.files();
    for batch in hours(&node(1), 5, 10) {
        files.append(&batch).await.unwrap();
    }
    let before = all_rows(&files, &node(1));
    let over = BEGIN_MS + 2 * DAY_MS;
    files.housekeep(over, 180).unwrap();
    assert_eq!((names(&files).len(), count(&files)), (1, 6));
    assert_eq!(all_rows(&files, &node(1)), before);
    // One that has just begun does not know since when, nor one whose clock was ahead.
    let files = place.files();
    for (later_ms, there) in [(HOUR_MS, 6), (0, 6), (59_000, 6), (60_000, 1)] {
        files.housekeep(over + later_ms, 180).unwrap();
        assert_eq!(count(&files), there, "{later_ms}");
    }
    assert_eq!(all_rows(&files, &node(1)), before);
    assert_eq!(files.watermark(&node(1)).await, Ok(5 * 40));
}

#[tokio::test]
async fn rows_that_several_files_have_are_found_once_and_merged_into_one() {
    let (place, other) = (OnDisk(scratch()), OnDisk(scratch()));
    let whole = batch(&node(1), 0, 50);
    let cut = |begin: usize, end: usize| Batch {
        node: node(1),
        after: if begin == 0 { 0 } else { whole.rows[begin].number },
        upto: whole.rows.get(end).map_or(whole.upto, |next| next.number),
        rows: whole.rows[begin..end].to_vec(),
    };
    let (files, late) = (place.files(), other.files());
    for batch in [cut(0, 20), cut(20, 50)] {
        files.append(&batch).await.unwrap();
    }
    late.append(&cut(0, 30)).await.unwrap();
    let name = &names(&late)[0];
    fs::copy(other.0.path().join(name), place.0.path().join(name)).unwrap();
    let account = &whole.rows[0].row.account;
    let of_account = whole.rows.iter().filter(|row| row.row.account == *account).count();
    let day = BEGIN_MS.div_euclid(DAY_MS);
    assert_eq!(
        contract::pages::of_day(&files, account, day, 100).await.len(),
        of_account
    );
    files.housekeep(BEGIN_MS + 2 * DAY_MS, 180).unwrap();
    assert_eq!(names(&files).len(), 1);
    assert_eq!(all_rows(&files, &node(1)), whole.rows);
}

#[tokio::test]
async fn rows_are_found_by_account_and_day_page_by_page() {
    let place = OnDisk(scratch());
    let files = place.files();
    for batch in hours(&node(1), 50, 40) {
        files.append(&batch).await.unwrap();
    }
    files.housekeep(BEGIN_MS + 28 * HOUR_MS, 180).unwrap();
    let mut expected: BTreeMap<(String, i64), BTreeSet<String>> = BTreeMap::new();
    for row in all_rows(&files, &node(1)) {
        let day = row.row.time_ms.div_euclid(DAY_MS);
        expected
            .entry((row.row.account.to_string(), day))
            .or_default()
            .insert(row.row.request_id.to_string());
    }
    assert!(expected.len() >= 10);
    for ((account, day), ids) in expected {
        let found = contract::pages::of_day(&files, &account, day, 7).await;
        assert!(
            found
                .iter()
                .all(|row| row.account == account && row.time_ms.div_euclid(DAY_MS) == day)
        );
        assert_eq!(found.len(), ids.len());
        let found = found.into_iter().map(|row| row.request_id.to_string());
        assert_eq!(found.collect::<BTreeSet<_>>(), ids);
    }
}

#[tokio::test]
async fn a_page_that_goes_on_has_what_has_come_to_the_files_since_the_one_before() {
    let place = OnDisk(scratch());
    let (files, batches) = (place.files(), hours(&node(1), 2, 40));
    files.append(&batches[0]).await.unwrap();
    let (account, day) = (&batches[0].rows[0].row.account, BEGIN_MS.div_euclid(DAY_MS));
    let first = files.page(&LogPageQuery::for_day(account, day, 2)).await.unwrap();
    files.append(&batches[1]).await.unwrap();
    let ask = LogPageQuery {
        after: first.next.unwrap(),
        ..LogPageQuery::for_day(account, day, 100)
    };
    let rest = files.page(&ask).await.unwrap();
    let found = first.rows.len() + rest.rows.len();
    let rows = batches.iter().flat_map(|batch| &batch.rows);
    assert_eq!(found, rows.filter(|row| row.row.account == *account).count());
}

#[tokio::test]
async fn old_days_go_one_at_a_time_whatever_the_clock_says() {
    let place = OnDisk(scratch());
    let files = place.files();
    for batch in hours(&node(1), 5 * 24, 2) {
        files.append(&batch).await.unwrap();
    }
    let days = |files: &LogFiles| files.storage.days().unwrap().len();
    let now = BEGIN_MS + 2 * DAY_MS;
    files.housekeep(now, 2).unwrap();
    assert_eq!(days(&files), 5, "none is older than two days");
    files.housekeep(now + 1000 * DAY_MS, 2).unwrap();
    assert_eq!(days(&files), 4, "a clock that jumps ahead takes one day");
    assert_eq!(files.watermark(&node(1)).await, Ok(5 * 24 * 8));
}

#[tokio::test]
async fn what_a_crash_leaves_of_a_file_is_no_file() {
    let place = OnDisk(scratch());
    let files = place.files();
    let first = batch(&node(1), 0, 10);
    files.append(&first).await.unwrap();
    let folder = place.0.path();
    let day = files.storage.days().unwrap()[0];
    fs::write(folder.join(".partial-x"), "PAR1").unwrap();
    fs::write(folder.join(day.to_string()).join("notes.parquet"), "PAR1").unwrap();
    assert_eq!(files.watermark(&node(1)).await, Ok(first.upto));
    assert_eq!(all_rows(&files, &node(1)), first.rows);
    let now = crate::edges::clock::unix_millis();
    files.housekeep(now, 100_000).unwrap();
    assert!(folder.join(".partial-x").exists(), "it may still be written");
    files.housekeep(now + 2 * DAY_MS, 100_000).unwrap();
    assert!(!folder.join(".partial-x").exists());
}

#[tokio::test]
async fn a_row_takes_few_bytes() {
    const ROWS: usize = 50_000;
    const BYTES_MAX: u64 = 60;
    let place = OnDisk(scratch());
    let files = place.files();
    let rows = rows(1, ROWS);
    let upto = rows[ROWS - 1].number + 1;
    let batch = Batch {
        node: node(1),
        after: 0,
        upto,
        rows,
    };
    files.append(&batch).await.unwrap();
    let path = place.0.path().join(&names(&files)[0]);
    let bytes = fs::metadata(path).unwrap().len();
    let each = bytes / u64::try_from(ROWS).unwrap();
    assert!(each <= BYTES_MAX, "{each} bytes a row");
}

#[test]
fn an_export_is_a_file_of_all_its_rows_in_their_order() {
    let place = scratch();
    let count = 2 * schema::GROUP_ROWS + 5;
    let rows: Vec<Row> = rows(1, count).iter().map(|numbered| numbered.row.clone()).collect();
    let mut export = ParquetExport::begin().unwrap();
    let mut bytes = Vec::new();
    for row in &rows {
        bytes.extend(export.add_row(row.clone()).unwrap());
    }
    assert!(!bytes.is_empty(), "groups are given as they are complete");
    bytes.extend(export.finish().unwrap());
    let path = place.path().join("export.parquet");
    fs::write(&path, bytes).unwrap();
    let table = table::TableReader::open(File::open(&path).unwrap().into(), &NodeId::none()).unwrap();
    let mut read = Vec::new();
    for group in 0..table.group_count() {
        read.extend(table.read_group(group).unwrap().read(usize::MAX).unwrap());
    }
    assert!(
        read.iter()
            .map(|numbered| numbered.number)
            .eq(1..=u64::try_from(count).unwrap())
    );
    assert!(read.into_iter().map(|numbered| numbered.row).eq(rows));
}
