//! Files from before a column was added.

use smol_str::SmolStr;

use super::*;
use crate::{
    domain::ledger::consumption::RequestTransport,
    sinks::files::{schema::COLUMNS, table::TableWriter},
};

/// How many columns the first files had.
const FIRST_COLUMNS: usize = 36;

/// Makes every second file what an earlier weir has written: without the columns that were added since.
fn age(place: &OnDisk, files: &LogFiles) {
    for aged in files.storage.all_files().unwrap().iter().step_by(2) {
        let table = files.storage.open(aged).unwrap();
        let path = place.0.path().join(aged.name());
        let (out, columns) = (Vec::new(), &COLUMNS[..FIRST_COLUMNS]);
        let mut out = TableWriter::with_columns(out, aged, columns).unwrap();
        for group in 0..table.group_count() {
            out.write_group(&table.read_group(group).unwrap().read(usize::MAX).unwrap())
                .unwrap();
        }
        fs::write(path, out.finish().unwrap()).unwrap();
    }
}

/// Six files of a day, three of them without the new columns, and the rows that they have.
async fn mixed(place: &OnDisk) -> Vec<Arc<NumberedRow>> {
    let files = place.files();
    let mut expected = Vec::new();
    for (number, batch) in (0..).zip(hours(&node(1), 6, 40)) {
        files.append(&batch).await.unwrap();
        expected.extend(batch.rows.into_iter().map(|mut row| {
            if number % 2 == 0 {
                let numbered = Arc::make_mut(&mut row);
                (numbered.row.hold_nano_usd, numbered.row.attempts) = (None, None);
                (numbered.row.usage.input_audio, numbered.row.usage.output_image) = (0, 0);
                numbered.row.transport = RequestTransport::Http;
                (numbered.row.translated, numbered.row.losses) = (None, Vec::new());
            }
            row
        }));
    }
    age(place, &files);
    expected
}

#[tokio::test]
async fn files_with_and_without_a_new_column_are_read_and_merged_into_one() {
    let (place, other) = (OnDisk(scratch()), OnDisk(scratch()));
    let expected = mixed(&place).await;
    let known = expected.iter().filter(|row| row.row.attempts.is_some()).count();
    assert!(known > 60 && known <= 120, "{known}");
    let files = place.files();
    assert_eq!(all_rows(&files, &node(1)), expected);
    // A page reads columns that decide first, and the others of the rows that are wanted.
    let filter = LogFilter {
        account: Some("account-1".to_owned()),
        ..LogFilter::between(BEGIN_MS, BEGIN_MS + DAY_MS)
    };
    let of_account = |rows: &[Arc<NumberedRow>]| -> BTreeMap<SmolStr, Row> {
        let of_it = rows.iter().filter(|row| row.row.account == "account-1");
        of_it.map(|row| (row.row.request_id.clone(), row.row.clone())).collect()
    };
    for _ in ["before", "after"] {
        let page = files
            .page(&LogPageQuery::new(filter.clone(), BEGIN_MS / DAY_MS, 1000))
            .await;
        let rows = page.unwrap().rows.into_iter();
        let page: BTreeMap<SmolStr, Row> = rows.map(|row| (row.request_id.clone(), row)).collect();
        assert_eq!(page, of_account(&expected));
        files.housekeep(BEGIN_MS + 2 * DAY_MS, 180).unwrap();
    }
    assert_eq!(names(&files).len(), 1);
    assert_eq!(all_rows(&files, &node(1)), expected);
    // The same files become the same bytes wherever they are merged.
    mixed(&other).await;
    other.files().housekeep(BEGIN_MS + 2 * DAY_MS, 180).unwrap();
    let bytes = [&place, &other].map(|place| fs::read(place.0.path().join(&names(&files)[0])).unwrap());
    assert!(bytes[0] == bytes[1]);
}

#[tokio::test]
async fn a_file_without_a_column_that_every_file_has_is_refused() {
    let place = OnDisk(scratch());
    let files = place.files();
    files.append(&batch(&node(1), 0, 10)).await.unwrap();
    let aged = files.storage.all_files().unwrap().remove(0);
    let mut out = TableWriter::with_columns(Vec::new(), &aged, &COLUMNS[..FIRST_COLUMNS - 1]).unwrap();
    out.write_group(&rows(1, 10)).unwrap();
    fs::write(place.0.path().join(aged.name()), out.finish().unwrap()).unwrap();
    let table = files.storage.open(&aged).unwrap();
    let refused = table.read_group(0).err().unwrap().to_string();
    assert!(refused.contains("column tags is missing"), "{refused}");
}
