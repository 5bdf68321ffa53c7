//! When the file is written.

use futures_util::future::poll_immediate;

use super::*;

const LONG: Duration = Duration::from_secs(600);

/// An upkeep after its first turn, of a ledger that has written everything.
async fn idle(store: &EmbeddedLedger) -> Upkeep {
    let mut upkeep = Upkeep::default();
    assert!(store.turn(&mut upkeep).await);
    upkeep
}

#[tokio::test]
async fn nothing_is_due_before_something_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    idle(&store).await;
    let mut due = Box::pin(store.signals.wait_until_due(Duration::ZERO, START_MS));
    assert!(poll_immediate(&mut due).await.is_none());
    store.apply(&node(1), "acme", &journal(3), 0).await.unwrap();
    due.await;
    // What an explicit write has taken is not due again.
    store.flush().await.unwrap();
    let mut due = Box::pin(store.signals.wait_until_due(Duration::ZERO, START_MS));
    assert!(poll_immediate(&mut due).await.is_none());
}

#[tokio::test]
async fn an_hour_that_begins_is_due_without_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    let upkeep = idle(&store).await;
    let hour = START_MS - START_MS.rem_euclid(HOUR_MS) + HOUR_MS;
    assert!(!upkeep.is_hour_due(hour - 1) && upkeep.is_hour_due(hour));
    store.signals.wait_until_due(LONG, hour - 1).await;
}
