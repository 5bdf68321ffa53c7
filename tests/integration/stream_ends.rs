//! How streams end: the marker that one protocol promises, the bracket of another, never anything that is not theirs.

use std::sync::{Arc, Mutex};

use crate::harness::answer::Answer;
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::recordings::{GEMINI_ARRAY, events, whole_stream};
use crate::harness::request::{ALL_WIRES, Request, Wire, array_request};
use crate::harness::shapes::assert_refusal;
use crate::harness::{GEMINI_MODEL, RecordingProvider, Weir};

const DONE: &str = "data: [DONE]\n\n";

/// A provider that answers with these chunks of an event stream.
fn sending(chunks: &Arc<Mutex<Vec<String>>>, cut: bool) -> RecordingProvider {
    let chunks = Arc::clone(chunks);
    RecordingProvider::start(move |_, answer: &mut Answer<'_>| {
        answer.sse();
        chunks.lock().unwrap().iter().for_each(|chunk| answer.chunk(chunk));
        if cut {
            answer.cut();
        } else {
            answer.end();
        }
    })
}

fn split_everywhere(text: &str) -> Vec<Vec<String>> {
    let cuts = (1..text.len()).filter(|at| text.is_char_boundary(*at));
    cuts.map(|at| vec![text[..at].to_owned(), text[at..].to_owned()])
        .collect()
}

#[test]
fn the_marker_ends_a_responses_stream_once_wherever_the_provider_splits_or_leaves_it() {
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let provider = sending(&chunks, false);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let last = events(Wire::Responses).last().unwrap();
    let expected = format!("{last}{DONE}");
    let tail = last.len() - 20;
    let mut plans = vec![vec![(*last).to_owned()], vec![expected.clone()]];
    for split in split_everywhere(&expected[tail..]) {
        plans.push(vec![expected[..tail].to_owned() + &split[0], split[1].clone()]);
    }
    plans.push(vec![(*last).to_owned(), DONE.to_owned()]);
    plans.push(expected.chars().map(String::from).collect());
    for plan in plans {
        chunks.lock().unwrap().clone_from(&plan);
        let answer = weir.exchange(&Wire::Responses.streaming(&key, "hi"));
        assert!(answer.complete, "{plan:?}");
        assert_eq!(answer.text(), expected, "{plan:?}");
    }
    *chunks.lock().unwrap() = vec![(*last).to_owned()];
    let request = Wire::Responses.streaming(&key, "hi");
    let answer = h2c::exchange(weir.gateway, &request, EndStream::OnLastFrame, Length::Said);
    assert_eq!(answer.text(), expected);
}

#[test]
fn no_marker_comes_into_other_protocols_nor_behind_a_failure_nor_into_one_answer() {
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let provider = sending(&chunks, false);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in [Wire::Messages, Wire::Gemini] {
        *chunks.lock().unwrap() = events(wire).iter().map(|event| (*event).to_owned()).collect();
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        assert_eq!(answer.text(), events(wire).concat(), "{wire:?}");
    }
    let all = events(Wire::Responses);
    for cut in 0..all.len() {
        *chunks.lock().unwrap() = all[..cut].iter().map(|event| (*event).to_owned()).collect();
        let answer = weir.exchange(&Wire::Responses.streaming(&key, "hi"));
        assert!(!answer.text().contains("[DONE]"), "{cut}: {}", answer.text());
    }
    let unary = RecordingProvider::recorded();
    let weir = Weir::start(&unary.base_url());
    let key = weir.key().text;
    let answer = weir.exchange(&Wire::Responses.request(&key, "hi"));
    assert!(!answer.text().contains("[DONE]"));
}

#[test]
fn a_connection_that_breaks_behind_a_whole_stream_is_no_failure() {
    let chunks = Arc::new(Mutex::new(Vec::new()));
    let provider = sending(&chunks, true);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        *chunks.lock().unwrap() = events(wire).iter().map(|event| (*event).to_owned()).collect();
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        assert!(answer.complete, "{wire:?}");
        assert_eq!(answer.text(), whole_stream(wire), "{wire:?}");
        let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
        assert_eq!(line["outcome"], "ok", "{wire:?}: {line}");
    }
}

#[test]
fn the_clients_choice_of_form_is_kept_and_no_other_is_taken() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let ask = |verb: &str, query: &str| {
        weir.exchange(&Request {
            target: format!("/v1beta/models/{GEMINI_MODEL}:{verb}{query}"),
            ..Wire::Gemini.request(&key, "hi")
        })
    };
    for (verb, query) in [
        ("streamGenerateContent", ""),
        ("streamGenerateContent", "?alt=sse"),
        ("streamGenerateContent", "?alt=json"),
        ("streamGenerateContent", "?alt=sse&alt=sse"),
        ("generateContent", ""),
        ("generateContent", "?alt=json"),
        ("countTokens", "?alt=json"),
    ] {
        assert_eq!(ask(verb, query).status, 200, "{verb}{query}");
        assert!(
            provider.last().target.ends_with(&format!(":{verb}{query}")),
            "{verb}{query}"
        );
    }
    let count = provider.count();
    for (verb, query) in [
        ("streamGenerateContent", "?alt=xml"),
        ("streamGenerateContent", "?alt="),
        ("streamGenerateContent", "?alt=SSE"),
        ("streamGenerateContent", "?alt=sse&%61lt=json"),
        ("generateContent", "?alt=sse"),
        ("generateContent", "?alt=media"),
        ("countTokens", "?alt=sse"),
    ] {
        let answer = ask(verb, query);
        assert_refusal(Wire::Gemini, &answer, 400, "INVALID_ARGUMENT");
        assert!(answer.text().contains("alt"), "{verb}{query}: {}", answer.text());
    }
    assert_eq!(provider.count(), count);
}

#[test]
fn an_array_that_is_cut_at_any_byte_ends_as_one_array_with_the_error_last() {
    let at = Arc::new(Mutex::new(0_usize));
    let now = Arc::clone(&at);
    let provider = RecordingProvider::start(move |_, answer| {
        let whole = GEMINI_ARRAY.concat().into_bytes();
        let cut = *now.lock().unwrap();
        answer.head(200, &[("content-type", "application/json; charset=UTF-8")]);
        for part in whole[..cut].chunks(40) {
            answer.raw(format!("{:x}\r\n", part.len()).as_bytes());
            answer.raw(part);
            answer.raw(b"\r\n");
        }
        if cut.is_multiple_of(2) {
            answer.cut();
        } else {
            answer.end();
        }
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let whole = GEMINI_ARRAY.concat();
    // Until its first element is whole it has not begun.
    let first = GEMINI_ARRAY[0].trim_end().len();
    for cut in 1..=whole.len() {
        *at.lock().unwrap() = cut;
        let answer = weir.exchange(&array_request(&key));
        assert!(answer.complete, "{cut}");
        if cut < first {
            assert_eq!(answer.status, 502, "{cut}: {}", answer.text());
            continue;
        }
        assert!(answer.body.starts_with(&whole.as_bytes()[..cut]), "{cut}");
        let array = answer.json();
        let last = array.as_array().and_then(|elements| elements.last()).unwrap();
        assert_eq!(last["error"]["status"].is_string(), cut < whole.len(), "{cut}: {array}");
    }
}
