//! The provider's side of the `chat/completions` protocol: bodies, chunks and errors. Requests are checked strictly: a request is
//! refused if at least one host of this protocol would refuse it. The `code` of the error names the fault.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::sample_provider::{
    answer::{FrameKind, ReportedCounts, SampleFrame, SampleReply},
    ask::{SampleRequestError, text_at},
    script::{SampleScript, shortened_word},
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

/// Renders the events of a stream. If the client requests the usage, it is in a separate chunk after the finish reason.
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

/// Renders the body of the error response to a request that cannot be answered. The error's `code` names the fault.
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
    // In the real protocol, if the last chunk of a stream reports the usage, all other chunks have this member with the value
    // `null`.
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

/// The roles of messages.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Checks the `messages` of a request, and the number of answers (`n`) that it requests.
///
/// # Errors
/// Returns the first fault of the request.
pub(in crate::sample_provider) fn check_request(body: &Value, script: &SampleScript) -> Result<(), SampleRequestError> {
    if body.get("n").is_some_and(|n| !n.is_null() && n.as_u64() != Some(1)) {
        return Err(SampleRequestError::new(
            "unsupported_n",
            "n: the sample provider gives one answer per request; use 1, or leave it out",
        ));
    }
    let messages = body.get("messages").and_then(Value::as_array);
    let Some(messages) = messages.filter(|messages| !messages.is_empty()) else {
        let message = "messages: must be a list of at least one message";
        return Err(SampleRequestError::new("invalid_messages", message));
    };
    // The ids of calls that have no result yet.
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let place = format!("messages[{index}]");
        let role = role(message, &place)?;
        if role == "tool" {
            close_call(&mut open, message, &place)?;
        } else {
            check_closed(&open, &place)?;
        }
        if index > 0 && matches!(role, "system" | "developer") && script.system_inside == Some(false) {
            let message = format!("{place}: a {role} message is accepted only as the first message");
            return Err(SampleRequestError::new("system_message_inside", message));
        }
        check_content(message, role, &place)?;
        if role == "assistant" {
            open = call_ids(message, &place)?;
        }
    }
    check_closed(&open, "the end of messages")
}

fn role<'m>(message: &'m Value, place: &str) -> Result<&'m str, SampleRequestError> {
    let role = text_at(message, "/role").filter(|role| ROLES.contains(role));
    role.ok_or_else(|| {
        let message = format!("{place}.role: must be one of {}", ROLES.join(", "));
        SampleRequestError::new("invalid_role", message)
    })
}

/// Removes from `open` the call that a tool message answers.
fn close_call(open: &mut Vec<&str>, message: &Value, place: &str) -> Result<(), SampleRequestError> {
    let id = text_at(message, "/tool_call_id").unwrap_or_default();
    let Some(position) = open.iter().position(|call| *call == id) else {
        let message = format!(
            "{place}.tool_call_id: `{}` is not the id of a call before this message that still lacks its result",
            shortened_word(id)
        );
        return Err(SampleRequestError::new("tool_message_without_call", message));
    };
    open.remove(position);
    Ok(())
}

/// Checks that every tool call before `place` has a result.
fn check_closed(open: &[&str], place: &str) -> Result<(), SampleRequestError> {
    let Some(id) = open.first() else { return Ok(()) };
    let message = format!(
        "{place}: the tool message with the result of the call `{}` is missing before it",
        shortened_word(id)
    );
    Err(SampleRequestError::new("tool_call_without_result", message))
}

/// Checks that a message has content. A message of the assistant can have tool calls instead.
fn check_content(message: &Value, role: &str, place: &str) -> Result<(), SampleRequestError> {
    let has_items = |name: &str| {
        message
            .get(name)
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    };
    let has_content = text_at(message, "/content").is_some() || has_items("content");
    if has_content || (role == "assistant" && has_items("tool_calls")) {
        return Ok(());
    }
    let message = format!("{place}.content: field required");
    Err(SampleRequestError::new("missing_required_parameter", message))
}

/// Returns the ids of the calls in a message of the assistant.
fn call_ids<'m>(message: &'m Value, place: &str) -> Result<Vec<&'m str>, SampleRequestError> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    let calls = calls.into_iter().flatten().enumerate();
    calls
        .map(|(index, call)| {
            let place = format!("{place}.tool_calls[{index}]");
            let arguments = text_at(call, "/function/arguments").unwrap_or_default();
            if serde_json::from_str::<IgnoredAny>(arguments).is_err() {
                let message = format!("{place}.function.arguments: must be a string that contains JSON");
                return Err(SampleRequestError::new("invalid_tool_arguments", message));
            }
            let is_named = text_at(call, "/function/name").is_some_and(|name| !name.is_empty());
            let id = text_at(call, "/id").filter(|id| is_named && !id.is_empty());
            id.ok_or_else(|| {
                let message = format!("{place}: a tool call needs `id` and `function.name`");
                SampleRequestError::new("invalid_tool_call", message)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn code(messages: &Value) -> Option<&'static str> {
        code_of(&json!({"model": "m", "messages": messages}), &SampleScript::default())
    }

    fn code_of(body: &Value, script: &SampleScript) -> Option<&'static str> {
        check_request(body, script).err().map(|error| error.code)
    }

    fn calling(ids: &[&str]) -> Value {
        let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let calls: Vec<Value> = ids.iter().map(call).collect();
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "18 C"})
    }

    fn user() -> Value {
        json!({"role": "user", "content": "hi"})
    }

    #[test]
    fn a_whole_conversation_with_parallel_calls_is_accepted() {
        let parts = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
        let said = json!({"role": "assistant", "content": "It is 18 C."});
        let messages = json!([{"role": "system", "content": "s"}, parts, calling(&["a", "b"]), result("b"), result("a"),
            said, user(), calling(&["a"]), result("a"), {"role": "developer", "content": "d"}, user()]);
        assert_eq!(code(&messages), None);
    }

    #[test]
    fn each_fault_has_its_own_code() {
        let mut broken = calling(&["a"]);
        broken["tool_calls"][0]["function"]["arguments"] = json!(r#"{"location":"#);
        let mut nameless = calling(&["a"]);
        nameless["tool_calls"][0]["function"]["name"] = json!("");
        for (messages, expected) in [
            (json!([]), "invalid_messages"),
            (json!("hi"), "invalid_messages"),
            (json!([{"role": "robot", "content": "hi"}]), "invalid_role"),
            (json!([{"content": "hi"}]), "invalid_role"),
            (json!([{"role": "user"}]), "missing_required_parameter"),
            (json!([{"role": "user", "content": []}]), "missing_required_parameter"),
            (
                json!([user(), {"role": "assistant", "content": null}]),
                "missing_required_parameter",
            ),
            (json!([user(), result("a")]), "tool_message_without_call"),
            (
                json!([user(), calling(&["a"]), result("b")]),
                "tool_message_without_call",
            ),
            (
                json!([user(), calling(&["a"]), result("a"), result("a")]),
                "tool_message_without_call",
            ),
            (
                json!([user(), calling(&["a"]), result("a"), user(), result("a")]),
                "tool_message_without_call",
            ),
            (json!([user(), calling(&["a"]), user()]), "tool_call_without_result"),
            (
                json!([user(), calling(&["a", "b"]), result("a"), calling(&["c"])]),
                "tool_call_without_result",
            ),
            (json!([user(), calling(&["a"])]), "tool_call_without_result"),
            (json!([user(), broken, result("a")]), "invalid_tool_arguments"),
            (json!([user(), nameless, result("a")]), "invalid_tool_call"),
            (json!([user(), calling(&[""]), result("")]), "invalid_tool_call"),
        ] {
            assert_eq!(code(&messages), Some(expected), "{messages}");
        }
    }

    #[test]
    fn one_answer_is_given_and_no_other_number() {
        for (n, expected) in [
            (json!(null), None),
            (json!(1), None),
            (json!(2), Some("unsupported_n")),
            (json!(0), Some("unsupported_n")),
            (json!("1"), Some("unsupported_n")),
        ] {
            let body = json!({"messages": [user()], "n": n});
            assert_eq!(code_of(&body, &SampleScript::default()), expected, "{n}");
        }
    }

    #[test]
    fn a_script_can_forbid_system_messages_behind_the_first_message() {
        let script = SampleScript {
            system_inside: Some(false),
            ..SampleScript::default()
        };
        for role in ["system", "developer"] {
            let text = json!({"role": role, "content": "s"});
            let first = json!({"messages": [text, user()]});
            assert_eq!(code_of(&first, &script), None);
            let behind = json!({"messages": [user(), text]});
            assert_eq!(code_of(&behind, &script), Some("system_message_inside"), "{role}");
            assert_eq!(code_of(&behind, &SampleScript::default()), None);
        }
    }
}
