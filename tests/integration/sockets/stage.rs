//! What clients send through a socket here, and the provider behind it.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use crate::harness::answer::Answer;
use crate::harness::client::Response;
use crate::harness::request::Wire;
use crate::harness::shapes::assert_refusal;
use crate::harness::websocket::WebSocket;
use crate::harness::{RESPONSES_MODEL, RecordingProvider, Request, Steps, Weir, wait_for};

/// The usage of every answer of [`provider`]: input, of that read from a cache, output.
pub(super) const USAGE: [u64; 3] = [35, 10, 15];
/// The words in a prompt before the step that the provider waits for in the middle of its answer.
const HELD: &str = "held until step ";

/// A request that only this socket can continue.
pub(super) fn create(prompt: &str) -> Json {
    json!({"type": "response.create", "model": RESPONSES_MODEL, "store": false, "input": prompt})
}

/// The same in a lane.
pub(super) fn create_in(lane: &str, prompt: &str) -> Json {
    let mut create = create(prompt);
    create["stream_id"] = lane.into();
    create
}

/// A request that continues a response.
pub(super) fn continuation(id: &str, prompt: &str) -> Json {
    let mut create = create(prompt);
    create["previous_response_id"] = id.into();
    create
}

/// The item of an input that a prompt becomes when it does not stand alone.
pub(super) fn user_item(prompt: &str) -> Json {
    json!({"type": "message", "role": "user", "content": prompt})
}

/// A prompt whose answer stops in the middle until this step is permitted.
pub(super) fn held_until(step: usize) -> String {
    format!("{HELD}{step}")
}

/// What [`provider`] says to a prompt.
pub(super) fn words(prompt: &str) -> String {
    format!("You said: {prompt}")
}

/// A provider whose responses are numbered from 1: `resp_N`. The last prompt orders further things: to wait for a step of `steps`
/// (see [`held_until`]), `reasoning` or a `tool` call beside the text, an `incomplete` or a `failing` response with its usage, a stream
/// that is `cut`, an answer `without a stream`, or an `error of the client`.
pub(super) fn provider(steps: &Steps) -> RecordingProvider {
    let (count, steps) = (AtomicUsize::new(0), steps.clone());
    RecordingProvider::start(move |request, answer| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let body: Json = serde_json::from_slice(&request.body).unwrap_or_default();
        let prompt = last_prompt(&body);
        if prompt.contains("error of the client") {
            let error = json!({"error": {"message": "The input is odd.", "type": "invalid_request_error",
                "param": "input", "code": "odd_input"}});
            let headers = [
                ("content-type", "application/json"),
                ("x-request-id", "req_of_provider"),
            ];
            answer.full(400, &headers, error.to_string().as_bytes());
        } else if body["stream"] != true || prompt.contains("without a stream") {
            answer.json(&response(number, &prompt, "completed").to_string());
        } else {
            stream(number, &prompt, &steps, answer);
        }
    })
}

/// The text of the last item of the user.
pub(super) fn last_prompt(body: &Json) -> String {
    if let Some(text) = body["input"].as_str() {
        return text.to_owned();
    }
    let items = body["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let last = items.iter().rev().find(|item| item["role"] == "user");
    let content = last.map_or(&Json::Null, |item| &item["content"]);
    let text = content.as_str().or_else(|| content[0]["text"].as_str());
    text.unwrap_or_default().to_owned()
}

fn stream(number: usize, prompt: &str, steps: &Steps, answer: &mut Answer<'_>) {
    let whole = response(number, prompt, "completed");
    let mut started = whole.clone();
    started["status"] = "in_progress".into();
    started["output"] = json!([]);
    started["usage"] = Json::Null;
    let mut sequence = 0;
    let mut send = |answer: &mut Answer<'_>, mut event: Json| {
        event["sequence_number"] = sequence.into();
        sequence += 1;
        answer.chunk(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    };
    let delta = |text: &str| json!({"type": "response.output_text.delta", "item_id": format!("msg_{number}"), "output_index": 0, "content_index": 0, "delta": text});
    answer.sse();
    send(answer, json!({"type": "response.created", "response": started}));
    let text = words(prompt);
    let (first, second) = text.split_at("You said:".len());
    send(answer, delta(first));
    if let Some((_, step)) = prompt.split_once(HELD) {
        let step: usize = step.trim().parse().unwrap();
        if !steps.wait(step) {
            return answer.cut();
        }
    }
    if prompt.contains("cut") {
        return answer.cut();
    }
    send(answer, delta(second));
    for (index, item) in whole["output"].as_array().unwrap().iter().enumerate() {
        send(
            answer,
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    let end = match prompt {
        _ if prompt.contains("incomplete") => response(number, prompt, "incomplete"),
        _ if prompt.contains("failing") => response(number, prompt, "failed"),
        _ => whole,
    };
    let name = format!("response.{}", end["status"].as_str().unwrap());
    send(answer, json!({"type": name, "response": end}));
    answer.end();
}

/// A response as the provider has it at its end.
pub(super) fn response(number: usize, prompt: &str, status: &str) -> Json {
    let mut output = Vec::new();
    if prompt.contains("reasoning") {
        output.push(
            json!({"type": "reasoning", "id": format!("rs_{number}"), "summary": [], "encrypted_content": "c2VhbGVk"}),
        );
        output.push(json!({"type": "reasoning", "id": format!("rs_{number}b"), "summary": []}));
    }
    output.push(json!({
        "type": "message", "id": format!("msg_{number}"), "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": words(prompt), "annotations": []}],
    }));
    if prompt.contains("tool") {
        output.push(
            json!({"type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"),
            "name": "look", "arguments": "{\"at\": \"it\"}", "status": "completed"}),
        );
    }
    let (reason, error) = match status {
        "incomplete" => (json!({"reason": "max_output_tokens"}), Json::Null),
        "failed" => (
            Json::Null,
            json!({"code": "server_error", "message": "The model failed."}),
        ),
        _ => (Json::Null, Json::Null),
    };
    let [input, cached, output_tokens] = USAGE;
    json!({
        "id": format!("resp_{number}"), "object": "response", "created_at": 1, "status": status, "model": "gpt",
        "error": error, "incomplete_details": reason, "output": output,
        "usage": {
            "input_tokens": input, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output_tokens,
        },
    })
}

/// The bodies that a provider got, as JSON.
pub(super) fn bodies(provider: &RecordingProvider) -> Vec<Json> {
    let requests = provider.requests();
    requests
        .iter()
        .map(|request| serde_json::from_slice(&request.body).unwrap())
        .collect()
}

/// The lines of the access log about turns of sockets, in their order; waits for so many.
#[track_caller]
pub(super) fn turn_lines(weir: &Weir, count: usize) -> Vec<Json> {
    let is_turn = |line: &Json| line["transport"] == "websocket" && line["operation"] == "responses";
    wait_for("the lines of the turns", || {
        let lines: Vec<Json> = weir.access_lines().into_iter().filter(is_turn).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// What a handshake that is refused is answered.
#[track_caller]
pub(super) fn refusal(weir: &Weir, handshake: &Request) -> Response {
    let refused = WebSocket::try_open(weir.connect(), handshake);
    refused.err().expect("a socket was opened")
}

/// Checks that a handshake is refused in the way after which Codex goes on by POST, and that a POST is served.
#[track_caller]
pub(super) fn assert_post_instead(weir: &Weir, key: &str, handshake: &Request) {
    assert_refusal(Wire::Responses, &refusal(weir, handshake), 426, "upgrade_unavailable");
    let served = weir.exchange(&Wire::Responses.request(key, "hi"));
    assert_eq!(served.status, 200, "{}", served.text());
}
