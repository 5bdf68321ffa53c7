//! What a client may begin with, and how long it may take for it.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::{
    config::limits::HeadsConfig,
    domain::{
        faults::{BodyTimeLimit, MinimumSpeed},
        wire::http1::head::HeadFault,
    },
    front::{ClientTimes, head_budget::HeadBudget},
    telemetry::metrics::Metrics,
};

const LIMITS: ArrivalLimits = ArrivalLimits {
    silence: Duration::from_secs(5),
    head: Duration::from_secs(10),
    size: HeadLimits {
        bytes_max: 100,
        fields_max: 3,
    },
};
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

fn pair() -> (DuplexStream, ClientConnection) {
    let (client, server) = duplex(1024);
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    let answer = MinimumSpeed {
        wait_max: Duration::from_secs(60),
        bytes_per_second_min: 0,
    };
    let body = BodyTimeLimit {
        pace: answer,
        total: Duration::from_secs(600),
    };
    let times = ClientTimes { body, answer };
    let heads = HeadBudget::new(HeadsConfig {
        bytes_max: 1 << 20,
        address_bytes_max: 1 << 20,
        head_bytes_max: 1 << 20,
    });
    let guarded = ClientConnection::new(
        Box::new(server),
        (None, heads.lease(None)),
        times,
        metrics.listener("gateway"),
    );
    (client, guarded)
}

fn open() -> (tokio::sync::watch::Sender<bool>, Closing) {
    let (sender, told) = tokio::sync::watch::channel(false);
    let patience = Duration::ZERO;
    (
        sender,
        Closing {
            shutdown: told,
            patience,
        },
    )
}

/// What comes, with a timer of its own.
async fn wait(
    guarded: &mut ClientConnection,
    spoken: ExpectedProtocol,
    closing: Closing,
) -> Result<Arrival, CloseReason> {
    let timer = pin!(tokio::time::sleep(Duration::ZERO));
    next_request(guarded, spoken, LIMITS, timer, pin!(closing.expired())).await
}

/// What comes of these bytes, sent one by one; the client stays.
async fn after(sent: &[u8], spoken: ExpectedProtocol) -> Result<Arrival, CloseReason> {
    let (mut client, mut guarded) = pair();
    let (_sender, closing) = open();
    let sending = async {
        for byte in sent {
            client.write_all(&[*byte]).await.expect("room");
            tokio::task::yield_now().await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        arrived = wait(&mut guarded, spoken, closing) => arrived,
        () = sending => unreachable!("the client stays"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_bytes_decide_between_the_versions() {
    for (sent, spoken) in [
        (REQUEST, ExpectedProtocol::Either),
        (REQUEST, ExpectedProtocol::Http1),
        (b"\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n", ExpectedProtocol::Http1),
        (b"P / HTTP/1.0\r\n\r\n", ExpectedProtocol::Either),
    ] {
        assert!(matches!(after(sent, spoken).await, Ok(Arrival::Request(head)) if sent.ends_with(&head)));
    }
    for spoken in [ExpectedProtocol::Either, ExpectedProtocol::Http2] {
        assert!(matches!(after(H2_PREFACE, spoken).await, Ok(Arrival::Http2)));
    }
    let refused = |fault| Some(CloseReason::Head(fault));
    assert_eq!(
        after(H2_PREFACE, ExpectedProtocol::Http1).await.err(),
        refused(HeadFault::Version)
    );
    assert_eq!(
        after(REQUEST, ExpectedProtocol::Http2).await.err(),
        Some(CloseReason::Handshake)
    );
    assert_eq!(
        after(b"\r\n\r\n", ExpectedProtocol::Either).await.err(),
        refused(HeadFault::RequestLine)
    );
    assert_eq!(
        after(b"\x16\x03\x01", ExpectedProtocol::Either).await.err(),
        refused(HeadFault::RequestLine)
    );
}

#[tokio::test(start_paused = true)]
async fn silence_and_a_head_have_limits_of_their_own() {
    let started = tokio::time::Instant::now();
    assert_eq!(
        after(b"", ExpectedProtocol::Either).await.err(),
        Some(CloseReason::Silent)
    );
    assert_eq!(started.elapsed().as_secs(), LIMITS.silence.as_secs());
    for half in [&REQUEST[..20], b"PRI * HTTP/2.0\r\n", b"\r"] {
        let started = tokio::time::Instant::now();
        assert_eq!(
            after(half, ExpectedProtocol::Either).await.err(),
            Some(CloseReason::HeadLate)
        );
        assert_eq!(started.elapsed().as_secs(), LIMITS.head.as_secs());
    }
    let long = [b"GET /", "x".repeat(100).as_bytes()].concat();
    let too_large = Some(CloseReason::Head(HeadFault::TooLarge));
    assert_eq!(after(&long, ExpectedProtocol::Either).await.err(), too_large);
}

#[tokio::test]
async fn who_leaves_or_comes_while_weir_closes_brings_nothing() {
    let (client, mut guarded) = pair();
    let (sender, closing) = open();
    drop(client);
    let arrived = wait(&mut guarded, ExpectedProtocol::Either, closing.clone()).await;
    assert!(matches!(arrived, Ok(Arrival::Nothing)));
    let (_client, mut guarded) = pair();
    sender.send_replace(true);
    let arrived = wait(&mut guarded, ExpectedProtocol::Either, closing).await;
    assert!(matches!(arrived, Ok(Arrival::Nothing)));
}

#[tokio::test(start_paused = true)]
async fn who_is_given_time_may_still_bring_a_request_while_weir_closes() {
    for (after_ms, comes) in [(900, true), (1_100, false)] {
        let (mut client, mut guarded) = pair();
        let (sender, mut closing) = open();
        closing.patience = Duration::from_secs(1);
        sender.send_replace(true);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            let _ = client.write_all(REQUEST).await;
            std::future::pending::<()>().await;
        });
        let arrived = wait(&mut guarded, ExpectedProtocol::Either, closing).await;
        assert_eq!(matches!(arrived, Ok(Arrival::Request(_))), comes, "{after_ms}");
    }
}

#[tokio::test]
async fn the_preface_is_still_to_be_read_by_who_speaks_http2() {
    let (mut client, mut guarded) = pair();
    let (_sender, closing) = open();
    client.write_all(H2_PREFACE).await.expect("room");
    client.write_all(b"more").await.expect("room");
    let arrived = wait(&mut guarded, ExpectedProtocol::Either, closing).await;
    assert!(matches!(arrived, Ok(Arrival::Http2)));
    let mut peeked = [0; H2_PREFACE.len()];
    assert!(
        pingora::protocols::Peek::try_peek(&mut guarded, &mut peeked)
            .await
            .expect("bytes")
    );
    assert_eq!(peeked, H2_PREFACE);
    drop(client);
    let mut all = Vec::new();
    guarded.read_to_end(&mut all).await.expect("bytes");
    assert_eq!(all, [H2_PREFACE, b"more"].concat());
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_an_earlier_request_has_set_is_put_off_for_the_next() {
    let (mut client, mut guarded) = pair();
    let (_sender, closing) = open();
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    let mut over = pin!(closing.expired());
    let started = tokio::time::Instant::now();
    for _ in 0..3 {
        let later = tokio::time::sleep(LIMITS.silence - Duration::from_secs(1));
        let sending = async {
            later.await;
            client.write_all(REQUEST).await.expect("room");
        };
        let arriving = next_request(
            &mut guarded,
            ExpectedProtocol::Http1,
            LIMITS,
            timer.as_mut(),
            over.as_mut(),
        );
        let (arrived, ()) = tokio::join!(arriving, sending);
        assert!(matches!(arrived, Ok(Arrival::Request(_))));
    }
    assert_eq!(started.elapsed().as_secs(), 3 * (LIMITS.silence.as_secs() - 1));
}
