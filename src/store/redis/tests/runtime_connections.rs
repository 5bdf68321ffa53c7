//! Runtimes that call often have connections of their own.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::store::redis::RedisStore;
use crate::store::redis::link::RUNTIME_CALLS_MIN;

/// A runtime beside the one that keeps the store's connection.
struct Elsewhere(Option<Runtime>);

impl Elsewhere {
    fn new() -> Self {
        Self(Some(
            Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap(),
        ))
    }

    /// How many of so many calls, one after the other, found the key.
    async fn find(&self, store: &Arc<RedisStore>, calls: u32) -> u32 {
        let store = Arc::clone(store);
        let runtime = self.0.as_ref().unwrap();
        let task = runtime.spawn(async move {
            let mut found = 0;
            for _ in 0..calls {
                found += u32::from(is_found(&*store, 1).await);
            }
            found
        });
        task.await.unwrap()
    }

    /// Calls until there is a connection of its own.
    async fn settle_in(&self, store: &Arc<RedisStore>) {
        until("a connection of its own is made", async || {
            self.find(store, RUNTIME_CALLS_MIN + 1).await;
            store.link.runtime_connections() == 1
        })
        .await;
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test]
async fn a_runtime_that_calls_often_has_a_connection_of_its_own_and_one_that_does_not_has_none() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let (store, elsewhere) = (&joined.store, Elsewhere::new());
    until_written(&**store, 1).await;
    for _ in 0..=RUNTIME_CALLS_MIN {
        assert!(is_found(&**store, 1).await);
    }
    assert_eq!(elsewhere.find(store, RUNTIME_CALLS_MIN).await, RUNTIME_CALLS_MIN);
    assert_eq!(
        store.link.runtime_connections(),
        0,
        "the supervisor's runtime has the link's own, the other called too seldom"
    );
    elsewhere.settle_in(store).await;
}

#[tokio::test]
async fn a_connection_of_ones_own_that_is_closed_costs_no_call_and_is_made_again() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join("weir").await;
    let (store, elsewhere) = (&joined.store, Elsewhere::new());
    until_written(&**store, 1).await;
    elsewhere.settle_in(store).await;
    let clients: String = server.ask(&["CLIENT", "LIST", "TYPE", "normal"]).await;
    // The store's clients are older than the one that asks, and the runtime's own is the newest of them.
    let newest = clients
        .lines()
        .filter(|line| !line.contains("cmd=client"))
        .filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse::<u64>().ok())
        .max();
    let epoch = *store.link.epochs().borrow();
    let () = server
        .ask(&["CLIENT", "KILL", "ID", &newest.unwrap().to_string()])
        .await;
    until("the loss is noticed", async || store.link.runtime_connections() == 0).await;
    assert_eq!(elsewhere.find(store, 10).await, 10);
    assert_eq!(*store.link.epochs().borrow(), epoch, "the link's connection stands");
    elsewhere.settle_in(store).await;
}

#[tokio::test]
async fn connections_of_a_server_that_restarts_are_all_given_up() {
    let Some(mut server) = TestServer::start_durable().await else {
        return;
    };
    let joined = server.join("weir").await;
    let (store, elsewhere) = (&joined.store, Elsewhere::new());
    until_written(&**store, 1).await;
    elsewhere.settle_in(store).await;
    let epoch = *store.link.epochs().borrow();
    server.kill();
    until("the loss is noticed", async || store.link.master_of("").is_none()).await;
    assert_eq!(elsewhere.find(store, 1).await, 0);
    server.restart().await;
    until("the key is found again", async || elsewhere.find(store, 1).await == 1).await;
    assert!(
        *store.link.epochs().borrow() > epoch,
        "what was acknowledged is checked"
    );
    elsewhere.settle_in(store).await;
}

#[tokio::test]
async fn a_call_that_waits_in_vain_gives_the_connection_up() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let joined = server.join_within("weir", BUDGET).await;
    let (store, elsewhere) = (&joined.store, Elsewhere::new());
    until_written(&**store, 1).await;
    elsewhere.settle_in(store).await;
    server.signal("-STOP");
    assert_eq!(elsewhere.find(store, 1).await, 0);
    assert_eq!(store.link.runtime_connections(), 0);
    server.signal("-CONT");
    until("the key is found again", async || elsewhere.find(store, 1).await == 1).await;
}
