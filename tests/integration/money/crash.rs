//! The process dies in the middle of streams: everything that was admitted is charged once, and almost all that was sent.

use std::time::{Duration, Instant};

use crate::harness::request::{ALL_WIRES, Upload};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{note, rounds};
use crate::harness::{Weir, wait_until};

/// Opens streams and leaves them running; returns them with what keeps them open.
fn open_streams(weir: &Weir, key: &str, count: usize) -> Vec<crate::harness::Client> {
    (0..count)
        .map(|number| {
            let wire = ALL_WIRES[number % 3];
            let mut client = weir.connect();
            let request = wire.streaming(key, "Tell me. [[sample: deltas=2000 delta_bytes=40 gap_ms=10]]");
            client.write(&request.bytes(Upload::Length));
            client
        })
        .collect()
}

#[test]
fn killed_streams_are_charged_once() {
    let provider = SampleProvider::start();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let (rounds, streams) = (rounds(2, 50), rounds(30, 200));
    let mut charged = 0;
    for round in 0..rounds {
        let mut clients = open_streams(&weir, &key, streams);
        for client in &mut clients {
            let _ = client.head_to("POST");
        }
        wait_until("the streams to run", || {
            weir.account()["running"].as_u64() == Some(streams as u64)
        });
        // Some rounds die early in the streams, some late.
        let until = Instant::now() + Duration::from_millis(1000 + 37 * round as u64 % 800);
        wait_until("the moment to die", || Instant::now() > until);
        let began = Instant::now();
        weir.kill_and_restart();
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "ready again after {:?}",
            began.elapsed()
        );
        note(&format!(
            "crash: round {round}, ready again after {:?}",
            began.elapsed()
        ));
        charged += streams;
        let books = weir.books(charged);
        let of_round = books.rows.iter().filter(|row| row["outcome"] == "crash");
        assert_eq!(of_round.clone().count(), charged);
        for row in of_round {
            assert!(
                row["output_text"].as_u64().unwrap_or(0) > 0,
                "nothing of the output was charged: {row}"
            );
        }
    }
}
