//! How long clients are waited for, how many there may be, and how much one connection carries: each at a small limit.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{closed, wait_closed};
use crate::harness::crowd::Crowd;
use crate::harness::h2_frames::{GOAWAY, H2Frames};
use crate::harness::h2c::Requests;
use crate::harness::request::{Upload, Wire};
use crate::harness::wait::{DEADLINE, wait_for, wait_until};
use crate::harness::{Client, RecordingProvider, Request, WeirBuilder};

/// The time limits of these tests, in seconds: nothing is done within them but to exceed them.
const SHORT_SECONDS: i64 = 1;

fn short(base_url: &str) -> WeirBuilder {
    WeirBuilder::new()
        .all_providers(base_url)
        .set("connections.first_byte_seconds", SHORT_SECONDS)
        .set("connections.head_seconds", SHORT_SECONDS)
        .set("gateway.keepalive_seconds", SHORT_SECONDS)
        .set("gateway.body_read_seconds", SHORT_SECONDS)
        .set("gateway.write_seconds", SHORT_SECONDS)
}

#[test]
fn silence_and_half_heads_are_not_waited_for() {
    let weir = short("http://127.0.0.1:9").start();
    for (listener, address) in [("gateway", weir.gateway), ("stability", weir.stability)] {
        assert!(Client::connect(address).closed_within(DEADLINE), "a silent connection");
        assert_eq!(closed(&weir, listener, "silent"), 1);
        for half in [
            &b"GET / HT"[..],
            b"GET / HTTP/1.1\r\nhost: x\r\n",
            b"\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM",
        ] {
            let mut client = Client::connect(address);
            client.write(half);
            assert_eq!(client.response_to("GET").status, 408);
            assert!(client.closed_within(DEADLINE));
        }
        assert_eq!(closed(&weir, listener, "head_late"), 4);
        let mut client = Client::connect(address);
        client.write(b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n");
        assert_eq!(client.response_to("GET").status, 400);
        assert_eq!(closed(&weir, listener, "host_invalid"), 1);
    }
}

#[test]
fn a_head_that_is_trickled_is_not_waited_for_longer_and_a_large_one_not_read_to_its_end() {
    let weir = short("http://127.0.0.1:9").start();
    let mut trickling = TcpStream::connect(weir.gateway).unwrap();
    let mut bytes = b"GET / HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'x'));
    wait_until("the end of a trickled head", || {
        trickling.write_all(&[*bytes.next().unwrap()]).is_err() || closed(&weir, "gateway", "head_late") == 1
    });
    let mut client = weir.connect();
    client.write(b"GET / HTTP/1.1\r\nx: ");
    client.write(&vec![b'x'; 1 << 20]);
    wait_closed(&weir, "gateway", "headers_too_large", 1);
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
fn an_http2_connection_without_a_request_is_closed() {
    let weir = short("http://127.0.0.1:9").start();
    // It ends, or reading does with the test's own limit.
    H2Frames::connect(weir.gateway).frames_to_the_end();
}

#[test]
fn connections_are_counted_in_all_and_per_address_and_the_newest_closed() {
    let weir = WeirBuilder::new().set("connections.max", 4).start();
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
    wait_closed(&weir, "gateway", "too_many_of_address", 1);
    let mut others = [crowd.connect(3), crowd.connect(4)];
    assert!(others.iter_mut().all(serves));
    assert!(!serves(&mut crowd.connect(5)));
    wait_closed(&weir, "gateway", "too_many", 1);
    assert!(weir.metrics().contains("weir_connections{listener=\"gateway\"} 4\n"));
    drop(first);
    wait_until("a place to be free again", || serves(&mut crowd.connect(5)));
    assert!(others.iter_mut().all(serves), "those that there are stay");
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

#[test]
fn a_body_that_stops_or_trickles_is_408_over_each_version() {
    let weir = short("http://127.0.0.1:9")
        .set("gateway.bytes_per_second_min", 10_000)
        .start();
    let key = weir.key().text;
    let request = Wire::Messages.request(&key, &"long ".repeat(20_000));
    for upload in [Upload::Length, Upload::Chunked(50_000)] {
        let body = request.body_bytes(upload);
        let mut client = weir.connect();
        client.write(&request.head_bytes(upload));
        client.write(&body[..100]);
        assert_eq!(client.response_to("POST").status, 408, "{upload:?}");
        assert!(client.closed_within(DEADLINE));
        // A byte every few milliseconds is not enough either.
        let mut stream = TcpStream::connect(weir.gateway).unwrap();
        stream.write_all(&request.head_bytes(upload)).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
        let mut bytes = body.iter();
        let answer = wait_for("the refusal of a trickled body", || {
            let _ = stream.write_all(&[*bytes.next().unwrap()]);
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).ok().map(|()| answer)
        });
        assert_eq!(&answer, b"HTTP/1.1 408");
    }
    let mut requests = Requests::connect(weir.gateway);
    assert_eq!(requests.send_without_end(&request), Some(408));
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
    wait_closed(&weir, "gateway", "answer_untaken", 1);
    let mut requests = Requests::connect(weir.gateway);
    assert_eq!(requests.send(&request), Some(200));
    let lines = weir.access_lines_at_least(2);
    assert!(lines.iter().all(|line| line["outcome"] == "client_gone"), "{lines:?}");
}

/// What is beyond the gateway's own limits and within the list that HTTP/2 announces gets weir's answer; what is beyond that
/// is not even kept, and the connection goes on.
#[test]
fn an_http2_head_is_431_at_its_limits_and_costs_no_connection() {
    let weir = WeirBuilder::new()
        .set("gateway.header_bytes_max", 2048)
        .set("gateway.header_count_max", 20)
        .start();
    let list = H2Frames::connect(weir.gateway).setting(H2Frames::MAX_HEADER_LIST_SIZE);
    assert_eq!(list, Some(2048 + 20 * 32));
    let mut requests = Requests::connect(weir.gateway);
    let hello = Request::new("HEAD", "/");
    // The target counts, and each field with its name and four bytes.
    for (value, status) in [(2048 - 1 - 5, 200), (2048 - 5, 431), (2400, 431), (60_000, 431)] {
        let request = hello.clone().header("x", &"x".repeat(value));
        assert_eq!(requests.send(&request), Some(status), "{value} bytes");
    }
    let many = (0..21).fold(hello.clone(), |request, number| {
        request.header(&format!("x-{number}"), "x")
    });
    assert_eq!(requests.send(&many), Some(431));
    assert_eq!(requests.send(&hello), Some(200));
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
