//! The Gemini-style protocol as the host speaks it.

use serde_json::{Value as Json, json};

use super::script::{Entry, ModelAnswer, ToolCall, prompts_in, result};

/// The place of the call: the host gives its calls no identifiers, those of a request are numbered in their order.
pub(super) fn call_id(call: &ToolCall) -> String {
    call.number.to_string()
}

/// An answer as a later request has to repeat it. The state belongs to the part behind it; without a call behind it, no agent
/// keeps it, because it comes with an empty text. The visible reasoning is not repeated.
pub(super) fn entries_of(answer: &ModelAnswer) -> Vec<Entry> {
    let mut entries = Vec::new();
    if !answer.text.is_empty() {
        entries.push(Entry::Text(answer.text.to_owned()));
    }
    if !answer.thought.is_empty() && !answer.calls.is_empty() {
        entries.push(Entry::Thought {
            text: String::new(),
            state: answer.state(),
        });
    }
    entries.extend(answer.calls.iter().map(|call| call.entry(call_id(call))));
    entries
}

/// The events of an answer, each with one part.
pub(super) fn events(answer: &ModelAnswer, model: &str) -> Vec<String> {
    let mut parts = Vec::new();
    if !answer.thought.is_empty() {
        parts.push(json!({"text": answer.thought, "thought": true}));
    }
    if !answer.text.is_empty() {
        let (first, second) = answer.text.split_at(4);
        parts.extend([first, second].map(|text| json!({ "text": text })));
    }
    parts.extend(answer.calls.iter().map(|call| {
        let (name, input) = call.as_function();
        json!({"functionCall": {"name": name, "args": input}})
    }));
    let first_call = parts.iter().position(|part| part.get("functionCall").is_some());
    if !answer.thought.is_empty() {
        let bearer = first_call.unwrap_or_else(|| {
            parts.push(json!({"text": ""}));
            parts.len() - 1
        });
        parts[bearer]["thoughtSignature"] = answer.state().into();
    }
    let last = parts.len() - 1;
    let events = parts.iter().enumerate();
    events.map(|(index, part)| chunk(part, index == last, model)).collect()
}

fn chunk(part: &Json, is_last: bool, model: &str) -> String {
    let mut candidate = json!({"content": {"parts": [part], "role": "model"}, "index": 0});
    let mut usage = json!({"promptTokenCount": 50, "cachedContentTokenCount": 10, "totalTokenCount": 50});
    if is_last {
        candidate["finishReason"] = "STOP".into();
        usage["candidatesTokenCount"] = 18.into();
        usage["thoughtsTokenCount"] = 12.into();
        usage["totalTokenCount"] = 80.into();
    }
    let chunk = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": model});
    format!("data: {chunk}\r\n\r\n")
}

/// The conversation of a request. Two turns of the model in a row are a fault, and so is a result that does not name its call.
pub(super) fn entries(body: &Json) -> Result<Vec<Entry>, String> {
    let contents = body["contents"].as_array().ok_or("no contents")?;
    let mut entries = Vec::new();
    let mut calls: Vec<&Json> = Vec::new();
    let mut before = "";
    for content in contents {
        let role = content["role"].as_str().unwrap_or_default();
        if role == before && role == "model" {
            return Err(format!("two turns of {role}: {content}"));
        }
        before = role;
        for part in content["parts"].as_array().ok_or("a turn without parts")? {
            if let Some(state) = part["thoughtSignature"].as_str() {
                entries.push(Entry::Thought {
                    text: String::new(),
                    state: state.to_owned(),
                });
            }
            let (call, response) = (&part["functionCall"], &part["functionResponse"]);
            match (role, part["text"].as_str()) {
                ("user", Some(text)) => entries.extend(prompts_in(text)),
                ("user", None) if response.is_object() => {
                    let is_its_call = |call: &&Json| call["id"] == response["id"] && call["name"] == response["name"];
                    let place = calls.iter().position(is_its_call);
                    let place = place.ok_or_else(|| format!("a result without a call: {part}"))?;
                    entries.push(result(&place.to_string(), &response["response"]));
                }
                ("model", Some(text)) if part["thought"] != true => entries.push(Entry::Text(text.to_owned())),
                ("model", None) if call["id"].is_string() => {
                    entries.push(Entry::Call {
                        id: calls.len().to_string(),
                        name: call["name"].as_str().unwrap_or_default().to_owned(),
                        input: call["args"].clone(),
                    });
                    calls.push(call);
                }
                _ => return Err(format!("a part of {role}: {part}")),
            }
        }
    }
    Ok(entries)
}
