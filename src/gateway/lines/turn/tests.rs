//! A request on a line: what the provider gets, and what Pingora reads.

use std::future::poll_fn;

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    task::unconstrained,
};

use super::*;
use crate::domain::wire::websocket::{FrameDecoder, FrameEvent, FrameLimits, FrameRole, write_text_header};

const BODY: &[u8] = br#"{"model":"m","stream":true}"#;
const CREATED: &str = r#"{"type":"response.created","response":{"id":"resp_1"}}"#;
const COMPLETED: &str = r#"{"type":"response.completed","response":{"id":"resp_1"}}"#;

const INCOMPLETE: &str = r#"{"type":"response.incomplete","response":{"id":"resp_1"}}"#;

/// A request between Pingora's end of the pipe and the provider's end of the connection.
struct Stage {
    running: CarriedTurn,
    stream: LineStream,
    state: LineState,
    provider: DuplexStream,
    pingora: DuplexStream,
    written: Option<oneshot::Sender<()>>,
    progress: Arc<LineProgress>,
}

impl Stage {
    fn new() -> Self {
        let (connection, provider) = duplex(1 << 22);
        let (pingora, answer) = duplex(1 << 16);
        let (sender, written) = oneshot::channel();
        let progress: Arc<LineProgress> = Arc::default();
        let turn = LineTurn {
            frame: CreateFrame::from_body(&Bytes::from_static(BODY)).expect("a frame"),
            complete_frame: None,
            body_bytes: BODY.len(),
            written,
            answer,
            progress: Arc::clone(&progress),
        };
        let state = LineState::default();
        assert!(state.acquire());
        Self {
            running: CarriedTurn::new(turn),
            stream: LineStream::new(Box::new(connection), BytesMut::new()),
            state,
            provider,
            pingora,
            written: Some(sender),
            progress,
        }
    }

    /// A request that Pingora has written, and that the provider has received.
    async fn sent() -> Self {
        let mut stage = Self::new();
        stage
            .written
            .take()
            .expect("not written yet")
            .send(())
            .expect("a receiver");
        assert!(stage.poll().is_none());
        assert_eq!(stage.received().await, r#"{"type":"response.create","model":"m"}"#);
        stage
    }

    /// Carries the request as far as possible now, whatever this test has done before. Returns its end.
    fn poll(&mut self) -> Option<Result<(), LineClose>> {
        unconstrained(poll_fn(|cx| self.running.poll(&mut self.stream, &self.state, cx))).now_or_never()
    }

    /// The text that the provider has received.
    async fn received(&mut self) -> String {
        let mut bytes = BytesMut::new();
        let limits = FrameLimits {
            message_bytes_max: 1 << 20,
            fragments_max: 1,
        };
        self.provider.read_buf(&mut bytes).await.expect("a frame");
        let mut decoder = FrameDecoder::new(FrameRole::Server, limits);
        let events = std::iter::from_fn(|| decoder.next_event(&mut bytes).expect("valid frames"));
        let text = events.filter_map(|event| match event {
            FrameEvent::Payload(piece) => Some(piece),
            _ => None,
        });
        String::from_utf8(text.collect::<Vec<_>>().concat()).expect("UTF-8")
    }

    async fn send(&mut self, text: &str) {
        let mut frame = BytesMut::new();
        write_text_header(&mut frame, text.len() as u64, None);
        frame.extend_from_slice(text.as_bytes());
        self.provider.write_all(&frame).await.expect("room");
    }

    /// What Pingora can read now.
    fn answer(&mut self) -> String {
        let mut answer = BytesMut::new();
        while let Some(read) = unconstrained(self.pingora.read_buf(&mut answer)).now_or_never()
            && read.expect("readable") > 0
        {}
        String::from_utf8(answer.to_vec()).expect("UTF-8")
    }
}

#[tokio::test]
async fn the_frame_is_sent_when_the_request_is_written_and_its_events_are_a_stream() {
    let mut stage = Stage::new();
    assert!(stage.poll().is_none());
    assert!(unconstrained(stage.provider.read_u8()).now_or_never().is_none() && stage.progress.is_unread());
    let mut stage = Stage::sent().await;
    stage.send(CREATED).await;
    assert!(stage.poll().is_none() && !stage.progress.is_unread());
    let begin = stage.answer();
    assert!(
        begin.starts_with("HTTP/1.1 200 OK\r\n") && begin.contains("event: response.created\n"),
        "{begin}"
    );
    assert!(!stage.state.acquire(), "the line is busy");
    stage.send(COMPLETED).await;
    assert_eq!(stage.poll(), Some(Ok(())));
    let end = stage.answer();
    assert!(end.contains(COMPLETED) && end.ends_with("\r\n0\r\n\r\n"), "{end}");
    assert!(stage.state.acquire(), "the line is free");
}

#[tokio::test]
async fn a_line_has_the_response_that_it_has_completed_last() {
    let error = r#"{"type":"error","status":400,"error":{}}"#;
    for (events, has_response) in [
        (vec![CREATED, COMPLETED], true),
        (vec![CREATED, INCOMPLETE], false),
        (vec![CREATED, error], false),
        (vec![error], false),
    ] {
        let mut stage = Stage::sent().await;
        stage.state.set_response(Some("resp_0".to_owned()));
        for event in &events {
            stage.send(event).await;
        }
        assert_eq!(stage.poll(), Some(Ok(())));
        assert_eq!(stage.state.has_response("resp_1"), has_response, "{events:?}");
        assert!(!stage.state.has_response("resp_0"));
    }
}

#[tokio::test]
async fn a_continuation_that_the_provider_does_not_know_is_sent_with_the_complete_input() {
    let mut stage = Stage::new();
    let complete = CreateFrame::from_body(&Bytes::from_static(br#"{"input":[1],"stream":true}"#));
    stage.running.turn.complete_frame = complete;
    stage
        .written
        .take()
        .expect("not written yet")
        .send(())
        .expect("a receiver");
    assert!(stage.poll().is_none());
    stage.received().await;
    let error = r#"{"type":"error","status":400,"error":{"code":"previous_response_not_found"}}"#;
    stage.send(error).await;
    assert!(stage.poll().is_none() && stage.answer().is_empty());
    assert_eq!(stage.received().await, r#"{"type":"response.create","input":[1]}"#);
    // It is not sent a third time.
    stage.send(error).await;
    assert_eq!(stage.poll(), Some(Ok(())));
    assert!(stage.answer().starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn an_error_before_the_first_event_is_an_answer_with_its_status() {
    let mut stage = Stage::sent().await;
    stage
        .send(r#"{"type":"error","status":429,"error":{"code":"rate_limit_exceeded"}}"#)
        .await;
    assert_eq!(stage.poll(), Some(Ok(())));
    let answer = stage.answer();
    assert!(
        answer.starts_with("HTTP/1.1 429 ") && answer.contains("rate_limit_exceeded"),
        "{answer}"
    );
    assert!(stage.state.acquire(), "the line can be used again");
}

#[tokio::test]
async fn an_error_behind_the_first_event_is_the_last_event() {
    let mut stage = Stage::sent().await;
    stage.send(CREATED).await;
    stage.send(r#"{"type":"error","status":500,"error":{}}"#).await;
    assert_eq!(stage.poll(), Some(Ok(())));
    let answer = stage.answer();
    assert!(
        answer.contains("event: error\ndata: ") && answer.ends_with("0\r\n\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_line_that_breaks_after_the_request_was_sent_leaves_an_answer_without_its_end() {
    for events in [0, 1] {
        let mut stage = Stage::sent().await;
        for _ in 0..events {
            stage.send(CREATED).await;
        }
        stage.provider.shutdown().await.expect("shut down");
        assert_eq!(stage.poll(), Some(Err(LineClose::without_frame(LineEnd::Provider))));
        assert!(!stage.progress.is_unread(), "the provider may have read it");
        let answer = stage.answer();
        assert!(
            !answer.ends_with("0\r\n\r\n") && answer.is_empty() == (events == 0),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn a_request_that_the_provider_has_not_read_can_be_sent_again() {
    // As long as it waits for Pingora, a break of the line costs nothing.
    let mut stage = Stage::new();
    stage.provider.shutdown().await.expect("shut down");
    assert!(matches!(stage.poll(), Some(Err(_))) && stage.progress.is_unread());
    // A message that is too large is not read.
    let mut stage = Stage::sent().await;
    stage.provider.write_all(b"\x88\x02\x03\xF1").await.expect("room");
    assert_eq!(stage.poll(), Some(Err(LineClose::normal(LineEnd::Provider))));
    assert!(stage.progress.is_unread() && stage.running.refused_bytes() == Some(BODY.len()));
    assert_eq!(stage.answer(), "");
    // Nor is a request for which the line is too old.
    let mut stage = Stage::sent().await;
    stage
        .send(&format!(
            r#"{{"type":"error","status":400,"error":{{"code":"{AGE_REACHED}"}}}}"#
        ))
        .await;
    assert_eq!(stage.poll(), Some(Err(LineClose::normal(LineEnd::Provider))));
    assert!(stage.progress.is_unread() && stage.running.refused_bytes().is_none());
    assert_eq!(stage.answer(), "");
}

#[tokio::test]
async fn a_second_response_for_one_request_ends_the_line() {
    let mut stage = Stage::sent().await;
    stage.send(CREATED).await;
    stage.send(CREATED).await;
    assert_eq!(stage.poll(), Some(Err(LineClose::UNEXPECTED)));
    assert_eq!(
        stage.answer().matches("response.created").count(),
        2,
        "once as name and once as data"
    );
}

#[tokio::test]
async fn a_request_that_is_given_up_closes_the_line_only_if_it_was_sent() {
    let mut stage = Stage::new();
    drop(stage.written.take());
    assert_eq!(stage.poll(), Some(Ok(())));
    assert!(stage.state.acquire(), "the line is free");
    let mut stage = Stage::sent().await;
    stage.send(CREATED).await;
    assert!(stage.poll().is_none());
    stage.pingora = duplex(1).0;
    assert_eq!(stage.poll(), Some(Err(LineClose::normal(LineEnd::Abandoned))));
}

#[tokio::test]
async fn pings_are_answered_while_the_client_reads_slowly_until_a_limit_holds_the_provider_back() {
    let mut stage = Stage::sent().await;
    let event = format!(
        r#"{{"type":"response.output_text.delta","delta":"{}"}}"#,
        "x".repeat(1 << 10)
    );
    stage.send(CREATED).await;
    // More than the pipe to Pingora holds.
    for _ in 0..200 {
        stage.send(&event).await;
    }
    stage.provider.write_all(b"\x89\x01p").await.expect("room");
    assert!(stage.poll().is_none());
    let mut pong = BytesMut::new();
    stage.provider.read_buf(&mut pong).await.expect("a pong");
    assert_eq!(pong.first(), Some(&0x8A));
    for _ in 0..1500 {
        stage.send(&event).await;
    }
    assert!(stage.poll().is_none());
    let waiting = stage.running.out.len();
    assert!(
        (WAITING_BYTES_MAX..WAITING_BYTES_MAX + 2 * event.len()).contains(&waiting),
        "{waiting}"
    );
    let mut length = 0;
    stage.send(COMPLETED).await;
    while stage.poll().is_none() {
        length += stage.answer().len();
    }
    length += stage.answer().len();
    assert!(length > 1700 * event.len(), "{length}");
}
