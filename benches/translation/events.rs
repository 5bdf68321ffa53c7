//! The events of an answer in each provider's protocol: a text in deltas of one length.

use serde_json::{Value, json};
use weir::parts::translation::UpstreamProtocol;

use crate::request::MODEL;

/// What the text of every delta is cut from.
const WORDS: &str = "A weir measures what it carries. ";

/// Tokens that every answer reports: input and output.
const TOKENS: (u64, u64) = (100, 50);

/// An answer, event by event.
pub(crate) struct Events {
    /// The events before the first delta. Gemini has none.
    pub(crate) opening: Vec<String>,
    /// A delta each.
    pub(crate) deltas: Vec<String>,
    /// The events behind the last delta.
    pub(crate) closing: Vec<String>,
}

/// The text of one delta.
pub(crate) fn piece(bytes: usize) -> String {
    WORDS.chars().cycle().take(bytes).collect()
}

/// The events of an answer with `count` deltas of `bytes` bytes of text each.
pub(crate) fn events(protocol: UpstreamProtocol, count: usize, bytes: usize) -> Events {
    let piece = piece(bytes);
    match protocol {
        UpstreamProtocol::Messages => messages(count, &piece),
        UpstreamProtocol::Responses => responses(count, &piece),
        UpstreamProtocol::Gemini => gemini(count, &piece),
        UpstreamProtocol::Chat => chat(count, &piece),
    }
}

/// An event with this name and type, and these members behind the type.
fn named(kind: &str, members: &Value) -> String {
    let mut event = json!({ "type": kind });
    for (name, value) in members.as_object().into_iter().flatten() {
        event[name] = value.clone();
    }
    format!("event: {kind}\ndata: {event}\n\n")
}

fn messages(count: usize, piece: &str) -> Events {
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": TOKENS.0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1 },
    });
    let delta = json!({ "index": 0, "delta": { "type": "text_delta", "text": piece } });
    let end = json!({
        "delta": { "stop_reason": "end_turn", "stop_sequence": null },
        "usage": { "output_tokens": TOKENS.1 },
    });
    let block = json!({ "index": 0, "content_block": { "type": "text", "text": "" } });
    Events {
        opening: vec![
            named("message_start", &json!({ "message": message })),
            named("content_block_start", &block),
        ],
        deltas: vec![named("content_block_delta", &delta); count],
        closing: vec![
            named("content_block_stop", &json!({ "index": 0 })),
            named("message_delta", &end),
            named("message_stop", &json!({})),
        ],
    }
}

fn responses(count: usize, piece: &str) -> Events {
    let text = piece.repeat(count);
    let mut number = 0;
    let mut event = |kind: &str, members: &Value| {
        let mut numbered = json!({ "sequence_number": number });
        for (name, value) in members.as_object().into_iter().flatten() {
            numbered[name] = value.clone();
        }
        number += 1;
        named(kind, &numbered)
    };
    let response = |status: &str, output: &Value, usage: &Value| {
        json!({ "response": {
            "id": "resp_1", "object": "response", "created_at": 1_790_000_000, "status": status, "model": MODEL,
            "output": output, "usage": usage,
        } })
    };
    let item = |status: &str, content: &Value| json!({ "id": "msg_1", "type": "message", "status": status, "role": "assistant", "content": content });
    let part = |text: &str| json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": text });
    let at_part = |name: &str, value: Value| {
        let mut members = json!({ "item_id": "msg_1", "output_index": 0, "content_index": 0 });
        members[name] = value;
        members
    };
    let begun = response("in_progress", &json!([]), &Value::Null);
    let done = item("completed", &json!([part(&text)]));
    let usage = json!({
        "input_tokens": TOKENS.0, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": TOKENS.1, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": TOKENS.0 + TOKENS.1,
    });
    let added = json!({ "output_index": 0, "item": item("in_progress", &json!([])) });
    let ended = json!({ "output_index": 0, "item": done });
    Events {
        opening: vec![
            event("response.created", &begun),
            event("response.in_progress", &begun),
            event("response.output_item.added", &added),
            event("response.content_part.added", &at_part("part", part(""))),
        ],
        deltas: (0..count)
            .map(|_| event("response.output_text.delta", &at_part("delta", piece.into())))
            .collect(),
        closing: vec![
            event("response.output_text.done", &at_part("text", text.as_str().into())),
            event("response.content_part.done", &at_part("part", part(&text))),
            event("response.output_item.done", &ended),
            event("response.completed", &response("completed", &json!([done]), &usage)),
        ],
    }
}

fn gemini(count: usize, piece: &str) -> Events {
    let chunk = |text: &str, is_last: bool| {
        let mut candidate = json!({ "content": { "parts": [{ "text": text }], "role": "model" }, "index": 0 });
        let mut usage = json!({ "promptTokenCount": TOKENS.0, "totalTokenCount": TOKENS.0 });
        if is_last {
            candidate["finishReason"] = "STOP".into();
            usage["candidatesTokenCount"] = TOKENS.1.into();
            usage["totalTokenCount"] = (TOKENS.0 + TOKENS.1).into();
        }
        let chunk =
            json!({ "candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL, "responseId": "r_1" });
        format!("data: {chunk}\r\n\r\n")
    };
    Events {
        opening: Vec::new(),
        deltas: vec![chunk(piece, false); count],
        closing: vec![chunk("", true)],
    }
}

fn chat(count: usize, piece: &str) -> Events {
    let chunk = |choices: &Value, usage: &Value| {
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": MODEL,
            "choices": choices, "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let delta = |delta: &Value, reason: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason });
        chunk(&json!([choice]), &Value::Null)
    };
    let usage = json!({
        "prompt_tokens": TOKENS.0, "completion_tokens": TOKENS.1, "total_tokens": TOKENS.0 + TOKENS.1,
    });
    Events {
        opening: vec![delta(&json!({ "role": "assistant", "content": "" }), None)],
        deltas: vec![delta(&json!({ "content": piece }), None); count],
        closing: vec![
            delta(&json!({}), Some("stop")),
            chunk(&json!([]), &usage),
            "data: [DONE]\n\n".to_owned(),
        ],
    }
}
