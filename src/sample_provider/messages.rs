//! The provider's side of the Messages protocol: bodies, events and errors.

use serde_json::{Map, Value, json};

use super::answer::ScriptedToolCall;
use crate::sample_provider::answer::{FrameKind, ReportedCounts, SIGNATURE, SampleFrame, SampleReply};

/// The number of output tokens that an advisor reports.
const ADVICE_TOKENS: i64 = 500;

/// Renders the body of a non-streaming response.
pub(super) fn unary(reply: &SampleReply<'_>) -> Value {
    let mut content = Vec::new();
    if !reply.answer.thinking.is_empty() {
        content.push(json!({"type": "thinking", "thinking": reply.answer.thinking.concat(), "signature": SIGNATURE}));
    }
    content.push(json!({"type": "text", "text": reply.answer.text.concat()}));
    if let Some(call) = &reply.answer.call {
        let id = format!("toolu_{}", reply.id);
        content.push(json!({"type": "tool_use", "id": id, "name": call.tool.name, "input": call.tool.arguments}));
    }
    let mut message = message(reply, &Value::Array(content), &json!(stop_reason(reply)));
    if let (Some(counts), Some(fields)) = (reply.counts, message.as_object_mut()) {
        let mut usage = full_usage(counts, counts.output(), OutputDetails::Shown);
        add_iterations(&mut usage, reply, counts);
        fields.insert("usage".to_owned(), Value::Object(usage));
    }
    message
}

pub(super) fn stream(reply: &SampleReply<'_>) -> Vec<SampleFrame> {
    let mut frames = Vec::with_capacity(reply.answer.deltas() + 12);
    let mut start = message(reply, &json!([]), &Value::Null);
    if let (Some(counts), Some(fields)) = (reply.counts, start.as_object_mut()) {
        let output = counts.output().clamp(-7, 1);
        fields.insert(
            "usage".to_owned(),
            Value::Object(full_usage(counts, output, OutputDetails::Hidden)),
        );
    }
    frames.push(event(
        FrameKind::Other,
        "message_start",
        &json!({"type": "message_start", "message": start}),
    ));
    frames.push(event(FrameKind::Other, "ping", &json!({"type": "ping"})));
    let mut index = 0;
    if !reply.answer.thinking.is_empty() {
        let block = json!({"type": "thinking", "thinking": "", "signature": ""});
        frames.push(block_start(index, &block));
        for thinking in &reply.answer.thinking {
            frames.push(delta(
                FrameKind::Delta,
                index,
                &json!({"type": "thinking_delta", "thinking": thinking}),
            ));
        }
        frames.push(delta(
            FrameKind::Other,
            index,
            &json!({"type": "signature_delta", "signature": SIGNATURE}),
        ));
        frames.push(block_stop(index));
        index += 1;
    }
    frames.push(block_start(index, &json!({"type": "text", "text": ""})));
    for text in &reply.answer.text {
        frames.push(delta(
            FrameKind::Delta,
            index,
            &json!({"type": "text_delta", "text": text}),
        ));
    }
    frames.push(block_stop(index));
    if let Some(call) = &reply.answer.call {
        add_call(&mut frames, index + 1, reply, call);
    }
    frames.push(message_delta(reply));
    frames.push(event(
        FrameKind::Final,
        "message_stop",
        &json!({"type": "message_stop"}),
    ));
    frames
}

fn add_call(frames: &mut Vec<SampleFrame>, index: usize, reply: &SampleReply<'_>, call: &ScriptedToolCall) {
    let id = format!("toolu_{}", reply.id);
    frames.push(block_start(
        index,
        &json!({"type": "tool_use", "id": id, "name": call.tool.name, "input": {}}),
    ));
    // In a real answer, the first piece of the arguments is also empty.
    frames.push(delta(
        FrameKind::Other,
        index,
        &json!({"type": "input_json_delta", "partial_json": ""}),
    ));
    for part in &call.deltas {
        frames.push(delta(
            FrameKind::Delta,
            index,
            &json!({"type": "input_json_delta", "partial_json": part}),
        ));
    }
    frames.push(block_stop(index));
}

pub(super) fn in_band_error() -> SampleFrame {
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    event(FrameKind::Other, "error", &error)
}

/// Renders the body of an error response.
pub(super) fn error(status: u16, message: &str, request_id: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500..=599 => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id})
}

/// Renders the body of a `count_tokens` response.
pub(super) fn token_count(tokens: u64) -> Value {
    json!({"input_tokens": tokens})
}

fn message(reply: &SampleReply<'_>, content: &Value, stop_reason: &Value) -> Value {
    json!({"id": format!("msg_{}", reply.id), "type": "message", "role": "assistant", "model": reply.model,
        "content": content, "stop_reason": stop_reason, "stop_sequence": null})
}

fn stop_reason(reply: &SampleReply<'_>) -> &'static str {
    if reply.answer.call.is_some() {
        "tool_use"
    } else {
        "end_turn"
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputDetails {
    Shown,
    Hidden,
}

fn full_usage(counts: ReportedCounts, output: i64, details: OutputDetails) -> Map<String, Value> {
    let mut usage = Map::new();
    usage.insert("input_tokens".to_owned(), json!(counts.uncached));
    usage.insert("cache_creation_input_tokens".to_owned(), json!(counts.cache_write));
    usage.insert("cache_read_input_tokens".to_owned(), json!(counts.cache_read));
    let split = json!({"ephemeral_5m_input_tokens": counts.cache_write, "ephemeral_1h_input_tokens": 0});
    usage.insert("cache_creation".to_owned(), split);
    usage.insert("output_tokens".to_owned(), json!(output));
    if details == OutputDetails::Shown {
        usage.insert(
            "output_tokens_details".to_owned(),
            json!({"thinking_tokens": counts.thinking}),
        );
    }
    usage.insert("service_tier".to_owned(), json!("standard"));
    usage
}

fn message_delta(reply: &SampleReply<'_>) -> SampleFrame {
    let mut data = json!({"type": "message_delta",
        "delta": {"stop_reason": stop_reason(reply), "stop_sequence": null}});
    if let (Some(counts), Some(fields)) = (reply.counts, data.as_object_mut()) {
        let mut usage = json!({"input_tokens": counts.uncached, "cache_creation_input_tokens": counts.cache_write,
            "cache_read_input_tokens": counts.cache_read, "output_tokens": counts.output(),
            "output_tokens_details": {"thinking_tokens": counts.thinking},
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}});
        if let Some(usage) = usage.as_object_mut() {
            add_iterations(usage, reply, counts);
        }
        fields.insert("usage".to_owned(), usage);
    }
    event(FrameKind::Final, "message_delta", &data)
}

/// If several models worked on the answer, adds the usage of each of them as `iterations`. Reports the same input usage for all
/// of them.
fn add_iterations(usage: &mut Map<String, Value>, reply: &SampleReply<'_>, counts: ReportedCounts) {
    let run = |kind: &str, model: Option<&str>, output: i64| {
        json!({"type": kind, "model": model, "input_tokens": counts.uncached, "output_tokens": output,
            "cache_creation_input_tokens": counts.cache_write, "cache_read_input_tokens": counts.cache_read})
    };
    let mut runs = match reply.others.fallback {
        Some(fallback) => vec![
            run("message", None, 0),
            run("fallback_message", Some(fallback), counts.output()),
        ],
        None => vec![run("message", None, counts.output())],
    };
    if let Some(advisor) = reply.others.advisor {
        runs.push(run("advisor_message", Some(advisor), ADVICE_TOKENS));
    }
    if runs.len() > 1 {
        usage.insert("iterations".to_owned(), Value::Array(runs));
    }
}

fn block_start(index: usize, block: &Value) -> SampleFrame {
    let data = json!({"type": "content_block_start", "index": index, "content_block": block});
    event(FrameKind::Other, "content_block_start", &data)
}

fn delta(kind: FrameKind, index: usize, delta: &Value) -> SampleFrame {
    event(
        kind,
        "content_block_delta",
        &json!({"type": "content_block_delta", "index": index, "delta": delta}),
    )
}

fn block_stop(index: usize) -> SampleFrame {
    event(
        FrameKind::Other,
        "content_block_stop",
        &json!({"type": "content_block_stop", "index": index}),
    )
}

fn event(kind: FrameKind, name: &str, data: &Value) -> SampleFrame {
    SampleFrame {
        kind,
        bytes: format!("event: {name}\ndata: {data}\n\n").into(),
    }
}
