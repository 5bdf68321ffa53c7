//! More of everything than anybody needs (`tests/hostile/floods.toml`), and floods of connections on a process that may open
//! few files: everybody else is served meanwhile.

use std::io::Write;
use std::net::TcpStream;

use super::attacks::read;
use super::closed;
use super::report::{self, Tried};
use crate::harness::crowd::Crowd;
use crate::harness::request::Wire;
use crate::harness::tools::{note, rounds};
use crate::harness::{RecordingProvider, WeirBuilder, wait_until};

const OPEN_FILES_MAX: u32 = 600;
/// The most memory of the process, in bytes: what it has in other tests, and the heads of all connections.
const MEMORY_MAX: usize = 256 << 20;

/// How long a connection may be idle; those that are not refused otherwise end with it.
const IDLE_SECONDS: i64 = 5;

#[test]
fn silent_connections_and_half_heads_leave_room_for_everybody_else() {
    let provider = RecordingProvider::recorded();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .open_files_max(OPEN_FILES_MAX)
        .set("connections.first_byte_seconds", 3)
        .set("connections.head_seconds", 3)
        .start();
    let key = weir.key().text;
    let crowd = Crowd::new(weir.gateway);
    let count = rounds(600, 3_000);
    let mut attackers: Vec<TcpStream> = Vec::new();
    let half = [b"GET / HTTP/1.1\r\nx: ", &vec![b'x'; 1 << 20][..]].concat();
    for number in 0..count {
        let mut attacker = crowd.connect(2);
        if number % 50 == 0 {
            // As much of a head as is taken: the connection may be closed on it.
            attacker.set_nonblocking(true).unwrap();
            let _ = attacker.write(&half);
        }
        attackers.push(attacker);
        if number % 20 == 0 {
            assert_eq!(weir.ops_get("/livez").status, 200);
            let answer = weir.exchange(&Wire::Messages.request(&key, "hi"));
            assert_eq!(answer.status, 200, "among {number}: {}", answer.text());
        }
    }
    assert!(
        closed(&weir, "gateway", "too_many_from_address") > 0,
        "more than one address may have"
    );
    let ended = [
        "too_many_from_address",
        "too_many",
        "first_byte_timeout",
        "head_timeout",
        "headers_too_large",
    ];
    wait_until("the end of every attacker", || {
        let all: u64 = ended.iter().map(|reason| closed(&weir, "gateway", reason)).sum();
        all >= count as u64
    });
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    let memory = weir.process().peak_memory();
    report::came(
        "floods",
        "silent connections and half heads",
        count,
        "closed, others served",
    );
    note(&format!("flood: {count} connections, {} MiB at most", memory >> 20));
    assert!(memory < MEMORY_MAX, "{memory} bytes");
    assert!(!weir.process().err().contains("Too many open files"));
}

/// From more addresses than there are places, the newest are closed; the side listeners stay reachable.
#[test]
fn a_flood_from_many_addresses_leaves_the_side_listeners_alone() {
    let weir = WeirBuilder::new().open_files_max(OPEN_FILES_MAX).start();
    let crowd = Crowd::new(weir.gateway);
    let attackers: Vec<TcpStream> = (0..300_u16)
        .map(|number| crowd.connect(u8::try_from(number % 200 + 2).unwrap()))
        .collect();
    wait_until("the newest to be closed", || {
        closed(&weir, "gateway", "too_many") >= 200
    });
    assert_eq!(weir.ops_get("/livez").status, 200);
    assert!(
        weir.cli(&["key", "list"], &[]).status.success(),
        "the admin socket answers"
    );
    report::came(
        "floods",
        "connections from many addresses",
        attackers.len(),
        "the newest closed: too_many",
    );
    drop(attackers);
    wait_until("the gateway to be free again", || {
        weir.metrics().contains("weir_connections{listener=\"gateway\"} 0\n")
    });
}

#[test]
fn a_flood_over_one_connection_is_ended_or_borne_and_others_are_served() {
    let provider = RecordingProvider::recorded();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.keepalive_seconds", IDLE_SECONDS)
        .start();
    let key = weir.key().text;
    let request = Wire::Messages.request(&key, "hi");
    assert_eq!(weir.exchange(&request).status, 200);
    let mut tried = Tried::new("floods");
    for case in read("floods") {
        tried.case(&case.name, &case.told(), || {
            let borne = case.attack(TcpStream::connect(weir.gateway).unwrap(), &[("{secret}", key.as_str())]);
            assert_eq!(weir.exchange(&request).status, 200, "beside {}", case.name);
            drop(borne);
            1
        });
    }
    tried.end();
    let memory = weir.process().peak_memory();
    note(&format!("flood: frames of every kind, {} MiB at most", memory >> 20));
    assert!(memory < MEMORY_MAX, "{memory} bytes");
}
