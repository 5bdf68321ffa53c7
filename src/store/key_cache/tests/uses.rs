//! Last uses: gathered, written together, kept while the store is away.

use super::*;

#[tokio::test]
async fn uses_are_written_in_one_batch_at_the_end() {
    let node = Followed::start(SETTINGS).await;
    node.store.create(&digest(2), &record(2, 100)).await.unwrap();
    for (number, at) in [(1, 10), (1, 30), (1, 20), (2, 5)] {
        node.cache.record_use(&id(number), at);
    }
    assert_eq!(node.store.touches.load(Ordering::SeqCst), 0);
    node.shutdown.send_replace(true);
    node.running.await.unwrap();
    assert_eq!(node.store.touches.load(Ordering::SeqCst), 1);
    let used = node
        .store
        .list(None, 2)
        .await
        .unwrap()
        .into_iter()
        .map(|view| view.last_used);
    assert_eq!(used.collect::<Vec<_>>(), [Some(30), Some(5)]);
}

#[tokio::test]
async fn uses_wait_for_a_store_that_is_away() {
    let flush_used = Duration::from_millis(5);
    let node = Followed::start(KeyCacheSettings { flush_used, ..SETTINGS }).await;
    node.store.is_away.store(true, Ordering::SeqCst);
    node.cache.record_use(&id(1), 10);
    until("writing was tried", async || {
        node.store.touches.load(Ordering::SeqCst) >= 2
    })
    .await;
    node.store.is_away.store(false, Ordering::SeqCst);
    until("the use is written", async || {
        node.store.by_id(&id(1)).await.unwrap().unwrap().last_used == Some(10)
    })
    .await;
}
