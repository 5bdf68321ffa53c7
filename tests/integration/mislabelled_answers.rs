//! Answers whose head says something else than what they are: a content coding that is none, a content type of something else,
//! or no content type. They pass as they are, and are read as what they are.

use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::harness::recordings::{GEMINI_ARRAY, events, unary};
use crate::harness::request::{ALL_WIRES, Wire, array_request};
use crate::harness::shapes::in_band_error;
use crate::harness::tools::rounds;
use crate::harness::{RecordingProvider, Request, Weir};

/// Asks for more output than [`whole`] has.
const PROMPT: &str = "deltas=400";

/// One whole stream, with 1,000 input and 4,000 output tokens.
fn whole(wire: Wire) -> String {
    let text = events(wire).concat();
    match wire {
        Wire::Messages => text
            .replace("\"input_tokens\":25", "\"input_tokens\":1000")
            .replace("\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":7,", "")
            .replace("\"output_tokens\":15", "\"output_tokens\":4000"),
        Wire::Responses => text
            .replace("\"input_tokens\":35", "\"input_tokens\":1000")
            .replace("\"cached_tokens\":10", "\"cached_tokens\":0")
            .replace("\"output_tokens\":15", "\"output_tokens\":4000"),
        Wire::Gemini => text
            .replace("\"promptTokenCount\":25", "\"promptTokenCount\":1000")
            .replace(
                "\"candidatesTokenCount\":15,\"totalTokenCount\":40",
                "\"candidatesTokenCount\":4000,\"totalTokenCount\":5000",
            ),
    }
}

/// What a provider sends.
#[derive(Clone, Debug, Default)]
struct Plan {
    coding: Option<&'static str>,
    content_type: Option<&'static str>,
    body: Vec<u8>,
    piece_bytes: usize,
    cut: bool,
}

fn provider(plan: &Arc<Mutex<Plan>>) -> RecordingProvider {
    let plan = Arc::clone(plan);
    RecordingProvider::start(move |_, answer| {
        let plan = plan.lock().unwrap().clone();
        let mut headers = Vec::new();
        headers.extend(plan.coding.map(|coding| ("content-encoding", coding)));
        headers.extend(plan.content_type.map(|content_type| ("content-type", content_type)));
        answer.head(200, &headers);
        plan.body.chunks(plan.piece_bytes).for_each(|piece| answer.chunk(piece));
        if plan.cut { answer.cut() } else { answer.end() }
    })
}

const NO_CODINGS: [&str; 6] = [
    "none",
    "utf-8",
    "identity, none",
    "compress",
    "gzip, gzip",
    "UTF-8,identity",
];
const CONTENT_TYPES: [Option<&str>; 5] = [
    Some("text/event-stream"),
    Some("text/plain; charset=utf-8"),
    Some("application/json"),
    Some("application/octet-stream"),
    None,
];

#[test]
fn a_stream_is_billed_as_reported_and_ends_as_its_protocol_says_whatever_its_head_announces() {
    let plan: Arc<Mutex<Plan>> = Arc::default();
    let provider = provider(&plan);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut random = StdRng::seed_from_u64(4);
    let mut cases: Vec<(Option<&str>, Option<&str>)> = Vec::new();
    cases.extend(NO_CODINGS.map(|coding| (Some(coding), Some("text/event-stream"))));
    cases.extend(CONTENT_TYPES.map(|content_type| (None, content_type)));
    for _ in 0..rounds(20, 300) {
        let coding = random
            .random_bool(0.5)
            .then(|| *NO_CODINGS.choose(&mut random).unwrap());
        cases.push((coding, *CONTENT_TYPES.choose(&mut random).unwrap()));
    }
    let mut whole_streams = 0;
    for (coding, content_type) in cases {
        for wire in ALL_WIRES {
            let stream = whole(wire);
            let cut = random.random_bool(0.4);
            let first = events(wire)[0].len();
            // Not before its first event, and not behind the end of its last data.
            let length = if cut {
                random.random_range(first + 40..stream.len() - 4)
            } else {
                stream.len()
            };
            *plan.lock().unwrap() = Plan {
                coding,
                content_type,
                body: stream.as_bytes()[..length].to_vec(),
                piece_bytes: *[1, 7, 100, 100_000].choose(&mut random).unwrap(),
                cut,
            };
            // Some providers stream to requests that ask for an answer in one piece.
            let request = match random.random_bool(0.3) {
                true => wire.request(&key, PROMPT),
                false => wire.streaming(&key, PROMPT),
            };
            let what = format!("{wire:?} {} {:?}", request.target, plan.lock().unwrap().clone());
            let answer = weir.exchange(&request);
            assert!(answer.complete && answer.status == 200, "{what}");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
            if cut {
                assert!(in_band_error(wire, &text).is_some(), "{what}: {text}");
                assert!(!text.contains("[DONE]"), "{what}: {text}");
                assert_eq!(line["outcome"], "provider_cut", "{what}: {line}");
                continue;
            }
            let end = if wire == Wire::Responses {
                "data: [DONE]\n\n"
            } else {
                ""
            };
            assert_eq!(text, format!("{stream}{end}"), "{what}");
            assert_eq!(line["outcome"], "ok", "{what}: {line}");
            let usage = &line["usage"];
            assert_eq!(
                (&usage["input_uncached"], &usage["output_text"]),
                (&1000.into(), &4000.into()),
                "{what}: {line}"
            );
            whole_streams += 1;
        }
    }
    assert!(whole_streams > 20);
}

#[test]
fn json_is_read_as_json_whatever_its_head_announces() {
    let plan: Arc<Mutex<Plan>> = Arc::default();
    let provider = provider(&plan);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for content_type in CONTENT_TYPES {
        for coding in NO_CODINGS.map(Some).into_iter().chain([None]) {
            for wire in ALL_WIRES {
                let array = (wire == Wire::Gemini).then(|| (array_request(&key), GEMINI_ARRAY.concat()));
                let one: [(Request, String); 2] = [
                    (wire.request(&key, "hi"), unary(wire).to_owned()),
                    (wire.streaming(&key, "hi"), unary(wire).to_owned()),
                ];
                for (request, body) in one.into_iter().chain(array) {
                    *plan.lock().unwrap() = Plan {
                        coding,
                        content_type,
                        body: body.clone().into_bytes(),
                        piece_bytes: 60,
                        cut: false,
                    };
                    let what = format!("{wire:?} {} {content_type:?} {coding:?}", request.target);
                    let answer = weir.exchange(&request);
                    assert_eq!((answer.status, answer.text()), (200, body), "{what}");
                    let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
                    assert_eq!(
                        (&line["outcome"], &line["usage"]["output_text"]),
                        (&"ok".into(), &15.into()),
                        "{what}: {line}"
                    );
                }
            }
        }
    }
}
