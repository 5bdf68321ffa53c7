//! Many requests of every kind, one after the other and side by side: nothing grows, nothing is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::recordings::{unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Upload};
use crate::harness::tools::{note, rounds};
use crate::harness::{RecordingProvider, Weir, wait_until};

const CLIENTS: usize = 8;
/// What memory may grow by after the warm-up, in bytes: the allocator's own slack, far less than a leak per request.
const GROWTH_MAX: usize = 24 << 20;

/// Sends requests from all clients for `time`; returns how many were answered as they should be.
fn storm(weir: &Weir, key: &str, time: Duration) -> usize {
    let served = AtomicUsize::new(0);
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let served = &served;
            scope.spawn(move || {
                let mut client = weir.connect();
                for turn in number.. {
                    if Instant::now() > until {
                        return;
                    }
                    let wire = ALL_WIRES[turn % 3];
                    let mut is_over = false;
                    match turn % 7 {
                        // A client that leaves in the middle, and one whose key is wrong.
                        0 => {
                            let mut leaving = weir.connect();
                            leaving.write(&wire.streaming(key, "hi").bytes(Upload::Length));
                            let _ = leaving.head_to("POST");
                        }
                        1 => assert_eq!(weir.exchange(&wire.request("wrong", "hi")).status, 401),
                        2 | 3 => {
                            let answer = client.exchange(&wire.request(key, "hi"));
                            assert_eq!(answer.text(), unary(wire));
                            is_over = answer.closes();
                        }
                        _ => {
                            let answer = client.exchange(&wire.streaming(key, "hi"));
                            assert_eq!(answer.text(), whole_stream(wire));
                            is_over = answer.closes();
                        }
                    }
                    // A connection carries so many requests, and no more.
                    if is_over {
                        client = weir.connect();
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    served.into_inner()
}

#[test]
fn memory_and_open_files_stay_flat_under_mixed_requests() {
    let provider = RecordingProvider::recorded();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    // The embedded store's page caches (24 MiB) fill as its file grows, in some 150,000 requests, and stay full.
    storm(&weir, &key, Duration::from_secs(rounds(2, 180) as u64));
    let (files, memory) = (weir.process().open_files(), weir.process().memory());
    let served = storm(&weir, &key, Duration::from_secs(rounds(3, 600) as u64));
    let after = weir.process().memory();
    note(&format!(
        "soak: {served} requests, memory {} -> {} KiB, {files} files open after the warm-up",
        memory >> 10,
        after >> 10
    ));
    assert!(
        after < memory + GROWTH_MAX,
        "memory grew from {memory} to {after} bytes in {served} requests"
    );
    wait_until("connections of clients that left to be closed", || {
        weir.process().open_files() <= files + 8
    });
    assert_eq!(weir.exchange(&ALL_WIRES[0].request(&key, "hi")).status, 200);
}
