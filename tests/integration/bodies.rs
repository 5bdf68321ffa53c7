//! Request bodies: any size, any framing, any retry.

use std::sync::{
    Barrier,
    atomic::{AtomicUsize, Ordering},
};

use crate::harness::answer::LEAST;
use crate::harness::certificates::{Authority, Flaw};
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::provider::Welcome;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::{MESSAGES_MODEL, RecordingProvider, Request, Weir, WeirBuilder, wait_for, wait_until};

/// Around Pingora's 64 KiB retry buffer, and far from it.
const SIZES: [usize; 4] = [65_535, 65_536, 65_537, 1_000_000];
/// The default limit, in bytes.
const LIMIT: usize = 32 * 1024 * 1024;

/// A Messages body of exactly `size` bytes with no two places alike; `model` is its very last member.
fn body_of(size: usize) -> Vec<u8> {
    let head = r#"{"max_tokens":16,"messages":[{"role":"user","content":""#;
    let tail = format!(r#""}}],"model":"{MESSAGES_MODEL}"}}"#);
    let fill = size - head.len() - tail.len();
    let mut body = Vec::with_capacity(size);
    body.extend_from_slice(head.as_bytes());
    let mut counter = 0_u32;
    while body.len() < head.len() + fill {
        body.extend_from_slice(format!("{counter:08x} ").as_bytes());
        counter += 1;
    }
    body.truncate(head.len() + fill);
    body.extend_from_slice(tail.as_bytes());
    assert_eq!(body.len(), size);
    body
}

fn message(key: &str, body: &[u8]) -> Request {
    Request::post("/v1/messages")
        .header("x-api-key", key)
        .header("content-type", "application/json")
        .body(body)
}

#[track_caller]
fn assert_arrived(provider: &RecordingProvider, before: usize, body: &[u8], what: &str) {
    assert_eq!(
        provider.count(),
        before + 1,
        "{what}: not exactly one request at the provider"
    );
    let got = provider.last();
    assert_eq!(got.header_values("content-length"), [body.len().to_string()], "{what}");
    assert!(got.header("transfer-encoding").is_none(), "{what}");
    assert!(
        got.body == body,
        "{what}: {} bytes arrived, not the {} that were sent",
        got.body.len(),
        body.len()
    );
}

/// Sends every size in every framing over HTTP/1.1 and h2c; those that may meet a stale connection and are to, until
/// they have.
#[track_caller]
fn every_form_arrives(weir: &Weir, provider: &RecordingProvider, sizes: &[usize], stale: bool) {
    let key = weir.key().text;
    for &size in sizes {
        let body = body_of(size);
        let request = message(&key, &body);
        // Without a length and beyond Pingora's buffer they are sent once, over a connection of their own.
        let stale_unsaid = stale && size <= 65_536;
        for upload in [
            Upload::Length,
            Upload::Chunked(if size < 100_000 { 10 } else { 4_000 }),
            Upload::Chunked(1 << 20),
        ] {
            provider.until_stale(if upload == Upload::Length { stale } else { stale_unsaid }, || {
                let (what, before) = (format!("{size} bytes over HTTP/1.1, {upload:?}"), provider.count());
                let mut client = weir.connect();
                client.write(&request.bytes(upload));
                let answer = client.response_to("POST");
                assert_eq!(answer.status, 200, "{what}: {}", answer.text());
                assert_arrived(provider, before, &body, &what);
            });
        }
        for (end, length) in [
            (EndStream::OnLastFrame, Length::Said),
            (EndStream::OnItsOwn, Length::Said),
            (EndStream::OnItsOwn, Length::Unsaid),
            (EndStream::OnLastFrame, Length::Unsaid),
        ] {
            provider.until_stale(if length == Length::Said { stale } else { stale_unsaid }, || {
                h2c_form_arrives(weir, provider, &request, &body, (end, length));
            });
        }
    }
}

#[track_caller]
fn h2c_form_arrives(
    weir: &Weir,
    provider: &RecordingProvider,
    request: &Request,
    body: &[u8],
    (end, length): (EndStream, Length),
) {
    let what = format!("{} bytes over h2c, {end:?}, length {length:?}", body.len());
    let before = provider.count();
    let answer = h2c::exchange(weir.gateway, request, end, length);
    if answer.status == 411 && body.len() > 65_536 && (end, length) == (EndStream::OnLastFrame, Length::Unsaid) {
        // The one form that may be refused rather than hang (docs/interface.md, Errors: `length_required`).
        assert_refusal(Wire::Messages, &answer, 411, "invalid_request_error");
        return;
    }
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    assert_arrived(provider, before, body, &what);
}

/// A gateway whose provider speaks TLS and refuses every other connection in its handshake.
fn with_refused_connections() -> (Authority, RecordingProvider, Weir) {
    let authority = Authority::new();
    let provider = RecordingProvider::start_with(
        Some(authority.server(Flaw::None)),
        |number| {
            if number.is_multiple_of(2) {
                Welcome::Close
            } else {
                Welcome::Serve
            }
        },
        |_, answer| {
            answer.full(
                200,
                &[("content-type", "application/json"), ("connection", "close")],
                LEAST.as_bytes(),
            );
            answer.cut();
        },
    );
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.ca_file", authority.ca_file().to_str().unwrap())
        .start();
    (authority, provider, weir)
}

/// A gateway whose provider lets every connection die when its second request arrives.
fn with_stale_connections() -> (RecordingProvider, Weir) {
    let provider = RecordingProvider::start_with(None, |_| Welcome::ServeThenDie(1), |_, answer| answer.least());
    let weir = Weir::start(&provider.base_url());
    (provider, weir)
}

#[test]
fn bodies_of_every_size_arrive_intact() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    every_form_arrives(&weir, &provider, &[200, 10_000], false);
    every_form_arrives(&weir, &provider, &SIZES, false);
}

#[test]
fn bodies_arrive_intact_when_the_first_connection_is_refused() {
    let (_authority, provider, weir) = with_refused_connections();
    every_form_arrives(&weir, &provider, &SIZES, false);
    assert_eq!(
        provider.connections(),
        provider.count() * 2,
        "each request was refused once and served once"
    );
}

#[test]
fn bodies_arrive_intact_when_the_pooled_connection_is_stale() {
    let (provider, weir) = with_stale_connections();
    every_form_arrives(&weir, &provider, &SIZES, true);
}

#[test]
fn a_whole_pool_of_stale_connections_costs_no_request() {
    const POOLED: usize = 6;
    let together = Barrier::new(POOLED);
    let asked = AtomicUsize::new(0);
    let provider = RecordingProvider::start_with(
        None,
        |_| Welcome::ServeThenDie(1),
        move |_, answer| {
            if asked.fetch_add(1, Ordering::SeqCst) < POOLED {
                together.wait();
            }
            answer.least();
        },
    );
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let request = message(&key, &body_of(1_000));
    let mut clients: Vec<_> = (0..POOLED).map(|_| weir.connect()).collect();
    for client in &mut clients {
        client.write(&request.bytes(Upload::Length));
    }
    for client in &mut clients {
        assert_eq!(client.response_to("POST").status, 200);
    }
    assert_eq!((provider.count(), provider.connections()), (POOLED, POOLED));
    for number in 1..=POOLED {
        let answer = weir.connect().exchange(&request);
        assert_eq!(answer.status, 200, "request {number}: {}", answer.text());
        assert_eq!(provider.count(), POOLED + number, "each was answered once");
    }
    assert!(
        provider.stale() > 1,
        "only {} requests met a stale connection",
        provider.stale()
    );
}

#[test]
fn bodies_of_32_megabytes_arrive_intact_over_http1() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let body = body_of(LIMIT);
    for upload in [Upload::Length, Upload::Chunked(60_000)] {
        let mut client = weir.connect();
        client.write(&message(&key, &body).bytes(upload));
        assert_eq!(client.response_to("POST").status, 200, "{upload:?}");
        assert!(provider.last().body == body, "{upload:?}");
    }
    assert_eq!(provider.count(), 2);
}

#[test]
fn bodies_of_32_megabytes_arrive_intact_over_h2c() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let body = body_of(LIMIT);
    for (end, length) in [
        (EndStream::OnLastFrame, Length::Said),
        (EndStream::OnItsOwn, Length::Unsaid),
    ] {
        let answer = h2c::exchange(weir.gateway, &message(&key, &body), end, length);
        assert_eq!(answer.status, 200, "{end:?} {length:?}: {}", answer.text());
        assert!(provider.last().body == body, "{end:?} {length:?}");
    }
    assert_eq!(provider.count(), 2);
}

#[test]
fn bodies_of_32_megabytes_arrive_intact_when_the_first_connection_is_refused() {
    let (_authority, provider, weir) = with_refused_connections();
    let key = weir.key().text;
    let body = body_of(LIMIT);
    for upload in [Upload::Length, Upload::Chunked(1 << 20)] {
        let mut client = weir.connect();
        client.write(&message(&key, &body).bytes(upload));
        assert_eq!(client.response_to("POST").status, 200, "{upload:?}");
        assert!(provider.last().body == body, "{upload:?}");
    }
    for (end, length) in [
        (EndStream::OnLastFrame, Length::Said),
        (EndStream::OnItsOwn, Length::Unsaid),
    ] {
        assert_eq!(
            h2c::exchange(weir.gateway, &message(&key, &body), end, length).status,
            200,
            "{end:?} {length:?}"
        );
        assert!(provider.last().body == body, "{end:?} {length:?}");
    }
    assert_eq!((provider.count(), provider.connections()), (4, 8));
}

#[test]
fn a_body_beyond_the_limit_is_413_in_every_shape_and_framing() {
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", 100_000)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let kind = match wire {
            Wire::Messages => "request_too_large",
            Wire::Responses => "body_too_large",
            Wire::Gemini => "INVALID_ARGUMENT",
        };
        let small = wire.request(&key, "").body.len();
        for (size, status) in [(100_000, 200), (100_001, 413), (300_000, 413)] {
            let request = wire.request(&key, &"x".repeat(size - small));
            assert_eq!(request.body.len(), size);
            for upload in [Upload::Length, Upload::Chunked(7_000)] {
                let mut client = weir.connect();
                client.write(&request.bytes(upload));
                let answer = client.response_to("POST");
                if status == 200 {
                    assert_eq!(answer.status, 200, "{wire:?} {size} {upload:?}: {}", answer.text());
                } else {
                    assert_refusal(wire, &answer, 413, kind);
                }
            }
            for length in [Length::Said, Length::Unsaid] {
                let answer = h2c::exchange(weir.gateway, &request, EndStream::OnItsOwn, length);
                assert_eq!(
                    answer.status,
                    status,
                    "{wire:?} {size} over h2c, {length:?}: {}",
                    answer.text()
                );
            }
        }
    }
    assert_eq!(provider.count(), 3 * 4, "only what fits reached the provider");
}

#[test]
fn a_declared_length_beyond_the_limit_is_413_before_any_byte_of_it() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key().text;
    let mut client = weir.connect();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\ncontent-length: {}\r\n\r\n",
        LIMIT + 1
    );
    client.write(head.as_bytes());
    assert_refusal(Wire::Messages, &client.response_to("POST"), 413, "request_too_large");
}

#[test]
fn beyond_the_budget_for_buffered_bodies_it_is_503_and_passes() {
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", 900_000)
        .set("gateway.body_budget_bytes", 1_000_000)
        .set("gateway.body_key_bytes", 1_000_000)
        .set("gateway.body_address_bytes", 1_000_000)
        .start();
    let key = weir.key().text;
    let request = message(&key, &body_of(900_000));
    let (most, rest) = request.body.split_at(850_000);
    let mut first = weir.connect();
    first.write(&request.head_bytes(Upload::Length));
    first.write(most);
    // Were the second there first, the first would be refused.
    wait_until("the first body has its room", || {
        weir.metrics().contains("weir_body_bytes_buffered 850000\n")
    });
    let refused = weir.exchange(&request);
    assert_refusal(Wire::Messages, &refused, 503, "api_error");
    assert!(refused.header("retry-after").is_some());
    first.write(rest);
    assert_eq!(first.response_to("POST").status, 200);
    wait_for("room again", || {
        Some(weir.exchange(&request)).filter(|answer| answer.status == 200)
    });
}

#[test]
fn expect_100_continue_is_answered_before_the_body_and_other_expectations_are_417() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for upload in [Upload::Length, Upload::Chunked(50_000)] {
            let mut request = wire.request(&key, &"long ".repeat(40_000));
            request = request.header("Expect", "100-continue");
            let mut client = weir.connect();
            client.write(&request.head_bytes(upload));
            assert_eq!(client.head_to("POST").status, 100, "{wire:?} {upload:?}");
            client.write(&request.body_bytes(upload));
            assert_eq!(client.response_to("POST").status, 200, "{wire:?} {upload:?}");
            let got = provider.last();
            assert!(
                got.body == request.body && got.header("expect").is_none(),
                "{wire:?} {upload:?}"
            );
        }
        let mut client = weir.connect();
        client.write(
            &wire
                .request(&key, "hi")
                .header("expect", "a-miracle")
                .head_bytes(Upload::Length),
        );
        assert_eq!(client.response_to("POST").status, 417, "{wire:?}");
    }
}

#[test]
fn a_body_that_stops_coming_is_408() {
    let weir = WeirBuilder::new()
        .all_providers("http://127.0.0.1:9")
        .set("gateway.body_read_seconds", 1)
        .start();
    let key = weir.key().text;
    for upload in [Upload::Length, Upload::Chunked(100)] {
        let request = message(&key, &body_of(10_000));
        let bytes = request.bytes(upload);
        let mut client = weir.connect();
        client.write(&bytes[..bytes.len() / 2]);
        assert_refusal(Wire::Messages, &client.response_to("POST"), 408, "timeout_error");
    }
}

#[test]
fn one_connection_carries_many_requests() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    for (turn, upload) in [
        Upload::Length,
        Upload::Chunked(100),
        Upload::Length,
        // A chunked body over 64 KiB cannot be sent again, so it would get a connection of its own.
        Upload::Chunked(50_000),
    ]
    .iter()
    .enumerate()
    {
        let body = body_of(1_000 + turn * 20_000);
        client.write(&message(&key, &body).bytes(*upload));
        assert_eq!(client.response_to("POST").status, 200, "turn {turn}");
        assert!(provider.last().body == body, "turn {turn}");
    }
}

#[test]
fn the_providers_connection_is_used_again() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for _ in 0..10 {
        assert_eq!(weir.exchange(&message(&key, &body_of(1_000))).status, 200);
    }
    // A connection goes back into the pool a moment after the client has its answer, so a quick client may need another.
    assert_eq!(provider.count(), 10);
    assert!(provider.connections() <= 3, "{} connections", provider.connections());
}
