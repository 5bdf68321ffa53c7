//! A provider that speaks `chat/completions`, strictly: what the protocol or one of its hosts would refuse, it refuses with 418,
//! and says why.

use serde_json::{Value as Json, json};

use super::stage::{SECRET, UPSTREAM_MODEL};
use crate::harness::RecordingProvider;
use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;

/// The path of its only endpoint.
pub(super) const CHAT_PATH: &str = "/chat/v1/chat/completions";
/// The headers that a provider may get from a request that was translated.
const HEADERS: [&str; 8] = [
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
];
/// The members of a request.
const MEMBERS: [&str; 17] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
    "top_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "response_format",
    "parallel_tool_calls",
    "reasoning_effort",
    "prompt_cache_key",
];
const ASSISTANT_MEMBERS: [&str; 4] = ["role", "content", "reasoning_content", "tool_calls"];
const NAME_BYTES_MAX: usize = 64;

/// Answers every request that it accepts with `script`, which gets the body.
pub(super) fn chat_provider(script: impl Fn(&Json, &mut Answer<'_>) + Send + Sync + 'static) -> RecordingProvider {
    RecordingProvider::start(move |request, answer| match accepted(request) {
        Ok(body) => script(&body, answer),
        Err(fault) => refuse(&fault, answer),
    })
}

/// Refuses a request because of this fault, with a status that nothing else here has.
pub(super) fn refuse(fault: &str, answer: &mut Answer<'_>) {
    let message = format!("the strict provider does not take {fault}");
    let error = json!({"error": {"message": message, "type": "invalid_request_error", "code": null}});
    answer.full(
        418,
        &[("content-type", "application/json")],
        error.to_string().as_bytes(),
    );
}

/// Checks that a request's head has the provider's credential and nothing of the client's protocol.
pub(super) fn check_head(request: &Recorded) -> Result<(), String> {
    let strange = request
        .headers
        .iter()
        .find(|(name, _)| !HEADERS.contains(&name.as_str()));
    if let Some((name, value)) = strange {
        return Err(format!("the header {name}: {value}"));
    }
    let bearer = format!("Bearer {SECRET}");
    let expected = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    for (name, value) in expected {
        let found = request.header_values(name);
        check(found == [value], || format!("{name}: {found:?}"))?;
    }
    Ok(())
}

fn check(is_fine: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if is_fine { Ok(()) } else { Err(fault()) }
}

fn accepted(request: &Recorded) -> Result<Json, String> {
    let is_known = request.method == "POST" && request.target == CHAT_PATH;
    check(is_known, || format!("{} {}", request.method, request.target))?;
    check_head(request)?;
    let body: Json =
        serde_json::from_slice(&request.body).map_err(|error| format!("a body that is no JSON: {error}"))?;
    check_members(&body, &MEMBERS, "the body")?;
    check(body["model"] == UPSTREAM_MODEL, || {
        format!("the model {}", body["model"])
    })?;
    let is_counted = body["stream"] != true || body["stream_options"]["include_usage"] == true;
    check(is_counted, || "a stream without usage".to_owned())?;
    let tools = tool_names(&body)?;
    let messages = body["messages"].as_array().ok_or("a body without messages")?;
    check_messages(messages, &tools)?;
    Ok(body)
}

fn check_members(object: &Json, allowed: &[&str], what: &str) -> Result<(), String> {
    let members = object
        .as_object()
        .ok_or_else(|| format!("{what}, which is no object: {object}"))?;
    match members.keys().find(|name| !allowed.contains(&name.as_str())) {
        Some(name) => Err(format!("the member {name} of {what}")),
        None => Ok(()),
    }
}

fn tool_names(body: &Json) -> Result<Vec<String>, String> {
    let Some(tools) = body.get("tools") else {
        return Ok(Vec::new());
    };
    let tools = tools.as_array().filter(|tools| !tools.is_empty());
    let tools = tools.ok_or("tools that are no list, or an empty one")?;
    let name_of = |tool: &Json| -> Result<String, String> {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits);
        let is_tool = tool["type"] == "function" && is_name && function["parameters"]["type"] == "object";
        check(is_tool, || format!("the tool {tool}"))?;
        Ok(name.to_owned())
    };
    tools.iter().map(name_of).collect()
}

/// Each role where it may stand; each call answered by the messages right behind it, and by no other.
fn check_messages(messages: &[Json], tools: &[String]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut before = "";
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let what = format!("message {index}, {message}");
        let follows = match role {
            "system" => index == 0,
            "user" => before != "user",
            "assistant" => matches!(before, "user" | "tool"),
            "tool" => true,
            _ => false,
        };
        let is_in_order = follows && (open.is_empty() || role == "tool");
        check(is_in_order, || {
            format!("{what} behind one of {before:?}, with open calls {open:?}")
        })?;
        match role {
            "assistant" => open = call_ids(message, tools, &what)?,
            "tool" => {
                check_members(message, &["role", "tool_call_id", "content"], &what)?;
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                let position = open.iter().position(|call| *call == id);
                open.remove(position.ok_or_else(|| format!("{what}, which answers no call"))?);
            }
            _ => check_members(message, &["role", "content"], &what)?,
        }
        check(role == "assistant" || message["content"].is_string(), || {
            format!("{what} without text")
        })?;
        before = role;
    }
    let is_question = matches!(before, "user" | "tool") && open.is_empty();
    check(is_question, || {
        format!("an end with one of {before:?} and open calls {open:?}")
    })
}

/// The ids of an assistant's calls, each of which must be of a tool that is offered.
fn call_ids<'m>(message: &'m Json, tools: &[String], what: &str) -> Result<Vec<&'m str>, String> {
    check_members(message, &ASSISTANT_MEMBERS, what)?;
    let has_text = message["content"].as_str().is_some_and(|text| !text.is_empty());
    let Some(calls) = message.get("tool_calls") else {
        check(has_text, || format!("{what}, which says nothing"))?;
        return Ok(Vec::new());
    };
    check(has_text || message["content"].is_null(), || {
        format!("{what} with empty text")
    })?;
    let calls = calls.as_array().filter(|calls| !calls.is_empty());
    let calls = calls.ok_or_else(|| format!("{what} with tool_calls that are no list"))?;
    let id_of = |call: &'m Json| -> Result<&'m str, String> {
        check_members(call, &["id", "type", "function"], what)?;
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        let arguments = function["arguments"].as_str().unwrap_or_default();
        let is_object = serde_json::from_str::<Json>(arguments).is_ok_and(|arguments| arguments.is_object());
        let is_call = call["type"] == "function" && is_object && tools.iter().any(|tool| tool == name);
        check(is_call, || format!("{what} with the call {call}"))?;
        let id = call["id"].as_str().filter(|id| !id.is_empty());
        id.ok_or_else(|| format!("{what} with a call without an id"))
    };
    calls.iter().map(id_of).collect()
}
