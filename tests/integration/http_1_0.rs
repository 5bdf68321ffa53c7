//! HTTP/1.0 clients: an answer that they can read, which knows no chunks and ends with the connection.

use crate::harness::answer::LEAST;
use crate::harness::client::Response;
use crate::harness::recordings::{events, unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::shapes::in_band_error;
use crate::harness::{Client, RecordingProvider, Request, Weir};

/// The bytes of a request as an HTTP/1.0 client writes them.
fn old_bytes(request: &Request) -> Vec<u8> {
    let bytes = request.bytes(Upload::Length);
    let line = bytes.windows(2).position(|pair| pair == b"\r\n").unwrap();
    let first = String::from_utf8(bytes[..line].to_vec()).unwrap();
    let mut old = first.replace("HTTP/1.1", "HTTP/1.0").into_bytes();
    old.extend_from_slice(&bytes[line..]);
    old
}

/// Asks as an HTTP/1.0 client; the answer must be one that it can read.
#[track_caller]
fn ask(weir: &Weir, request: &Request) -> Response {
    let mut client = weir.connect();
    client.write(&old_bytes(request));
    let answer = client.response_to(&request.method);
    assert_readable(&mut client, &answer);
    answer
}

#[track_caller]
fn assert_readable(client: &mut Client, answer: &Response) {
    assert_eq!(answer.header("transfer-encoding"), None, "{:?}", answer.headers);
    assert_eq!(answer.header("connection"), Some("close"), "{:?}", answer.headers);
    assert!(
        client.closed_within(crate::harness::wait::DEADLINE),
        "it is not closed at the end"
    );
}

#[test]
fn streams_and_single_answers_come_without_chunks_and_end_with_the_connection() {
    let provider = RecordingProvider::start(|request, answer| {
        let wire = wire_of(&request.target);
        if request.target.contains(":stream") || request.body.starts_with(br#"{"stream":true"#) {
            answer.sse();
            events(wire).iter().for_each(|event| answer.chunk(event));
        } else {
            answer.head(200, &[("content-type", "application/json")]);
            answer.chunk(unary(wire));
        }
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(
            ask(&weir, &wire.streaming(&key, "hi")).text(),
            whole_stream(wire),
            "{wire:?}"
        );
        assert_eq!(ask(&weir, &wire.request(&key, "hi")).text(), unary(wire), "{wire:?}");
        // Who asks for more than the version gives does not get it.
        let kept = wire.request(&key, "hi").header("connection", "keep-alive");
        assert_eq!(ask(&weir, &kept).text(), unary(wire), "{wire:?}");
    }
}

#[test]
fn answers_of_known_length_errors_and_lists_are_closed_at_their_end() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(ask(&weir, &wire.request(&key, "hi")).text(), LEAST, "{wire:?}");
        assert_eq!(ask(&weir, &wire.request("nobody", "hi")).status, 401, "{wire:?}");
    }
    let list = ask(&weir, &Request::get("/v1/models").header("x-api-key", &key));
    assert_eq!(list.status, 200);
    assert_eq!(ask(&weir, &Request::new("HEAD", "/")).status, 200);
}

#[test]
fn a_stream_that_breaks_says_so() {
    let provider = RecordingProvider::start(|request, answer| {
        answer.sse();
        answer.chunk(events(wire_of(&request.target))[0]);
        answer.cut();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = ask(&weir, &wire.streaming(&key, "hi"));
        assert!(
            in_band_error(wire, &answer.text()).is_some(),
            "{wire:?}: {}",
            answer.text()
        );
    }
}

#[test]
fn a_request_shorter_than_the_http2_preface_is_answered() {
    let weir = Weir::start("http://127.0.0.1:9");
    for (bytes, status) in [(&b"GET / HTTP/1.0\r\n\r\n"[..], 404), (b"HEAD / HTTP/1.0\r\n\r\n", 200)] {
        let method = if bytes.starts_with(b"HEAD") { "HEAD" } else { "GET" };
        let mut client = weir.connect();
        client.write(bytes);
        let answer = client.response_to(method);
        assert_eq!(answer.status, status, "{}", answer.text());
        assert_readable(&mut client, &answer);
    }
}

/// RFC 9110 section 10.1.1: an expectation in an HTTP/1.0 request is passed over.
#[test]
fn nothing_is_sent_before_the_answer() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let request = Wire::Messages
        .request(&weir.key().text, "hi")
        .header("expect", "100-continue");
    let mut client = weir.connect();
    client.write(&old_bytes(&request));
    assert_eq!(client.head_to("POST").status, 200);
}
