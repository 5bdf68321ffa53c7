//! The provider's side of the Responses protocol: bodies, events and errors.

use serde_json::{Value, json};

use crate::sample_provider::answer::{FrameKind, ReportedCounts, SIGNATURE, SampleFrame, SampleReply};
use crate::sample_provider::ask::ToolInputKind;

/// Renders the body of a non-streaming response.
pub(super) fn unary(reply: &SampleReply<'_>) -> Value {
    let mut output = Vec::new();
    if !reply.answer.thinking.is_empty() {
        output.push(reasoning_item(reply, &reply.answer.thinking.concat()));
    }
    output.push(message_item(reply, ItemStage::Done));
    if reply.answer.call.is_some() {
        output.push(call_item(reply, ItemStage::Done));
    }
    response(reply, "completed", &Value::Array(output))
}

pub(super) fn stream(reply: &SampleReply<'_>) -> Vec<SampleFrame> {
    let mut events = ResponseEvents {
        frames: Vec::with_capacity(reply.answer.deltas() + 20),
        sequence: 0,
    };
    let started = response(reply, "in_progress", &json!([]));
    events.add(FrameKind::Other, "response.created", json!({"response": started}));
    events.add(FrameKind::Other, "response.in_progress", json!({"response": started}));
    let mut output = Vec::new();
    if !reply.answer.thinking.is_empty() {
        output.push(add_reasoning(&mut events, reply));
    }
    output.push(add_message(&mut events, reply, output.len()));
    if reply.answer.call.is_some() {
        output.push(add_call(&mut events, reply, output.len()));
    }
    let completed = response(reply, "completed", &Value::Array(output));
    events.add(FrameKind::Final, "response.completed", json!({"response": completed}));
    events.frames
}

/// Renders the in-band error event that follows `sent` events.
pub(super) fn in_band_error(reply: &SampleReply<'_>, sent: usize) -> SampleFrame {
    let mut failed = response(reply, "failed", &json!([]));
    if let Some(fields) = failed.as_object_mut() {
        let error = json!({"code": "server_error", "message": "The server had an error while processing the request."});
        fields.insert("error".to_owned(), error);
        fields.insert("usage".to_owned(), Value::Null);
    }
    let mut events = ResponseEvents {
        frames: Vec::new(),
        sequence: sent,
    };
    events.add(FrameKind::Other, "response.failed", json!({"response": failed}));
    events.frames.into_iter().next().unwrap_or(SampleFrame {
        kind: FrameKind::Other,
        bytes: bytes::Bytes::new(),
    })
}

/// Renders the body of an error response.
pub(super) fn error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("invalid_request_error", json!("invalid_api_key")),
        403 => ("invalid_request_error", json!("unsupported_country_region_territory")),
        404 => ("invalid_request_error", json!("model_not_found")),
        429 => ("requests", json!("rate_limit_exceeded")),
        503 | 529 => ("service_unavailable_error", json!("server_is_overloaded")),
        500..=599 => ("server_error", json!("server_error")),
        _ => ("invalid_request_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

struct ResponseEvents {
    frames: Vec<SampleFrame>,
    sequence: usize,
}

impl ResponseEvents {
    /// Adds an event. The data of the event has the type, the sequence number and then `fields`.
    fn add(&mut self, kind: FrameKind, name: &str, fields: Value) {
        let mut data = json!({"type": name, "sequence_number": self.sequence});
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        self.sequence += 1;
        self.frames.push(SampleFrame {
            kind,
            bytes: format!("event: {name}\ndata: {data}\n\n").into(),
        });
    }
}

fn add_reasoning(events: &mut ResponseEvents, reply: &SampleReply<'_>) -> Value {
    let id = format!("rs_{}", reply.id);
    let text = reply.answer.thinking.concat();
    let added = json!({"output_index": 0, "item": {"id": id, "type": "reasoning", "summary": []}});
    events.add(FrameKind::Other, "response.output_item.added", added);
    let part =
        json!({"item_id": id, "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": ""}});
    events.add(FrameKind::Other, "response.reasoning_summary_part.added", part);
    for delta in &reply.answer.thinking {
        let fields = json!({"item_id": id, "output_index": 0, "summary_index": 0, "delta": delta});
        events.add(FrameKind::Delta, "response.reasoning_summary_text.delta", fields);
    }
    let done = json!({"item_id": id, "output_index": 0, "summary_index": 0, "text": text});
    events.add(FrameKind::Other, "response.reasoning_summary_text.done", done);
    let part =
        json!({"item_id": id, "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": text}});
    events.add(FrameKind::Other, "response.reasoning_summary_part.done", part);
    let item = reasoning_item(reply, &text);
    events.add(
        FrameKind::Other,
        "response.output_item.done",
        json!({"output_index": 0, "item": item}),
    );
    item
}

fn add_message(events: &mut ResponseEvents, reply: &SampleReply<'_>, index: usize) -> Value {
    let id = format!("msg_{}", reply.id);
    let text = reply.answer.text.concat();
    let started = message_item(reply, ItemStage::Started);
    events.add(
        FrameKind::Other,
        "response.output_item.added",
        json!({"output_index": index, "item": started}),
    );
    let part = json!({"item_id": id, "output_index": index, "content_index": 0, "part": text_part("")});
    events.add(FrameKind::Other, "response.content_part.added", part);
    for delta in &reply.answer.text {
        let fields = json!({"item_id": id, "output_index": index, "content_index": 0, "delta": delta, "logprobs": []});
        events.add(FrameKind::Delta, "response.output_text.delta", fields);
    }
    let done = json!({"item_id": id, "output_index": index, "content_index": 0, "text": text, "logprobs": []});
    events.add(FrameKind::Other, "response.output_text.done", done);
    let part = json!({"item_id": id, "output_index": index, "content_index": 0, "part": text_part(&text)});
    events.add(FrameKind::Other, "response.content_part.done", part);
    let item = message_item(reply, ItemStage::Done);
    events.add(
        FrameKind::Other,
        "response.output_item.done",
        json!({"output_index": index, "item": item}),
    );
    item
}

fn add_call(events: &mut ResponseEvents, reply: &SampleReply<'_>, index: usize) -> Value {
    let wire = CallWire::for_reply(reply);
    let id = format!("{}_{}", wire.prefix, reply.id);
    let started = call_item(reply, ItemStage::Started);
    events.add(
        FrameKind::Other,
        "response.output_item.added",
        json!({"output_index": index, "item": started}),
    );
    let deltas = reply
        .answer
        .call
        .as_ref()
        .map(|call| call.deltas.as_slice())
        .unwrap_or_default();
    for delta in deltas {
        let fields = json!({"item_id": id, "output_index": index, "delta": delta});
        events.add(FrameKind::Delta, &format!("response.{}.delta", wire.event), fields);
    }
    let done = json!({"item_id": id, "output_index": index, wire.field: deltas.concat()});
    events.add(FrameKind::Other, &format!("response.{}.done", wire.event), done);
    let item = call_item(reply, ItemStage::Done);
    events.add(
        FrameKind::Other,
        "response.output_item.done",
        json!({"output_index": index, "item": item}),
    );
    item
}

#[derive(Clone, Copy)]
enum ItemStage {
    Started,
    Done,
}

impl ItemStage {
    fn status(self) -> &'static str {
        match self {
            Self::Started => "in_progress",
            Self::Done => "completed",
        }
    }
}

fn reasoning_item(reply: &SampleReply<'_>, text: &str) -> Value {
    let mut item = json!({"id": format!("rs_{}", reply.id), "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}]});
    if let (true, Some(fields)) = (reply.encrypted_reasoning, item.as_object_mut()) {
        fields.insert("encrypted_content".to_owned(), json!(SIGNATURE));
    }
    item
}

fn message_item(reply: &SampleReply<'_>, stage: ItemStage) -> Value {
    let content = match stage {
        ItemStage::Started => json!([]),
        ItemStage::Done => json!([text_part(&reply.answer.text.concat())]),
    };
    json!({"id": format!("msg_{}", reply.id), "type": "message", "status": stage.status(), "role": "assistant",
        "content": content})
}

/// The names that the protocol uses for a tool call. The names for tools that take JSON differ from the names for tools that take
/// free text.
struct CallWire {
    prefix: &'static str,
    item: &'static str,
    event: &'static str,
    field: &'static str,
}

impl CallWire {
    fn for_reply(reply: &SampleReply<'_>) -> Self {
        let taking = reply.answer.call.as_ref().map(|call| call.tool.input_kind);
        match taking {
            Some(ToolInputKind::Text) => Self {
                prefix: "ctc",
                item: "custom_tool_call",
                event: "custom_tool_call_input",
                field: "input",
            },
            Some(ToolInputKind::Json) | None => Self {
                prefix: "fc",
                item: "function_call",
                event: "function_call_arguments",
                field: "arguments",
            },
        }
    }
}

fn call_item(reply: &SampleReply<'_>, stage: ItemStage) -> Value {
    let wire = CallWire::for_reply(reply);
    let call = reply.answer.call.as_ref();
    let arguments = match stage {
        ItemStage::Started => String::new(),
        ItemStage::Done => call.map(|call| call.deltas.concat()).unwrap_or_default(),
    };
    let mut item = json!({"id": format!("{}_{}", wire.prefix, reply.id), "type": wire.item, "status": stage.status(),
        wire.field: arguments, "call_id": format!("call_{}", reply.id), "name": call.map(|call| &call.tool.name)});
    let namespace = call.and_then(|call| call.tool.namespace.as_ref());
    if let (Some(namespace), Some(fields)) = (namespace, item.as_object_mut()) {
        fields.insert("namespace".to_owned(), json!(namespace));
    }
    item
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn response(reply: &SampleReply<'_>, status: &str, output: &Value) -> Value {
    let completed = status == "completed";
    let usage = reply.counts.filter(|_| completed).map_or(Value::Null, usage);
    let completed_at = if completed {
        json!(reply.created_at)
    } else {
        Value::Null
    };
    json!({"id": format!("resp_{}", reply.id), "object": "response", "created_at": reply.created_at,
        "completed_at": completed_at, "status": status, "background": false, "error": null,
        "incomplete_details": null, "instructions": null, "max_output_tokens": null, "model": reply.model,
        "output": output, "parallel_tool_calls": true, "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null}, "service_tier": "default", "store": false,
        "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled", "usage": usage, "metadata": {}})
}

fn usage(counts: ReportedCounts) -> Value {
    json!({"input_tokens": counts.input(),
        "input_tokens_details": {"cached_tokens": counts.cache_read, "cache_write_tokens": counts.cache_write},
        "output_tokens": counts.output(), "output_tokens_details": {"reasoning_tokens": counts.thinking},
        "total_tokens": counts.input().saturating_add(counts.output())})
}
