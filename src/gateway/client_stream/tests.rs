//! The client's connection: what is passed through, what is swallowed, and when.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Semaphore;

use super::*;
use crate::{
    config::limits::HeadsConfig,
    domain::faults::{BodyTimeLimit, MinimumSpeed},
    front::{ClientTimes, head_budget::HeadBudget},
    gateway::presence::DetachLimits,
    telemetry::metrics::Metrics,
};

const PIPE_BYTES: usize = 64;

const TERMS: DetachLimits = DetachLimits {
    stream: true,
    finish: Duration::from_secs(10),
};

fn guarded(stream: DuplexStream) -> Box<ClientConnection> {
    let pace = MinimumSpeed {
        wait_max: Duration::from_millis(20),
        bytes_per_second_min: 0,
    };
    let times = ClientTimes {
        body: BodyTimeLimit {
            pace,
            total: Duration::from_secs(600),
        },
        answer: pace,
    };
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    let heads = HeadBudget::new(HeadsConfig {
        bytes_max: 1 << 20,
        address_bytes_max: 1 << 20,
        head_bytes_max: 1 << 20,
    });
    Box::new(ClientConnection::new(
        Box::new(stream),
        (None, heads.lease(None)),
        times,
        metrics.listener("gateway"),
    ))
}

/// A connection that has everything to be read still.
fn unread(stream: DuplexStream) -> ClientStream {
    let mut guarded = guarded(stream);
    guarded.begin_http2();
    ClientStream::new(guarded, Weak::new())
}

fn presence(terms: DetachLimits, places: usize) -> Arc<Presence> {
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    Presence::new(terms, Arc::new(Semaphore::new(places)), Arc::new(metrics))
}

/// The client's end, the connection, and the presence that it is watched for.
fn watched(stream: bool, places: usize) -> (DuplexStream, ClientStream, Arc<Presence>) {
    let (client, server) = duplex(PIPE_BYTES);
    let connection = unread(server);
    let presence = presence(DetachLimits { stream, ..TERMS }, places);
    presence.on_request_read();
    connection.watch(&presence);
    (client, connection, presence)
}

/// Whether a read is waiting still after all that can happen has happened.
async fn waits(connection: &mut ClientStream) -> bool {
    let mut space = [0; 8];
    futures_util::poll!(std::pin::pin!(connection.read(&mut space))).is_pending()
}

#[tokio::test]
async fn a_connection_that_nobody_watches_passes_everything_through() {
    let (mut client, server) = duplex(PIPE_BYTES);
    let mut connection = unread(server);
    client.write_all(b"hello").await.expect("room");
    let mut space = [0; 8];
    assert_eq!(connection.read(&mut space).await.expect("bytes"), 5);
    drop(client);
    assert_eq!(connection.read(&mut space).await.expect("the end"), 0);
    assert!(connection.write_all(b"lost").await.is_err());
}

#[tokio::test]
async fn a_client_that_leaves_is_let_go_at_once_and_what_is_written_swallowed() {
    let (mut client, mut connection, presence) = watched(true, 1);
    AsyncWriteExt::shutdown(&mut client).await.expect("closed");
    assert!(waits(&mut connection).await && presence.has_left());
    let mut space = [0; 8];
    assert_eq!(client.read(&mut space).await.expect("closed by the gateway"), 0);
    connection.write_all(&[0; 10 * PIPE_BYTES]).await.expect("swallowed");
    connection.flush().await.expect("swallowed");
    assert!(waits(&mut connection).await);
    // The request is over: the next one finds a connection that has ended.
    presence.close(true);
    assert_eq!(connection.read(&mut space).await.expect("the end"), 0);
}

#[tokio::test]
async fn the_next_request_finds_a_plain_connection_whoever_remembers_the_last() {
    let (mut client, mut connection, presence) = watched(true, 1);
    connection.write_all(b"answer").await.expect("room");
    presence.close(true);
    client.write_all(b"next").await.expect("room");
    let mut space = [0; 8];
    assert_eq!(connection.read(&mut space).await.expect("the next request"), 4);
    AsyncWriteExt::shutdown(&mut client).await.expect("closed");
    assert_eq!(connection.read(&mut space).await.expect("the end"), 0);
    assert!(!presence.has_left());
}

#[tokio::test]
async fn without_a_place_the_client_is_seen_to_leave() {
    let (mut client, mut connection, presence) = watched(true, 0);
    AsyncWriteExt::shutdown(&mut client).await.expect("closed");
    let mut space = [0; 8];
    assert_eq!(connection.read(&mut space).await.expect("the end"), 0);
    assert!(!presence.has_left());
    drop(client);
    assert!(connection.write_all(b"lost").await.is_err());
}

#[tokio::test]
async fn a_failed_write_is_a_client_that_left() {
    let (client, mut connection, presence) = watched(false, 1);
    drop(client);
    assert!(waits(&mut connection).await && !presence.has_left());
    connection.write_all(b"swallowed").await.expect("swallowed");
    assert!(presence.has_left());
}

#[tokio::test]
async fn who_stops_sending_still_gets_an_answer_in_one_piece() {
    let (mut client, mut connection, presence) = watched(false, 1);
    AsyncWriteExt::shutdown(&mut client).await.expect("closed");
    assert!(waits(&mut connection).await && waits(&mut connection).await);
    connection.write_all(b"an answer").await.expect("room");
    connection.flush().await.expect("room");
    let mut space = [0; 9];
    client.read_exact(&mut space).await.expect("the answer");
    assert!(space == *b"an answer" && !presence.has_left());
}

#[tokio::test]
async fn what_comes_behind_a_request_waits_and_does_not_break_it_off() {
    let (mut client, server) = duplex(PIPE_BYTES);
    let mut connection = ClientStream::new(guarded(server), Weak::new());
    let presence = presence(TERMS, 1);
    connection.watch(&presence);
    presence.on_request_read();
    client.write_all(b"next").await.expect("room");
    assert!(waits(&mut connection).await && !presence.has_left());
    let mut back = connection.into_connection().expect("not given up");
    assert_eq!(back.ahead(), b"next");
    AsyncWriteExt::shutdown(&mut client).await.expect("closed");
    assert_eq!(back.read_ahead().await.expect("the end"), 0);
}

#[tokio::test]
async fn who_leaves_behind_its_next_request_has_left() {
    let (mut client, server) = duplex(PIPE_BYTES);
    let mut connection = ClientStream::new(guarded(server), Weak::new());
    let presence = presence(TERMS, 1);
    connection.watch(&presence);
    presence.on_request_read();
    client.write_all(b"next").await.expect("room");
    AsyncWriteExt::shutdown(&mut client).await.expect("closed");
    assert!(waits(&mut connection).await && presence.has_left());
    assert!(connection.into_connection().is_none());
}

#[tokio::test]
async fn a_client_that_takes_no_bytes_is_waited_for_as_long_as_it_may() {
    let (_client, mut connection, presence) = watched(true, 1);
    connection.write_all(&[0; 2 * PIPE_BYTES]).await.expect("swallowed");
    assert!(presence.has_left());
    let (_client, mut connection, presence) = watched(true, 0);
    let error = connection.write_all(&[0; 2 * PIPE_BYTES]).await.expect_err("no place");
    assert_eq!((error.kind(), presence.has_left()), (io::ErrorKind::TimedOut, false));
}

#[tokio::test]
async fn a_client_that_takes_bytes_at_last_is_there() {
    let (mut client, mut connection, presence) = watched(true, 1);
    let reading = tokio::spawn(async move {
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.map(|_| all.len())
    });
    for _ in 0..20 {
        connection.write_all(&[0; PIPE_BYTES]).await.expect("taken");
    }
    assert!(!presence.has_left());
    drop(connection);
    assert_eq!(reading.await.expect("no panic").expect("read"), 20 * PIPE_BYTES);
}

#[tokio::test]
async fn nothing_is_written_while_the_gate_is_shut() {
    let (mut client, server) = duplex(PIPE_BYTES);
    let mut connection = unread(server);
    connection.write_all(b"the beginning, ").await.expect("room");
    let (sender, written) = tokio::sync::oneshot::channel::<()>();
    connection.gate().shut(Box::pin(async move {
        let _ = written.await;
    }));
    let mut end = std::pin::pin!(connection.write_all(b"the end"));
    assert!(futures_util::poll!(&mut end).is_pending());
    let mut space = [0; PIPE_BYTES];
    let came = client.read(&mut space).await.expect("bytes");
    assert_eq!(&space[..came], b"the beginning, ");
    drop(sender);
    end.await.expect("room");
    let came = client.read(&mut space).await.expect("bytes");
    assert_eq!(&space[..came], b"the end");
}

#[tokio::test]
async fn a_head_that_is_due_goes_out_while_nothing_is_written() {
    let (mut client, mut connection, _presence) = watched(true, 1);
    let head = pingora::http::ResponseHeader::build(200, None).expect("a head");
    connection
        .gate
        .head
        .hold(Box::new(head), crate::edges::clock::instant(), true);
    let mut start = [0; 15];
    // More than the pipe holds is sent as it is read.
    let (read, _) = tokio::join!(client.read_exact(&mut start), async {
        while connection.gate.head.is_waiting() || !connection.unsent.is_empty() {
            assert!(waits(&mut connection).await);
            tokio::task::yield_now().await;
        }
    });
    read.expect("the head");
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    assert!(!connection.gate.head.is_waiting() && connection.gate.head.take().is_none());
}

#[tokio::test]
async fn a_head_that_waits_for_its_body_is_sent_before_it_and_at_a_shutdown() {
    let (mut client, mut connection, _presence) = watched(true, 1);
    connection.unsent = BytesMut::from(&b"head "[..]);
    connection.write_all(b"body").await.expect("room");
    connection.flush().await.expect("room");
    connection.unsent = BytesMut::from(&b" another"[..]);
    AsyncWriteExt::shutdown(&mut connection).await.expect("room");
    let mut all = String::new();
    client.read_to_string(&mut all).await.expect("text");
    assert_eq!(all, "head body another");
}
