//! Many translated streams, one after the other and side by side: nothing grows, and every answer is charged once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::chat_answers::{ChatCall, ChatTurn};
use super::chat_provider::CHAT_PATH;
use super::conversation::{Conversation, calls, reported, text};
use super::other_providers::{TEXT, THOUGHT, call_events, text_events};
use super::stage::{CHARGE, MODEL, REPORTED, Stage, TRANSLATION, UPSTREAM_MODEL, Upstream, protocol};
use super::streams::folded;
use crate::harness::client::{Response, find};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::tools::{note, rounds};
use crate::harness::{RecordingProvider, Request, wait_until};

const CLIENTS: usize = 8;
/// What memory may grow by after the warm-up, in bytes: the allocator's own slack, far less than a leak per answer.
const GROWTH_MAX: usize = 24 << 20;
/// The most rows that are read one by one; of more, only the account's sum is compared.
const ROWS_MAX: usize = 20_000;
/// A question with this word is answered with a call of a tool.
const CALL_WORD: &str = "weather-tool";
const UPSTREAMS: [Upstream; 4] = [
    Upstream::Chat,
    Upstream::Of(Wire::Messages),
    Upstream::Of(Wire::Responses),
    Upstream::Of(Wire::Gemini),
];
const CALL: ChatTurn = ChatTurn {
    reasoning: &[THOUGHT],
    text: &[],
    calls: &[ChatCall {
        id: "call_1",
        name: "weather",
        arguments: &["{\"city\":", "\"Rome\"}"],
    }],
};
const ANSWER: ChatTurn = ChatTurn {
    reasoning: &[],
    text: &[TEXT],
    calls: &[],
};

/// One host with the endpoints of all four protocols.
fn host() -> RecordingProvider {
    RecordingProvider::start(|request, answer| {
        let is_call = find(&request.body, CALL_WORD.as_bytes()).is_some();
        if request.target == CHAT_PATH {
            let body: Json = serde_json::from_slice(&request.body).unwrap();
            let turn = if is_call { CALL } else { ANSWER };
            return turn.answer(&body, answer);
        }
        let wire = wire_of(&request.target);
        let events = if is_call { call_events(wire) } else { text_events(wire) };
        answer.sse();
        events.iter().for_each(|event| answer.chunk(event));
        answer.end();
    })
}

/// The model that is served by the host's endpoint of this protocol.
fn model(upstream: Upstream) -> String {
    format!("{MODEL}-{}", upstream.name())
}

/// A provider and a model for each protocol of the host. The answers to clients that leave are read to their end, so what they cost
/// is known.
fn stage(base_url: &str) -> Stage {
    let files = UPSTREAMS.map(|upstream| {
        let (name, model) = (upstream.name(), model(upstream));
        let gone = "[on_client_gone]\nstream = \"finish\"\n";
        let model = format!(
            "[[model]]\nname = \"{model}\"\nupstream_name = \"{UPSTREAM_MODEL}\"\nprice = \"{MODEL}\"\noutput_tokens = 64000\n\
             translate = \"strict\"\n"
        );
        (name, upstream.file(name, base_url) + gone + &model)
    });
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Stage::with(&files, Vec::new())
}

/// The request for a stream from one of the models.
fn request(stage: &Stage, (wire, upstream): (Wire, Upstream), body: &Json) -> Request {
    let mut request = stage.request(wire, true, body);
    let model = model(upstream);
    match wire {
        Wire::Messages | Wire::Responses => {
            let text = String::from_utf8(request.body).unwrap();
            request.body = text.replacen(MODEL, &model, 1).into_bytes();
        }
        Wire::Gemini => request.target = request.target.replacen(MODEL, &model, 1),
    }
    request
}

/// A body that no translation takes.
fn untranslatable(wire: Wire) -> Json {
    let mut body = Conversation::new(wire, "hi").body();
    match wire {
        Wire::Messages => body["messages"][0]["content"] = json!([{"type": "new_content"}]),
        Wire::Responses => body["background"] = true.into(),
        Wire::Gemini => body["generationConfig"] = json!({"candidateCount": 2}),
    }
    body
}

#[track_caller]
fn check((wire, upstream): (Wire, Upstream), is_call: bool, answer: &Response) {
    let said = answer.text();
    assert_eq!((answer.status, answer.complete), (200, true), "{said}");
    let way = format!("from={}, to={}", protocol(wire), upstream.name());
    assert!(
        answer
            .header(TRANSLATION)
            .is_some_and(|header| header.starts_with(&way))
    );
    let whole = folded(wire, &said);
    assert_eq!(reported(wire, &whole), REPORTED, "{whole}");
    if is_call {
        let found = calls(wire, &whole);
        assert_eq!(found.len(), 1, "{whole}");
        let expected = ("weather", &json!({"city": "Rome"}));
        assert_eq!((&*found[0].name, &found[0].arguments), expected, "{whole}");
    } else {
        assert_eq!(text(wire, &whole), TEXT, "{whole}");
    }
}

/// Lets all clients ask for `time`; returns how many answers are charged.
fn storm(stage: &Stage, time: Duration) -> usize {
    let ways: Vec<(Wire, Upstream)> = ALL_WIRES
        .into_iter()
        .flat_map(|wire| UPSTREAMS.map(|upstream| (wire, upstream)))
        .filter(|(wire, upstream)| *upstream != Upstream::Of(*wire))
        .collect();
    let charged = AtomicUsize::new(0);
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (charged, ways) = (&charged, &ways);
            scope.spawn(move || {
                let mut client = stage.weir.connect();
                for turn in number.. {
                    if Instant::now() > until {
                        return;
                    }
                    let way = ways[turn % ways.len()];
                    let is_call = turn % 2 == 0;
                    let question = if is_call { CALL_WORD } else { "hi" };
                    let asked = request(stage, way, &Conversation::new(way.0, question).body());
                    match turn % 7 {
                        // A client that leaves in the middle.
                        0 => {
                            let mut leaving = stage.weir.connect();
                            leaving.write(&asked.bytes(Upload::Length));
                            assert_eq!(leaving.head_to("POST").status, 200);
                        }
                        1 => {
                            let refused = request(stage, way, &untranslatable(way.0));
                            let answer = stage.weir.exchange(&refused);
                            assert_eq!(answer.status, 400, "{}", answer.text());
                            continue;
                        }
                        _ => {
                            let answer = client.exchange(&asked);
                            check(way, is_call, &answer);
                            // A connection carries so many requests, and no more.
                            if answer.closes() {
                                client = stage.weir.connect();
                            }
                        }
                    }
                    charged.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    charged.into_inner()
}

#[test]
fn memory_stays_flat_and_the_ledger_exact_under_translated_streams() {
    let host = host();
    let mut stage = stage(&host.base_url());
    // The embedded store's page caches fill as its file grows, and stay full.
    let before = storm(&stage, Duration::from_secs(rounds(2, 180) as u64));
    let (files, memory) = (stage.weir.process().open_files(), stage.weir.process().memory());
    let served = storm(&stage, Duration::from_secs(rounds(3, 600) as u64));
    let after = stage.weir.process().memory();
    note(&format!(
        "soak: {served} translated streams, memory {} -> {} KiB, {files} files open after the warm-up",
        memory >> 10,
        after >> 10
    ));
    assert!(
        after < memory + GROWTH_MAX,
        "memory grew from {memory} to {after} bytes in {served} translated streams"
    );
    wait_until("connections of clients that left to be closed", || {
        stage.weir.process().open_files() <= files + 8
    });

    let answers = before + served;
    wait_until("everything to be charged and settled", || {
        let account = stage.weir.account();
        let is_at_rest = account["running"] == 0 && account["held_nano_usd"] == 0;
        is_at_rest && stage.weir.figure("weir_settlements_unacknowledged") == 0
    });
    let charge = i64::try_from(answers).unwrap() * CHARGE;
    assert_eq!(stage.weir.account()["spent_nano_usd"], charge, "{answers} answers");
    if answers <= ROWS_MAX {
        stage.weir.books(answers);
    }
}
