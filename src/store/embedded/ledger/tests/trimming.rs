//! Rows leave the ledger's file, in parts, and a crash in between changes nothing that can be seen.

use super::*;
use crate::domain::ledger::LogDay;

fn seen(rows: u64, trimmed: u64) -> LogDay {
    LogDay {
        day: TODAY,
        rows,
        trimmed,
    }
}

#[tokio::test]
async fn rows_that_have_left_are_not_there_though_a_crash_kept_them_from_being_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    store.apply(&node(1), "acme", &journal(30), 0).await.unwrap();
    store.flush().await.unwrap();
    let sums = sums::all(&store).await;
    // Marked, and killed then.
    assert_eq!(store.books().file().trim("acme", &seen(20, 0)), Ok(true));
    drop(store);
    let store = opened(folder.path());
    assert_eq!(store.books().file().left_over("acme"), Ok(vec![TODAY]));
    assert_eq!(store.rows("acme", TODAY, 0, 100).await, Ok(vec![]));
    assert_eq!(store.rows("acme", TODAY - 1, 0, 100).await.unwrap().len(), 10);
    assert_eq!(sums::all(&store).await, sums);
    let more = |seq, request| Step {
        seq,
        change: settled(request, 1, TODAY),
    };
    store
        .apply(&node(1), "acme", &[more(32, 98), more(33, 99)], 0)
        .await
        .unwrap();
    for _ in 0..2 {
        let late = store.rows("acme", TODAY, 1, 100).await.unwrap();
        assert_eq!((late.len(), late[0].request_id.as_str()), (1, "r99"));
        assert_eq!(store.log_days("acme", TODAY..=TODAY).await, Ok(vec![seen(2, 20)]));
        store.flush().await.unwrap();
        store.remove_old_rows().await.unwrap();
        assert_eq!(store.books().file().left_over("acme"), Ok(vec![]));
    }
    assert_eq!(store.trim("acme", &seen(2, 20)).await, Ok(true));
    assert_eq!(store.log_days("acme", TODAY..=TODAY).await, Ok(vec![seen(0, 22)]));
    drop(store);
    let store = opened(folder.path());
    store.apply(&node(1), "acme", &[more(34, 100)], 0).await.unwrap();
    assert_eq!(store.log_days("acme", TODAY..=TODAY).await, Ok(vec![seen(1, 22)]));
    let kept = store.sums("acme", TODAY..=TODAY, &SumsOf::Keys).await.unwrap();
    assert_eq!(kept[0].sums.requests, 23);
}

#[tokio::test]
async fn rows_on_their_way_to_the_disk_leave_with_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let steps = journal(30);
    store.apply(&node(1), "acme", &steps[..20], 0).await.unwrap();
    store.flush().await.unwrap();
    store.apply(&node(1), "acme", &steps[20..], 0).await.unwrap();
    assert_eq!(store.log_days("acme", TODAY..=TODAY).await, Ok(vec![seen(20, 0)]));
    assert_eq!(store.trim("acme", &seen(13, 0)).await, Ok(false), "some have come");
    assert_eq!(store.trim("acme", &seen(20, 0)).await, Ok(true));
    assert_eq!(store.rows("acme", TODAY, 0, 100).await, Ok(vec![]));
    drop(store);
    let store = opened(folder.path());
    assert_eq!(store.log_days("acme", TODAY..=TODAY).await, Ok(vec![seen(0, 20)]));
    assert_eq!(store.books().file().left_over("acme"), Ok(vec![]));
}
