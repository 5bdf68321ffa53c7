//! Pingora's session of a request on a socket: what leaves it, what waits, and what its client's end does.

use futures_util::FutureExt;
use pingora::ErrorSource;
use smol_str::SmolStr;
use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::{
    config::gateway::SocketsConfig,
    domain::faults::refusal::Refusal,
    gateway::{
        conversations::Conversations,
        presence::{DetachLimits, Presence},
    },
    telemetry::metrics::Metrics,
};

const CONFIG: SocketsConfig = SocketsConfig {
    enabled: true,
    per_key_max: 1,
    running_max: 1,
    ping: Duration::from_secs(1),
    idle: Duration::from_secs(1),
    lifetime: Duration::from_secs(1),
    provider_lines_max: 0,
    provider_idle: Duration::from_secs(1),
    state_bytes_max: 0,
    state_key_bytes: None,
};

const EVENT: &[u8] = b"data: {\"type\":\"response.created\"}\n\n";
const LAST: &[u8] = b"data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\"}}\n\n";

fn session() -> (TurnSession, mpsc::Receiver<TurnPiece>) {
    let origin = TurnOrigin {
        at: SocketLane { socket: 0, lane: 0 },
        owner: [0; 32],
        socket_id: SmolStr::new("sock_1"),
        stream_id: None,
    };
    let conversations = Arc::new(Conversations::new(&CONFIG));
    let link = TurnLink::new(origin, conversations, Err(Refusal::Internal));
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let session = TurnSession {
        head: RequestHeader::build("POST", b"/v1/responses", None).expect("a head"),
        answer: TurnAnswer::new(Arc::clone(&link)),
        link,
        pieces: sender,
        peer: None,
        written: None,
        bytes_sent: 0,
    };
    (session, receiver)
}

fn success() -> Box<ResponseHeader> {
    Box::new(ResponseHeader::build(200, None).expect("a head"))
}

/// Lets the answer outlive its client.
fn watch(session: &TurnSession) {
    let limits = DetachLimits {
        stream: true,
        finish: Duration::from_secs(10),
    };
    let metrics = Arc::new(Metrics::new(&[], &[]).expect("metrics"));
    let presence = Presence::new(limits, Arc::new(Semaphore::new(1)), metrics);
    presence.on_request_read();
    session.link.watch(&presence);
}

#[tokio::test]
async fn each_piece_leaves_at_once_and_the_last_one_has_the_status() {
    let (mut session, mut pieces) = session();
    // The head of an answer is held until its body begins, and is then written without a wait.
    let written = session.write_response_header(success(), false).now_or_never();
    assert!(matches!(written, Some(Ok(()))) && session.response_written().is_some());
    for (bytes, end) in [(EVENT, None), (LAST, Some(200))] {
        session
            .write_body(Bytes::from_static(bytes), false)
            .await
            .expect("sent");
        let piece = pieces.try_recv().expect("a piece");
        assert_eq!((piece.end, piece.frames.first()), (end, Some(&0x81)));
    }
    session.finish().await.expect("finished");
    drop(session);
    assert!(pieces.recv().await.is_none(), "nothing follows");
}

#[tokio::test]
async fn nothing_is_sent_before_the_head_of_an_error_that_comes_late() {
    let (mut session, mut pieces) = session();
    let interim = Box::new(ResponseHeader::build(103, None).expect("a head"));
    let tasks = vec![HttpTask::Header(interim, false), HttpTask::Body(None, true)];
    assert!(session.response_duplex_vec(tasks).await.expect("written"));
    session.finish().await.expect("finished");
    assert!(pieces.try_recv().is_err() && session.response_written().is_none());
    let head = Box::new(ResponseHeader::build(429, None).expect("a head"));
    session.write_response_header(head, false).await.expect("written");
    let body = Bytes::from_static(b"{\"error\":{}}");
    session.write_body(body, true).await.expect("written");
    assert_eq!(pieces.try_recv().expect("a piece").end, Some(429));
}

#[tokio::test]
async fn an_answer_that_cannot_become_frames_ends_the_exchange_with_the_provider() {
    let (mut session, mut pieces) = session();
    session.write_response_header(success(), false).await.expect("written");
    let error = session.write_body(Bytes::from_static(b"{\"id\":"), false).await;
    let error = error.expect_err("the provider need not go on");
    assert_eq!(*error.esource(), ErrorSource::Upstream);
    assert_eq!(pieces.try_recv().expect("a piece").end, Some(502));
    session.finish().await.expect("nothing more is sent");
    assert!(pieces.try_recv().is_err());
}

#[tokio::test]
async fn only_a_refusal_of_weir_says_that_the_key_is_not_valid() {
    for is_own in [false, true] {
        let (mut session, mut pieces) = session();
        if is_own {
            session.link.on_key_refused();
        }
        let head = Box::new(ResponseHeader::build(401, None).expect("a head"));
        session.write_response_header(head, true).await.expect("written");
        let piece = pieces.try_recv().expect("a piece");
        assert_eq!((piece.end, piece.is_key_refused), (Some(401), is_own));
    }
}

#[tokio::test]
async fn the_last_frame_waits_for_the_gate() {
    let (mut session, mut pieces) = session();
    session.write_response_header(success(), false).await.expect("written");
    let (opens, opened) = oneshot::channel::<()>();
    session.link.gate().shut(Box::pin(async move {
        let _ = opened.await;
    }));
    {
        let mut writing = session.write_body(Bytes::from_static(LAST), true);
        assert!(futures_util::poll!(&mut writing).is_pending());
        assert!(pieces.try_recv().is_err());
        opens.send(()).expect("somebody waits");
        writing.await.expect("written");
    }
    assert_eq!(pieces.try_recv().expect("a piece").end, Some(200));
}

#[tokio::test]
async fn the_end_of_the_socket_ends_a_request_that_does_not_outlive_its_client() {
    let (mut session, pieces) = session();
    assert!(session.read_body_or_idle(true).now_or_never().is_none());
    drop(pieces);
    let error = session.read_body_or_idle(true).await.expect_err("the client is gone");
    assert_eq!(*error.esource(), ErrorSource::Downstream);
    session.write_response_header(success(), false).await.expect("written");
    assert!(session.write_body(Bytes::from_static(EVENT), false).await.is_err());
}

#[tokio::test]
async fn a_request_that_outlives_its_client_is_read_on() {
    let (mut session, pieces) = session();
    watch(&session);
    drop(pieces);
    assert!(session.read_body_or_idle(true).now_or_never().is_none());
    assert!(session.is_gone());
    session.write_response_header(success(), false).await.expect("written");
    for bytes in [EVENT, LAST] {
        session
            .write_body(Bytes::from_static(bytes), false)
            .await
            .expect("swallowed");
    }
    session.finish().await.expect("swallowed");
}
