//! Providers that fail, before and behind the first byte of their answer.

use std::time::Duration;

use super::answers::word;
use super::play;
use super::stage::{Case, Stage};
use crate::harness::WeirBuilder;
use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;
use crate::harness::recordings::{events, unary};
use crate::harness::request::{ALL_WIRES, Wire, array_request};

type Fail = fn(Wire, &mut Answer<'_>);

/// How long a silent provider waits for weir to leave.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    let mut groups = vec![("unreachable", unreachable())];
    for wire in ALL_WIRES {
        groups.push(("failure", of(wire)));
    }
    groups
}

fn error(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        Wire::Responses => {
            r#"{"error":{"message":"Overloaded","type":"server_error","param":null,"code":"server_error"}}"#
        }
        Wire::Gemini => r#"{"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}"#,
    }
}

/// The same as an event of a stream.
fn error_event(wire: Wire) -> String {
    match wire {
        Wire::Messages => format!("event: error\ndata: {}\n\n", error(wire)),
        Wire::Responses => {
            "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"Overloaded\",\"sequence_number\":9}\n\n".to_owned()
        }
        Wire::Gemini => format!("data: {}\r\n\r\n", error(wire)),
    }
}

fn begin(wire: Wire, answer: &mut Answer<'_>) {
    answer.sse();
    answer.chunk(events(wire)[..2].concat());
}

/// Each failure of an answer in one piece.
const WHOLE: [(&str, Fail); 9] = [
    ("400", |wire, answer| {
        answer.full(400, &[("content-type", "application/json")], error(wire).as_bytes());
    }),
    ("429", |wire, answer| {
        let headers = [("content-type", "application/json"), ("retry-after", "7")];
        answer.full(429, &headers, error(wire).as_bytes());
    }),
    ("500", |wire, answer| {
        answer.full(500, &[("content-type", "application/json")], error(wire).as_bytes());
    }),
    ("500-text", |_, answer| {
        answer.full(500, &[("content-type", "text/plain")], b"it broke")
    }),
    ("302", |_, answer| {
        answer.full(302, &[("location", "https://elsewhere.example/")], b"")
    }),
    ("cut-before-head", |_, answer| answer.cut()),
    ("no-head", |_, answer| {
        answer.raw(b"nonsense\r\n\r\n");
        answer.cut();
    }),
    ("empty", |_, answer| answer.json("")),
    ("cut", |wire, answer| {
        let whole = unary(wire);
        answer.raw(
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                whole.len()
            )
            .as_bytes(),
        );
        answer.raw(&whole.as_bytes()[..whole.len() / 2]);
        answer.cut();
    }),
];

/// Each failure of a stream.
const STREAM: [(&str, Fail); 6] = [
    ("stream-error-first", |wire, answer| {
        answer.sse();
        answer.chunk(error_event(wire));
        answer.end();
    }),
    ("stream-error-later", |wire, answer| {
        begin(wire, answer);
        answer.chunk(error_event(wire));
        answer.end();
    }),
    ("stream-cut", |wire, answer| {
        begin(wire, answer);
        answer.cut();
    }),
    ("stream-ended-early", |wire, answer| {
        begin(wire, answer);
        answer.end();
    }),
    ("stream-silent", |wire, answer| {
        begin(wire, answer);
        answer.wait_peer_left(PATIENCE);
    }),
    ("stream-silent-before-head", |_, answer| {
        answer.wait_peer_left(PATIENCE);
    }),
];

fn of(wire: Wire) -> Vec<Case> {
    let script = move |fail: Fail| move |_: usize, _: &Recorded, answer: &mut Answer<'_>| fail(wire, answer);
    let mut cases = Vec::new();
    for (name, fail) in WHOLE {
        cases.push(Case::new(
            format!("{}-{name}", word(wire)),
            script(fail),
            move |stage| stage.ask(&wire.request(&stage.key, "hi")),
        ));
    }
    for (name, fail) in STREAM {
        cases.push(Case::new(
            format!("{}-{name}", word(wire)),
            script(fail),
            move |stage| stage.ask(&wire.streaming(&stage.key, "hi")),
        ));
    }
    if wire == Wire::Gemini {
        let cut = |_: usize, _: &Recorded, answer: &mut Answer<'_>| {
            answer.head(200, &[("content-type", "application/json")]);
            answer.chunk(crate::harness::recordings::GEMINI_ARRAY[0]);
            answer.cut();
        };
        cases.push(Case::new("gemini-array-cut", cut, |stage| {
            stage.ask(&array_request(&stage.key))
        }));
    }
    cases
}

fn unreachable() -> Vec<Case> {
    let cases =
        ALL_WIRES.map(|wire| Case::of_weir(word(wire), move |stage| stage.ask(&wire.request(&stage.key, "hi"))));
    cases.into()
}

fn play_all(wire: Wire) {
    let mut stage = Stage::shipped(|builder| {
        builder
            .set("upstream.idle_seconds", 1)
            .set("upstream.first_byte_seconds", 1)
            .set("upstream.error_body_seconds", 1)
    });
    play("failure", &mut stage, &of(wire));
}

#[test]
fn of_the_messages_protocol_are_as_their_transcripts() {
    play_all(Wire::Messages);
}

#[test]
fn of_the_responses_protocol_are_as_their_transcripts() {
    play_all(Wire::Responses);
}

#[test]
fn of_the_gemini_protocol_are_as_their_transcripts() {
    play_all(Wire::Gemini);
}

#[test]
fn of_connections_are_as_their_transcripts() {
    // Nobody listens at this port, which no program is given.
    let mut stage = Stage::start(|_| (None, WeirBuilder::new().all_providers("http://127.0.0.1:9")));
    play("unreachable", &mut stage, &unreachable());
}
