//! Answers that fail in their middle: none of them may look like success.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::answer::Answer;
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::recordings::{GEMINI_ARRAY, events, unary};
use crate::harness::request::{ALL_WIRES, Wire, array_request, wire_of};
use crate::harness::shapes::in_band_error;
use crate::harness::{RecordingProvider, Weir, WeirBuilder};

/// How a provider fails in the middle of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The connection ends without the last chunk.
    Cut,
    /// The body ends as if it were whole.
    EndsEarly,
    /// The connection ends inside an event.
    CutInsideEvent,
    /// Nothing more comes.
    Stall,
}

fn fail(answer: &mut Answer<'_>, failure: Failure, next: &str) {
    match failure {
        Failure::Cut => answer.cut(),
        Failure::EndsEarly => answer.end(),
        Failure::CutInsideEvent => {
            // In the middle of the data, and never inside a character.
            let middle = (next.len() / 2..).find(|at| next.is_char_boundary(*at)).unwrap();
            answer.chunk(&next[..middle]);
            answer.cut();
        }
        Failure::Stall => {
            answer.wait_peer_left(Duration::from_secs(60));
        }
    }
}

/// Streams the first events, fails in every way at every place, and looks at how it ends for the client.
#[test]
fn a_provider_that_fails_in_mid_stream_is_told_in_band_at_every_event_boundary() {
    let plan = Arc::new(Mutex::new((0_usize, Failure::Cut)));
    let orders = Arc::clone(&plan);
    let provider = RecordingProvider::start(move |request, answer| {
        let (count, failure) = *orders.lock().unwrap();
        let events = events(wire_of(&request.target));
        answer.sse();
        events[..count].iter().for_each(|event| answer.chunk(event));
        fail(answer, failure, events[count]);
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for count in 0..events(wire).len() {
            for failure in [Failure::Cut, Failure::EndsEarly, Failure::CutInsideEvent] {
                *plan.lock().unwrap() = (count, failure);
                let answer = weir.exchange(&wire.streaming(&key, "hi"));
                let (what, text) = (format!("{wire:?}, {failure:?} after {count} events"), answer.text());
                if count == 0 && answer.status != 200 {
                    // Nothing has come yet: a proper error status is even better.
                    assert_eq!(answer.status, 502, "{what}: {text}");
                    continue;
                }
                assert!(text.starts_with(&events(wire)[..count].concat()), "{what}: {text}");
                assert!(
                    in_band_error(wire, &text).is_some(),
                    "{what}: no in-band error at the end of {text:?}"
                );
                assert!(
                    wire != Wire::Gemini || !text.lines().any(|line| line.starts_with(':')),
                    "{what}: {text}"
                );
                assert!(!text.contains("[DONE]"), "{what}: {text}");
            }
        }
    }
    let outcomes: Vec<_> = weir.access_lines().iter().map(|line| line["outcome"].clone()).collect();
    assert!(outcomes.iter().all(|outcome| outcome == "provider_cut"), "{outcomes:?}");
}

#[test]
fn a_stream_that_stalls_ends_in_band_after_the_idle_time() {
    let provider = RecordingProvider::start(|request, answer| {
        let events = events(wire_of(&request.target));
        answer.sse();
        answer.chunk(events[0]);
        fail(answer, Failure::Stall, events[1]);
    });
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.idle_seconds", 1)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let started = Instant::now();
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        let text = answer.text();
        assert!(text.starts_with(events(wire)[0]), "{wire:?}: {text}");
        assert!(in_band_error(wire, &text).is_some(), "{wire:?}: {text}");
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{wire:?}: {:?}",
            started.elapsed()
        );
    }
    let lines = weir.access_lines_at_least(3);
    assert!(
        lines.iter().all(|line| line["outcome"] == "provider_timeout"),
        "{lines:?}"
    );
}

#[test]
fn a_provider_that_never_answers_is_504_after_the_first_byte_time() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.wait_peer_left(Duration::from_secs(60));
    });
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.first_byte_seconds", 1)
        .set("upstream.first_byte_unary_seconds", 1)
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
            let answer = weir.exchange(&request);
            assert_eq!(answer.status, 504, "{wire:?}: {}", answer.text());
            assert!(answer.json()["error"]["message"].is_string());
        }
    }
    assert_eq!(
        provider.count(),
        6,
        "a request that may have been executed is not sent again"
    );
}

#[test]
fn a_unary_answer_cut_in_its_middle_is_502_or_breaks_the_connection_once_it_has_begun() {
    let length_said = Arc::new(Mutex::new(true));
    let said = Arc::clone(&length_said);
    let provider = RecordingProvider::start(move |request, answer| {
        let body = unary(wire_of(&request.target));
        // What is long is no error, so it passes before it is whole.
        let is_long = String::from_utf8_lossy(&request.body).contains("long");
        let part = " ".repeat(if is_long { 70_000 } else { 0 }) + &body[..100];
        if *said.lock().unwrap() {
            let length = part.len() + 1;
            answer.raw(
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{part}")
                    .as_bytes(),
            );
        } else {
            answer.head(200, &[("content-type", "application/json")]);
            answer.chunk(part);
        }
        answer.cut();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for said in [true, false] {
            *length_said.lock().unwrap() = said;
            let short = weir.exchange(&wire.request(&key, "short"));
            assert_eq!(short.status, 502, "{wire:?}, length said: {said}: {}", short.text());
            let long = weir.exchange(&wire.request(&key, "long"));
            assert_eq!(
                (long.status, long.complete),
                (200, false),
                "{wire:?}, length said: {said}: looks whole"
            );
        }
    }
}

#[test]
fn a_unary_answer_whose_json_ends_early_breaks_the_connection() {
    let provider = RecordingProvider::start(|request, answer| {
        answer.head(200, &[("content-type", "application/json")]);
        answer.chunk(&unary(wire_of(&request.target))[..100]);
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        // Found before the head had gone: an error answer. After it: only breaking the connection can tell.
        assert!(
            !answer.complete || answer.status == 502,
            "{wire:?}: looks whole: {}",
            answer.text()
        );
    }
}

#[test]
fn a_gemini_array_stays_valid_json_whatever_happens() {
    let plan = Arc::new(Mutex::new((0_usize, Failure::Cut)));
    let orders = Arc::clone(&plan);
    let provider = RecordingProvider::start(move |_, answer| {
        let (count, failure) = *orders.lock().unwrap();
        answer.head(200, &[("content-type", "application/json; charset=UTF-8")]);
        GEMINI_ARRAY[..count].iter().for_each(|piece| answer.chunk(piece));
        fail(answer, failure, GEMINI_ARRAY[count]);
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for count in 0..GEMINI_ARRAY.len() {
        for failure in [Failure::Cut, Failure::EndsEarly, Failure::CutInsideEvent] {
            *plan.lock().unwrap() = (count, failure);
            let answer = weir.exchange(&array_request(&key));
            let (what, text) = (format!("{failure:?} after {count} pieces"), answer.text());
            if !answer.complete {
                // Inside an element nothing can be said in band without lying about it: then the connection breaks.
                assert_eq!(failure, Failure::CutInsideEvent, "{what}: {text}");
                continue;
            }
            if answer.status != 200 {
                assert_eq!((count, answer.status), (0, 502), "{what}: {text}");
                continue;
            }
            let array = answer.json();
            let last = array
                .as_array()
                .and_then(|elements| elements.last())
                .unwrap_or_else(|| panic!("{what}: {text}"));
            assert!(last["error"]["status"].is_string(), "{what}: {text}");
        }
    }
}

#[test]
fn failures_are_told_over_h2c_too() {
    let provider = RecordingProvider::start(|request, answer| {
        let wire = wire_of(&request.target);
        if request.target.contains(":stream") || request.body.starts_with(br#"{"stream":true"#) {
            answer.sse();
            answer.chunk(events(wire)[0]);
        } else {
            answer.head(200, &[("content-type", "application/json")]);
            answer.chunk(&unary(wire)[..100]);
        }
        answer.cut();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let streaming = wire.streaming(&key, "hi");
        let answer = h2c::exchange(weir.gateway, &streaming, EndStream::OnLastFrame, Length::Said);
        assert!(
            in_band_error(wire, &answer.text()).is_some(),
            "{wire:?}: {}",
            answer.text()
        );
        let answer = h2c::exchange(
            weir.gateway,
            &wire.request(&key, "hi"),
            EndStream::OnLastFrame,
            Length::Said,
        );
        assert!(
            !answer.complete || answer.status == 502,
            "{wire:?}: looks whole: {}",
            answer.text()
        );
    }
}
