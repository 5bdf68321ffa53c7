//! A provider whose answers say what they have made.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value as Json;

use crate::harness::RecordingProvider;
use crate::harness::answer::Answer;
use crate::harness::models::MESSAGES_MODEL;

/// Keeps nothing, and answers everything: who is refused is refused by weir. Each answer names what it has made, numbered.
pub(super) fn provider() -> RecordingProvider {
    let count = AtomicUsize::new(0);
    RecordingProvider::start(move |request, answer| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let body: Json = serde_json::from_slice(&request.body).unwrap_or_default();
        let streams = body["stream"] == true;
        if request.target.contains("count_tokens") || request.target.contains(":countTokens") {
            return answer.json(r#"{"input_tokens":3,"totalTokens":3}"#);
        }
        if request.target.contains(":generateContent") {
            return answer.json(
                r#"{"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}"#,
            );
        }
        let made = match request.target.starts_with("/v1/messages") {
            true => message(number),
            false => response(number),
        };
        match (streams, request.target.starts_with("/v1/messages")) {
            (false, _) => answer.json(&made.to_string()),
            (true, true) => stream_message(&made, answer),
            (true, false) => stream_response(&made, answer),
        }
    })
}

pub(super) fn response(number: usize) -> Json {
    serde_json::json!({
        "id": format!("resp_{number}"), "object": "response", "status": "completed",
        "output": [
            { "type": "reasoning", "id": format!("rs_{number}"), "summary": [] },
            { "type": "code_interpreter_call", "id": format!("ci_{number}"), "container_id": format!("cntr_{number}"), "code": "1" },
            { "type": "message", "id": format!("msg_{number}"), "role": "assistant", "content": [{
                "type": "output_text", "text": "hi",
                "annotations": [{ "type": "container_file_citation", "container_id": format!("cntr_{number}"), "file_id": format!("cfile_{number}") }],
            }] },
        ],
        "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 },
    })
}

fn message(number: usize) -> Json {
    serde_json::json!({
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": MESSAGES_MODEL,
        "container": { "id": format!("container_{number}"), "expires_at": "2027-01-01T00:00:00Z" },
        "content": [
            { "type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {
                "type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0,
                "content": [
                    { "type": "bash_code_execution_output", "file_id": format!("file_{number}a") },
                    { "type": "bash_code_execution_output", "file_id": format!("file_{number}b") },
                ],
            } },
            { "type": "tool_use", "id": "toolu_1", "name": "f", "input": { "file_id": "file_of_nobody" } },
            { "type": "text", "text": "hi" },
        ],
        "stop_reason": "end_turn", "usage": { "input_tokens": 1, "output_tokens": 1 },
    })
}

pub(super) fn event(answer: &mut Answer<'_>, data: &Json) {
    answer.chunk(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap()));
}

pub(super) fn stream_response(made: &Json, answer: &mut Answer<'_>) {
    answer.sse();
    event(
        answer,
        &serde_json::json!({ "type": "response.created", "sequence_number": 0,
        "response": { "id": made["id"], "status": "in_progress", "output": [] } }),
    );
    for (at, item) in made["output"].as_array().unwrap().iter().enumerate() {
        event(
            answer,
            &serde_json::json!({ "type": "response.output_item.done", "sequence_number": at + 1, "item": item }),
        );
    }
    event(
        answer,
        &serde_json::json!({ "type": "response.completed", "sequence_number": 9, "response": made }),
    );
    answer.end();
}

fn stream_message(made: &Json, answer: &mut Answer<'_>) {
    answer.sse();
    event(
        answer,
        &serde_json::json!({ "type": "message_start", "message": {
        "id": made["id"], "type": "message", "role": "assistant", "model": made["model"], "content": [], "usage": made["usage"] } }),
    );
    for (index, block) in made["content"].as_array().unwrap().iter().enumerate() {
        event(
            answer,
            &serde_json::json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
        event(
            answer,
            &serde_json::json!({ "type": "content_block_stop", "index": index }),
        );
    }
    event(
        answer,
        &serde_json::json!({ "type": "message_delta",
        "delta": { "stop_reason": "end_turn", "container": made["container"] }, "usage": made["usage"] }),
    );
    event(answer, &serde_json::json!({ "type": "message_stop" }));
    answer.end();
}
