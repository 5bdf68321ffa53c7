//! Failures of a provider that speaks another protocol: each client is told in its own, and charged by what it got.

use serde_json::{Value as Json, json};

use super::chat_answers::{ChatTurn, DONE, chunk, chunk_with, usage_chunk};
use super::chat_provider::chat_provider;
use super::conversation::{reported, text};
use super::other_providers::text_events;
use super::stage::{CHARGE, REPORTED, Stage, Upstream, billed, question};
use super::streams::{events, folded};
use crate::harness::RecordingProvider;
use crate::harness::answer::Answer;
use crate::harness::books::cost;
use crate::harness::client::Response;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::{assert_refusal, in_band_error};

const HELLO: ChatTurn = ChatTurn {
    reasoning: &[],
    text: &["Hello"],
    calls: &[],
};

/// The provider does what the user's message says.
fn obedient(script: impl Fn(&str, &Json, &mut Answer<'_>) + Send + Sync + 'static) -> (RecordingProvider, Stage) {
    let provider = chat_provider(move |body, answer| {
        let order = body["messages"][0]["content"].as_str().unwrap();
        script(order, body, answer);
    });
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    (provider, stage)
}

/// A piece of text.
fn piece(text: &str) -> String {
    chunk(&json!({"role": "assistant", "content": text}), None)
}

/// The text of a stream that did not end well.
fn partial_text(wire: Wire, stream: &str) -> String {
    let (events, _) = events(stream);
    let texts = events.iter().filter_map(|event| match wire {
        Wire::Messages => event["delta"]["text"].as_str(),
        Wire::Responses => event["delta"].as_str(),
        Wire::Gemini => event["candidates"][0]["content"]["parts"][0]["text"].as_str(),
    });
    texts.collect()
}

/// Checks that a stream ends with an error in the client's protocol, and that nothing in it looks like the end of an answer.
/// Returns the error.
#[track_caller]
fn assert_broken(wire: Wire, answer: &Response) -> Json {
    let stream = answer.text();
    assert_eq!((answer.status, answer.complete), (200, true), "{wire:?}: {stream}");
    for end in ["message_stop", "response.completed", "[DONE]", "finishReason"] {
        assert!(!stream.contains(end), "{wire:?}: {stream}");
    }
    in_band_error(wire, &stream).unwrap_or_else(|| panic!("{wire:?}: no error at the end of {stream}"))
}

#[test]
fn an_error_answer_of_the_provider_reaches_the_client_in_its_own_shape_and_costs_nothing() {
    let (_provider, stage) = obedient(|order, _, answer| {
        let (status, kind, code) = match order {
            "429" => (429, "requests", json!("rate_limit_exceeded")),
            "500" => (500, "server_error", json!(null)),
            _ => (400, "invalid_request_error", json!("context_length_exceeded")),
        };
        let error = json!({"error": {"message": "No, says the provider.", "type": kind, "param": null, "code": code}});
        let headers = [("content-type", "application/json"), ("retry-after", "30")];
        answer.full(status, &headers, error.to_string().as_bytes());
    });
    for (status, kinds) in [
        (429, ["rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"]),
        (500, ["api_error", "server_error", "INTERNAL"]),
        (
            400,
            ["invalid_request_error", "context_length_exceeded", "INVALID_ARGUMENT"],
        ),
    ] {
        for (wire, kind) in ALL_WIRES.into_iter().zip(kinds) {
            for is_stream in [true, false] {
                let answer = stage.ask(wire, is_stream, &question(wire, &status.to_string()));
                assert_refusal(wire, &answer, status, kind);
                let message = match (wire, status) {
                    // The words on which Claude Code acts.
                    (Wire::Messages, 400) => "prompt is too long: No, says the provider.",
                    _ => "No, says the provider.",
                };
                assert_eq!(answer.json()["error"]["message"], message);
                assert_eq!(answer.header("retry-after"), Some("30"));
                let line = stage.line(&answer);
                assert_eq!(line["outcome"], "provider_error", "{line}");
            }
        }
    }
    // A request that the provider refuses for its content has no row.
    let books = stage.weir.books(12);
    assert_eq!(books.charged(), 0);
}

#[test]
fn a_prompt_that_is_too_long_is_told_apart_from_a_maximum_that_is_too_large() {
    // The words of DashScope and vLLM, neither of which has a code.
    const PROMPT: &str = "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 258048]";
    const MAXIMUM: &str = "'max_tokens' or 'max_completion_tokens' is too large: 256000. This model's maximum context length is \
                           262144 tokens and your request has 20354 input tokens (256000 > 262144 - 20354).";
    let (_provider, stage) = obedient(|order, _, answer| {
        let error = json!({"error": {"message": order, "type": "invalid_request_error", "code": null}});
        let headers = [("content-type", "application/json")];
        answer.full(400, &headers, error.to_string().as_bytes());
    });
    for (message, code) in [(PROMPT, "context_length_exceeded"), (MAXIMUM, "invalid_request")] {
        let answer = stage.ask(Wire::Responses, true, &question(Wire::Responses, message));
        assert_eq!(answer.json()["error"]["code"], code, "{message}");
        let answer = stage.ask(Wire::Messages, true, &question(Wire::Messages, message));
        let shown = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(
            shown.starts_with("prompt is too long"),
            code == "context_length_exceeded",
            "{shown}"
        );
    }
}

#[test]
fn an_error_within_a_success_is_told_in_the_clients_protocol() {
    let (_provider, stage) = obedient(|order, body, answer| {
        let error = json!({"error": {"message": "Too many.", "type": "requests", "code": "rate_limit_exceeded"}});
        if body["stream"] != true {
            return answer.json(&error.to_string());
        }
        answer.sse();
        if order == "late" {
            answer.chunk(piece("Hello"));
        }
        answer.chunk(format!("data: {error}\n\n"));
        answer.end();
    });
    for (wire, kind) in ALL_WIRES
        .into_iter()
        .zip(["rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"])
    {
        let unary = stage.ask(wire, false, &question(wire, "early"));
        assert_refusal(wire, &unary, 429, kind);
        for order in ["early", "late"] {
            let answer = stage.ask(wire, true, &question(wire, order));
            let error = assert_broken(wire, &answer);
            let said = match wire {
                Wire::Messages => &error["type"],
                Wire::Responses => &error["code"],
                Wire::Gemini => &error["status"],
            };
            assert_eq!(
                (said, &error["message"]),
                (&kind.into(), &"Too many.".into()),
                "{wire:?}"
            );
            let got = if order == "late" { "Hello" } else { "" };
            assert_eq!(partial_text(wire, &answer.text()), got, "{wire:?}");
            let line = stage.line(&answer);
            assert_eq!(line["outcome"], "in_band_error", "{line}");
            // What the client got is charged by estimate: the provider has reported nothing.
            let row = stage.row(&answer);
            assert_eq!(cost(&row) > 0, order == "late", "{row}");
            assert_eq!(row["usage_source"], "estimated", "{row}");
        }
    }
}

#[test]
fn a_stream_that_breaks_off_ends_with_an_error_of_the_clients_protocol() {
    let (_provider, stage) = obedient(|order, _, answer| {
        answer.sse();
        answer.chunk(piece("Hello"));
        match order {
            "cut" => answer.cut(),
            "cut inside an event" => {
                let next = piece(" world");
                answer.chunk(&next[..next.len() / 2]);
                answer.cut();
            }
            _ => answer.end(),
        }
    });
    for wire in ALL_WIRES {
        for order in ["cut", "cut inside an event", "end without a reason"] {
            let answer = stage.ask(wire, true, &question(wire, order));
            let error = assert_broken(wire, &answer);
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("send the request again"), "{wire:?}, {order}: {error}");
            assert_eq!(partial_text(wire, &answer.text()), "Hello", "{wire:?}, {order}");
            let line = stage.line(&answer);
            assert_eq!(line["outcome"], "provider_cut", "{line}");
            let row = stage.row(&answer);
            assert_eq!(row["usage_source"], "estimated", "{row}");
            let [input, _, output, _] = billed(&row);
            assert!(input > 0 && output > 0 && cost(&row) > 0, "{row}");
        }
    }
}

#[test]
fn a_stream_that_breaks_off_is_charged_by_the_usage_that_it_has_reported() {
    let (_provider, stage) = obedient(|_, _, answer| {
        answer.sse();
        // Some hosts report what was used so far with every chunk.
        let so_far = json!({"prompt_tokens": 70, "completion_tokens": 9, "total_tokens": 79});
        let choice = json!({"index": 0, "delta": {"content": "Hello"}, "finish_reason": null});
        answer.chunk(chunk_with(&json!({"choices": [choice], "usage": so_far})));
        answer.cut();
    });
    for wire in ALL_WIRES {
        let answer = stage.ask(wire, true, &question(wire, "hi"));
        assert_broken(wire, &answer);
        let row = stage.row(&answer);
        assert_eq!(
            (billed(&row), &row["usage_source"]),
            ([70, 0, 9, 0], &"partial".into()),
            "{row}"
        );
        assert_eq!(cost(&row), 70 * 1_000 + 9 * 10_000, "{row}");
    }
}

#[test]
fn a_connection_that_breaks_behind_the_end_of_the_answer_loses_nothing() {
    let (_provider, stage) = obedient(|order, _, answer| {
        answer.sse();
        answer.chunk(piece("Hello"));
        answer.chunk(chunk(&json!({}), Some("stop")));
        answer.chunk(usage_chunk());
        if order == "marked" {
            answer.chunk(DONE);
        }
        answer.cut();
    });
    for wire in ALL_WIRES {
        for order in ["marked", "unmarked"] {
            let answer = stage.ask(wire, true, &question(wire, order));
            let whole = folded(wire, &answer.text());
            assert_eq!(text(wire, &whole), "Hello", "{wire:?}");
            assert_eq!(reported(wire, &whole), REPORTED, "{wire:?}");
            let row = stage.row(&answer);
            assert_eq!(
                (cost(&row), &row["usage_source"]),
                (CHARGE, &"reported".into()),
                "{row}"
            );
        }
    }
}

#[test]
fn a_client_without_a_stream_gets_an_error_status_when_the_provider_breaks_off() {
    let (_provider, stage) = obedient(|order, _, answer| {
        let body = r#"{"id":"chatcmpl-1","model":"large-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hel"#;
        match order {
            "in a body with a length" => {
                let length = body.len() + 20;
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
                answer.raw(format!("{head}{body}").as_bytes());
                answer.cut();
            }
            _ => {
                answer.head(200, &[("content-type", "application/json")]);
                answer.chunk(body);
                match order {
                    "in a chunked body" => answer.cut(),
                    _ => answer.end(),
                }
            }
        }
    });
    for (wire, kind) in ALL_WIRES
        .into_iter()
        .zip(["api_error", "provider_broken", "UNAVAILABLE"])
    {
        for order in ["in a body with a length", "in a chunked body", "with a proper end"] {
            let answer = stage.ask(wire, false, &question(wire, order));
            assert_refusal(wire, &answer, 502, kind);
            assert!(!answer.text().contains("choices"), "{}", answer.text());
        }
    }
}

/// A provider of the Gemini protocol is always asked for a stream, so the answer has begun when it breaks off; yet its client
/// has nothing of it.
#[test]
fn a_client_without_a_stream_gets_an_error_status_when_a_provider_that_streams_breaks_off() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.sse();
        answer.chunk(&text_events(Wire::Gemini)[0]);
        answer.cut();
    });
    let stage = Stage::start(Upstream::Of(Wire::Gemini), &provider.base_url(), "strict");
    for wire in [Wire::Messages, Wire::Responses] {
        let request = stage.request(wire, false, &question(wire, "hi"));
        let mut client = stage.weir.connect();
        client.write(&request.bytes(Upload::Length));
        let head = client.try_head_to("POST");
        let head = head.unwrap_or_else(|| panic!("{wire:?}: a broken connection instead of an error"));
        let answer = client.rest(head);
        assert!(answer.complete && answer.status >= 500, "{wire:?}: {answer:?}");
        assert!(answer.json()["error"]["message"].is_string(), "{}", answer.text());
    }
}

#[test]
fn a_provider_that_recovers_serves_the_next_request() {
    let (_provider, stage) = obedient(|order, body, answer| match order {
        "500" => answer.full(500, &[("content-type", "application/json")], b"{}"),
        _ => HELLO.answer(body, answer),
    });
    for wire in ALL_WIRES {
        assert_eq!(stage.ask(wire, true, &question(wire, "500")).status, 500, "{wire:?}");
        let answer = stage.ask(wire, true, &question(wire, "hi"));
        assert_eq!(text(wire, &folded(wire, &answer.text())), "Hello", "{wire:?}");
    }
}
