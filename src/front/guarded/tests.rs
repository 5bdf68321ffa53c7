//! What of a connection can be read by whom, and what becomes of a client that does not take its answer.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::telemetry::metrics::Metrics;

fn pair(taking: PaceLimit) -> (DuplexStream, Guarded, Metrics) {
    let (client, server) = duplex(1 << 20);
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    let guarded = Guarded::new(Box::new(server), None, taking, metrics.listener("gateway"));
    (client, guarded, metrics)
}

const PATIENT: PaceLimit = PaceLimit {
    wait_max: Duration::from_secs(600),
    bytes_per_second_min: 0,
};

/// What can be read until nothing more comes, in pieces of at most `step`.
async fn readable(guarded: &mut Guarded, step: usize) -> Vec<u8> {
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
    const HEAD: &[u8] = b"POST / HTTP/1.1\r\n\r\n";
    for (framing, body) in [
        (Framing::Empty, &b""[..]),
        (Framing::Length(5), b"hello"),
        (Framing::Chunked, b"3\r\nhel\r\n2;x\r\nlo\r\n0\r\n\r\n"),
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
            assert!(guarded.is_at_end());
            assert_eq!(guarded.ahead(), b"GET /next");
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
    guarded.begin_request(19, Framing::Chunked).expect("well framed yet");
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
    let taking = PaceLimit {
        wait_max: Duration::from_secs(60),
        bytes_per_second_min: 1000,
    };
    let (client, server) = duplex(16);
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    let mut guarded = Guarded::new(Box::new(server), None, taking, metrics.listener("gateway"));
    let error = guarded.write_all(&[0; 1000]).await.expect_err("nobody reads");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(client);
    let line = "weir_connections_closed_total{listener=\"gateway\",reason=\"answer_untaken\"} 1";
    assert!(metrics.render().contains(line));
}
