//! The provider's side of the Gemini-style protocol: bodies, chunks in both framings, and errors.

use serde_json::{Value, json};

use crate::sample_provider::answer::{FrameKind, ReportedCounts, SIGNATURE, SampleFrame, SampleReply};

/// The framing of a stream's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum GeminiFraming {
    /// Server-sent events (`alt=sse`): each chunk is `data: {..}` and an empty line, with CRLF line ends.
    Sse,
    /// A JSON array with one element for each chunk.
    Array,
}

/// Renders the body of a non-streaming response.
pub(super) fn unary(reply: &SampleReply<'_>) -> Value {
    let mut parts = Vec::new();
    if !reply.answer.thinking.is_empty() {
        parts.push(thought(&reply.answer.thinking.concat()));
    }
    let mut text = json!({"text": reply.answer.text.concat()});
    if let (false, Some(fields)) = (reply.answer.thinking.is_empty(), text.as_object_mut()) {
        fields.insert("thoughtSignature".to_owned(), json!(SIGNATURE));
    }
    parts.push(text);
    parts.extend(call_part(reply));
    chunk(reply, &Value::Array(parts), Some("STOP"), reply.counts)
}

pub(super) fn stream(reply: &SampleReply<'_>, chunking: GeminiFraming) -> Vec<SampleFrame> {
    let total = reply.answer.deltas();
    let mut frames = Vec::with_capacity(total + 2);
    let call = call_part(reply);
    let parts = reply.answer.thinking.iter().map(|text| thought(text));
    let parts = parts.chain(reply.answer.text.iter().map(|text| json!({"text": text})));
    for part in parts.chain(call) {
        let counts = reply.counts.map(|counts| share(counts, frames.len() + 1, total));
        let data = chunk(reply, &json!([part]), None, counts);
        frames.push(framed(FrameKind::Delta, chunking, frames.len(), &data));
    }
    let mut last = json!({"text": ""});
    if let (false, Some(fields)) = (reply.answer.thinking.is_empty(), last.as_object_mut()) {
        fields.insert("thoughtSignature".to_owned(), json!(SIGNATURE));
    }
    let data = chunk(reply, &json!([last]), Some("STOP"), reply.counts);
    frames.push(framed(FrameKind::Final, chunking, frames.len(), &data));
    if chunking == GeminiFraming::Array {
        frames.push(SampleFrame {
            kind: FrameKind::Final,
            bytes: "\n]".into(),
        });
    }
    frames
}

/// Renders the in-band error that follows `sent` chunks. In an array, the error is the last element.
pub(super) fn in_band_error(chunking: GeminiFraming, sent: usize) -> SampleFrame {
    let data = json!({"error": {"code": 503, "message": "The model is overloaded. Please try again later.",
        "status": "UNAVAILABLE"}});
    let frame = framed(FrameKind::Other, chunking, sent, &data);
    match chunking {
        GeminiFraming::Sse => frame,
        GeminiFraming::Array => SampleFrame {
            bytes: [frame.bytes.as_ref(), b"\n]"].concat().into(),
            ..frame
        },
    }
}

/// Renders the body of an error response.
pub(super) fn error(status: u16, message: &str, retry_seconds: Option<u32>) -> Value {
    let name = match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        499 => "CANCELLED",
        500 => "INTERNAL",
        504 => "DEADLINE_EXCEEDED",
        501..=599 => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    };
    let mut error = json!({"code": status, "message": message, "status": name});
    if let (Some(seconds), Some(fields)) = (retry_seconds, error.as_object_mut()) {
        let info = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")}]);
        fields.insert("details".to_owned(), info);
    }
    json!({"error": error})
}

/// Renders the body of a `countTokens` response.
pub(super) fn token_count(tokens: u64) -> Value {
    json!({"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]})
}

fn thought(text: &str) -> Value {
    json!({"text": text, "thought": true})
}

fn call_part(reply: &SampleReply<'_>) -> Option<Value> {
    let call = reply.answer.call.as_ref()?;
    let function = json!({"id": format!("call_{}", reply.id), "name": call.tool.name, "args": call.tool.arguments});
    Some(if reply.answer.thinking.is_empty() {
        json!({"functionCall": function})
    } else {
        json!({"functionCall": function, "thoughtSignature": SIGNATURE})
    })
}

/// Returns the usage to report after `sent` of `total` chunks. It is proportional to the number of sent chunks, and exact at the
/// end.
fn share(counts: ReportedCounts, sent: usize, total: usize) -> ReportedCounts {
    let (sent, total) = (
        i64::try_from(sent).unwrap_or(0),
        i64::try_from(total.max(1)).unwrap_or(1),
    );
    let part = |count: i64| {
        (count / total)
            .saturating_mul(sent)
            .saturating_add(count % total * sent / total)
    };
    ReportedCounts {
        spoken: part(counts.spoken),
        thinking: part(counts.thinking),
        ..counts
    }
}

fn chunk(reply: &SampleReply<'_>, parts: &Value, finish: Option<&str>, counts: Option<ReportedCounts>) -> Value {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}});
    if let Some(fields) = candidate.as_object_mut() {
        if let Some(finish) = finish {
            fields.insert("finishReason".to_owned(), json!(finish));
        }
        fields.insert("index".to_owned(), json!(0));
    }
    let mut data = json!({"candidates": [candidate]});
    if let Some(fields) = data.as_object_mut() {
        if let Some(counts) = counts {
            fields.insert("usageMetadata".to_owned(), usage(counts));
        }
        fields.insert("modelVersion".to_owned(), json!(reply.model));
        fields.insert("responseId".to_owned(), json!(reply.id));
    }
    data
}

fn usage(counts: ReportedCounts) -> Value {
    let prompt = counts.input();
    json!({"promptTokenCount": prompt, "cachedContentTokenCount": counts.cache_read,
        "candidatesTokenCount": counts.spoken, "thoughtsTokenCount": counts.thinking,
        "totalTokenCount": prompt.saturating_add(counts.output()),
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}]})
}

fn framed(kind: FrameKind, chunking: GeminiFraming, before: usize, data: &Value) -> SampleFrame {
    let bytes = match chunking {
        GeminiFraming::Sse => format!("data: {data}\r\n\r\n"),
        GeminiFraming::Array if before == 0 => format!("[{data}"),
        GeminiFraming::Array => format!("\n,\r\n{data}"),
    };
    SampleFrame {
        kind,
        bytes: bytes.into(),
    }
}
