//! What of a connection can be read by whom, and what becomes of a client that does not take its answer.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::{
    config::limits::HeadsConfig,
    domain::faults::{BodyTimeLimit, MinimumSpeed},
    front::head_budget::HeadBudget,
    telemetry::metrics::Metrics,
};

fn times(pace: MinimumSpeed) -> ClientTimes {
    ClientTimes {
        body: BodyTimeLimit {
            pace,
            total: Duration::from_secs(600),
        },
        answer: pace,
    }
}

fn no_head() -> HeadLease {
    let heads = HeadBudget::new(HeadsConfig {
        bytes_max: 1 << 20,
        address_bytes_max: 1 << 20,
        head_bytes_max: 1 << 18,
    });
    heads.lease(None)
}

fn pair(pace: MinimumSpeed) -> (DuplexStream, ClientConnection, Metrics) {
    let (client, server) = duplex(1 << 20);
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    let guarded = ClientConnection::new(
        Box::new(server),
        (None, no_head()),
        times(pace),
        metrics.listener("gateway"),
    );
    (client, guarded, metrics)
}

const HEAD: &[u8] = b"POST / HTTP/1.1\r\n\r\n";

const PATIENT: MinimumSpeed = MinimumSpeed {
    wait_max: Duration::from_secs(600),
    bytes_per_second_min: 0,
};

/// What can be read until nothing more comes, in pieces of at most `step`.
async fn readable(guarded: &mut ClientConnection, step: usize) -> Vec<u8> {
    // A task that has done much is asked to wait for its next turn: not here.
    tokio::task::yield_now().await;
    let (mut all, mut space) = (Vec::new(), vec![0; step]);
    loop {
        let reading = std::pin::pin!(guarded.read(&mut space));
        match futures_util::poll!(reading) {
            Poll::Ready(Ok(count @ 1..)) => all.extend_from_slice(&space[..count]),
            Poll::Ready(other) => panic!("{other:?} behind {all:?}"),
            Poll::Pending => return all,
        }
    }
}

#[tokio::test]
async fn a_request_is_read_to_its_own_end_and_the_next_one_waits() {
    for (framing, body) in [
        (RequestFraming::Empty, &b""[..]),
        (RequestFraming::Length(5), b"hello"),
        (RequestFraming::Chunked, b"3\r\nhel\r\n2;x\r\nlo\r\n0\r\n\r\n"),
    ] {
        let all = [HEAD, body, b"GET /next"].concat();
        for (first, step) in [
            (HEAD.len(), 1),
            (HEAD.len() + 1, 100),
            (all.len(), 3),
            (all.len() - 2, 7),
        ] {
            let (mut client, mut guarded, _) = pair(PATIENT);
            client.write_all(&all[..first]).await.expect("room");
            guarded.read_ahead().await.expect("bytes");
            let mut request = guarded
                .begin_request(HEAD.len(), framing)
                .expect("well framed")
                .to_vec();
            client.write_all(&all[first..]).await.expect("room");
            request.extend(readable(&mut guarded, step).await);
            assert_eq!(request, [HEAD, body].concat(), "{framing:?} from {first} by {step}");
            assert!(guarded.finish_request().await);
            assert_eq!(guarded.ahead(), b"GET /next");
        }
    }
}

const CONTENT: &[u8] = b"3\r\nhel\r\n2;x\r\nlo\r\n0\r\n";
const TRAILERS: &[u8] = b"x-sum: 1\r\nx-more:\r\n\r\n";

/// A chunked request of which so much has come, as it can be read in pieces of `step`.
async fn come(client: &mut DuplexStream, guarded: &mut ClientConnection, (come, step): (&[u8], usize)) -> Vec<u8> {
    client.write_all(&come[..HEAD.len()]).await.expect("room");
    guarded.read_ahead().await.expect("bytes");
    client.write_all(&come[HEAD.len()..]).await.expect("room");
    let begin = guarded
        .begin_request(HEAD.len(), RequestFraming::Chunked)
        .expect("well framed");
    let mut read = begin.to_vec();
    read.extend(readable(guarded, step).await);
    read
}

#[tokio::test]
async fn a_body_is_whole_with_its_last_chunk_and_its_trailers_are_for_nobody() {
    let all = [HEAD, CONTENT, TRAILERS, b"GET /next"].concat();
    let content = HEAD.len() + CONTENT.len();
    for first in HEAD.len()..=all.len() {
        for step in [1, 2, 3, 100] {
            let (mut client, mut guarded, _) = pair(PATIENT);
            let read = come(&mut client, &mut guarded, (&all[..first], step)).await;
            let whole = first >= content;
            let expected = if whole {
                [HEAD, CONTENT, b"\r\n"].concat()
            } else {
                all[..first].to_vec()
            };
            assert_eq!(read, expected, "{first} by {step}");
            client.write_all(&all[first..]).await.expect("room");
            let rest = readable(&mut guarded, step).await;
            assert_eq!(
                [read, rest].concat(),
                [HEAD, CONTENT, b"\r\n"].concat(),
                "{first} by {step}"
            );
            assert!(guarded.finish_request().await, "{first} by {step}");
            while guarded.ahead() != b"GET /next" {
                guarded.read_ahead().await.expect("bytes");
            }
        }
    }
}

#[tokio::test]
async fn trailers_that_come_at_once_are_passed_over_before_the_next_request() {
    let (mut client, mut guarded, _) = pair(PATIENT);
    client
        .write_all(&[HEAD, CONTENT, TRAILERS, b"GET /next"].concat())
        .await
        .expect("room");
    guarded.read_ahead().await.expect("bytes");
    let request = guarded
        .begin_request(HEAD.len(), RequestFraming::Chunked)
        .expect("well framed");
    assert_eq!(request, [HEAD, CONTENT, b"\r\n"].concat());
    assert!(guarded.finish_request().await);
    assert_eq!(guarded.ahead(), b"GET /next");
}

#[tokio::test]
async fn no_request_follows_trailers_that_are_malformed_or_cut() {
    for trailers in [&b" folded: x\r\n"[..], b"x\r\n\r\n", b"x: 1\n\n"] {
        let (mut client, mut guarded, metrics) = pair(PATIENT);
        come(&mut client, &mut guarded, (&[HEAD, CONTENT].concat(), 64)).await;
        client.write_all(trailers).await.expect("room");
        assert!(!guarded.finish_request().await, "{trailers:?}");
        let line = "weir_connections_closed_total{listener=\"gateway\",reason=\"chunks_invalid\"} 1";
        assert!(metrics.render().contains(line));
    }
    let (mut client, mut guarded, _) = pair(PATIENT);
    come(&mut client, &mut guarded, (&[HEAD, CONTENT, b"x: "].concat(), 64)).await;
    drop(client);
    assert!(!guarded.finish_request().await);
    let (mut client, mut guarded, _) = pair(PATIENT);
    come(&mut client, &mut guarded, (&[HEAD, b"5\r\nhe"].concat(), 64)).await;
    assert!(!guarded.finish_request().await, "its content has not come");
    drop(client);
}

/// Sends a byte each second until that fails, to a connection that reads as long as it can; returns how long that was.
async fn dripped(begin: &[u8], total: Duration) -> Duration {
    let pace = MinimumSpeed {
        wait_max: Duration::from_secs(20),
        bytes_per_second_min: 2,
    };
    let (mut client, server) = duplex(1 << 20);
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    let mut limits = times(pace);
    limits.body.total = total;
    let mut guarded = ClientConnection::new(Box::new(server), (None, no_head()), limits, metrics.listener("gateway"));
    client.write_all(begin).await.expect("room");
    guarded.read_ahead().await.expect("bytes");
    guarded
        .begin_request(HEAD.len(), RequestFraming::Chunked)
        .expect("well framed");
    let began = tokio::time::Instant::now();
    let dripping = async {
        loop {
            client.write_all(b"x").await.expect("room");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let reading = async {
        let mut space = [0; 64];
        loop {
            if let Err(error) = guarded.read(&mut space).await {
                return error.kind();
            }
        }
    };
    let kind = tokio::select! {
        kind = reading => kind,
        () = dripping => unreachable!("it ends with the other"),
    };
    assert_eq!(kind, ErrorKind::TimedOut);
    began.elapsed()
}

#[test]
fn what_is_dripped_is_not_waited_for_longer_than_a_body() {
    let patient = Duration::from_secs(600);
    for begin in [&[HEAD, CONTENT, b"x-a: "].concat()[..], &[HEAD, b"ffff\r\n"].concat()] {
        for (total, seconds) in [(patient, 20), (Duration::from_secs(7), 7)] {
            // The clock stands still, and only the time of this runtime goes on.
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
            let took = runtime.block_on(dripped(begin, total)).as_secs();
            assert!((seconds..=seconds + 1).contains(&took), "{took} seconds, not {seconds}");
        }
    }
}

#[tokio::test]
async fn chunks_that_could_be_read_in_two_ways_are_an_error_and_counted() {
    let (mut client, mut guarded, metrics) = pair(PATIENT);
    client
        .write_all(b"POST / HTTP/1.1\r\n\r\n5\r\nhel")
        .await
        .expect("room");
    guarded.read_ahead().await.expect("bytes");
    guarded
        .begin_request(19, RequestFraming::Chunked)
        .expect("well framed yet");
    client.write_all(b"lo\n0\r\n\r\n").await.expect("room");
    let error = guarded.read(&mut [0; 64]).await.expect_err("a bare line feed");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let line = "weir_connections_closed_total{listener=\"gateway\",reason=\"chunks_invalid\"} 1";
    assert!(metrics.render().contains(line));
}

#[tokio::test]
async fn what_is_kept_for_later_has_a_limit() {
    let (mut client, mut guarded, _) = pair(PATIENT);
    client.write_all(&vec![b'x'; 4 * AHEAD_BYTES_MAX]).await.expect("room");
    assert!(readable(&mut guarded, 64).await.is_empty());
    let kept = guarded.ahead().len();
    assert!((AHEAD_BYTES_MAX..2 * AHEAD_BYTES_MAX).contains(&kept), "{kept}");
}

#[tokio::test]
async fn a_connection_that_waits_takes_no_memory_for_what_may_come() {
    let (mut client, mut guarded, _) = pair(PATIENT);
    {
        let idle = std::pin::pin!(guarded.read_ahead());
        assert!(futures_util::poll!(idle).is_pending());
    }
    assert_eq!(guarded.ahead.capacity(), 0);
    assert!(readable(&mut guarded, 64).await.is_empty());
    assert_eq!(guarded.ahead.capacity(), 0);
    client.write_all(b"GET /").await.expect("room");
    assert_eq!(guarded.read_ahead().await.expect("bytes"), 5);
    assert_eq!(guarded.ahead(), b"GET /");
}

#[tokio::test]
async fn a_client_that_leaves_is_seen_while_its_answer_runs() {
    let (client, mut guarded, _) = pair(PATIENT);
    drop(client);
    assert_eq!(guarded.read(&mut [0; 8]).await.expect("the end"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_or_too_slowly_ends_the_connection() {
    let taking = MinimumSpeed {
        wait_max: Duration::from_secs(60),
        bytes_per_second_min: 1000,
    };
    let (client, server) = duplex(16);
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    let mut guarded = ClientConnection::new(
        Box::new(server),
        (None, no_head()),
        times(taking),
        metrics.listener("gateway"),
    );
    let error = guarded.write_all(&[0; 1000]).await.expect_err("nobody reads");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(client);
    let line = "weir_connections_closed_total{listener=\"gateway\",reason=\"write_timeout\"} 1";
    assert!(metrics.render().contains(line));
}
