//! A change whose answer was lost is sent again, and has one effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::{ask, granted, nanos, open_with, settled, start, steps};
use crate::store::contract::until;
use crate::store::ledger::contract::node;
use crate::store::ledger::{LedgerStore, LogLists};
use crate::store::redis::test_server::TestServer;

/// Passes everything on, until it is told to swallow the next answer and hang up.
struct Cutter {
    port: u16,
    cut_next: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Cutter {
    async fn before(server: &TestServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut_next, server) = (Arc::new(AtomicBool::new(false)), server.port());
        let cut = Arc::clone(&cut_next);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let upstream = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(pass(client, upstream, Arc::clone(&cut)));
            }
        });
        Self {
            port,
            cut_next,
            accepting,
        }
    }
}

async fn pass(client: TcpStream, upstream: TcpStream, cut_next: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = upstream.into_split();
    let questions = async move {
        let _ = copy(&mut from_client, &mut to_server).await;
    };
    let answers = async move {
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            if cut_next.swap(false, Ordering::SeqCst) || to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = questions => {}
        () = answers => {}
    }
}

#[tokio::test]
async fn a_change_whose_connection_is_cut_before_the_answer_has_one_effect() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let cutter = Cutter::before(&server).await;
    let joined = server.join_at("weir", cutter.port).await;
    let ledger = super::RedisLedger::new(joined.store.clone(), true);
    let cut = || cutter.cut_next.store(true, Ordering::SeqCst);
    cut();
    let opened = steps(1, [open_with(100)]);
    // The link asks again by itself, or the caller does.
    until("it is opened", async || {
        ledger.apply(&node(1), "acme", &opened, 0).await == Ok(1)
    })
    .await;
    let grant = granted(ledger.admit(&ask(&node(1), "r1", 30)).await);
    cut();
    let mut again = None;
    until("it is admitted", async || {
        again = ledger.admit(&ask(&node(1), "r2", 30)).await.ok();
        again.is_some()
    })
    .await;
    cut();
    let end = steps(2, [settled("r1", grant.at_ms, 42)]);
    until("it is settled", async || {
        ledger.apply(&node(1), "acme", &end, 0).await == Ok(2)
    })
    .await;
    let view = ledger.account("acme").await.unwrap().unwrap();
    assert_eq!((view.balance, view.spent), (nanos(58), nanos(42)));
    assert_eq!((view.held, view.running), (nanos(30), 1));
    let rows = ledger.rows("acme", grant.at_ms / 86_400_000, 0, 10).await.unwrap();
    assert_eq!(rows.len(), 1);
}

#[tokio::test]
async fn a_change_that_nobody_waits_for_any_more_has_one_effect() {
    let Some((_server, clock, first)) = start().await else {
        return;
    };
    let ledger = &first.ledger;
    let opened = steps(1, [open_with(100)]);
    ledger.apply(&node(1), "acme", &opened, 0).await.unwrap();
    let end = steps(2, [settled("r1", clock.now_ms(), 42)]);
    let by = node(1);
    let mut sent = ledger.apply(&by, "acme", &end, 0).boxed();
    let asked = std::future::poll_fn(|context| Poll::Ready(sent.poll_unpin(context)));
    assert!(asked.await.is_pending());
    until("it has happened", async || {
        ledger.watermark(&node(1), "acme").await == Ok(2)
    })
    .await;
    drop(sent);
    let calls = (0..5).map(|_| {
        let (ledger, end) = (ledger.clone(), end.clone());
        tokio::spawn(async move { ledger.apply(&node(1), "acme", &end, 0).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap(), Ok(2));
    }
    let view = ledger.account("acme").await.unwrap().unwrap();
    assert_eq!((view.balance, view.spent), (nanos(58), nanos(42)));
    let rows = ledger.rows("acme", clock.now_ms() / 86_400_000, 0, 10).await.unwrap();
    assert_eq!(rows.len(), 1);
}
