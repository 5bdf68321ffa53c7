//! The frames of a provider's WebSocket as HTTP.

use proptest::prelude::*;

use super::*;

fn frame_of(body: &str) -> Option<String> {
    let mut frame = CreateFrame::from_body(&Bytes::copy_from_slice(body.as_bytes()))?;
    Some(String::from_utf8(frame.take_parts().concat()).expect("UTF-8"))
}

#[test]
fn a_body_becomes_a_frame_of_its_other_members() {
    for (body, frame) in [
        (r#"{"stream":true}"#, r#"{"type":"response.create"}"#),
        (
            r#"{"model":"m","input":[1, 2],"stream":true}"#,
            r#"{"type":"response.create","model":"m","input":[1, 2]}"#,
        ),
        // As a provider's edits may have left it.
        (
            r#"{ "stream" : true, "model":"m", "background":false,"x":{"stream":true} }"#,
            r#"{"type":"response.create","model":"m","x":{"stream":true}}"#,
        ),
        (
            r#"{"model":"m","stream":true,"previous_response_id":"resp_1","store":true}"#,
            r#"{"type":"response.create","model":"m","previous_response_id":"resp_1","store":true}"#,
        ),
        (r#"{}"#, r#"{"type":"response.create"}"#),
    ] {
        assert_eq!(frame_of(body).as_deref(), Some(frame), "{body}");
    }
}

#[test]
fn a_body_that_means_something_else_in_a_frame_stays_a_post() {
    for body in [
        r#"{"background":true,"model":"m","stream":false}"#,
        r#"{"type":"response.steer","stream":false}"#,
        r#"{"stream_id":"a","stream":false}"#,
        r#"{"generate":false,"stream":false}"#,
        r#"{"a\"stream":true}"#,
        r#"["stream":true}"#,
        "",
    ] {
        assert_eq!(frame_of(body), None, "{body}");
    }
}

#[test]
fn a_continuation_has_only_the_new_items_and_the_id_of_the_response() {
    let continuing = |body: &str, input: &str, new: &str| {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let mut frame = CreateFrame::continuing(&body, "resp_\"1", (input.as_bytes(), new.len()))?;
        Some(String::from_utf8(frame.take_parts().concat()).expect("UTF-8"))
    };
    let body = r#"{"model":"m","store":false,"input":[{"a":1},{"b":2}],"stream":true}"#;
    let frame =
        r#"{"type":"response.create","model":"m","store":false,"previous_response_id":"resp_\"1","input":[{"b":2}]}"#;
    assert_eq!(
        continuing(body, r#"{"a":1},{"b":2}"#, r#"{"b":2}"#).as_deref(),
        Some(frame)
    );
    let nothing_new = r#"{"type":"response.create","previous_response_id":"resp_\"1","input":[]}"#;
    let body = r#"{"input":[{"a":1}],"stream":true}"#;
    assert_eq!(continuing(body, r#"{"a":1}"#, "").as_deref(), Some(nothing_new));
    // A provider's edits have changed the input, or what is around it.
    for (body, input, new) in [
        (
            r#"{"input":[{"a":2},{"b":2}],"stream":true}"#,
            r#"{"a":1},{"b":2}"#,
            r#"{"b":2}"#,
        ),
        (r#"{"input":[{"a":1}],"stream":true,"x":1}"#, r#"{"a":1}"#, ""),
        (r#"{"x":{"input":[{"a":1}],"stream":true}"#, r#"{"a":1}"#, ""),
        (r#"{"output":[1],"stream":true}"#, "1", "1"),
        (r#"{"input":[1],"stream":true}"#, "1", "a long text that is not there"),
    ] {
        assert_eq!(continuing(body, input, new), None, "{body}");
    }
}

#[test]
fn the_kinds_of_frames_are_told_apart_wherever_the_type_stands() {
    use ProviderEventKind::{Completed, Created, Error, Progress, Unfinished};
    for (data, kind, is_last) in [
        (r#"{"type":"response.created"}"#, Created, false),
        (
            r#"{"response":{"type":"x"}, "type" : "response.completed"}"#,
            Completed,
            true,
        ),
        (r#"{"type":"response.failed"}"#, Unfinished, true),
        (r#"{"type":"response.incomplete"}"#, Unfinished, true),
        (r#"{"type":"error"}"#, Error, true),
        (r#"{"type":"response.output_text.delta"}"#, Progress, false),
        (r#"{"kind":"response.created"}"#, Progress, false),
        ("no json", Progress, false),
    ] {
        let event = ProviderEvent::read(data.as_bytes());
        assert_eq!((event.kind, event.is_last()), (kind, is_last), "{data}");
    }
    let event = ProviderEvent::read(br#"{"type":"response.completed","response":{"id":"resp_1"}}"#);
    assert_eq!(event.response_id().as_deref(), Some("resp_1"));
}

/// The payload of a chunked body.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    while !body.is_empty() {
        let end = body.windows(2).position(|pair| pair == b"\r\n").expect("a size");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).expect("UTF-8"), 16).expect("a size");
        let (chunk, rest) = body[end + 2..].split_at(size);
        payload.extend_from_slice(chunk);
        body = rest.strip_prefix(b"\r\n").expect("the chunk's end");
    }
    payload
}

#[test]
fn an_event_becomes_a_chunk_with_its_name_and_its_data_in_one_line() {
    let mut out = BytesMut::new();
    ProviderEvent::read(b"{\"type\":\"response.created\",\r\n\"x\":1}").write_chunk(&mut out);
    ProviderEvent::read(br#"{"type":"a\nb"}"#).write_chunk(&mut out);
    out.extend_from_slice(LAST_CHUNK);
    let stream =
        "event: response.created\ndata: {\"type\":\"response.created\",  \"x\":1}\n\ndata: {\"type\":\"a\\nb\"}\n\n";
    assert_eq!(String::from_utf8(unchunked(&out)).expect("UTF-8"), stream);
}

/// The answer that an error frame becomes.
fn answer(frame: &str) -> (String, String) {
    let mut out = BytesMut::new();
    ProviderEvent::read(frame.as_bytes()).write_error_answer(&mut out);
    let text = String::from_utf8(out.to_vec()).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    (head.to_owned(), body.to_owned())
}

#[test]
fn an_error_becomes_an_answer_with_its_status_its_words_and_its_headers() {
    let (head, body) = answer(
        r#"{"type":"error","status":429,"error":{"type":"usage_limit_reached","message":"wait"},
            "headers":{"Retry-After":7,"x-codex-promo-message":"more","x-should-retry":false,"set-cookie":"a",
            "x-request-id":"a\r\nb: c","x-ratelimit-a:b":"1"}}"#,
    );
    assert_eq!(body, r#"{"error":{"type":"usage_limit_reached","message":"wait"}}"#);
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), Some("HTTP/1.1 429 Error"));
    let named: Vec<&str> = lines
        .filter(|line| line.starts_with("retry") || line.starts_with("x-"))
        .collect();
    assert_eq!(
        named,
        ["retry-after: 7", "x-codex-promo-message: more", "x-should-retry: false"]
    );
    assert!(!head.contains("cookie"), "{head}");
}

#[test]
fn an_error_without_a_status_gets_the_one_of_its_code_or_type() {
    let status = |frame: &str| answer(frame).0.split(' ').nth(1).map(str::to_owned);
    for (frame, expected) in [
        (r#"{"type":"error","status_code":503,"error":{}}"#, "503"),
        (r#"{"type":"error","error":{"type":"invalid_request_error"}}"#, "400"),
        (r#"{"type":"error","code":"not_found","message":"m"}"#, "404"),
        (r#"{"type":"error","status":200,"error":{"code":"?"}}"#, "502"),
        (r#"{"type":"error"}"#, "502"),
    ] {
        assert_eq!(status(frame).as_deref(), Some(expected), "{frame}");
    }
    let (_, body) = answer(r#"{"type":"error","code":"not_found","message":"m"}"#);
    assert!(body.contains(r#""code":"not_found","message":"m""#), "{body}");
}

proptest! {
    #[test]
    fn any_text_becomes_one_event(data in "\\PC*[\r\n]?\\PC*") {
        let mut out = BytesMut::new();
        ProviderEvent::read(data.as_bytes()).write_chunk(&mut out);
        let payload = String::from_utf8(unchunked(&out)).expect("UTF-8");
        prop_assert!(payload.ends_with("\n\n"));
        prop_assert!(payload.strip_suffix("\n\n").is_some_and(|event| !event.contains("\n\n")));
        prop_assert!(payload.contains(&data.replace(['\r', '\n'], " ")));
    }

    #[test]
    fn a_frame_is_the_body_without_its_stream(members in prop::collection::vec(("[a-d]{3}", 0_u32..9), 0..5)) {
        let object: serde_json::Map<String, Value> =
            members.into_iter().map(|(name, value)| (name, value.into())).collect();
        let mut body = object.clone();
        body.insert("stream".to_owned(), true.into());
        let frame = frame_of(&Value::Object(body).to_string()).expect("a frame");
        let mut read: serde_json::Map<String, Value> = serde_json::from_str(&frame).expect("an object");
        prop_assert_eq!(read.remove("type"), Some("response.create".into()));
        prop_assert_eq!(read, object);
    }
}
