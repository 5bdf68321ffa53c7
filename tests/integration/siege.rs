//! Attacks by strangers and faults of the provider beside ordinary work, for a while: who is served is served wholly, what
//! is held for connections comes back, and the books are the provider's.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::crowd::Crowd;
use crate::harness::request::{ALL_WIRES, Request, Upload, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, rounds};
use crate::harness::{Weir, WeirBuilder, wait_until};

const CLIENTS: usize = 4;
const ATTACKERS: u8 = 2;
/// Connections that an attacker keeps open at a time.
const HELD: usize = 32;
const OPEN_FILES_MAX: u32 = 600;
/// What memory may grow by after the warm-up, in bytes: the allocator's own slack and the store's page caches.
const GROWTH_MAX: usize = 48 << 20;
/// Handles that may differ between two moments at rest: connections to the provider that are kept for later.
const FILES_SLACK: usize = 64;

/// Keys that attackers have.
struct Keys {
    /// Has money.
    rich: String,
    /// Has a quota of nothing.
    poor: String,
}

/// What an attacker sends, and whether it waits to be closed on or stays as long as it may.
fn attack(turn: usize, keys: &Keys) -> (Vec<u8>, bool) {
    let announced = |key: &str| {
        let request = Wire::Messages.request(key, "hi").header("content-length", "33554432");
        let mut head = request.head_bytes(Upload::Length);
        // Of the two lengths the large one.
        let own = format!("content-length: {}\r\n", request.body.len());
        let at = String::from_utf8_lossy(&head).find(&own).unwrap();
        head.drain(at..at + own.len());
        head
    };
    match turn % 9 {
        0 => (Vec::new(), false),
        1 => (b"POST /v1/messages HTTP/1.1\r\nhost: weir.test\r\nx: ".to_vec(), false),
        2 => (announced(&keys.rich), false),
        3 => (announced(&keys.poor), false),
        4 => (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20), true),
        5 => (
            b"POST /v1/messages HTTP/1.1\r\nhost: weir.test\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_vec(),
            true,
        ),
        6 => (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x09\x09\xff\xff\xff\xff".to_vec(), true),
        7 => {
            let unknown = format!("sk-weir-{turn:048}");
            let request = Wire::Messages.request(&unknown, "hi").header("connection", "close");
            (request.bytes(Upload::Length), true)
        }
        _ => ([b"GET / HTTP/1.1\r\nhost: a\r\nx: ", &vec![b'x'; 256 << 10][..]].concat(), true),
    }
}

/// Attacks until `until`; returns how often.
fn besiege(weir: &Weir, last: u8, keys: &Keys, until: Instant) -> usize {
    let crowd = Crowd::new(weir.gateway);
    let mut held: VecDeque<TcpStream> = VecDeque::new();
    let mut turn = usize::from(last);
    while Instant::now() < until {
        let (bytes, to_its_end) = attack(turn, keys);
        turn += 1;
        let mut stream = crowd.connect(last);
        let _ = stream.write_all(&bytes);
        if to_its_end {
            // An answer or none, then the end; a reset counts as one.
            let _ = std::io::copy(&mut stream.take(1 << 20), &mut std::io::sink());
        } else {
            held.push_back(stream);
            if held.len() > HELD {
                held.pop_front();
            }
        }
    }
    turn - usize::from(last)
}

/// What came of a siege.
#[derive(Default)]
struct Done {
    /// Requests that were served.
    served: usize,
    /// Requests that the provider refused.
    failed: usize,
    attacks: usize,
}

/// Works until `until`.
fn work(weir: &Weir, number: usize, key: &str, until: Instant) -> Done {
    let mut client = weir.connect();
    let mut done = Done::default();
    for turn in number.. {
        if Instant::now() >= until {
            break;
        }
        let wire = ALL_WIRES[turn % 3];
        let mut is_over = false;
        match turn % 6 {
            // What the provider refuses is refused, and costs nothing.
            0 => {
                let failing = format!("hi [[sample: status={}]]", [500, 503, 529][turn % 3]);
                let answer = client.exchange(&wire.request(key, &failing));
                assert!(answer.status >= 500, "{}", answer.text());
                done.failed += 1;
                is_over = answer.closes();
            }
            // Who leaves in the middle pays for the whole.
            1 => {
                let mut leaving = weir.connect();
                let prompt = "hi [[sample: deltas=12 gap_ms=5]]";
                leaving.write(&wire.streaming(key, prompt).bytes(Upload::Length));
                assert_eq!(leaving.head_to("POST").status, 200);
            }
            2 => {
                let answer = client.exchange(&wire.streaming(key, "hi [[sample: deltas=8 gap_ms=5]]"));
                assert!(answer.status == 200 && answer.complete, "{}", answer.text());
                done.served += 1;
                is_over = answer.closes();
            }
            _ => {
                let answer = client.exchange(&wire.request(key, "hi [[sample: ttfb_ms=20]]"));
                assert!(answer.status == 200 && answer.complete, "{}", answer.text());
                done.served += 1;
                is_over = answer.closes();
            }
        }
        if is_over {
            client = weir.connect();
        }
    }
    done
}

/// Both for so long.
fn siege(weir: &Weir, keys: &Keys, time: Duration) -> Done {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || work(weir, number, &keys.rich, until)))
            .collect();
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|number| scope.spawn(move || besiege(weir, 2 + number, keys, until)))
            .collect();
        let mut all = Done::default();
        for worker in workers {
            let done = worker.join().unwrap();
            all.served += done.served;
            all.failed += done.failed;
        }
        all.attacks = attackers.into_iter().map(|attacker| attacker.join().unwrap()).sum();
        all
    })
}

#[test]
fn work_goes_on_under_attacks_and_faults_and_the_books_are_the_providers() {
    let provider = SampleProvider::start();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .open_files_max(OPEN_FILES_MAX)
        .set("connections.first_byte_seconds", 3)
        .set("connections.head_seconds", 3)
        .start();
    let keys = Keys {
        rich: weir.key().text,
        poor: weir.key_with(&["--quota-usd", "0"]).text,
    };
    let warm_up = siege(&weir, &keys, Duration::from_secs(rounds(2, 300) as u64));
    let (files, memory) = (weir.process().open_files(), weir.process().memory());
    let done = siege(&weir, &keys, Duration::from_secs(rounds(4, 1500) as u64));
    let after = weir.process().memory();
    note(&format!(
        "siege: {} requests served and {} refused by the provider beside {} attacks, memory {} -> {} MiB",
        done.served,
        done.failed,
        done.attacks,
        memory >> 20,
        after >> 20
    ));
    assert!(done.served > 0 && done.attacks > 0);
    assert!(after < memory + GROWTH_MAX, "memory grew from {memory} to {after}");
    wait_until("what is held for connections to come back", || {
        weir.process().open_files() <= files + FILES_SLACK
    });
    weir.books_beside_failures(&provider, 0, warm_up.failed + done.failed);
    let hello = Request::new("HEAD", "/");
    assert_eq!(weir.exchange(&hello).status, 200);
}
