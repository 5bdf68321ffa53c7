//! A Redis that is alive and has much to do: calls wait their turn. What ends a wait is silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::domain::ledger::{AccountChange, AdmitCall, AdmitReply, Step};
use crate::domain::money::NanoUsd;
use crate::store::ledger::LedgerStore;
use crate::store::ledger::contract::{node, record as key_record};
use crate::store::redis::dialer::CALLS_MAX;
use crate::store::redis::{RedisLedger, RedisSettings};

/// Passes questions on as they come, and answers in small pieces with a pause behind each, or not at all for a while.
struct Slow {
    port: u16,
    pause_us: Arc<AtomicU64>,
    held: Arc<watch::Sender<bool>>,
    accepting: JoinHandle<()>,
}

/// About one answer of an admission.
const PIECE: usize = 100;
/// How long nothing may be answered where everything is about a queue that moves: a busy machine moves it by fits and starts.
const SILENCE: Duration = Duration::from_millis(500);

impl Drop for Slow {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Slow {
    async fn before(server: &TestServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (pause_us, held, server) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(watch::Sender::new(false)),
            server.port(),
        );
        let (pause, hold) = (Arc::clone(&pause_us), Arc::clone(&held));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let upstream = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(pass(client, upstream, Arc::clone(&pause), hold.subscribe()));
            }
        });
        Self {
            port,
            pause_us,
            held,
            accepting,
        }
    }

    async fn join(&self, server: &TestServer, silence: Duration, queue: Duration) -> Joined {
        let settings = server.settings("weir", silence);
        let nodes = vec![format!("127.0.0.1:{}", self.port)];
        Joined::with(&RedisSettings {
            nodes,
            queue,
            ..settings
        })
        .await
    }
}

async fn pass(client: TcpStream, upstream: TcpStream, pause_us: Arc<AtomicU64>, mut held: watch::Receiver<bool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = upstream.into_split();
    let questions = async move {
        let _ = copy(&mut from_client, &mut to_server).await;
    };
    let answers = async move {
        let mut buffer = vec![0; PIECE];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            let _ = held.wait_for(|held| !held).await;
            if to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
            match pause_us.load(Ordering::Relaxed) {
                0 => {}
                pause => sleep(Duration::from_micros(pause)).await,
            }
        }
    };
    tokio::select! {
        () = questions => {}
        () = answers => {}
    }
}

async fn open_account(ledger: &RedisLedger) {
    let open = AccountChange::Open {
        balance: NanoUsd::from_nanos(1_000_000),
        at: 1,
        operation: None,
    };
    let step = Step { seq: 1, change: open };
    ledger.apply(&node(1), "acme", &[step], 0).await.unwrap();
}

fn ask(number: usize) -> AdmitCall {
    AdmitCall {
        node: node(1),
        request: format!("r{number}").into(),
        key: Arc::new(key_record(1)),
        estimate: NanoUsd::from_nanos(1),
        tokens: 0,
        ended_key: 0,
        ended_account: 0,
    }
}

#[tokio::test]
async fn five_hundred_admissions_at_once_at_a_slow_redis_wait_their_turn() {
    const CALLS: usize = 500;
    let Some(server) = TestServer::start().await else {
        return;
    };
    let slow = Slow::before(&server).await;
    let joined = slow.join(&server, SILENCE, Duration::from_secs(60)).await;
    let ledger = RedisLedger::new(joined.store.clone(), true);
    open_account(&ledger).await;
    slow.pause_us.store(4_000, Ordering::Relaxed);
    let start = clock::instant();
    let asked = (0..CALLS).map(|number| {
        let ledger = &ledger;
        async move { ledger.admit(&ask(number)).await }
    });
    let answers = futures_util::future::join_all(asked).await;
    let granted = answers
        .iter()
        .filter(|answer| matches!(answer, Ok(AdmitReply::Granted(_))));
    assert_eq!(
        granted.count(),
        CALLS,
        "{:?}",
        answers.iter().find(|answer| answer.is_err())
    );
    assert!(start.elapsed() > 3 * SILENCE, "it was no queue: {:?}", start.elapsed());
    assert_eq!(
        *joined.store.link.epochs().borrow(),
        0,
        "the connection was never given up"
    );
}

#[tokio::test]
async fn nobody_waits_longer_than_the_patience_however_alive_redis_is() {
    const QUEUE: Duration = Duration::from_secs(1);
    let Some(server) = TestServer::start().await else {
        return;
    };
    let slow = Slow::before(&server).await;
    let joined = slow.join(&server, SILENCE, QUEUE).await;
    until_written(&*joined.store, 1).await;
    slow.pause_us.store(5_000, Ordering::Relaxed);
    let calls = (0..500).map(async |_| {
        let start = clock::instant();
        (joined.store.find(&digest(1)).await.is_ok(), start.elapsed())
    });
    let answers = futures_util::future::join_all(calls).await;
    let longest = answers.iter().map(|(_, took)| *took).max().unwrap();
    assert!(answers[0].0, "the first are answered");
    assert!(!answers[499].0, "the last are not");
    assert!(longest >= QUEUE && longest < QUEUE + 2 * SLACK, "{longest:?}");
}

#[tokio::test]
async fn more_calls_than_may_wait_are_refused_at_once() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let slow = Slow::before(&server).await;
    let joined = server.join_at("weir", slow.port).await;
    until_written(&*joined.store, 1).await;
    let round = async || {
        slow.held.send_replace(true);
        let (busy, lost) = (AtomicU64::new(0), AtomicU64::new(0));
        let calls = (0..CALLS_MAX + 10).map(async |_| match joined.store.find(&digest(1)).await {
            Ok(_) => 0,
            Err(StoreError::Busy(_)) => busy.fetch_add(1, Ordering::Relaxed),
            Err(_) => lost.fetch_add(1, Ordering::Relaxed),
        });
        let is_lost = || lost.load(Ordering::Relaxed) > 0;
        let refused = async {
            until("those beyond the most are refused", async || {
                busy.load(Ordering::Relaxed) == 10 || is_lost()
            })
            .await;
            // Nobody was answered yet, so no place was free again.
            slow.held.send_replace(false);
        };
        tokio::join!(futures_util::future::join_all(calls), refused);
        assert!(
            is_lost() || busy.load(Ordering::Relaxed) == 10,
            "all others are answered"
        );
        !is_lost()
    };
    // A machine that takes more than a second to begin so many calls loses the connection over it.
    until("as many calls as may wait to be begun", async || {
        is_found(&*joined.store, 1).await && round().await
    })
    .await;
}

#[tokio::test]
async fn three_calls_that_meet_one_stall_do_not_end_the_connection() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let slow = Slow::before(&server).await;
    let settings = server.settings("weir", Duration::from_millis(20));
    let nodes = vec![format!("127.0.0.1:{}", slow.port)];
    let joined = Joined::with(&RedisSettings { nodes, ..settings }).await;
    until_written(&*joined.store, 1).await;
    let mut epochs = joined.store.link.epochs();
    epochs.mark_unchanged();
    slow.held.send_replace(true);
    let calls = (0..5).map(async |_| joined.store.find(&digest(1)).await.is_ok());
    let answers = futures_util::future::join_all(calls).await;
    slow.held.send_replace(false);
    assert_eq!(answers, [false; 5]);
    until("the key is found again", async || is_found(&*joined.store, 1).await).await;
    // Whatever was begun when they failed is over when a sign of life could be missed.
    let end = clock::instant() + 3 * BUDGET;
    until("the doubt is over", async || {
        assert!(!epochs.has_changed().unwrap(), "one stall is one stall");
        clock::instant() > end
    })
    .await;
    assert!(joined.store.link.master_of("").is_some());
}

#[tokio::test]
async fn one_call_that_meets_silence_is_enough_to_end_the_connection() {
    let Some(server) = TestServer::start().await else {
        return;
    };
    let slow = Slow::before(&server).await;
    let joined = slow.join(&server, BUDGET, Duration::from_secs(5)).await;
    until_written(&*joined.store, 1).await;
    slow.held.send_replace(true);
    let start = clock::instant();
    assert!(!is_found(&*joined.store, 1).await);
    assert!(start.elapsed() < BUDGET + SLACK, "{:?}", start.elapsed());
    until("the link is given up", async || {
        joined.store.link.master_of("").is_none()
    })
    .await;
    slow.held.send_replace(false);
    until("the key is found again", async || is_found(&*joined.store, 1).await).await;
}
