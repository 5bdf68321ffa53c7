//! Streams of providers that speak a protocol of clients: reasoning and a call of a tool, or a text, all with the usage that
//! [`super::stage::REPORTED`] stands for.

use serde_json::{Value as Json, json};

use super::stage::UPSTREAM_MODEL;
use crate::harness::request::Wire;

/// The visible reasoning before the call.
pub(super) const THOUGHT: &str = "I need the weather.";
/// The opaque state of the reasoning, which the provider wants back.
pub(super) const STATE: &str = "b3BhcXVlIHN0YXRl";
/// The text of the answer without a call.
pub(super) const TEXT: &str = "18 degrees, and sunny.";

/// A stream with [`THOUGHT`] and a call of the tool `weather`.
pub(super) fn call_events(wire: Wire) -> Vec<String> {
    match wire {
        Wire::Messages => messages_call(),
        Wire::Responses => responses_call(),
        Wire::Gemini => vec![
            gemini_chunk(&json!({"text": THOUGHT, "thought": true}), false),
            gemini_chunk(
                &json!({"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": STATE}),
                false,
            ),
            gemini_chunk(&json!({"text": ""}), true),
        ],
    }
}

/// A stream with [`TEXT`], in two pieces.
pub(super) fn text_events(wire: Wire) -> Vec<String> {
    let (first, second) = TEXT.split_at(10);
    match wire {
        Wire::Messages => {
            let delta = |text: &str| json!({"index": 0, "delta": {"type": "text_delta", "text": text}});
            messages_stream(
                vec![
                    named(
                        "content_block_start",
                        &json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
                    ),
                    named("content_block_delta", &delta(first)),
                    named("content_block_delta", &delta(second)),
                    named("content_block_stop", &json!({"index": 0})),
                ],
                "end_turn",
            )
        }
        Wire::Responses => {
            let place = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0});
            let part = json!({"type": "output_text", "text": TEXT, "annotations": []});
            responses_stream(
                vec![
                    named(
                        "response.output_item.added",
                        &json!({"output_index": 0, "item": message_item("in_progress", &json!([]))}),
                    ),
                    named("response.output_text.delta", &with(&place, "delta", first)),
                    named("response.output_text.delta", &with(&place, "delta", second)),
                    named("response.output_text.done", &with(&place, "text", TEXT)),
                    named(
                        "response.output_item.done",
                        &json!({"output_index": 0, "item": message_item("completed", &json!([part]))}),
                    ),
                ],
                &json!([message_item("completed", &json!([part]))]),
            )
        }
        Wire::Gemini => vec![
            gemini_chunk(&json!({"text": first}), false),
            gemini_chunk(&json!({"text": second}), true),
        ],
    }
}

/// The reasoning item of the Responses stream, as the provider wants it back.
pub(super) fn reasoning_item() -> Json {
    json!({
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": THOUGHT}],
        "encrypted_content": STATE,
    })
}

fn messages_call() -> Vec<String> {
    let thinking = json!({"type": "thinking", "thinking": "", "signature": ""});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}});
    let delta = |index: u64, delta: Json| named("content_block_delta", &json!({"index": index, "delta": delta}));
    messages_stream(
        vec![
            named("content_block_start", &json!({"index": 0, "content_block": thinking})),
            delta(0, json!({"type": "thinking_delta", "thinking": THOUGHT})),
            delta(0, json!({"type": "signature_delta", "signature": STATE})),
            named("content_block_stop", &json!({"index": 0})),
            named("content_block_start", &json!({"index": 1, "content_block": call})),
            delta(1, json!({"type": "input_json_delta", "partial_json": "{\"city\":"})),
            delta(1, json!({"type": "input_json_delta", "partial_json": "\"Rome\"}"})),
            named("content_block_stop", &json!({"index": 1})),
        ],
        "tool_use",
    )
}

fn messages_stream(content: Vec<String>, reason: &str) -> Vec<String> {
    let message = json!({
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": UPSTREAM_MODEL,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {"input_tokens": 40, "cache_read_input_tokens": 10, "output_tokens": 1},
    });
    let usage = json!({"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}});
    let end = json!({"delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage});
    let mut events = vec![
        named("message_start", &json!({"message": message})),
        named("ping", &json!({})),
    ];
    events.extend(content);
    events.push(named("message_delta", &end));
    events.push(named("message_stop", &json!({})));
    events
}

fn responses_call() -> Vec<String> {
    let call = |status: &str, arguments: &str| {
        json!({
            "id": "fc_1",
            "type": "function_call",
            "status": status,
            "call_id": "call_1",
            "name": "weather",
            "arguments": arguments,
        })
    };
    let summary = json!({"item_id": "rs_1", "output_index": 0, "summary_index": 0});
    let place = json!({"item_id": "fc_1", "output_index": 1});
    let begun = json!({"id": "rs_1", "type": "reasoning", "summary": []});
    let done = call("completed", "{\"city\":\"Rome\"}");
    responses_stream(
        vec![
            named("response.output_item.added", &json!({"output_index": 0, "item": begun})),
            named(
                "response.reasoning_summary_text.delta",
                &with(&summary, "delta", THOUGHT),
            ),
            named("response.reasoning_summary_text.done", &with(&summary, "text", THOUGHT)),
            named(
                "response.output_item.done",
                &json!({"output_index": 0, "item": reasoning_item()}),
            ),
            named(
                "response.output_item.added",
                &json!({"output_index": 1, "item": call("in_progress", "")}),
            ),
            named(
                "response.function_call_arguments.delta",
                &with(&place, "delta", "{\"city\":"),
            ),
            named(
                "response.function_call_arguments.delta",
                &with(&place, "delta", "\"Rome\"}"),
            ),
            named(
                "response.function_call_arguments.done",
                &with(&place, "arguments", "{\"city\":\"Rome\"}"),
            ),
            named("response.output_item.done", &json!({"output_index": 1, "item": done})),
        ],
        &json!([reasoning_item(), done]),
    )
}

fn responses_stream(content: Vec<String>, output: &Json) -> Vec<String> {
    let response = |status: &str, output: &Json, usage: &Json| {
        json!({"response": {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "status": status,
            "model": UPSTREAM_MODEL,
            "output": output,
            "usage": usage,
        }})
    };
    let usage = json!({
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 10},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 80,
    });
    let begun = response("in_progress", &json!([]), &Json::Null);
    let mut events = vec![named("response.created", &begun), named("response.in_progress", &begun)];
    events.extend(content);
    events.push(named("response.completed", &response("completed", output, &usage)));
    events
}

fn message_item(status: &str, content: &Json) -> Json {
    json!({"id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content})
}

fn gemini_chunk(part: &Json, is_last: bool) -> String {
    let mut candidate = json!({"content": {"parts": [part], "role": "model"}, "index": 0});
    let mut usage = json!({"promptTokenCount": 50, "cachedContentTokenCount": 10, "totalTokenCount": 50});
    if is_last {
        candidate["finishReason"] = "STOP".into();
        usage["candidatesTokenCount"] = 18.into();
        usage["thoughtsTokenCount"] = 12.into();
        usage["totalTokenCount"] = 80.into();
    }
    let chunk = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": UPSTREAM_MODEL});
    format!("data: {chunk}\r\n\r\n")
}

/// An event of this type with these members behind it.
fn named(kind: &str, members: &Json) -> String {
    let mut event = json!({"type": kind});
    for (name, value) in members.as_object().unwrap() {
        event[name] = value.clone();
    }
    format!("event: {kind}\ndata: {event}\n\n")
}

/// The members, and one more.
fn with(members: &Json, name: &str, text: &str) -> Json {
    let mut all = members.clone();
    all[name] = text.into();
    all
}
