//! A way to the server that is cut again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::*;
use crate::store::redis::RedisSettings;
use crate::store::redis::link::{CallPolicy, KeyNaming};
use crate::store::redis::scripts::RedisScript;

/// How long new connections are closed at once behind a cut: the first attempt to reconnect fails.
const CLOSED: Duration = Duration::from_millis(30);
/// How often the way is cut, and how long it lives each time: less than a second.
const CUTS: u32 = 5;
const CUT_EVERY: Duration = Duration::from_millis(500);
/// How often how many calls are made.
const CALL_EVERY: Duration = Duration::from_millis(10);
const CALLS_AT_ONCE: u32 = 4;
/// What a call may take: more than it takes on a busy machine.
const CALL_BUDGET: Duration = Duration::from_millis(250);

/// Passes everything on. A cut closes all connections.
struct CutWay {
    port: u16,
    cuts: Arc<watch::Sender<Option<Instant>>>,
    accepting: JoinHandle<()>,
}

impl Drop for CutWay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl CutWay {
    async fn before(server: &TestServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cuts, server) = (Arc::new(watch::Sender::new(None::<Instant>)), server.port());
        let cut = Arc::clone(&cuts);
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut cut = cut.subscribe();
                if cut.borrow_and_update().is_some_and(|at| at.elapsed() < CLOSED) {
                    continue;
                }
                let mut upstream = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut upstream) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { port, cuts, accepting }
    }

    fn cut(&self) {
        self.cuts.send_replace(Some(clock::instant()));
    }
}

#[tokio::test]
async fn connections_that_live_for_half_a_second_are_made_anew_at_once() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let way = CutWay::before(&server).await;
    let settings = RedisSettings {
        nodes: vec![format!("127.0.0.1:{}", way.port)],
        ..server.settings("weir", CALL_BUDGET)
    };
    let joined = Joined::with(&settings).await;
    let script = Arc::new(RedisScript::new("return {redis.call('INCR', KEYS[1])}"));
    let done = Arc::new(AtomicU64::new(0));
    let mut calls = JoinSet::new();
    let mut ticks = interval(CALL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut made = 0;
    let start = clock::instant();
    let mut cuts = 0;
    while start.elapsed() < CUT_EVERY * (CUTS + 1) {
        ticks.tick().await;
        if cuts < CUTS && start.elapsed() > CUT_EVERY * (cuts + 1) {
            cuts += 1;
            way.cut();
        }
        for _ in 0..CALLS_AT_ONCE {
            made += 1;
            let (store, script, done) = (joined.store.clone(), Arc::clone(&script), Arc::clone(&done));
            calls.spawn(async move {
                let mut call = script.call();
                call.key("{weir:keys}:count");
                let effort = CallPolicy::Write(CALL_BUDGET);
                let answer = store.link.call(&call, effort, KeyNaming::Named).await;
                done.fetch_add(u64::from(answer.is_ok()), Ordering::Relaxed);
            });
        }
    }
    calls.join_all().await;
    let done = done.load(Ordering::Relaxed);
    let failed = made - done;
    eprintln!("{cuts} cuts: {failed} of {made} calls failed");
    assert_eq!(cuts, CUTS);
    // 50 ms behind each cut are a twelfth of all, more on a busy machine; with pauses that grow from cut to cut it is three fifths.
    assert!(failed * 5 < made * 2, "{failed} of {made} calls failed");
    let counted: u64 = server.ask(&["GET", "{weir:keys}:count"]).await;
    assert!((done..=made).contains(&counted), "none was done twice: {counted}");
}
