//! The Messages protocol as the host speaks it.

use serde_json::{Value as Json, json};

use super::script::{Entry, ModelAnswer, ToolCall, prompts_in, result};
use super::sse::named;

/// The identifier of a call.
pub(super) fn call_id(call: &ToolCall) -> String {
    format!("toolu_{}", call.number)
}

/// An answer as a later request has to repeat it.
pub(super) fn entries_of(answer: &ModelAnswer) -> Vec<Entry> {
    answer.entries(&answer.state(), |call| call.entry(call_id(call)))
}

/// The events of an answer.
pub(super) fn events(answer: &ModelAnswer, model: &str) -> Vec<String> {
    let message = json!({
        "id": format!("msg_{}", answer.number),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {"input_tokens": 40, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 10, "output_tokens": 1},
    });
    let mut events = vec![named("message_start", &json!({ "message": message }))];
    for (index, (start, deltas)) in blocks(answer).into_iter().enumerate() {
        events.push(named(
            "content_block_start",
            &json!({"index": index, "content_block": start}),
        ));
        events.extend(deltas.iter().map(|delta| {
            let members = json!({"index": index, "delta": delta});
            named("content_block_delta", &members)
        }));
        events.push(named("content_block_stop", &json!({ "index": index })));
    }
    let reason = if answer.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    let usage = json!({"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}});
    let end = json!({"delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage});
    events.push(named("message_delta", &end));
    events.push(named("message_stop", &json!({})));
    events
}

/// Each block: its beginning, and its deltas.
fn blocks(answer: &ModelAnswer) -> Vec<(Json, Vec<Json>)> {
    let mut blocks = Vec::new();
    if !answer.thought.is_empty() {
        let deltas = vec![
            json!({"type": "thinking_delta", "thinking": answer.thought}),
            json!({"type": "signature_delta", "signature": answer.state()}),
        ];
        blocks.push((json!({"type": "thinking", "thinking": "", "signature": ""}), deltas));
    }
    if !answer.text.is_empty() {
        let (first, second) = answer.text.split_at(4);
        let delta = |text: &str| json!({"type": "text_delta", "text": text});
        blocks.push((json!({"type": "text", "text": ""}), vec![delta(first), delta(second)]));
    }
    blocks.extend(answer.calls.iter().map(|call| {
        let (name, input) = call.as_function();
        let arguments = input.to_string();
        let (first, second) = arguments.split_at(7);
        let delta = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
        let start = json!({"type": "tool_use", "id": call_id(call), "name": name, "input": {}});
        (start, vec![delta(first), delta(second)])
    }));
    blocks
}

/// The conversation of a request. Two turns of one role in a row are a fault, and so is a text before the results of calls.
pub(super) fn entries(body: &Json) -> Result<Vec<Entry>, String> {
    let messages = body["messages"].as_array().ok_or("no messages")?;
    let mut entries = Vec::new();
    let mut before = "";
    // Claude Code has system messages between the others.
    for message in messages.iter().filter(|message| message["role"] != "system") {
        let role = message["role"].as_str().unwrap_or_default();
        if role == before {
            return Err(format!("two turns of {role}: {message}"));
        }
        before = role;
        let mut has_text = false;
        for block in &content(message)? {
            let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
            match (role, block["type"].as_str().unwrap_or_default()) {
                ("user", "text") => {
                    has_text = true;
                    entries.extend(prompts_in(&text("text")));
                }
                ("user", "tool_result") if !has_text => {
                    entries.push(result(&text("tool_use_id"), &block["content"]));
                }
                ("assistant", "text") => entries.push(Entry::Text(text("text"))),
                ("assistant", "thinking") => entries.push(Entry::Thought {
                    text: text("thinking"),
                    state: text("signature"),
                }),
                ("assistant", "tool_use") => entries.push(Entry::Call {
                    id: text("id"),
                    name: text("name"),
                    input: block["input"].clone(),
                }),
                _ => return Err(format!("a block of {role}: {block}")),
            }
        }
    }
    Ok(entries)
}

fn content(message: &Json) -> Result<Vec<Json>, String> {
    match &message["content"] {
        Json::String(text) => Ok(vec![json!({"type": "text", "text": text})]),
        Json::Array(blocks) => Ok(blocks.clone()),
        other => Err(format!("a message's content: {other}")),
    }
}

/// A part of a request without what Claude Code and opencode change from request to request: the marks of the cache move, and
/// with them a text becomes a list of blocks.
pub(super) fn without_marks(value: &Json) -> Json {
    match value {
        Json::Object(members) => {
            let kept = members.iter().filter(|(name, _)| *name != "cache_control");
            let plain = |(name, value): (&String, &Json)| match (name.as_str(), value) {
                ("content", Json::String(text)) => (name.clone(), json!([{"type": "text", "text": text}])),
                _ => (name.clone(), without_marks(value)),
            };
            Json::Object(kept.map(plain).collect())
        }
        Json::Array(elements) => Json::Array(elements.iter().map(without_marks).collect()),
        other => other.clone(),
    }
}
