//! The daily sums in memory and in the file: a day is open, or the file has all of it.

use redb::TableDefinition;

use super::*;

/// All sums of the days of the tests.
pub(super) async fn all(store: &EmbeddedLedger) -> DailySums {
    let mut all = DailySums::default();
    for of in [
        SumSelector::One(SumSubject::Account),
        SumSelector::Keys,
        SumSelector::Tags,
    ] {
        all.extend(store.sums("acme", TODAY - 2..=TODAY, &of).await.unwrap());
    }
    all
}

/// What the requests of a journal add up to.
fn of_requests(requests: impl IntoIterator<Item = u64>) -> DailySums {
    let rows: Vec<Row> = requests
        .into_iter()
        .map(|number| {
            let day = TODAY - i64::from(number.is_multiple_of(3));
            a_row(number, i64::try_from(number).unwrap(), day)
        })
        .collect();
    DailySums::of_day(&rows)
}

#[tokio::test]
async fn a_day_goes_on_from_the_file_after_it_was_closed_or_the_ledger_was_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = opened(folder.path());
    let steps = journal(30);
    for many in [7, 8, 20, 31] {
        store.apply(&node(1), "acme", &steps[..many], 0).await.unwrap();
        let expected = of_requests(1..many as u64);
        assert_eq!(all(&store).await, expected, "not written");
        store.close_days();
        assert_eq!(all(&store).await, expected, "a day that is not written stays");
        store.flush().await.unwrap();
        store.close_days();
        assert_eq!(all(&store).await, expected, "in the file alone");
        if many == 8 {
            drop(store);
            store = opened(folder.path());
        }
    }
}

#[tokio::test]
async fn sums_are_put_in_the_place_of_others_in_memory_and_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    store.apply(&node(1), "acme", &journal(9), 0).await.unwrap();
    store.flush().await.unwrap();
    store.close_days();
    let other = of_requests([1, 4]);
    for (account, seen) in [("acme", 5), ("acme", 7), ("beta", 0)] {
        assert_eq!(store.put_sums(account, TODAY, &other, seen).await, Ok(false));
    }
    assert_eq!(all(&store).await, of_requests(1..=9));
    assert_eq!(store.put_sums("acme", TODAY, &other, 6).await, Ok(true));
    let expected = of_requests([1, 3, 4, 6, 9]);
    assert_eq!(all(&store).await, expected);
    drop(store);
    let store = opened(folder.path());
    assert_eq!(all(&store).await, expected);
    let step = Step {
        seq: 11,
        change: settled(7, 7, TODAY),
    };
    store.apply(&node(1), "acme", &[step], 0).await.unwrap();
    assert_eq!(all(&store).await, of_requests([1, 3, 4, 6, 7, 9]));
}

#[tokio::test]
async fn sums_that_are_not_readable_are_an_error_and_keep_no_step_from_being_applied() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let steps = journal(9);
    store.apply(&node(1), "acme", &steps[..8], 0).await.unwrap();
    store.flush().await.unwrap();
    drop(store);
    {
        let database = redb::Database::open(folder.path().join("ledger.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        let table: TableDefinition<'_, (&str, i64, &str, &str), &[u8]> = TableDefinition::new("daily_sums");
        let place = ("acme", TODAY, "a", "[]");
        transaction
            .open_table(table)
            .unwrap()
            .insert(place, &b"damaged"[..])
            .unwrap();
        transaction.commit().unwrap();
    }
    let store = opened(folder.path());
    let whole = SumSelector::One(SumSubject::Account);
    let refused = store.sums("acme", TODAY..=TODAY, &whole).await;
    assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
    store.apply(&node(1), "acme", &steps, 0).await.unwrap();
    assert_eq!(store.watermark(&node(1), "acme").await, Ok(10));
    let kept = store.sums("acme", TODAY..=TODAY, &whole).await.unwrap();
    assert_eq!(kept[0].sums.requests, 1, "it begins again");
}

#[tokio::test]
async fn sums_go_with_their_day() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let store = EmbeddedLedger::open(folder.path(), clock.source()).unwrap();
    store.remove_old().await.unwrap();
    store.apply(&node(1), "acme", &journal(9), 0).await.unwrap();
    store.flush().await.unwrap();
    clock.advance(200 * DAY_MS);
    assert_eq!(all(&store).await, DailySums::default(), "no longer told");
    store.prune(TODAY).await.unwrap();
    clock.advance(-200 * DAY_MS);
    assert_eq!(requests(&all(&store).await), [(TODAY, 6)]);
}
