//! Two nodes on one Redis: a key revoked at one of them is refused by the other.

use super::*;
use crate::store::redis::test_server::{Joined, TestServer};

/// A cold key's way through the other node's cache, in the time it may take when Redis pushes.
const PUSHED_WITHIN: Duration = Duration::from_millis(250);
/// And when only the poll is left.
const POLLED_WITHIN: Duration = Duration::from_secs(1);
/// The poll's period as shipped.
const POLL: Duration = Duration::from_millis(500);
const KEYS: u8 = 3;

struct Node {
    joined: Joined,
    cache: Arc<KeyCache>,
    _shutdown: watch::Sender<bool>,
}

async fn node(server: &TestServer, poll: Duration) -> Node {
    let joined = server.join("weir").await;
    // The connections are kept up already, so the cache is given the store without its background work.
    let cache = KeyCache::new(joined.store.clone(), KeyCacheSettings { poll, ..SETTINGS });
    let (shutdown, _) = watch::channel(false);
    let node = Node {
        joined,
        cache,
        _shutdown: shutdown,
    };
    let follower = Arc::clone(&node.cache);
    tokio::spawn(async move { follower.follow().await });
    until("the feed is followed", async || node.cache.events()[4].1 > 0).await;
    node
}

/// How long the second node goes on accepting each key after the first has revoked it.
async fn revocations(one: &Node, two: &Node) -> Vec<Duration> {
    let now = clock::instant();
    let mut took = Vec::new();
    for number in 1..=KEYS {
        let is_active = async || {
            let found = two.cache.find(&digest(number), now, somebody).await.unwrap();
            found.is_some_and(|record| record.state == KeyState::Active)
        };
        one.joined
            .store
            .create(&digest(number), &record(number, 100))
            .await
            .unwrap();
        until("the key works at the other node", is_active).await;
        one.joined.store.revoke(&id(number), 500).await.unwrap();
        let start = clock::instant();
        until("the key is refused by the other node", async || !is_active().await).await;
        took.push(start.elapsed());
    }
    took
}

#[tokio::test]
async fn a_revocation_is_pushed_to_the_other_node() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    // Without a poll to speak of, only a push can be it.
    let (one, two) = (node(&server, NEVER).await, node(&server, NEVER).await);
    until("both are pushed to", async || server.push_clients().await.len() == 2).await;
    let took = revocations(&one, &two).await;
    assert!(took.iter().min().unwrap() < &PUSHED_WITHIN, "{took:?}");
}

#[tokio::test]
async fn a_key_that_a_node_takes_for_unknown_works_there_when_it_is_created_at_another() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let (one, two) = (node(&server, NEVER).await, node(&server, NEVER).await);
    until("both are pushed to", async || server.push_clients().await.len() == 2).await;
    let now = clock::instant();
    let mut took = Vec::new();
    for number in 1..=KEYS {
        let is_known = async || two.cache.find(&digest(number), now, somebody).await.unwrap().is_some();
        assert!(!is_known().await);
        let before = two.cache.events();
        assert!(!is_known().await);
        assert_eq!(
            two.cache.events()[1].1,
            before[1].1 + 1,
            "it is at hand that there is none"
        );
        one.joined
            .store
            .create(&digest(number), &record(number, 100))
            .await
            .unwrap();
        let start = clock::instant();
        until("the key works at the other node", is_known).await;
        took.push(start.elapsed());
    }
    assert!(took.iter().min().unwrap() < &Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn a_revocation_is_polled_when_nothing_is_pushed() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let (one, two) = (node(&server, POLL).await, node(&server, POLL).await);
    until("both are pushed to", async || server.push_clients().await.len() == 2).await;
    // From here on no connection can ask for pushes, and those that have are cut.
    let () = server.ask(&["ACL", "SETUSER", "default", "-client|tracking"]).await;
    for client in server.push_clients().await {
        let _: i64 = server.ask(&["CLIENT", "KILL", "ID", &client]).await;
    }
    until("none is pushed to", async || server.push_clients().await.is_empty()).await;
    let took = revocations(&one, &two).await;
    assert!(took.iter().max().unwrap() < &POLLED_WITHIN, "{took:?}");
    assert!(server.push_clients().await.is_empty(), "it was the poll");
    let () = server.ask(&["ACL", "SETUSER", "default", "+client|tracking"]).await;
    until("both are pushed to again", async || {
        server.push_clients().await.len() == 2
    })
    .await;
}
