//! Errors behind the head of a success that repeat the operator's credential: it never reaches the client, wherever it stands and
//! however the bytes are cut, and everything else does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::answer::Answer;
use crate::harness::client::find;
use crate::harness::packed::{gunzipped, packed_pieces};
use crate::harness::recordings::{GEMINI_ARRAY, events};
use crate::harness::request::{ALL_WIRES, Wire, array_request, wire_of};
use crate::harness::weir::PROVIDER_KEY;
use crate::harness::{RecordingProvider, Request, Weir};

/// An error in band, in the form of each protocol; asked once, for the request is said to be at fault.
fn error_event(wire: Wire) -> String {
    match wire {
        Wire::Messages => format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"invalid_request_error\",\"message\":\"bad key {PROVIDER_KEY}!\"}}}}\n\n"
        ),
        Wire::Responses => format!(
            "event: response.failed\ndata: {{\"response\":{{\"id\":\"resp_1\",\"status\":\"failed\",\"error\":{{\"code\":\"invalid_prompt\",\"message\":\"bad key {PROVIDER_KEY}!\"}}}},\"type\":\"response.failed\"}}\n\n"
        ),
        Wire::Gemini => format!(
            "data: {{\"error\":{{\"code\":400,\"message\":\"bad key {PROVIDER_KEY}!\",\"status\":\"INVALID_ARGUMENT\"}}}}\r\n\r\n"
        ),
    }
}

fn error_element() -> String {
    format!("{{\"error\":{{\"code\":400,\"message\":\"bad key {PROVIDER_KEY}!\",\"status\":\"INVALID_ARGUMENT\"}}}}\n]")
}

fn hidden(text: &str) -> String {
    text.replace(PROVIDER_KEY, &"*".repeat(PROVIDER_KEY.len()))
}

/// What a provider says of an error: what comes before it, and itself.
fn said(request: &Request, with_beginning: bool) -> (Vec<String>, String) {
    let wire = wire_of(&request.target);
    let is_array = request.target.contains(":stream") && !request.target.contains("alt=sse");
    let (beginning, error) = match is_array {
        true => (vec![GEMINI_ARRAY[0], GEMINI_ARRAY[1], ","], error_element()),
        false => (events(wire)[..2].to_vec(), error_event(wire)),
    };
    match (with_beginning, is_array) {
        (true, _) => (beginning.into_iter().map(str::to_owned).collect(), error),
        (false, true) => (vec!["[".to_owned()], error),
        (false, false) => (Vec::new(), error),
    }
}

fn streams(key: &str) -> Vec<Request> {
    let mut requests: Vec<Request> = ALL_WIRES.iter().map(|wire| wire.streaming(key, "hi")).collect();
    requests.push(array_request(key));
    requests
}

/// A provider that says this with each answer, in these chunks.
fn provider(chunks: &Arc<Mutex<Vec<Vec<u8>>>>) -> RecordingProvider {
    let chunks = Arc::clone(chunks);
    RecordingProvider::start(move |request, answer| {
        let is_array = request.target.contains(":stream") && !request.target.contains("alt=sse");
        let kind = if is_array {
            "application/json"
        } else {
            "text/event-stream"
        };
        answer.head(200, &[("content-type", kind)]);
        for chunk in chunks.lock().unwrap().iter() {
            answer.chunk(chunk);
        }
        answer.end();
    })
}

#[test]
fn an_error_within_a_stream_is_masked_wherever_it_is_cut() {
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let provider = provider(&chunks);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for request in streams(&key) {
        for with_beginning in [true, false] {
            let (before, error) = said(&request, with_beginning);
            let key_at = error.find(PROVIDER_KEY).unwrap();
            let cuts = [1, key_at - 3, key_at + PROVIDER_KEY.len(), error.len() - 1];
            for cut in (key_at..key_at + PROVIDER_KEY.len()).step_by(3).chain(cuts) {
                let (first, second) = error.as_bytes().split_at(cut);
                let pieces = before.iter().map(|piece| piece.as_bytes().to_vec());
                *chunks.lock().unwrap() = pieces.chain([first.to_vec(), second.to_vec()]).collect();
                let answer = weir.exchange(&request);
                let what = format!("{} {with_beginning} {cut}: {}", request.target, answer.text());
                assert_eq!((answer.status, answer.complete), (200, true), "{what}");
                let all = hidden(&(before.concat() + &error));
                // The Responses protocol promises an end.
                let text = answer.text();
                assert!(text == all || text == format!("{all}data: [DONE]\n\n"), "{what}");
            }
        }
    }
}

#[test]
fn an_answer_with_the_credential_that_is_no_error_passes_as_it_is() {
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let provider = provider(&chunks);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let said: Vec<String> = events(wire)
            .iter()
            .map(|event| event.replace("Hello", PROVIDER_KEY))
            .collect();
        let middle = said.concat().find(PROVIDER_KEY).unwrap() + 9;
        let halves = said.concat();
        let (first, second) = halves.as_bytes().split_at(middle);
        *chunks.lock().unwrap() = vec![first.to_vec(), second.to_vec()];
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        assert!(
            answer.complete && answer.text().starts_with(&said.concat()),
            "{wire:?}: {}",
            answer.text()
        );
    }
}

#[test]
fn an_error_that_breaks_off_within_the_credential_tells_nothing_of_it() {
    let provider = RecordingProvider::start(|request, answer| {
        let wire = wire_of(&request.target);
        answer.sse();
        answer.chunk(events(wire)[0]);
        let error = error_event(wire);
        let cut = error.find(PROVIDER_KEY).unwrap() + PROVIDER_KEY.len() - 2;
        answer.chunk(&error[..cut]);
        answer.cut();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        let text = answer.text();
        assert!(
            text.contains("bad key *****") && !text.contains("canary"),
            "{wire:?}: {text}"
        );
    }
}

#[test]
fn a_long_answer_in_one_piece_that_is_an_error_is_masked_and_keeps_its_length() {
    let body = |wire: Wire| {
        let long = "some words of it ".repeat(8_000);
        let error = match wire {
            Wire::Messages => r#""type":"error","error":{"type":"api_error"}"#,
            Wire::Responses => r#""status":"failed","error":{"code":"server_error"}"#,
            Wire::Gemini => r#""error":{"code":500}"#,
        };
        format!("{{\"words\":\"{long}\",\"note\":\"bad key {PROVIDER_KEY}!\",{error}}}")
    };
    let provider = RecordingProvider::start(move |request, answer| answer.json(&body(wire_of(&request.target))));
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert_eq!((answer.status, answer.complete), (200, true), "{wire:?}");
        let whole = hidden(&body(wire));
        assert_eq!(
            answer.header("content-length"),
            Some(whole.len().to_string().as_str()),
            "{wire:?}"
        );
        assert!(answer.text() == whole, "{wire:?}: {:.100}", answer.text());
    }
}

#[test]
fn a_compressed_stream_with_such_an_error_breaks_before_the_credential() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let provider = RecordingProvider::start(move |request, answer: &mut Answer<'_>| {
        count.fetch_add(1, Ordering::SeqCst);
        let wire = wire_of(&request.target);
        let error = error_event(wire);
        let middle = error.find(PROVIDER_KEY).unwrap() + 12;
        let mut said = events(wire)[..4.min(events(wire).len() - 1)].to_vec();
        let (first, second) = error.split_at(middle);
        said.extend([first, second]);
        answer.head(
            200,
            &[("content-type", "text/event-stream"), ("content-encoding", "gzip")],
        );
        packed_pieces("gzip", &said)
            .iter()
            .for_each(|piece| answer.chunk(piece));
        answer.end();
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        assert!(!answer.complete, "{wire:?}: looks whole");
        let text = gunzipped(&answer.body);
        assert!(
            find(&text, &PROVIDER_KEY.as_bytes()[..8]).is_none(),
            "{wire:?}: {}",
            String::from_utf8_lossy(&text)
        );
    }
    assert_eq!(asked.load(Ordering::SeqCst), ALL_WIRES.len());
}
