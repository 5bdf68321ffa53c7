//! The process dies while answers run on sockets: everything that was admitted is charged once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::stage::{create, create_in};
use crate::harness::books::cost;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::rounds;
use crate::harness::websocket::WebSocket;
use crate::harness::{Weir, wait_until};

const LONG: &str = "Tell me. [[sample: deltas=2000 delta_bytes=40 gap_ms=10]]";

#[test]
fn killed_answers_on_sockets_are_charged_once() {
    let sample = SampleProvider::start();
    let mut weir = Weir::start(&sample.base_url());
    let key = weir.key().text;
    let (sockets, lanes) = (rounds(5, 40), 3);
    let running = sockets * lanes;
    let mut charged = 0;
    for round in 0..rounds(2, 20) {
        let mut open: Vec<WebSocket> = (0..sockets).map(|_| WebSocket::open(weir.gateway, &key)).collect();
        for socket in &mut open {
            for lane in 0..lanes {
                socket.send(&create_in(&format!("lane-{lane}"), LONG));
            }
            // One more waits in its lane: nothing of it has been admitted.
            socket.send(&create_in("lane-0", LONG));
        }
        wait_until("the answers to run", || {
            weir.account()["running"].as_u64() == Some(running as u64)
        });
        // Until each answer has begun: before that a checkpoint has nothing of it.
        for socket in &mut open {
            let mut begun = BTreeSet::new();
            while begun.len() < lanes {
                let event = socket.event();
                if event["type"] == "response.output_text.delta" {
                    begun.insert(event["stream_id"].to_string());
                }
            }
        }
        let until = Instant::now() + Duration::from_millis(1000 + 37 * round as u64 % 800);
        wait_until("the moment to die", || Instant::now() > until);
        weir.kill_and_restart();
        charged += running;
        let books = weir.books(charged);
        for row in &books.rows {
            assert_eq!(row["outcome"], "crash", "{row}");
            assert!(row["output_text"].as_u64().unwrap_or(0) > 0 && cost(row) > 0, "{row}");
        }
    }
}

/// The last event is written when the charge is recorded, not before.
#[test]
fn an_answer_whose_last_event_has_come_is_charged_whole_although_the_process_dies_at_once() {
    let sample = SampleProvider::start();
    let mut weir = Weir::start(&sample.base_url());
    let key = weir.key().text;
    for _ in 0..rounds(2, 25) {
        let mut socket = WebSocket::open(weir.gateway, &key);
        socket
            .ask(&create("Tell me. [[sample: deltas=30 delta_bytes=40]]"))
            .completed();
        weir.kill_and_restart();
        let books = weir.books_as_billed(&sample, 0);
        assert!(books.rows.iter().all(|row| row["outcome"] == "ok"));
    }
}
