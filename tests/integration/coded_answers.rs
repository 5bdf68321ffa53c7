//! Answers that come compressed although nobody asked for it: they pass as they are, and are read all the same.

use std::sync::{Arc, Mutex};

use crate::harness::answer::Answer;
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::packed::{CODINGS, packed, packed_pieces};
use crate::harness::recordings::{GEMINI_ARRAY, events, unary};
use crate::harness::request::{ALL_WIRES, Wire, array_request, wire_of};
use crate::harness::sample::SampleProvider;
use crate::harness::weir::PROVIDER_KEY;
use crate::harness::{RecordingProvider, Weir, WeirBuilder};

fn is_stream(request: &crate::harness::provider::Recorded) -> bool {
    request.target.contains(":stream") || request.body.starts_with(br#"{"stream":true"#)
}

fn chunk(answer: &mut Answer<'_>, bytes: &[u8]) {
    answer.raw(format!("{:x}\r\n", bytes.len()).as_bytes());
    answer.raw(bytes);
    answer.raw(b"\r\n");
}

/// The head of a compressed answer to this request.
fn head(answer: &mut Answer<'_>, kind: &str, coding: &str) {
    answer.head(200, &[("content-type", kind), ("content-encoding", coding)]);
}

#[test]
fn a_compressed_answer_passes_untouched_and_its_usage_is_read() {
    let coding = Arc::new(Mutex::new("gzip"));
    let now = Arc::clone(&coding);
    let provider = RecordingProvider::start(move |request, answer| {
        let coding = *now.lock().unwrap();
        let wire = wire_of(&request.target);
        if request.target.contains("alt=sse") || is_stream(request) && wire != Wire::Gemini {
            head(answer, "text/event-stream", coding);
            packed_pieces(coding, events(wire))
                .iter()
                .for_each(|piece| chunk(answer, piece));
            answer.end();
        } else if is_stream(request) {
            head(answer, "application/json", coding);
            packed_pieces(coding, &GEMINI_ARRAY)
                .iter()
                .for_each(|piece| chunk(answer, piece));
            answer.end();
        } else {
            let body = packed(coding, unary(wire).as_bytes());
            let headers = [("content-type", "application/json"), ("content-encoding", coding)];
            answer.full(200, &headers, &body);
        }
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for name in CODINGS {
        *coding.lock().unwrap() = name;
        let mut requests = vec![(
            Wire::Gemini,
            array_request(&key),
            packed_pieces(name, &GEMINI_ARRAY).concat(),
        )];
        for wire in ALL_WIRES {
            requests.push((wire, wire.request(&key, "hi"), packed(name, unary(wire).as_bytes())));
            requests.push((
                wire,
                wire.streaming(&key, "hi"),
                packed_pieces(name, events(wire)).concat(),
            ));
        }
        for (wire, request, expected) in requests {
            let what = format!("{name} {wire:?} {}", request.target);
            let answer = weir.exchange(&request);
            assert!(answer.complete && answer.status == 200, "{what}");
            assert!(answer.body == expected, "{what}: the bytes changed");
            assert_eq!(answer.header("content-encoding"), Some(name), "{what}");
            let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
            assert_eq!(line["outcome"], "ok", "{what}: {line}");
            assert_eq!(line["usage"]["output_text"], 15, "{what}: {line}");
            assert!(line["finish_reason"].is_string(), "{what}: {line}");
            assert!(line["ttft_ms"].is_number(), "{what}: {line}");
        }
    }
}

#[test]
fn a_compressed_stream_that_fails_breaks_the_connection() {
    let clean_end = Arc::new(Mutex::new(false));
    let ends = Arc::clone(&clean_end);
    let provider = RecordingProvider::start(move |request, answer| {
        let wire = wire_of(&request.target);
        head(answer, "text/event-stream", "gzip");
        let events = events(wire);
        let pieces = packed_pieces("gzip", &events[..events.len() - 1]);
        // Without the trailer of the compressed stream, or with it.
        let sent = if *ends.lock().unwrap() {
            pieces.len()
        } else {
            pieces.len() - 1
        };
        pieces[..sent].iter().for_each(|piece| chunk(answer, piece));
        if *ends.lock().unwrap() {
            answer.end();
        } else {
            answer.cut();
        }
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for ends in [false, true] {
            *clean_end.lock().unwrap() = ends;
            let answer = weir.exchange(&wire.streaming(&key, "hi"));
            assert!(!answer.complete, "{wire:?}: looks whole");
            let whole = packed_pieces("gzip", &events(wire)[..events(wire).len() - 1]).concat();
            assert!(whole.starts_with(&answer.body), "{wire:?}: something was put in");
            let request = wire.streaming(&key, "hi");
            let answer = h2c::exchange(weir.gateway, &request, EndStream::OnLastFrame, Length::Said);
            assert!(!answer.complete, "{wire:?}: looks whole over h2c");
        }
    }
    let lines = weir.access_lines_at_least(12);
    assert!(lines.iter().all(|line| line["outcome"] == "provider_cut"), "{lines:?}");
}

#[test]
fn a_coding_that_cannot_be_read_passes_unobserved() {
    let coding = Arc::new(Mutex::new("gzip"));
    let now = Arc::clone(&coding);
    let provider = RecordingProvider::start(move |_, answer| {
        head(answer, "text/event-stream", *now.lock().unwrap());
        answer.chunk("whatever ");
        answer.chunk("this is");
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for name in ["gzip", "deflate", "br", "zstd", "compress", "gzip, gzip"] {
        *coding.lock().unwrap() = name;
        for wire in ALL_WIRES {
            let answer = weir.exchange(&wire.streaming(&key, "hi"));
            assert!(answer.complete, "{name} {wire:?}");
            assert_eq!(answer.text(), "whatever this is", "{name} {wire:?}");
            assert_eq!(answer.header("content-encoding"), Some(name), "{wire:?}");
        }
    }
}

#[test]
fn a_compressed_error_is_decoded_and_masked_and_an_unreadable_one_replaced() {
    let plan = Arc::new(Mutex::new(("gzip", true)));
    let orders = Arc::clone(&plan);
    let provider = RecordingProvider::start(move |_, answer| {
        let (coding, valid) = *orders.lock().unwrap();
        let text = format!("{{\"error\":{{\"message\":\"odd: {PROVIDER_KEY}\",\"type\":\"any_error\"}}}}");
        let body = match valid {
            true => packed(coding, text.as_bytes()),
            false => b"\x1f\x8b no coding at all".to_vec(),
        };
        let headers = [("content-type", "application/json"), ("content-encoding", coding)];
        answer.full(429, &headers, &body);
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for name in CODINGS {
        for wire in ALL_WIRES {
            for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
                *plan.lock().unwrap() = (name, true);
                let answer = weir.exchange(&request);
                assert_eq!(
                    (answer.status, answer.header("content-encoding")),
                    (429, None),
                    "{name} {wire:?}"
                );
                let text = answer.text();
                assert_eq!(answer.json()["error"]["message"], "odd: ***", "{name} {wire:?}: {text}");
                assert!(!text.contains(PROVIDER_KEY), "{name} {wire:?}: {text}");
                *plan.lock().unwrap() = (name, false);
                let answer = weir.exchange(&request);
                assert_eq!(
                    (answer.status, answer.header("content-encoding")),
                    (429, None),
                    "{name} {wire:?}"
                );
                assert!(answer.json()["error"]["message"].is_string(), "{name} {wire:?}");
            }
        }
    }
}

#[test]
fn the_sample_providers_gzip_is_read_too() {
    let sample = SampleProvider::start();
    let weir = WeirBuilder::new().all_providers(&sample.base_url()).start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for request in [
            wire.request(&key, "[[sample: encoding=gzip deltas=5]]"),
            wire.streaming(&key, "[[sample: encoding=gzip deltas=5]]"),
        ] {
            let answer = weir.exchange(&request);
            assert_eq!((answer.status, answer.header("content-encoding")), (200, Some("gzip")));
            let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
            assert_eq!(line["outcome"], "ok", "{wire:?}: {line}");
            assert!(line["usage"]["output_text"].as_u64().unwrap() > 0, "{wire:?}: {line}");
        }
    }
}
