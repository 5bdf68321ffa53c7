//! The provider's side of the `chat/completions` protocol: bodies, chunks and errors.

pub(super) mod checks;

use serde_json::{Value, json};

use crate::sample_provider::{
    ask::SampleRequestError,
    reply::{FrameKind, ReportedCounts, SampleFrame, SampleReply},
};

/// Renders the body of a non-streaming response.
pub(super) fn unary(reply: &SampleReply<'_>) -> Value {
    let answer = reply.answer;
    let mut message = json!({"role": "assistant", "content": answer.text.concat(), "refusal": null});
    if let Some(fields) = message.as_object_mut() {
        if !answer.thinking.is_empty() {
            fields.insert("reasoning_content".to_owned(), json!(answer.thinking.concat()));
        }
        if let Some(call) = &answer.call {
            let function = json!({"name": call.tool.name, "arguments": call.deltas.concat()});
            let calls = json!([{"id": call_id(reply), "type": "function", "function": function}]);
            fields.insert("tool_calls".to_owned(), calls);
        }
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(reply)});
    let mut body = envelope(reply, "chat.completion", &json!([choice]));
    if let (Some(counts), Some(fields)) = (reply.counts, body.as_object_mut()) {
        fields.insert("usage".to_owned(), usage(counts));
    }
    body
}

/// Renders the events of a stream. The usage has a chunk of its own after the finish reason, if the client requests it.
pub(super) fn stream(reply: &SampleReply<'_>) -> Vec<SampleFrame> {
    let answer = reply.answer;
    let mut frames = Vec::with_capacity(answer.deltas() + 5);
    let head = json!({"role": "assistant", "content": ""});
    frames.push(chunk(reply, FrameKind::Other, &head, None));
    let thinking = answer.thinking.iter().map(|text| json!({"reasoning_content": text}));
    let text = answer.text.iter().map(|text| json!({"content": text}));
    frames.extend(
        thinking
            .chain(text)
            .map(|delta| chunk(reply, FrameKind::Delta, &delta, None)),
    );
    if let Some(call) = &answer.call {
        let function = json!({"name": call.tool.name, "arguments": ""});
        let first = json!({"index": 0, "id": call_id(reply), "type": "function", "function": function});
        frames.push(chunk(reply, FrameKind::Other, &json!({"tool_calls": [first]}), None));
        frames.extend(call.deltas.iter().map(|part| {
            let piece = json!({"index": 0, "function": {"arguments": part}});
            chunk(reply, FrameKind::Delta, &json!({"tool_calls": [piece]}), None)
        }));
    }
    frames.push(chunk(reply, FrameKind::Final, &json!({}), Some(finish_reason(reply))));
    if let Some(counts) = reply.counts.filter(|_| reply.streams_usage) {
        let mut last = envelope(reply, "chat.completion.chunk", &json!([]));
        if let Some(fields) = last.as_object_mut() {
            fields.insert("usage".to_owned(), usage(counts));
        }
        frames.push(event(FrameKind::Final, &last));
    }
    frames.push(SampleFrame {
        kind: FrameKind::Final,
        bytes: "data: [DONE]\n\n".into(),
    });
    frames
}

/// Renders the in-band error event of a stream.
pub(super) fn in_band_error() -> SampleFrame {
    let message = "The server had an error while processing the request.";
    let error = json!({"error": {"message": message, "type": "server_error", "param": null, "code": null}});
    event(FrameKind::Other, &error)
}

/// Renders the body of the error response to a request that cannot be answered. The error's code names the fault.
pub(super) fn request_error(error: &SampleRequestError) -> Value {
    let message = error.to_string();
    json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": error.code}})
}

fn call_id(reply: &SampleReply<'_>) -> String {
    format!("call_{}", reply.id)
}

fn finish_reason(reply: &SampleReply<'_>) -> &'static str {
    if reply.answer.call.is_some() {
        "tool_calls"
    } else {
        "stop"
    }
}

/// Renders the members that a body and all chunks of an answer share.
fn envelope(reply: &SampleReply<'_>, object: &str, choices: &Value) -> Value {
    json!({"id": format!("chatcmpl-{}", reply.id), "object": object, "created": reply.created_at,
        "model": reply.model, "choices": choices})
}

fn chunk(reply: &SampleReply<'_>, kind: FrameKind, delta: &Value, finish: Option<&str>) -> SampleFrame {
    let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
    let mut data = envelope(reply, "chat.completion.chunk", &json!([choice]));
    // The real protocol has this member in all chunks of a stream whose last chunk reports the usage.
    if let (true, true, Some(fields)) = (reply.streams_usage, reply.counts.is_some(), data.as_object_mut()) {
        fields.insert("usage".to_owned(), Value::Null);
    }
    event(kind, &data)
}

fn usage(counts: ReportedCounts) -> Value {
    json!({"prompt_tokens": counts.input(), "completion_tokens": counts.output(),
        "total_tokens": counts.input().saturating_add(counts.output()),
        "prompt_tokens_details": {"cached_tokens": counts.cache_read, "cache_write_tokens": counts.cache_write},
        "completion_tokens_details": {"reasoning_tokens": counts.thinking}})
}

fn event(kind: FrameKind, data: &Value) -> SampleFrame {
    SampleFrame {
        kind,
        bytes: format!("data: {data}\n\n").into(),
    }
}
