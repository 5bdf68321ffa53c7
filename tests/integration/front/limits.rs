//! How many clients there may be, and how much one connection carries: each at a small limit. How long clients are waited for:
//! `slow.rs`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{closed, wait_closed};
use crate::harness::certificates::{Authority, Kind, Offer};
use crate::harness::crowd::Crowd;
use crate::harness::h2_frames::{GOAWAY, H2Frames};
use crate::harness::h2c::Requests;
use crate::harness::https::handshake;
use crate::harness::request::{Upload, Wire};
use crate::harness::slow_way::SlowWay;
use crate::harness::wait::{DEADLINE, wait_until};
use crate::harness::{Client, RecordingProvider, Request, WeirBuilder};

/// The time limits of these tests, in seconds: nothing is done within them but to exceed them.
const SHORT_SECONDS: i64 = 1;

pub(super) fn short(base_url: &str) -> WeirBuilder {
    WeirBuilder::new()
        .all_providers(base_url)
        .set("connections.first_byte_seconds", SHORT_SECONDS)
        .set("connections.head_seconds", SHORT_SECONDS)
        .set("gateway.keepalive_seconds", SHORT_SECONDS)
        .set("gateway.body_read_seconds", SHORT_SECONDS)
        .set("gateway.write_seconds", SHORT_SECONDS)
}

#[test]
fn a_kept_connection_that_brings_nothing_is_closed_and_one_carries_so_many_requests() {
    let weir = short("http://127.0.0.1:9").set("connections.requests_max", 3).start();
    let hello = Request::new("HEAD", "/");
    let mut client = weir.connect();
    let first = client.exchange(&hello);
    assert_eq!((first.status, first.header("connection")), (200, Some("keep-alive")));
    assert!(client.closed_within(DEADLINE));
    wait_closed(&weir, "gateway", "idle", 1);
    let kept = WeirBuilder::new().set("connections.requests_max", 3).start();
    for (listener, address) in [("gateway", kept.gateway), ("stability", kept.stability)] {
        let page = Request::get("/web/v1/openapi.json");
        let mut client = Client::connect(address);
        for wanted in ["keep-alive", "keep-alive", "close"] {
            assert_eq!(client.exchange(&page).header("connection"), Some(wanted));
        }
        assert!(client.closed_within(DEADLINE));
        assert_eq!(closed(&kept, listener, "requests"), 1);
        let mut requests = Requests::connect(address);
        for _ in 0..3 {
            assert_eq!(requests.send(&page), Some(200));
        }
        wait_until("the end of an HTTP/2 connection", || requests.send(&page).is_none());
        assert_eq!(closed(&kept, listener, "requests"), 2);
    }
}

#[test]
fn connections_are_counted_in_all_and_per_address_and_the_newest_closed() {
    // Whichever thread accepts them.
    let weir = WeirBuilder::new()
        .set("gateway.threads", 4)
        .set("connections.max", 4)
        .start();
    let crowd = Crowd::new(weir.gateway);
    let hello = Request::new("HEAD", "/").bytes(Upload::Length);
    let serves = |stream: &mut TcpStream| {
        let (mut answer, mut byte) = (Vec::new(), [0]);
        let _ = stream.write_all(&hello);
        while !answer.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
            answer.push(byte[0]);
        }
        answer.starts_with(b"HTTP/1.1 200")
    };
    let mut first = [crowd.connect(2), crowd.connect(2)];
    assert!(first.iter_mut().all(serves));
    assert!(!serves(&mut crowd.connect(2)));
    wait_closed(&weir, "gateway", "too_many_from_address", 1);
    let mut others = [crowd.connect(3), crowd.connect(4)];
    assert!(others.iter_mut().all(serves));
    assert!(!serves(&mut crowd.connect(5)));
    wait_closed(&weir, "gateway", "too_many", 1);
    assert!(weir.metrics().contains("weir_connections{listener=\"gateway\"} 4\n"));
    drop(first);
    wait_until("a place to be free again", || serves(&mut crowd.connect(5)));
    assert!(others.iter_mut().all(serves), "those that there are stay");
}

/// It takes as many connections as the gateway, and an address has its share of them.
#[test]
fn the_stability_listener_counts_its_own_clients() {
    let weir = WeirBuilder::new().set("connections.per_address_max", 2).start();
    let crowd = Crowd::new(weir.stability);
    let page = Request::get("/web/v1/openapi.json");
    let served = |stream: TcpStream| Client::over(stream).exchange(&page).status == 200;
    let held = [crowd.connect(2), crowd.connect(2)];
    wait_until("both to be counted", || {
        weir.metrics().contains("weir_connections{listener=\"stability\"} 2\n")
    });
    assert!(served(crowd.connect(2)), "one of its own has asked for nothing");
    wait_closed(&weir, "stability", "gave_way", 1);
    assert!(served(crowd.connect(3)), "another address has its own share");
    let gateway = Crowd::new(weir.gateway);
    assert!(served(gateway.connect(2)), "so has the gateway");
    drop(held);
    wait_until("the places to be free again", || {
        weir.metrics().contains("weir_connections{listener=\"stability\"} 0\n")
    });
    assert!(served(crowd.connect(2)));
}

#[test]
fn a_trusted_proxy_is_not_one_client() {
    let weir = WeirBuilder::new()
        .set("connections.max", 4)
        .set("stability.trusted_proxies", vec!["127.0.0.2".to_owned()])
        .start();
    let crowd = Crowd::new(weir.gateway);
    let held: Vec<TcpStream> = (0..4).map(|_| crowd.connect(2)).collect();
    wait_until("all places to be taken", || {
        weir.metrics().contains("weir_connections{listener=\"gateway\"} 4\n")
    });
    drop(held);
}

/// Over HTTP/1.1: `hostile/slow.toml`.
#[test]
fn a_body_that_does_not_come_over_http2_is_408() {
    let weir = short("http://127.0.0.1:9").start();
    let request = Wire::Messages.request(&weir.key().text, "hi");
    assert_eq!(Requests::connect(weir.gateway).send_without_end(&request), Some(408));
}

/// The provider sends without end, and nobody reads.
#[test]
fn an_answer_that_is_not_taken_is_cut_off_over_each_version() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.sse();
        let piece = format!("data: {{\"x\":\"{}\"}}\n\n", "x".repeat(60_000));
        while answer.is_open() {
            answer.chunk(&piece);
        }
    });
    let weir = short(&provider.base_url())
        .set("upstream.client_gone_finish_max", 0)
        .start();
    let key = weir.key().text;
    let request = Wire::Messages.streaming(&key, "hi");
    let mut client = weir.connect();
    client.write(&request.bytes(Upload::Length));
    assert_eq!(client.head_to("POST").status, 200);
    wait_closed(&weir, "gateway", "write_timeout", 1);
    let mut requests = Requests::connect(weir.gateway);
    assert_eq!(requests.send(&request), Some(200));
    let lines = weir.access_lines_at_least(2);
    assert!(lines.iter().all(|line| line["outcome"] == "client_gone"), "{lines:?}");
}

/// What is beyond the gateway's own limits and within the list that HTTP/2 announces gets weir's answer; what is beyond that
/// is not even kept.
#[test]
fn an_http2_head_is_431_at_its_limits() {
    let weir = WeirBuilder::new()
        .set("gateway.header_bytes_max", 2048)
        .set("gateway.header_count_max", 20)
        .start();
    let list = H2Frames::connect(weir.gateway).setting(H2Frames::MAX_HEADER_LIST_SIZE);
    assert_eq!(list, Some(2048 + 20 * 32));
    let mut requests = Requests::connect(weir.gateway);
    let hello = Request::new("HEAD", "/");
    // Names and lengths of the fields count as well.
    for (value, status) in [
        (1900, 200),
        (2048, 431),
        (2300, 431),
        (2048 + 20 * 32, 431),
        (10_000, 431),
    ] {
        let request = hello.clone().header("x", &"x".repeat(value));
        assert_eq!(requests.send(&request), Some(status), "{value} bytes");
    }
    let many = (0..21).fold(hello.clone(), |request, number| {
        request.header(&format!("x-{number}"), "x")
    });
    assert_eq!(requests.send(&many), Some(431));
    assert_eq!(requests.send(&hello), Some(200));
    // One that goes on for frames is not read to its end: that costs the connection.
    let endless = hello.clone().header("x", &"x".repeat(20_000));
    assert_eq!(requests.send(&endless), None);
    assert_eq!(Requests::connect(weir.gateway).send(&hello), Some(200));
}

#[test]
fn an_http2_client_has_so_many_streams_and_resets() {
    let weir = WeirBuilder::new().set("connections.h2_streams_max", 3).start();
    assert_eq!(
        H2Frames::connect(weir.gateway).setting(H2Frames::MAX_CONCURRENT_STREAMS),
        Some(3)
    );
    let rapid = WeirBuilder::new().set("connections.h2_resets_max", 5).start();
    let mut frames = H2Frames::connect(rapid.gateway);
    frames.open_and_reset(2_000);
    assert!(frames.frames_to_the_end().contains(&GOAWAY), "the connection is closed");
    assert_eq!(rapid.exchange(&Request::new("HEAD", "/")).status, 200);
}

/// What is within the gateway's limit gets as far as its answer; beyond it, it is refused by the gateway, and far beyond it, with
/// its connection if need be, before.
#[test]
fn a_header_list_over_http2_has_the_limit_of_a_head() {
    const LIST_BYTES_MAX: usize = 4096;
    let weir = WeirBuilder::new()
        .set("gateway.header_bytes_max", i64::try_from(LIST_BYTES_MAX).unwrap())
        .start();
    let mut requests = Requests::connect(weir.gateway);
    let of = |bytes: usize| Request::new("HEAD", "/").header("x", &"v".repeat(bytes));
    // What the request has beside it is less than a hundred bytes.
    let first = (LIST_BYTES_MAX - 100..LIST_BYTES_MAX).find(|bytes| {
        let status = requests.send(&of(*bytes));
        assert!(matches!(status, Some(200 | 431)), "{status:?}");
        status == Some(431)
    });
    assert!(first.is_some_and(|first| first > LIST_BYTES_MAX - 100), "{first:?}");
    assert_eq!(requests.send(&of(LIST_BYTES_MAX)), Some(431));
    // So much is not even kept until its end.
    let beyond = requests.send(&of(16 * LIST_BYTES_MAX));
    assert!(matches!(beyond, Some(431) | None), "{beyond:?}");
    assert_eq!(
        Requests::connect(weir.gateway).send(&of(1)),
        Some(200),
        "others are served"
    );
}

/// The time for a handshake is not that for its parts: who takes a while is served, who goes beyond it is not
/// (`hostile/tls.toml`).
#[test]
fn a_handshake_may_take_its_time_within_the_limit() {
    let authority = Authority::new();
    let shown = vec![authority.files("one", &["api.test"], Kind::Ecdsa).setting()];
    let weir = WeirBuilder::new()
        .set("gateway.tls.certificate", shown.clone())
        .set("stability.tls.certificate", shown)
        .set("connections.handshake_seconds", 60)
        .start();
    let tls = authority.client(Offer::default());
    for listener in [weir.gateway, weir.stability] {
        let slow = SlowWay::to(listener.port(), Duration::from_millis(700));
        let mut client = handshake(&tls, "api.test", TcpStream::connect(slow.node()).unwrap())
            .unwrap()
            .client;
        assert_eq!(client.exchange(&Request::get("/web/v1/openapi.json")).status, 200);
    }
}
