//! The daily sums in the file: kept with their rows, begun by whoever has none, removed with the rows.

use super::*;
use crate::domain::ledger::daily_sums::Subject;

/// All sums of the days of the tests.
pub(super) async fn all(store: &EmbeddedLedger) -> DailySums {
    let mut all = DailySums::default();
    for of in [SumsOf::One(Subject::Account), SumsOf::Keys, SumsOf::Tags] {
        all.extend(store.sums("acme", TODAY - 2..=TODAY, &of).await.unwrap());
    }
    all
}

/// What a file from before sums were kept lacks.
fn without_sums(folder: &Path) {
    let database = redb::Database::open(folder.join("ledger.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let table = file::summed_rows::SUMS;
    assert!(transaction.delete_table(table).unwrap());
    transaction.commit().unwrap();
}

fn requests(sums: &DailySums) -> Vec<(i64, u64)> {
    let whole = sums.iter().filter(|sum| sum.subject == Subject::Account);
    whole.map(|sum| (sum.day, sum.sums.requests)).collect()
}

#[tokio::test]
async fn a_file_without_sums_begins_with_the_next_row_and_is_completed_from_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let steps = journal(30);
    store.apply(&node(1), "acme", &steps[..25], 0).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    without_sums(folder.path());
    let store = opened(folder.path());
    assert_eq!(all(&store).await, DailySums::default());
    store.apply(&node(1), "acme", &steps, 0).await.unwrap();
    // On their way or on the disk, they count once.
    for _ in 0..2 {
        assert_eq!(requests(&all(&store).await), [(TODAY - 1, 2), (TODAY, 4)]);
        store.flush().await.unwrap();
    }
    for day in [TODAY - 1, TODAY] {
        store.resum("acme", day).await.unwrap();
    }
    assert_eq!(requests(&all(&store).await), [(TODAY - 1, 10), (TODAY, 20)]);
    let before = lasting(&store).await;
    drop(store);
    assert_eq!(lasting(&opened(folder.path())).await, before);
}

#[tokio::test]
async fn rows_on_their_way_are_in_the_sums_once_whenever_they_are_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let steps = journal(12);
    store.apply(&node(1), "acme", &steps[..7], 0).await.unwrap();
    store.flush().await.unwrap();
    store.apply(&node(1), "acme", &steps, 0).await.unwrap();
    store.resum("acme", TODAY).await.unwrap();
    let before = lasting(&store).await;
    store.flush().await.unwrap();
    assert_eq!(lasting(&store).await, before);
}

#[tokio::test]
async fn sums_go_with_their_rows() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let store = EmbeddedLedger::open(folder.path(), clock.source()).unwrap();
    store.remove_old_rows().await.unwrap();
    store.apply(&node(1), "acme", &journal(9), 0).await.unwrap();
    store.flush().await.unwrap();
    clock.advance(200 * DAY_MS);
    assert_eq!(all(&store).await, DailySums::default(), "no longer told");
    store.prune(TODAY).await.unwrap();
    clock.advance(-200 * DAY_MS);
    assert_eq!(requests(&all(&store).await), [(TODAY, 6)]);
}
