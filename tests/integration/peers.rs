//! The tests' own tools do what the other tests rely on: without the gateway between them.

use std::time::Duration;

use crate::harness::answer::LEAST;
use crate::harness::client::Piece;
use crate::harness::provider::Welcome;
use crate::harness::recordings::{GEMINI_ARRAY, events, unary};
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::in_band_error;
use crate::harness::tools::skip;
use crate::harness::{Client, RecordingProvider};

#[test]
fn a_recording_provider_keeps_the_exact_bytes() {
    let provider = RecordingProvider::least();
    let request = Wire::Messages
        .request("k", "w\u{f6}rds \r\n")
        .header("X-Odd-Case", "  padded");
    for upload in [Upload::Length, Upload::Chunked(1), Upload::Chunked(1_000)] {
        let mut client = Client::connect(provider.address());
        client.write(&request.bytes(upload));
        assert_eq!(client.response_to("POST").text(), LEAST);
        let got = provider.last();
        assert_eq!(got.body, request.body);
        assert_eq!(got.head, request.head_bytes(upload));
        assert_eq!(got.header_values("x-odd-case"), ["padded"]);
    }
    assert_eq!((provider.count(), provider.connections()), (3, 3));
}

#[test]
fn a_client_tells_a_whole_answer_from_a_cut_one() {
    let provider = RecordingProvider::start(|request, answer| {
        answer.sse();
        answer.chunk("data: 1\n\n");
        if request.target == "/whole" {
            answer.end()
        } else {
            answer.cut()
        }
    });
    let whole = crate::harness::Request::post("/whole");
    let cut = crate::harness::Request::post("/cut");
    assert!(Client::connect(provider.address()).exchange(&whole).complete);
    let answer = Client::connect(provider.address()).exchange(&cut);
    assert_eq!((answer.complete, answer.text().as_str()), (false, "data: 1\n\n"));
    let mut client = Client::connect(provider.address());
    client.write(&whole.bytes(Upload::Length));
    let mut head = client.head_to("POST");
    assert_eq!(client.piece(&mut head), Piece::Data(b"data: 1\n\n".to_vec()));
    assert_eq!(client.piece(&mut head), Piece::End);
}

#[test]
fn a_stale_connection_dies_without_a_byte_of_an_answer() {
    let provider = RecordingProvider::start_with(None, |_| Welcome::ServeThenDie(1), |_, answer| answer.least());
    let request = Wire::Responses.request("k", "hi");
    let mut client = Client::connect(provider.address());
    assert_eq!(client.exchange(&request).status, 200);
    client.write(&request.bytes(Upload::Length));
    assert!(client.try_head_to("POST").is_none());
    assert_eq!(provider.count(), 1);
    let closing = RecordingProvider::start_with(None, |_| Welcome::Close, |_, answer| answer.least());
    assert!(Client::connect(closing.address()).closed_within(Duration::from_secs(10)));
}

#[test]
fn the_recordings_are_what_they_claim() {
    for wire in ALL_WIRES {
        let _: serde_json::Value = serde_json::from_str(unary(wire)).unwrap();
        assert!(
            in_band_error(wire, &events(wire).concat()).is_none(),
            "{wire:?}: a good end is no error"
        );
    }
    let array: serde_json::Value = serde_json::from_str(&GEMINI_ARRAY.concat()).unwrap();
    assert_eq!(array.as_array().unwrap().len(), 3);
    let errors = [
        (
            Wire::Messages,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"x\"}}\n\n",
        ),
        (
            Wire::Responses,
            "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":1,\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"}},\"error\":{\"message\":\"x\"}}\n\n",
        ),
        (
            Wire::Gemini,
            "data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\r\n\r\n",
        ),
    ];
    for (wire, error) in errors {
        assert!(
            in_band_error(wire, &format!("{}{error}", events(wire)[0])).is_some(),
            "{wire:?}"
        );
        assert!(in_band_error(wire, error).is_some(), "{wire:?}");
    }
}

#[test]
fn a_redis_server_can_go_down_and_come_back_with_what_it_knew() {
    let Some(mut redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    assert!(redis.command(&["SET", "a", "1"]).contains("OK"));
    redis.down();
    assert!(redis.up());
    assert!(redis.command(&["GET", "a"]).contains('1'));
    assert!(!redis.stored_bytes().is_empty());
}
