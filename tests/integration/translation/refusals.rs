//! What a translation would lose: refused by name, before anything reaches the provider and at no charge, or left out and said.

use serde_json::{Value as Json, json};

use super::chat_provider::chat_provider;
use super::stage::{Stage, TRANSLATION, UPSTREAM_MODEL, Upstream, question};
use crate::harness::RecordingProvider;
use crate::harness::recordings::unary;
use crate::harness::request::Wire;
use crate::harness::shapes::assert_refusal;
use crate::harness::weir::ACCOUNT;

/// A provider that nothing may reach, and a gateway before it. The account may name any state, so only the translation can
/// refuse it.
fn unreachable_stage(upstream: Upstream, mode: &str) -> (RecordingProvider, Stage) {
    let provider = RecordingProvider::least();
    let stage = Stage::start(upstream, &provider.base_url(), mode);
    let words = ["account", "update", "--id", ACCOUNT, "--provider-state", "any"];
    stage.weir.cli_json(&words);
    (provider, stage)
}

/// Each request is refused, and its refusal names the path.
#[track_caller]
fn assert_refused(upstream: Upstream, mode: &str, requests: &[(Wire, Json, &str)]) {
    let (provider, stage) = unreachable_stage(upstream, mode);
    for (wire, body, path) in requests {
        let kind = match wire {
            Wire::Messages => "invalid_request_error",
            Wire::Responses => "untranslatable",
            Wire::Gemini => "INVALID_ARGUMENT",
        };
        for is_stream in [true, false] {
            let answer = stage.ask(*wire, is_stream, body);
            assert_refusal(*wire, &answer, 400, kind);
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.starts_with(&format!("`{path}` ")), "{path}: {message}");
            assert_eq!(answer.header("x-should-retry"), Some("false"), "{path}");
            let line = stage.line(&answer);
            assert_eq!(
                (&line["outcome"], &line["refusal"]),
                (&"refused".into(), &"untranslatable".into()),
                "{line}"
            );
        }
    }
    assert_eq!(provider.connections(), 0, "something reached the provider");
    assert_eq!(stage.weir.books(0).charged(), 0);
}

/// A question with one more member.
fn with(wire: Wire, name: &str, value: Json) -> Json {
    let mut body = question(wire, "hi");
    body[name] = value;
    body
}

/// A question about a file that the provider of another protocol keeps.
fn about_stored_file(wire: Wire) -> Json {
    match wire {
        Wire::Messages => {
            let image = json!({"type": "image", "source": {"type": "file", "file_id": "file_1"}});
            json!({"max_tokens": 512, "messages": [{"role": "user", "content": [image]}]})
        }
        Wire::Responses => {
            let file = json!({"type": "input_file", "file_id": "file-1"});
            json!({"store": false, "input": [{"type": "message", "role": "user", "content": [file]}]})
        }
        Wire::Gemini => {
            let uri = "https://generativelanguage.googleapis.com/v1beta/files/abc";
            let file = json!({"fileData": {"fileUri": uri, "mimeType": "image/png"}});
            json!({"contents": [{"role": "user", "parts": [file]}]})
        }
    }
}

/// What no mode carries over: state at a provider, and more than one answer.
fn never_translated() -> Vec<(Wire, Json, &'static str)> {
    vec![
        (
            Wire::Messages,
            about_stored_file(Wire::Messages),
            "messages[0].content[0].source.file_id",
        ),
        (
            Wire::Responses,
            about_stored_file(Wire::Responses),
            "input[0].content[0].file_id",
        ),
        (
            Wire::Gemini,
            about_stored_file(Wire::Gemini),
            "contents[0].parts[0].fileData.fileUri",
        ),
        (
            Wire::Responses,
            with(Wire::Responses, "previous_response_id", "resp_1".into()),
            "previous_response_id",
        ),
        (
            Wire::Messages,
            with(Wire::Messages, "container", "container_1".into()),
            "container",
        ),
        (
            Wire::Gemini,
            with(Wire::Gemini, "cachedContent", "cachedContents/abc".into()),
            "cachedContent",
        ),
        (
            Wire::Gemini,
            with(Wire::Gemini, "generationConfig", json!({"candidateCount": 2})),
            "generationConfig.candidateCount",
        ),
        (
            Wire::Messages,
            with(
                Wire::Messages,
                "messages",
                json!([{"role": "user", "content": [{"type": "new_content"}]}]),
            ),
            "messages[0].content[0]",
        ),
    ]
}

/// What ends an answer early, of which the Responses protocol knows nothing.
fn with_stops() -> Vec<(Wire, Json, &'static str)> {
    let in_config = json!({"stopSequences": ["END"]});
    vec![
        (
            Wire::Messages,
            with(Wire::Messages, "stop_sequences", json!(["END"])),
            "stop_sequences",
        ),
        (
            Wire::Gemini,
            with(Wire::Gemini, "generationConfig", in_config),
            "generationConfig.stopSequences",
        ),
    ]
}

#[test]
fn state_and_content_that_no_other_protocol_can_carry_are_refused_in_strict_mode() {
    assert_refused(Upstream::Chat, "strict", &never_translated());
}

#[test]
fn state_and_content_that_no_other_protocol_can_carry_are_refused_in_lossy_mode_too() {
    assert_refused(Upstream::Chat, "lossy", &never_translated());
}

#[test]
fn stop_sequences_to_a_responses_provider_are_refused_in_strict_mode() {
    assert_refused(Upstream::Of(Wire::Responses), "strict", &with_stops());
}

#[test]
fn stop_sequences_to_a_responses_provider_are_left_out_and_reported_in_lossy_mode() {
    let provider = RecordingProvider::answering(unary(Wire::Responses));
    let stage = Stage::start(Upstream::Of(Wire::Responses), &provider.base_url(), "lossy");
    for (wire, body, path) in with_stops() {
        let answer = stage.ask(wire, false, &body);
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        let dropped = format!("dropped=(\"{path}\")");
        let header = answer.header(TRANSLATION).unwrap();
        assert!(header.ends_with(&dropped), "{header}");
        let line = stage.line(&answer);
        assert_eq!(line["losses"], json!([format!("dropped {path}")]), "{line}");
        let sent = String::from_utf8(provider.last().body).unwrap();
        assert!(!sent.contains("END") && !sent.contains("stop"), "{sent}");
    }
}

#[test]
fn stop_sequences_reach_a_provider_that_has_them() {
    let provider = chat_provider(|_, answer| {
        let message = json!({"role": "assistant", "content": "hi"});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        answer.json(&json!({"model": UPSTREAM_MODEL, "choices": [choice]}).to_string());
    });
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    for (wire, body, _) in with_stops() {
        let answer = stage.ask(wire, false, &body);
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        let sent: Json = serde_json::from_slice(&provider.last().body).unwrap();
        assert_eq!(sent["stop"], json!(["END"]), "{wire:?}");
    }
}
