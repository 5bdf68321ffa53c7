//! The Responses protocol as the host speaks it.

use serde_json::{Value as Json, json};

use super::script::{Entry, ModelAnswer, PROGRAMS, ToolCall, prompts_in, result};
use super::sse::named;

/// The identifier of a call.
pub(super) fn call_id(call: &ToolCall) -> String {
    format!("call_{}", call.number)
}

/// An answer as a later request has to repeat it.
pub(super) fn entries_of(answer: &ModelAnswer) -> Vec<Entry> {
    answer.entries(&answer.state(), |call| {
        let name = match call.input {
            Json::String(_) => format!("{PROGRAMS}.{}", call.name),
            _ => call.name.to_owned(),
        };
        Entry::Call {
            id: call_id(call),
            name,
            input: call.input.clone(),
        }
    })
}

/// The events of an answer.
pub(super) fn events(answer: &ModelAnswer, model: &str) -> Vec<String> {
    let response = |status: &str, output: &[Json], usage: &Json| {
        json!({"response": {
            "id": format!("resp_{}", answer.number),
            "object": "response",
            "created_at": 1,
            "status": status,
            "model": model,
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
    let begun = response("in_progress", &[], &Json::Null);
    let mut events = vec![("response.created", begun.clone()), ("response.in_progress", begun)];
    let mut output = Vec::new();
    for (index, item) in items(answer).into_iter().enumerate() {
        let place = json!({"item_id": item.whole["id"], "output_index": index});
        events.push((
            "response.output_item.added",
            json!({"output_index": index, "item": item.begun}),
        ));
        events.extend(
            item.pieces
                .into_iter()
                .map(|(kind, members)| (kind, with(&place, &members))),
        );
        let done = json!({"output_index": index, "item": item.whole});
        events.push(("response.output_item.done", done));
        output.push(item.whole);
    }
    events.push(("response.completed", response("completed", &output, &usage)));
    let numbered = events.iter().enumerate();
    numbered
        .map(|(number, (kind, members))| named(kind, &with(members, &json!({ "sequence_number": number }))))
        .collect()
}

/// An item of an answer, and the events between its beginning and its end.
struct OutputItem {
    begun: Json,
    pieces: Vec<(&'static str, Json)>,
    whole: Json,
}

fn items(answer: &ModelAnswer) -> Vec<OutputItem> {
    let mut items = Vec::new();
    if !answer.thought.is_empty() {
        items.push(reasoning_item(answer));
    }
    if !answer.text.is_empty() {
        items.push(message_item(answer));
    }
    items.extend(answer.calls.iter().map(call_item));
    items
}

fn reasoning_item(answer: &ModelAnswer) -> OutputItem {
    let (id, thought) = (format!("rs_{}", answer.number), answer.thought);
    let part = |text: &str| json!({"type": "summary_text", "text": text});
    let summary = |name: &str, value: Json| json!({"summary_index": 0, name: value});
    OutputItem {
        begun: json!({"id": id, "type": "reasoning", "summary": []}),
        pieces: vec![
            ("response.reasoning_summary_part.added", summary("part", part(""))),
            (
                "response.reasoning_summary_text.delta",
                summary("delta", thought.into()),
            ),
            ("response.reasoning_summary_text.done", summary("text", thought.into())),
            ("response.reasoning_summary_part.done", summary("part", part(thought))),
        ],
        whole: json!({
            "id": id,
            "type": "reasoning",
            "summary": [part(thought)],
            "encrypted_content": answer.state(),
        }),
    }
}

fn message_item(answer: &ModelAnswer) -> OutputItem {
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let content = |name: &str, value: Json| json!({"content_index": 0, name: value});
    let item = |status: &str, content: Json| {
        json!({
            "id": format!("msg_{}", answer.number),
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        })
    };
    let (first, second) = answer.text.split_at(4);
    OutputItem {
        begun: item("in_progress", json!([])),
        pieces: vec![
            ("response.content_part.added", content("part", part(""))),
            ("response.output_text.delta", content("delta", first.into())),
            ("response.output_text.delta", content("delta", second.into())),
            ("response.output_text.done", content("text", answer.text.into())),
            ("response.content_part.done", content("part", part(answer.text))),
        ],
        whole: item("completed", json!([part(answer.text)])),
    }
}

fn call_item(call: &ToolCall) -> OutputItem {
    if let Json::String(program) = &call.input {
        let item = |status: &str, input: &str| {
            json!({
                "id": format!("ctc_{}", call.number),
                "type": "custom_tool_call",
                "status": status,
                "call_id": call_id(call),
                "name": call.name,
                "namespace": PROGRAMS,
                "input": input,
            })
        };
        return OutputItem {
            begun: item("in_progress", ""),
            pieces: vec![
                ("response.custom_tool_call_input.delta", json!({ "delta": program })),
                ("response.custom_tool_call_input.done", json!({ "input": program })),
            ],
            whole: item("completed", program),
        };
    }
    let item = |status: &str, arguments: &str| {
        json!({
            "id": format!("fc_{}", call.number),
            "type": "function_call",
            "status": status,
            "call_id": call_id(call),
            "name": call.name,
            "arguments": arguments,
        })
    };
    let arguments = call.input.to_string();
    let (first, second) = arguments.split_at(7);
    OutputItem {
        begun: item("in_progress", ""),
        pieces: vec![
            ("response.function_call_arguments.delta", json!({ "delta": first })),
            ("response.function_call_arguments.delta", json!({ "delta": second })),
            (
                "response.function_call_arguments.done",
                json!({ "arguments": arguments }),
            ),
        ],
        whole: item("completed", &arguments),
    }
}

/// The members of both objects.
fn with(members: &Json, more: &Json) -> Json {
    let mut all = members.clone();
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

/// The conversation of a request.
pub(super) fn entries(body: &Json) -> Result<Vec<Entry>, String> {
    let input = body["input"].as_array().ok_or("no input")?;
    let mut entries = Vec::new();
    for item in input {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap_or("message") {
            "message" => entries.extend(entries_of_message(item)?),
            "reasoning" => {
                let summary = item["summary"].as_array().into_iter().flatten();
                let texts: Vec<&str> = summary.filter_map(|part| part["text"].as_str()).collect();
                entries.push(Entry::Thought {
                    text: texts.concat(),
                    state: text("encrypted_content"),
                });
            }
            "function_call" => entries.push(Entry::Call {
                id: text("call_id"),
                name: text("name"),
                input: serde_json::from_str(&text("arguments")).map_err(|error| format!("{error}: {item}"))?,
            }),
            "custom_tool_call" => entries.push(Entry::Call {
                id: text("call_id"),
                name: format!("{}.{}", text("namespace"), text("name")),
                input: item["input"].clone(),
            }),
            "function_call_output" | "custom_tool_call_output" => {
                entries.push(result(&text("call_id"), &item["output"]));
            }
            "additional_tools" => {}
            _ => return Err(format!("an item {item}")),
        }
    }
    Ok(entries)
}

fn entries_of_message(item: &Json) -> Result<Vec<Entry>, String> {
    let texts: Vec<&str> = match &item["content"] {
        Json::String(text) => vec![text],
        content => {
            let parts = content.as_array().into_iter().flatten();
            parts.filter_map(|part| part["text"].as_str()).collect()
        }
    };
    match item["role"].as_str().unwrap_or_default() {
        "user" => Ok(texts.into_iter().flat_map(prompts_in).collect()),
        "assistant" => Ok(texts.into_iter().map(|text| Entry::Text(text.to_owned())).collect()),
        "developer" | "system" => Ok(Vec::new()),
        _ => Err(format!("a message {item}")),
    }
}
