//! The frames that a client gets.

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;

/// The payloads of complete, unmasked text frames.
fn payloads(frames: &[u8]) -> Vec<String> {
    let mut rest = frames;
    let mut found = Vec::new();
    while let [0x81, length, more @ ..] = rest {
        let (length, more) = match length {
            126 => (usize::from(u16::from_be_bytes([more[0], more[1]])), &more[2..]),
            127 => panic!("a long frame"),
            length => (usize::from(*length), more),
        };
        found.push(String::from_utf8(more[..length].to_vec()).expect("UTF-8"));
        rest = &more[length..];
    }
    assert!(rest.is_empty(), "{rest:?}");
    found
}

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    payloads(&out).concat()
}

fn cut(pieces: &[&[u8]]) -> Vec<String> {
    let (mut cutter, mut events) = (EventCutter::new(), Vec::new());
    for piece in pieces {
        let event = |data: &[u8]| events.push(String::from_utf8(data.to_vec()).expect("UTF-8"));
        cutter.push(piece, event).expect("short events");
    }
    events
}

const STREAM: &str = ": hello\n\nevent: a\ndata: {\"type\":\"a\",\ndata: \"x\":\"\u{2028}\"}\n\nid: 7\r\ndata:{\"type\":\"b\"}\r\n\r\ndata: [DONE]\n\n";

#[test]
fn each_event_is_its_data() {
    let events = cut(&[STREAM.as_bytes()]);
    assert_eq!(
        events,
        ["{\"type\":\"a\",\n\"x\":\"\u{2028}\"}", r#"{"type":"b"}"#, "[DONE]"]
    );
    let kinds: Vec<_> = events
        .iter()
        .map(|data| ServerEventKind::from_data(data.as_bytes()))
        .collect();
    let progress = Some(ServerEventKind::Progress);
    assert_eq!(kinds, [progress, progress, None]);
}

proptest! {
    #[test]
    fn the_events_are_the_same_however_the_stream_is_split(places in prop::collection::vec(0..STREAM.len(), 0..12)) {
        let mut places = places;
        places.sort_unstable();
        let (mut pieces, mut before) = (Vec::new(), 0);
        for place in places.into_iter().chain([STREAM.len()]) {
            pieces.push(&STREAM.as_bytes()[before..place]);
            before = place;
        }
        prop_assert_eq!(cut(&pieces), cut(&[STREAM.as_bytes()]));
    }
}

#[test]
fn an_event_has_a_limit() {
    let mut cutter = EventCutter::new();
    assert_eq!(cutter.push(b"data: ", |_| ()), Ok(()));
    let part = vec![b'x'; EVENT_BYTES_MAX];
    assert_eq!(cutter.push(&part, |_| ()), Ok(()));
    assert_eq!(cutter.push(b"x", |_| ()), Err(EventTooLong));
}

#[test]
fn the_kinds_of_events_and_their_ends() {
    for (kind, expected) in [
        ("response.completed", ServerEventKind::Completed),
        ("response.failed", ServerEventKind::Failed),
        ("response.incomplete", ServerEventKind::Incomplete),
        ("error", ServerEventKind::Error),
        ("response.output_item.done", ServerEventKind::ItemDone),
        ("response.created", ServerEventKind::Progress),
    ] {
        let data = format!(r#"{{"sequence_number":1,"type":"{kind}"}}"#);
        assert_eq!(ServerEventKind::from_data(data.as_bytes()), Some(expected));
    }
    for data in [
        &b"{}"[..],
        b"[DONE]",
        br#"{"type":"response.output_text.delta","delta":"cut"#,
        br#"{"type":"error"} {"#,
    ] {
        assert_eq!(ServerEventKind::from_data(data), None);
    }
}

#[test]
fn an_event_of_a_named_lane_names_it_and_any_other_is_unchanged() {
    let data = br#"{"type":"a","x":1}"#;
    assert_eq!(written(|out| write_event(out, data, None)), r#"{"type":"a","x":1}"#);
    assert_eq!(
        written(|out| write_event(out, data, Some("l.1"))),
        r#"{"stream_id":"l.1","type":"a","x":1}"#
    );
}

#[test]
fn an_error_answer_keeps_its_words() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("content-type", "application/json"),
        ("retry-after", "3"),
        ("x-codex-promo-message", "say \"hi\""),
        ("x-ratelimit-limit-tokens", "7"),
        ("x-ratelimit", "no"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let body = br#"{"error":{"type":"usage_limit_reached","message":"m","resets_at":5}}"#;
    let error = SocketError::from_answer(429, &headers, body);
    let text = written(|out| error.write(out, Some("a")));
    let read: Value = serde_json::from_str(&text).expect("JSON");
    assert!(text.starts_with(r#"{"type":"error","status":429,"stream_id":"a","error":{"type":"usage_limit_reached""#));
    let expected =
        json!({ "retry-after": "3", "x-codex-promo-message": "say \"hi\"", "x-ratelimit-limit-tokens": "7" });
    assert_eq!(read["headers"], expected);
    for (body, message) in [
        (&br#"{"error":"words"}"#[..], "words"),
        (&br#"{"code":400,"message":"other words"}"#[..], "other words"),
        (&b"<html>"[..], "The request failed with status 503."),
    ] {
        let error = SocketError::from_answer(503, &HeaderMap::new(), body);
        let read: Value = serde_json::from_str(&written(|out| error.write(out, None))).expect("JSON");
        assert_eq!(
            (&read["status"], &read["error"]["message"]),
            (&json!(503), &json!(message))
        );
        assert!(read.get("headers").is_none() && read.get("stream_id").is_none());
    }
}

#[test]
fn an_error_event_gets_a_status() {
    for (event, status, code) in [
        (
            r#"{"type":"error","code":"rate_limit_exceeded","message":"m","param":null}"#,
            429,
            json!("rate_limit_exceeded"),
        ),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","code":null,"message":"m"}}"#,
            400,
            Value::Null,
        ),
        (
            r#"{"type":"error","status":413,"code":"x","message":"m"}"#,
            413,
            json!("x"),
        ),
        (
            r#"{"type":"error","code":"unheard_of","message":"m"}"#,
            502,
            json!("unheard_of"),
        ),
    ] {
        let error = SocketError::from_event(event.as_bytes());
        let read: Value = serde_json::from_str(&written(|out| error.write(out, None))).expect("JSON");
        assert_eq!((error.status, &read["error"]["code"]), (status, &code), "{event}");
        assert_eq!(read["error"]["message"], "m");
    }
}

#[test]
fn a_rate_limit_within_a_stream_asks_for_patience_and_an_exhausted_quota_does_not() {
    for (event, wait) in [
        (
            r#"{"type":"error","code":"rate_limit_exceeded","message":"m"}"#,
            json!("1"),
        ),
        (
            r#"{"type":"error","status":429,"error":{"type":"other","message":"m"}}"#,
            json!("1"),
        ),
        (
            r#"{"type":"error","code":"insufficient_quota","message":"m"}"#,
            Value::Null,
        ),
        (
            r#"{"type":"error","error":{"type":"insufficient_quota","message":"m"}}"#,
            Value::Null,
        ),
        (r#"{"type":"error","code":"server_error","message":"m"}"#, Value::Null),
    ] {
        let error = SocketError::from_event(event.as_bytes());
        let read: Value = serde_json::from_str(&written(|out| error.write(out, None))).expect("JSON");
        assert_eq!(read["headers"]["retry-after"], wait, "{event}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_replaced() {
    assert_eq!(
        cut(&[b"data: {\"x\":\"\xff\xc3\xa4\"}\n\n"]),
        ["{\"x\":\"\u{fffd}\u{e4}\"}"]
    );
    let error = SocketError::from_answer(400, &HeaderMap::new(), b"{\"error\":{\"message\":\"\xff\"}}");
    let read: Value = serde_json::from_str(&written(|out| error.write(out, None))).expect("JSON");
    assert_eq!(read["error"]["message"], "\u{fffd}");
}

#[test]
fn an_error_of_the_socket_can_ask_for_patience() {
    let error = SocketError::new(429, "queue_full", "m").retry_after(1);
    let read: Value = serde_json::from_str(&written(|out| error.write(out, None))).expect("JSON");
    assert_eq!(read["headers"]["retry-after"], "1");
    assert_eq!(read["error"]["type"], "rate_limit_error");
}

#[test]
fn what_a_conversation_keeps_can_be_sent_to_any_provider() {
    let event = br#"{"type":"response.completed","response":{"output":[{"type":"reasoning","id":"rs_1","summary":[]},
        {"type":"reasoning","id":"rs_2","encrypted_content":"e"}, {"type":"message","id":"m"}],"id":"resp_1"}}"#;
    let read = CompletedResponse::from_event(event, b"").expect("a response");
    assert_eq!(read.id, "resp_1");
    assert_eq!(
        String::from_utf8(read.output).expect("UTF-8"),
        r#"{"type":"reasoning","id":"rs_2","encrypted_content":"e"},{"type":"message","id":"m"}"#
    );
    let bare = br#"{"type":"response.completed","response":{"id":"r","output":[]}}"#;
    assert_eq!(
        CompletedResponse::from_event(bare, b"1,2").map(|read| read.output),
        Some(b"1,2".to_vec())
    );
    assert_eq!(
        CompletedResponse::from_event(br#"{"response":{"output":[]}}"#, b""),
        None
    );
    let done = br#"{"type":"response.output_item.done","item":{"type":"function_call"}}"#;
    assert_eq!(finished_item(done), Some(&br#"{"type":"function_call"}"#[..]));
    assert_eq!(
        finished_item(br#"{"item":{"type":"reasoning","encrypted_content":null}}"#),
        None
    );
}

#[test]
fn a_warm_up_is_a_complete_response_without_output() {
    let events = cut(&[&warm_up_events("resp_1", "m", 7)]);
    let kinds: Vec<_> = events
        .iter()
        .filter_map(|data| ServerEventKind::from_data(data.as_bytes()))
        .collect();
    assert_eq!(kinds, [ServerEventKind::Progress, ServerEventKind::Completed]);
    let read = CompletedResponse::from_event(events[1].as_bytes(), b"").expect("a response");
    assert_eq!((read.id.as_str(), read.output.as_slice()), ("resp_1", &b""[..]));
}
