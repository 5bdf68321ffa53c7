//! `chat/completions` as the host speaks it.

use serde_json::{Value as Json, json};

use super::script::{Entry, ModelAnswer, ToolCall, prompts_in, result};
use super::sse::unnamed;

/// The identifier of a call, as some hosts make them: no client's protocol takes its characters.
pub(super) fn call_id(call: &ToolCall) -> String {
    format!("functions.{}:{}", call.as_function().0, call.number)
}

/// An answer as a later request has to repeat it. All of the reasoning is visible.
pub(super) fn entries_of(answer: &ModelAnswer) -> Vec<Entry> {
    answer.entries("", |call| call.entry(call_id(call)))
}

/// The events of an answer. The arguments of several calls come in turns.
pub(super) fn events(answer: &ModelAnswer, model: &str) -> Vec<String> {
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    if !answer.thought.is_empty() {
        let (first, second) = answer.thought.split_at(3);
        deltas.extend([first, second].map(|text| json!({ "reasoning_content": text })));
    }
    if !answer.text.is_empty() {
        let (first, second) = answer.text.split_at(4);
        deltas.extend([first, second].map(|text| json!({ "content": text })));
    }
    for (index, call) in answer.calls.iter().enumerate() {
        let function = json!({"name": call.as_function().0, "arguments": ""});
        let begun = json!({"index": index, "id": call_id(call), "type": "function", "function": function});
        deltas.push(json!({ "tool_calls": [begun] }));
    }
    let arguments: Vec<String> = answer
        .calls
        .iter()
        .map(|call| call.as_function().1.to_string())
        .collect();
    for half in 0..2 {
        for (index, arguments) in arguments.iter().enumerate() {
            let (first, second) = arguments.split_at(7);
            let piece = if half == 0 { first } else { second };
            let function = json!({ "arguments": piece });
            deltas.push(json!({"tool_calls": [{"index": index, "function": function}]}));
        }
    }
    let reason = if answer.calls.is_empty() { "stop" } else { "tool_calls" };
    let mut choices: Vec<Json> = deltas
        .iter()
        .map(|delta| json!([{"index": 0, "delta": delta, "finish_reason": null}]))
        .collect();
    choices.push(json!([{"index": 0, "delta": {}, "finish_reason": reason}]));
    let chunk = |choices: &Json, usage: &Json| {
        let id = format!("chatcmpl-{}", answer.number);
        unnamed(&json!({
            "id": id,
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
            "choices": choices,
            "usage": usage,
        }))
    };
    let mut events: Vec<String> = choices.iter().map(|choices| chunk(choices, &Json::Null)).collect();
    events.push(chunk(&json!([]), &usage()));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn usage() -> Json {
    json!({
        "prompt_tokens": 50,
        "completion_tokens": 30,
        "total_tokens": 80,
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 12},
    })
}

/// The conversation of a request. Two messages of the user or of the model in a row are a fault.
pub(super) fn entries(body: &Json) -> Result<Vec<Entry>, String> {
    let messages = body["messages"].as_array().ok_or("no messages")?;
    let mut entries = Vec::new();
    let mut before = "";
    for message in messages.iter().filter(|message| message["role"] != "system") {
        let role = message["role"].as_str().unwrap_or_default();
        if role == before && role != "tool" {
            return Err(format!("two messages of {role}: {message}"));
        }
        before = role;
        let content = message["content"].as_str().unwrap_or_default();
        match role {
            "user" => entries.extend(prompts_in(content)),
            "assistant" => entries.extend(entries_of_message(message, content)?),
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                entries.push(result(id, &message["content"]));
            }
            _ => return Err(format!("a message {message}")),
        }
    }
    Ok(entries)
}

fn entries_of_message(message: &Json, content: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    if let Some(thought) = message["reasoning_content"].as_str() {
        entries.push(Entry::Thought {
            text: thought.to_owned(),
            state: String::new(),
        });
    }
    if !content.is_empty() {
        entries.push(Entry::Text(content.to_owned()));
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        entries.push(Entry::Call {
            id: call["id"].as_str().unwrap_or_default().to_owned(),
            name: call["function"]["name"].as_str().unwrap_or_default().to_owned(),
            input: serde_json::from_str(arguments).map_err(|error| format!("{error}: {call}"))?,
        });
    }
    Ok(entries)
}
