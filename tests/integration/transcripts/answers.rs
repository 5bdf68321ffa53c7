//! Answers that go well: providers', in each protocol and way, and weir's own.

use super::play;
use super::stage::{Case, Stage};
use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;
use crate::harness::recordings::{GEMINI_ARRAY, events, unary};
use crate::harness::request::{ALL_WIRES, Upload, Wire, array_request, wire_of};
use crate::harness::{GEMINI_MODEL, Request};

/// The provider's answer as recorded: a stream where one was asked for.
pub(super) fn answer_well(request: &Recorded, answer: &mut Answer<'_>) {
    let wire = wire_of(&request.target);
    if request.target.contains(":stream") || request.body.starts_with(br#"{"stream":true"#) {
        answer.sse();
        answer.chunk(events(wire).concat());
        answer.end();
    } else {
        answer.json(unary(wire));
    }
}

/// What a transcript calls a protocol.
pub(super) fn word(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "messages",
        Wire::Responses => "responses",
        Wire::Gemini => "gemini",
    }
}

pub(super) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    vec![("answer", of_providers()), ("own", of_weir())]
}

fn of_providers() -> Vec<Case> {
    let well = |_: usize, request: &Recorded, answer: &mut Answer<'_>| answer_well(request, answer);
    let mut cases = Vec::new();
    for wire in ALL_WIRES {
        let name = |kind: &str| format!("{}-{kind}", word(wire));
        cases.push(Case::new(name("whole"), well, move |stage| {
            stage.ask(&wire.request(&stage.key, "hi"))
        }));
        cases.push(Case::new(name("stream"), well, move |stage| {
            stage.ask(&wire.streaming(&stage.key, "hi"))
        }));
        cases.push(Case::new(name("stream-http2"), well, move |stage| {
            stage.ask_h2(&wire.streaming(&stage.key, "hi"))
        }));
    }
    cases.push(Case::new("messages-chunked-upload", well, |stage| {
        stage.ask_as(&Wire::Messages.request(&stage.key, "hi"), Upload::Chunked(20))
    }));
    cases.push(Case::new("messages-expect", well, |stage| {
        let request = Wire::Messages
            .request(&stage.key, "hi")
            .header("expect", "100-continue");
        stage.ask(&request)
    }));
    let array = |_: usize, _: &Recorded, answer: &mut Answer<'_>| answer.json(&GEMINI_ARRAY.concat());
    cases.push(Case::new("gemini-array", array, |stage| {
        stage.ask(&array_request(&stage.key))
    }));
    let counted = |_: usize, request: &Recorded, answer: &mut Answer<'_>| match wire_of(&request.target) {
        Wire::Gemini => answer.json(r#"{"totalTokens":7}"#),
        _ => answer.json(r#"{"input_tokens":7}"#),
    };
    cases.push(Case::new("messages-count", counted, |stage| {
        let mut request = Wire::Messages.request(&stage.key, "hi");
        request.target.push_str("/count_tokens");
        stage.ask(&request)
    }));
    cases.push(Case::new("gemini-count", counted, |stage| {
        let mut request = Wire::Gemini.request(&stage.key, "hi");
        request.target = request.target.replace("generateContent", "countTokens");
        stage.ask(&request)
    }));
    cases
}

fn of_weir() -> Vec<Case> {
    let get = |name: &str, target: String, header: &'static str| {
        Case::of_weir(name, move |stage: &mut Stage| {
            let credential = match header {
                "authorization" => format!("Bearer {}", stage.key),
                _ => stage.key.clone(),
            };
            stage.ask(&Request::get(&target).header(header, &credential))
        })
    };
    vec![
        get("messages-model", "/v1/models/claude-sonnet-5-5".to_owned(), "x-api-key"),
        get("responses-model", "/v1/models/gpt-5.6-sol".to_owned(), "authorization"),
        get(
            "gemini-model",
            format!("/v1beta/models/{GEMINI_MODEL}"),
            "x-goog-api-key",
        ),
        get("model-unknown", "/v1/models/none".to_owned(), "authorization"),
        get("place-unknown", "/nowhere".to_owned(), "authorization"),
        Case::of_weir("hello", |stage| stage.ask(&Request::get("/api/hello"))),
        Case::of_weir("head", |stage| stage.ask(&Request::new("HEAD", "/api/hello"))),
        Case::of_weir("usage-without-a-key", |stage| stage.ask(&Request::get("/web/v1/me"))),
    ]
}

#[test]
fn of_providers_are_as_their_transcripts() {
    let mut stage = Stage::shipped(|builder| builder);
    play("answer", &mut stage, &of_providers());
}

#[test]
fn of_weir_are_as_their_transcripts() {
    let mut stage = Stage::shipped(|builder| builder);
    play("own", &mut stage, &of_weir());
}
