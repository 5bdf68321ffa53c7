//! The frames of an answer, and the conversation that it leaves.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use smol_str::SmolStr;

use super::*;
use crate::{
    config::gateway::SocketsConfig,
    domain::{
        keys::secret::KeyDigest,
        wire::{
            responses_socket::{SocketLane, client_frame::ClientFrame, server_frame::warm_up_events},
            websocket::{FrameDecoder, FrameEvent, FrameLimits, FrameRole},
        },
    },
    edges::body_budget::{BodyBudget, BodyHolder, BodyLimits},
    gateway::{
        conversations::Conversations,
        request::{
            body_work::{BodyWork, FREE_BYTES_MAX, TURN_WAIT_MAX, WorkShare},
            read_body::AT_ONCE_BYTES_MAX,
        },
        turn_link::{TurnMessage, TurnOrigin},
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
    state_bytes_max: 1 << 20,
    state_key_bytes: Some(1 << 20),
};

const BODY_BYTES_MAX: usize = 10_000;

/// The requests of one socket.
struct SocketRequests {
    conversations: Arc<Conversations>,
    budget: BodyBudget,
}

impl SocketRequests {
    fn new() -> Self {
        let limits = BodyLimits {
            bytes_max: 1 << 20,
            key_bytes_max: 1 << 20,
            address_bytes_max: 1 << 20,
        };
        Self {
            conversations: Arc::new(Conversations::new(&CONFIG)),
            budget: BodyBudget::new(limits),
        }
    }

    fn link(&self, lane: u8, frame: &str) -> Arc<TurnLink> {
        let lease = || {
            self.budget.reservation(BodyHolder {
                key: [0; 32],
                address: None,
            })
        };
        let origin = TurnOrigin {
            at: SocketLane { socket: 7, lane },
            owner: [0; 32],
            socket_id: SmolStr::new("sock_1"),
            stream_id: (lane > 0).then(|| SmolStr::new(format!("l{lane}"))),
        };
        let message = TurnMessage {
            frame: ClientFrame::read(Bytes::copy_from_slice(frame.as_bytes())),
            lease: lease(),
            conversation_lease: lease(),
        };
        TurnLink::new(origin, Arc::clone(&self.conversations), Ok(message))
    }

    /// The body of a request, as JSON.
    fn body(&self, link: &TurnLink) -> Value {
        let metrics = Metrics::new(&[], &[]).expect("metrics");
        let (body, fault) = link.read_body(BODY_BYTES_MAX, &metrics).expect("a body");
        assert_eq!(fault, None);
        serde_json::from_slice(&body.bytes).expect("JSON")
    }
}

fn head(status: u16, fields: &[(&'static str, &'static str)]) -> ResponseHeader {
    let mut head = ResponseHeader::build(status, None).expect("a head");
    for (name, value) in fields {
        head.insert_header(*name, *value).expect("a field");
    }
    head
}

/// The payloads of the frames as JSON.
fn payloads(mut frames: BytesMut) -> Vec<Value> {
    let limits = FrameLimits {
        message_bytes_max: 1 << 20,
        fragments_max: 1,
    };
    let mut decoder = FrameDecoder::new(FrameRole::Client, limits);
    let (mut text, mut found) = (Vec::new(), Vec::new());
    while let Some(event) = decoder.next_event(&mut frames).expect("valid frames") {
        match event {
            FrameEvent::Payload(piece) => text.extend_from_slice(&piece),
            FrameEvent::MessageEnd => found.push(serde_json::from_slice(&std::mem::take(&mut text)).expect("JSON")),
            _ => {}
        }
    }
    found
}

/// Answers a request with a stream. Returns the frames and the status.
fn stream(link: &Arc<TurnLink>, events: &[u8]) -> (Vec<Value>, Option<u16>) {
    let mut answer = TurnAnswer::new(Arc::clone(link));
    answer.on_head(&head(200, &[("content-type", "text/event-stream")]));
    let mut frames = BytesMut::new();
    let pushed = answer.push(events, &mut frames);
    let finished = answer.finish(&mut frames);
    assert!(answer.is_over());
    (payloads(frames), pushed.or(finished))
}

#[test]
fn a_complete_answer_can_be_continued_with_what_is_new() {
    let socket = SocketRequests::new();
    let first = socket.link(
        1,
        r#"{"type":"response.create","model":"m","store":false,"input":"hi"}"#,
    );
    assert_eq!(socket.body(&first)["input"], "hi");
    let events = concat!(
        "event: response.created\ndata: {\"type\":\"response.created\"}\n\n",
        "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r1\",\"output\":[{\"type\":\"message\",\"id\":\"m1\"}]}}\n\n",
        "data: [DONE]\n\n",
    );
    let (frames, status) = stream(&first, events.as_bytes());
    assert_eq!((frames.len(), status), (2, Some(200)));
    assert!(frames.iter().all(|frame| frame["stream_id"] == "l1"), "{frames:?}");
    let next = socket.link(
        1,
        r#"{"type":"response.create","store":false,"previous_response_id":"r1","input":[{"new":1}]}"#,
    );
    let body = socket.body(&next);
    assert_eq!(
        body,
        json!({ "store": false, "stream": true, "input": [
            { "type": "message", "role": "user", "content": "hi" }, { "type": "message", "id": "m1" }, { "new": 1 },
        ] })
    );
}

#[test]
fn a_warm_up_is_continued_and_never_reaches_a_body() {
    let socket = SocketRequests::new();
    let warm_up = socket.link(
        0,
        r#"{"type":"response.create","store":false,"generate":false,"input":[]}"#,
    );
    assert_eq!(
        socket.body(&warm_up),
        json!({ "store": false, "input": [], "stream": true })
    );
    assert!(warm_up.is_warm_up());
    let (frames, _) = stream(&warm_up, &warm_up_events("resp_w", "m", 1));
    assert_eq!(frames[1]["response"]["id"], "resp_w");
    let next = socket.link(
        0,
        r#"{"type":"response.create","store":false,"previous_response_id":"resp_w","input":[1]}"#,
    );
    assert_eq!(socket.body(&next)["input"], json!([1]));
}

#[test]
fn what_ends_otherwise_drops_the_response_that_it_continued() {
    let failed = "data: {\"type\":\"response.failed\",\"response\":{\"id\":\"r2\"}}\n\n";
    let error = "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"m\"}\n\n";
    for (events, status) in [
        (failed, 502),
        (error, 502),
        (": nothing\n\n", 502),
        ("{\"id\":\"r2\"}", 502),
    ] {
        let socket = SocketRequests::new();
        let first = socket.link(0, r#"{"type":"response.create","store":false,"input":[1]}"#);
        socket.body(&first);
        stream(
            &first,
            b"data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r1\",\"output\":[]}}\n\n",
        );
        let frame = r#"{"type":"response.create","store":false,"previous_response_id":"r1","input":[2]}"#;
        let next = socket.link(0, frame);
        assert_eq!(socket.body(&next)["input"], json!([1, 2]));
        let (frames, ended) = stream(&next, events.as_bytes());
        assert_eq!((frames.len(), ended), (1, Some(status)), "{frames:?}");
        let late = socket.link(0, frame);
        assert_eq!(
            socket.body(&late)["previous_response_id"],
            "r1",
            "it goes the way of any other id"
        );
    }
}

#[test]
fn an_incomplete_response_leaves_the_one_that_it_continued() {
    let socket = SocketRequests::new();
    let first = socket.link(0, r#"{"type":"response.create","store":false,"input":[1]}"#);
    socket.body(&first);
    stream(
        &first,
        b"data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r1\",\"output\":[]}}\n\n",
    );
    let frame = r#"{"type":"response.create","store":false,"previous_response_id":"r1","input":[2]}"#;
    let next = socket.link(0, frame);
    socket.body(&next);
    let incomplete = b"data: {\"type\":\"response.incomplete\",\"response\":{\"id\":\"r2\"}}\n\n";
    assert_eq!(stream(&next, incomplete).0[0]["type"], "response.incomplete");
    assert_eq!(socket.body(&socket.link(0, frame))["input"], json!([1, 2]));
}

#[test]
fn an_answer_that_cannot_become_frames_is_unusable() {
    let socket = SocketRequests::new();
    let mut answer = TurnAnswer::new(socket.link(0, "{}"));
    answer.on_head(&head(200, &[]));
    let mut frames = BytesMut::new();
    assert_eq!(answer.push(b": nothing\n\n", &mut frames), None);
    assert!(!answer.is_unusable() && frames.is_empty());
    let mut answer = TurnAnswer::new(socket.link(0, "{}"));
    answer.on_head(&head(200, &[]));
    assert_eq!(answer.push(b"{\"id\":", &mut frames), Some(502));
    assert!(answer.is_unusable() && answer.is_over());
}

#[test]
fn an_error_answer_is_one_frame_with_its_words() {
    let socket = SocketRequests::new();
    let mut answer = TurnAnswer::new(socket.link(2, "{}"));
    let mut frames = BytesMut::new();
    assert_eq!(answer.finish(&mut frames), None, "nothing before the head");
    answer.on_head(&head(429, &[("retry-after", "2")]));
    assert_eq!(
        answer.push(br#"{"error":{"type":"rate_limit_error","#, &mut frames),
        None
    );
    assert_eq!(answer.push(br#""message":"m"}}"#, &mut frames), None);
    assert_eq!(answer.finish(&mut frames), Some(429));
    let expected = json!({
        "type": "error", "status": 429, "stream_id": "l2", "error": { "type": "rate_limit_error", "message": "m" },
        "headers": { "retry-after": "2" },
    });
    assert_eq!(payloads(frames), [expected]);
}

#[tokio::test]
async fn a_large_conversation_is_copied_in_the_share_of_its_key() {
    let socket = SocketRequests::new();
    let metrics = Arc::new(Metrics::new(&[], &[]).expect("metrics"));
    let work = BodyWork::new(WorkShare::new(1, 100), TURN_WAIT_MAX).for_key(KeyDigest::from_bytes([0; 32]));
    let read = async |link: Arc<TurnLink>| {
        let read = link.read_body_in_share(2 * AT_ONCE_BYTES_MAX, Arc::clone(&metrics), &work);
        let (body, _) = read.await.expect("a body");
        serde_json::from_slice::<Value>(&body.bytes).expect("JSON")
    };
    for (length, id) in [(10, "r1"), (FREE_BYTES_MAX, "r2"), (AT_ONCE_BYTES_MAX, "r3")] {
        let text = "x".repeat(length);
        let first = socket.link(
            0,
            &format!(r#"{{"type":"response.create","store":false,"input":"{text}"}}"#),
        );
        assert_eq!(read(Arc::clone(&first)).await["input"], text.as_str());
        let end =
            format!("data: {{\"type\":\"response.completed\",\"response\":{{\"id\":\"{id}\",\"output\":[]}}}}\n\n");
        stream(&first, end.as_bytes());
        let next = socket.link(
            0,
            &format!(r#"{{"type":"response.create","store":false,"previous_response_id":"{id}","input":[1]}}"#),
        );
        let input = read(next).await["input"].clone();
        assert_eq!((&input[0]["content"], &input[1]), (&json!(text), &json!(1)));
    }
}

#[test]
fn a_continuation_that_is_too_large_as_a_whole_is_refused() {
    let socket = SocketRequests::new();
    let metrics = Metrics::new(&[], &[]).expect("metrics");
    let text = "x".repeat(BODY_BYTES_MAX - 200);
    let first = socket.link(
        0,
        &format!(r#"{{"type":"response.create","store":false,"input":"{text}"}}"#),
    );
    socket.body(&first);
    stream(
        &first,
        b"data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r1\",\"output\":[]}}\n\n",
    );
    let next = socket.link(
        0,
        &format!(r#"{{"type":"response.create","store":false,"previous_response_id":"r1","input":"{text}"}}"#),
    );
    let refused = next.read_body(BODY_BYTES_MAX, &metrics).err();
    assert_eq!(refused.map(|refusal| refusal.status()), Some(413));
}
