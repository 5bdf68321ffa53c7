//! What may follow a body that is whole: trailers and other ends that do not come hold no memory, and keep nobody waiting.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::h2c::{Length, Requests};
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::tools::{note, rounds};
use crate::harness::wait::DEADLINE;
use crate::harness::{Client, RecordingProvider, Request, Weir, WeirBuilder, wait_until};

/// The memory for bodies, and what one key may hold of it.
const BUDGET: usize = 16 << 20;
const SHARE: usize = BUDGET / 4;
/// The body of each attacker. Four of them leave 377 KB.
const ATTACK: usize = 4_100_000;
const OTHERS: usize = 1_000_000;
/// What an attacker sends behind its last chunk.
const DRIPPED: &[u8] = b"0\r\nx-a: ";

fn large(key: &str, bytes: usize) -> Request {
    let small = Wire::Messages.request(key, "").body.len();
    Wire::Messages.request(key, &"x".repeat(bytes - small))
}

/// The request with one chunk that is all of its JSON, and what follows it.
fn followed_by(request: &Request, behind: &[u8]) -> Vec<u8> {
    let mut bytes = request.bytes(Upload::Chunked(request.body.len()));
    bytes.truncate(bytes.len() - b"0\r\n\r\n".len());
    bytes.extend_from_slice(behind);
    bytes
}

#[track_caller]
fn wait_held(weir: &Weir, bytes: usize) {
    let held = format!("weir_body_bytes_buffered {bytes}\n");
    wait_until(&format!("{bytes} bytes of bodies"), || weir.metrics().contains(&held));
}

/// Four keys have all of the memory while each of their bodies is under way. None of it is held for what follows a body.
#[test]
fn dripped_trailers_hold_no_memory_and_others_are_served() {
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", SHARE as i64)
        .set("gateway.body_budget_bytes", BUDGET as i64)
        .set("gateway.body_address_bytes", BUDGET as i64)
        .start();
    let attackers: [String; 4] = [(); 4].map(|()| weir.key().text);
    let other = weir.key().text;
    // Three drip trailers over HTTP/1.1, one keeps its stream open over HTTP/2.
    let mut dripping: Vec<TcpStream> = Vec::new();
    for key in &attackers[..3] {
        let socket = TcpStream::connect(weir.gateway).unwrap();
        let mut client = Client::over(socket.try_clone().unwrap());
        client.write(&followed_by(&large(key, ATTACK), DRIPPED));
        assert_eq!(client.response_to("POST").status, 200);
        dripping.push(socket);
    }
    let mut streams = Requests::connect(weir.gateway);
    let open = streams.send_whole_without_end(&large(&attackers[3], ATTACK), Length::Said);
    assert_eq!(open, Some(200));
    wait_held(&weir, 0);
    let is_over = AtomicBool::new(false);
    let (began, lasts) = (Instant::now(), Duration::from_secs(rounds(2, 60) as u64));
    let mut served = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for socket in &mut dripping {
                    let _ = socket.write(b"x");
                }
                std::thread::park_timeout(Duration::from_millis(200));
            }
        });
        while began.elapsed() < lasts {
            let answer = weir.exchange(&large(&other, OTHERS));
            assert_eq!(answer.status, 200, "request {served}: {}", answer.text());
            served += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let refused = "weir_refusals_total{protocol=\"messages\",reason=\"body_budget_exhausted\"} ";
    let metrics = weir.metrics();
    let refused = metrics.lines().find_map(|line| line.strip_prefix(refused));
    assert_eq!(refused.unwrap_or("0"), "0");
    note(&format!(
        "beside dripped trailers {served} requests of {OTHERS} bytes were served in {lasts:?}, none refused"
    ));
    assert_eq!(provider.count(), attackers.len() + served);
}

#[test]
fn a_connection_goes_on_behind_trailers_whenever_they_come() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let request = wire.request(&key, "hi");
        for trailers in [&b"0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n"[..], b"0\r\n\r\n"] {
            let bytes = followed_by(&request, trailers);
            let content = bytes.len() - trailers.len();
            // All at once, without the trailers, and with a part of them first.
            for split in [bytes.len(), content + 3, content + 5, bytes.len() - 1] {
                let mut client = weir.connect();
                client.write(&bytes[..split]);
                let answer = client.response_to("POST");
                assert_eq!(answer.status, 200, "{wire:?}, {split}: {}", answer.text());
                client.write(&bytes[split..]);
                assert_eq!(
                    client.exchange(&request).status,
                    200,
                    "{wire:?}: the next one behind {split}"
                );
                assert_eq!(provider.last().body, request.body, "{wire:?}");
                assert!(provider.last().header("x-sum").is_none());
            }
        }
    }
}

/// Trailers are a part of the body's time and pace.
#[test]
fn trailers_that_do_not_come_in_the_time_of_a_body_end_the_connection() {
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_read_seconds", 1)
        .set("gateway.bytes_per_second_min", 10_000)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut client = weir.connect();
        client.write(&followed_by(&wire.request(&key, "hi"), DRIPPED));
        assert_eq!(client.response_to("POST").status, 200);
        assert!(
            client.closed_within(DEADLINE),
            "{wire:?}: it is waited for without an end"
        );
    }
}

/// What is no end is waited for within the body's time, and the provider gets none of it.
#[test]
fn a_body_that_is_not_ended_is_408_over_each_version_and_passes_nothing_on() {
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_seconds", 1)
        .set("gateway.bytes_per_second_min", 0)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for size in [100, 100_000] {
            let request = wire.request(&key, &"x".repeat(size));
            let mut client = weir.connect();
            client.write(&followed_by(&request, b""));
            let answer = client.response_to("POST");
            assert_eq!(answer.status, 408, "{wire:?}, {size}: {}", answer.text());
            assert!(client.closed_within(DEADLINE));
            let mut streams = Requests::connect(weir.gateway);
            let unended = streams.send_whole_without_end(&request, Length::Unsaid);
            assert_eq!(unended, Some(408), "{wire:?}, {size}");
        }
    }
    wait_held(&weir, 0);
    let unfinished = provider
        .requests()
        .iter()
        .filter(|request| !request.body.is_empty())
        .count();
    assert_eq!(unfinished, 0);
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
}

/// White space behind the JSON is a part of the body's size.
#[test]
fn what_follows_the_json_counts_in_the_size_of_a_body() {
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.body_bytes_max", 100_000)
        .start();
    let key = weir.key().text;
    let request = Wire::Messages.request(&key, "hi");
    let room = 100_000 - request.body.len();
    for (white, status) in [(room, 200), (room + 1, 413)] {
        let behind = [
            format!("{white:x}\r\n").as_bytes(),
            &vec![b' '; white],
            b"\r\n0\r\n\r\n",
        ]
        .concat();
        let socket = TcpStream::connect(weir.gateway).unwrap();
        let mut client = Client::over(socket.try_clone().unwrap());
        client.write(&followed_by(&request, &behind));
        let answer = client.response_to("POST");
        assert_eq!(answer.status, status, "{white}: {}", answer.text());
        let _ = socket.shutdown(Shutdown::Both);
    }
    assert_eq!(
        provider
            .requests()
            .iter()
            .filter(|got| got.body == request.body)
            .count(),
        1
    );
}
