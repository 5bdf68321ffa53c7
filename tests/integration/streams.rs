//! Streams: every byte in the same order, none held back, and no failure that looks like success.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::answer::Answer;
use crate::harness::client::{Head, Piece};
use crate::harness::recordings::{GEMINI_ARRAY, events, unary};
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::in_band_error;
use crate::harness::{Client, RecordingProvider, Request, Steps, Weir, WeirBuilder, wait_for};

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

/// Which protocol a recorded request speaks.
fn wire_of(target: &str) -> Wire {
    match target {
        target if target.starts_with("/v1/messages") => Wire::Messages,
        target if target.starts_with("/v1/responses") => Wire::Responses,
        _ => Wire::Gemini,
    }
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

/// Reads pieces until `seen` has grown to `length` bytes.
fn read_to(client: &mut Client, head: &mut Head, seen: &mut Vec<u8>, length: usize) {
    while seen.len() < length {
        match client.piece(head) {
            Piece::Data(data) => seen.extend_from_slice(&data),
            other => panic!("{other:?} after {} of {length} bytes", seen.len()),
        }
    }
}

fn array_request(key: &str) -> Request {
    let mut request = Wire::Gemini.request(key, "hi");
    request.target = request.target.replace(":generateContent", ":streamGenerateContent");
    request
}

#[test]
fn each_event_arrives_before_the_provider_sends_the_next() {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |request, answer| {
        let before = gate.permitted();
        answer.sse();
        for (sent, event) in events(wire_of(&request.target)).iter().enumerate() {
            if !gate.wait(before + sent) {
                return answer.cut();
            }
            answer.chunk(event);
        }
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
        let mut head = client.head_to("POST");
        assert_eq!(head.status, 200);
        assert!(
            head.header("content-type").unwrap().starts_with("text/event-stream"),
            "{wire:?}"
        );
        let (mut seen, mut sent) = (Vec::new(), String::new());
        for event in events(wire) {
            sent.push_str(event);
            // The provider sends nothing more before this has arrived.
            read_to(&mut client, &mut head, &mut seen, sent.len());
            assert_eq!(String::from_utf8_lossy(&seen), sent, "{wire:?}");
            steps.permit();
        }
        assert_eq!(client.piece(&mut head), Piece::End, "{wire:?}");
    }
}

#[test]
fn single_bytes_arrive_one_by_one_too() {
    let steps = Steps::default();
    let gate = steps.clone();
    let provider = RecordingProvider::start(move |_, answer| {
        answer.sse();
        for (sent, byte) in events(Wire::Gemini)[2].as_bytes().iter().enumerate() {
            gate.wait(sent);
            answer.raw(&[b'1', b'\r', b'\n', *byte, b'\r', b'\n']);
        }
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    client.write(&Wire::Gemini.streaming(&key, "hi").bytes(Upload::Length));
    let mut head = client.head_to("POST");
    let mut seen = Vec::new();
    for length in 1..=events(Wire::Gemini)[2].len() {
        read_to(&mut client, &mut head, &mut seen, length);
        steps.permit();
    }
    assert_eq!(client.piece(&mut head), Piece::End);
    assert_eq!(seen, events(Wire::Gemini)[2].as_bytes());
}

#[test]
fn whole_answers_pass_byte_for_byte() {
    let provider = RecordingProvider::start(|request, answer| {
        let wire = wire_of(&request.target);
        match (request.target.contains("alt=sse"), wire) {
            (false, Wire::Gemini) if request.target.contains(":stream") => {
                answer.head(200, &[("content-type", "application/json; charset=UTF-8")]);
                GEMINI_ARRAY.iter().for_each(|piece| answer.chunk(piece));
                answer.end();
            }
            _ if request.body.starts_with(br#"{"stream":true"#)
                || wire == Wire::Gemini && request.target.contains(":stream") =>
            {
                answer.sse();
                events(wire).iter().for_each(|event| answer.chunk(event));
                answer.end();
            }
            _ => answer.json(unary(wire)),
        }
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert!(answer.complete);
        assert_eq!(answer.text(), unary(wire), "{wire:?}");
        assert_eq!(
            answer.header("content-length"),
            Some(unary(wire).len().to_string().as_str()),
            "{wire:?}"
        );
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        assert!(answer.complete);
        assert_eq!(answer.text(), events(wire).concat(), "{wire:?}");
    }
    let answer = weir.exchange(&array_request(&key));
    assert!(answer.complete);
    assert_eq!(answer.text(), GEMINI_ARRAY.concat());
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
fn a_unary_answer_cut_in_its_middle_breaks_the_connection() {
    let length_said = Arc::new(Mutex::new(true));
    let said = Arc::clone(&length_said);
    let provider = RecordingProvider::start(move |request, answer| {
        let body = unary(wire_of(&request.target));
        let part = &body[..100];
        if *said.lock().unwrap() {
            answer.raw(
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{part}",
                    body.len()
                )
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
            let answer = weir.exchange(&wire.request(&key, "hi"));
            assert!(
                !answer.complete,
                "{wire:?}, length said: {said}: looks whole: {}",
                answer.text()
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
        assert!(!answer.complete, "{wire:?}: looks whole: {}", answer.text());
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
fn a_client_that_leaves_is_gone_at_the_provider_within_a_second() {
    let left = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&left);
    let provider = RecordingProvider::start(move |request, answer| {
        answer.sse();
        answer.chunk(events(wire_of(&request.target))[0]);
        if answer.wait_peer_left(Duration::from_secs(20)).is_some() {
            *seen.lock().unwrap() = Some(Instant::now());
        }
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
        let mut head = client.head_to("POST");
        read_to(&mut client, &mut head, &mut Vec::new(), 10);
        drop(client);
        let gone = Instant::now();
        let noticed = wait_for("the provider to see that the client left", || {
            left.lock().unwrap().take()
        });
        let took = noticed.saturating_duration_since(gone);
        assert!(took < Duration::from_secs(1), "{wire:?}: {took:?}");
    }
    let lines = weir.access_lines_at_least(3);
    assert!(lines.iter().all(|line| line["outcome"] == "client_gone"), "{lines:?}");
}

#[test]
fn bytes_that_are_no_stream_of_the_protocol_pass_unchanged() {
    const BODIES: [(&str, &str, &str); 4] = [
        (
            "text/event-stream",
            "",
            "data: {not json\n\ndata: \u{1}\u{2}\n\nevent: x\r\rdata\n\n",
        ),
        ("text/html", "", "<html>200</html>"),
        ("application/json", "", "\n\n {\"a\":1e400}"),
        ("text/event-stream", "gzip", "\u{1f}not really gzip"),
    ];
    let turn = Arc::new(Mutex::new(0_usize));
    let now = Arc::clone(&turn);
    let provider = RecordingProvider::start(move |_, answer| {
        let (kind, encoding, body) = BODIES[*now.lock().unwrap()];
        let mut headers = vec![("content-type", kind)];
        if !encoding.is_empty() {
            headers.push(("content-encoding", encoding));
        }
        answer.full(200, &headers, body.as_bytes());
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (number, (kind, encoding, body)) in BODIES.iter().enumerate() {
        *turn.lock().unwrap() = number;
        for wire in ALL_WIRES {
            let answer = weir.exchange(&wire.streaming(&key, "hi"));
            assert!(answer.text().starts_with(body), "{wire:?} {kind}: {}", answer.text());
            assert_eq!(answer.header("content-type"), Some(*kind), "{wire:?}");
            assert_eq!(answer.header("content-encoding").unwrap_or(""), *encoding, "{wire:?}");
        }
    }
}
