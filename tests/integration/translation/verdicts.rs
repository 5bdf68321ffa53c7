//! What becomes of each member of a request: the tests themselves are in `tests/sdk/`, made from the SDKs' own types and from the
//! data in `tests/translation/verdicts/`. Here are the gateway that they ask, and providers that answer with the body that they got.

use std::process::{Command, Stdio};

use serde_json::json;

use super::chat_provider::CHAT_PATH;
use super::stage::{MODEL, Stage, Upstream};
use crate::harness::RecordingProvider;
use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;
use crate::harness::request::Wire;
use crate::harness::tools::{python, repository, skip};
use crate::harness::weir::ACCOUNT;

/// The virtual environment with the SDKs.
const ENVIRONMENT: &str = ".venv";
/// The model's name at every provider: what becomes of some content depends on the generation of a Gemini model.
const ANY_MODEL: &str = "gemini-3-large";

/// Answers with the request's body as the text of the model.
fn echo(request: &Recorded, answer: &mut Answer<'_>) {
    let body = String::from_utf8_lossy(&request.body);
    let path = request.target.split('?').next().unwrap_or_default();
    let whole = match path {
        "/v1/messages" => json!({
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": ANY_MODEL,
            "content": [{"type": "text", "text": body}],
            "stop_reason": "end_turn",
            "stop_sequence": null,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }),
        "/v1/responses" => json!({
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": ANY_MODEL,
            "output": [{
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": body, "annotations": []}],
            }],
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
        }),
        CHAT_PATH => json!({
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": ANY_MODEL,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": body}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }),
        _ => return echo_as_gemini(&body, answer),
    };
    answer.json(&whole.to_string());
}

/// Gemini providers are always asked for streams.
fn echo_as_gemini(body: &str, answer: &mut Answer<'_>) {
    let content = json!({"role": "model", "parts": [{"text": body}]});
    let chunk = json!({
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": ANY_MODEL,
    });
    answer.sse();
    answer.chunk(format!("data: {chunk}\r\n\r\n"));
    answer.end();
}

/// A gateway with the models `to-PROTOCOL-MODE`, for each protocol of providers and each mode. Its account may name any state, so
/// only the translation can refuse it.
fn stage(base_url: &str) -> Stage {
    let upstreams = [
        Upstream::Of(Wire::Messages),
        Upstream::Of(Wire::Responses),
        Upstream::Of(Wire::Gemini),
        Upstream::Chat,
    ];
    let mut files: Vec<(String, String)> = Vec::new();
    for upstream in upstreams {
        let name = format!("to-{}", upstream.name());
        let mut file = upstream.file(&name, base_url);
        for mode in ["strict", "lossy"] {
            file.push_str(&format!(
                "[[model]]\nname = \"{name}-{mode}\"\nupstream_name = \"{ANY_MODEL}\"\nprice = \"{MODEL}\"\n\
                 output_tokens = 64000\ntranslate = \"{mode}\"\n"
            ));
        }
        files.push((name, file));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(name, file)| (&**name, &**file)).collect();
    let stage = Stage::with(&files, Vec::new());
    let words = ["account", "update", "--id", ACCOUNT, "--provider-state", "any"];
    stage.weir.cli_json(&words);
    stage
}

/// Runs one test file with these variables.
#[track_caller]
fn run(file: &str, variables: &[(&str, &str)]) {
    let Some(python) = python(ENVIRONMENT) else {
        skip!("{ENVIRONMENT} is not there: tests/run makes it");
    };
    let output = Command::new(python)
        .current_dir(repository().join("tests/sdk"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", file])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{file}:\n{out}\n{err}");
}

#[test]
fn every_member_is_carried_over_or_reported_or_refused_as_the_data_says() {
    let provider = RecordingProvider::start(echo);
    let stage = stage(&provider.base_url());
    let base_url = format!("http://{}", stage.weir.gateway);
    run(
        "test_verdicts.py",
        &[("WEIR_BASE_URL", &base_url), ("WEIR_KEY", &stage.key)],
    );
}

#[test]
fn the_page_about_translation_says_what_the_data_says() {
    run("test_verdict_page.py", &[]);
}
