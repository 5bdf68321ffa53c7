//! A provider that fails every request: what reaches it stays within the budget, and every client gets an answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::shapes::in_band_error;
use crate::harness::tools::{note, rounds};
use crate::harness::{RecordingProvider, Weir};

const CLIENTS: usize = 4;
/// Further attempts that a provider may get before it has earned them.
const RESERVE: usize = 3;
/// Providers behind the three protocols: each has a reserve of its own.
const PROVIDERS: usize = 3;

/// Sends requests of all protocols for so long; returns how many.
fn storm(weir: &Weir, key: &str, status: u16, time: Duration) -> usize {
    let sent = AtomicUsize::new(0);
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let sent = &sent;
            scope.spawn(move || {
                let mut client = weir.connect();
                for turn in number.. {
                    if Instant::now() > until {
                        return;
                    }
                    let wire = ALL_WIRES[turn % 3];
                    let request = if turn % 2 == 0 {
                        wire.request(key, "hi")
                    } else {
                        wire.streaming(key, "hi")
                    };
                    let answer = client.exchange(&request);
                    // weir ends a connection after `[connections] requests_max` requests.
                    if answer.closes() {
                        client = weir.connect();
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(answer.status, status, "{wire:?}");
                    let body = answer.json();
                    let has_shape = match wire {
                        Wire::Messages => body["type"] == "error" && body["error"]["type"].is_string(),
                        Wire::Responses => body["error"]["message"].is_string(),
                        Wire::Gemini => body["error"]["code"] == status,
                    };
                    assert!(
                        has_shape && in_band_error(wire, &answer.text()).is_none(),
                        "{wire:?} {body}"
                    );
                }
            });
        }
    });
    sent.into_inner()
}

#[test]
fn a_storm_adds_no_more_than_a_tenth() {
    let seconds = rounds(2, 60);
    for status in [529_u16, 500, 429] {
        let provider = RecordingProvider::start(move |request, answer| {
            let body = match () {
                () if request.target.contains("/messages") => {
                    r#"{"type":"error","error":{"type":"e","message":"m"}}"#.to_owned()
                }
                () if request.target.contains("/responses") => {
                    r#"{"error":{"message":"m","type":"t","code":"c"}}"#.to_owned()
                }
                () => format!(r#"{{"error":{{"code":{status},"message":"m","status":"S"}}}}"#),
            };
            answer.full(status, &[("content-type", "application/json")], body.as_bytes());
        });
        let weir = Weir::start(&provider.base_url());
        let key = weir.key().text;
        let sent = storm(&weir, &key, status, Duration::from_secs(seconds as u64));
        let came = provider.count();
        note(&format!(
            "storm: {status}: {sent} requests, {came} reached the provider"
        ));
        assert!(sent > 30, "{sent}");
        assert!(
            came >= sent && came <= sent + sent / 10 + RESERVE * PROVIDERS,
            "{status}: {sent} requests became {came}"
        );
    }
}
