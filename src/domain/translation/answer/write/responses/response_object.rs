//! Writes the response object, which is part of the first events and the last event, and is the body of a non-streaming answer.

use std::{borrow::Cow, fmt::Write};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::{
    translation::{
        answer::write::{
            AnswerFrame,
            responses::events::{COMPLETED, IN_PROGRESS, INCOMPLETE, push_element, single_line},
        },
        json_out::{JsonObjectWriter, push_array},
        members::{MemberReader, as_text, raw_members},
        reasoning::COMPACTION_TRIGGER,
    },
    wire::{
        protocol::{provider_error::is_context_overflow, responses::error_type},
        usage::Usage,
    },
};

/// The members that the protocol requires in every function, in addition to the function's type and name.
const FUNCTION_MEMBERS: [&str; 3] = ["description", "parameters", "strict"];

/// The response object, with the content of the answer so far.
#[derive(Debug)]
pub(super) struct ResponseObject {
    /// The data of the answer apart from its content. The client's request has been removed from this data.
    frame: AnswerFrame,
    /// The members that repeat the request, as JSON text.
    repeated: Vec<(&'static str, String)>,
    /// Whether the client has requested a summary that replaces the conversation.
    wants_compaction: bool,
    /// The complete items, as the elements of a JSON array.
    output: String,
    /// The time at which the answer ended, in seconds since the Unix epoch; `None` while it has not ended.
    ended_unix: Option<i64>,
}

/// The status of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseStatus<'f> {
    /// It has begun.
    InProgress,
    /// It is complete.
    Completed,
    /// It has ended early, for the given reason.
    Incomplete(&'static str),
    /// It has failed.
    Failed(&'f ResponseFailure),
}

impl ResponseStatus<'_> {
    /// Returns the value of the member `status`.
    const fn word(self) -> &'static str {
        match self {
            Self::InProgress => IN_PROGRESS,
            Self::Completed => COMPLETED,
            Self::Incomplete(_) => INCOMPLETE,
            Self::Failed(_) => "failed",
        }
    }

    /// Returns the type of the event that contains the object with this status.
    pub(super) const fn event(self) -> &'static str {
        match self {
            Self::InProgress => "response.in_progress",
            Self::Completed => "response.completed",
            Self::Incomplete(_) => "response.incomplete",
            Self::Failed(_) => "response.failed",
        }
    }
}

/// The failure of an answer.
#[derive(Debug)]
pub(super) struct ResponseFailure {
    /// The HTTP status that the error corresponds to.
    status: u16,
    /// The message for the client.
    message: String,
}

impl ResponseFailure {
    /// Creates the failure that corresponds to this HTTP status.
    pub(super) fn new(status: u16, message: &str) -> Self {
        Self {
            status,
            message: message.to_owned(),
        }
    }

    /// Returns the error code. Agents act on it: they send the request again, wait, shorten the conversation, or give up.
    fn code(&self) -> &'static str {
        match self.status {
            429 => "rate_limit_exceeded",
            503 | 529 => "server_is_overloaded",
            408 => "server_error",
            402 => "insufficient_quota",
            400..500 if is_context_overflow(&self.message) => "context_length_exceeded",
            400..500 => "invalid_prompt",
            _ => "server_error",
        }
    }

    /// Writes the code and the message.
    fn push(&self, error: &mut JsonObjectWriter<'_>) {
        error.text("code", self.code());
        error.text("message", &self.message);
    }

    /// Writes the members of an error that is outside the response object. The SDKs raise an exception for such an error.
    pub(super) fn push_with_type(&self, error: &mut JsonObjectWriter<'_>) {
        error.text("type", error_type(self.status));
        self.push(error);
    }
}

impl ResponseObject {
    /// Creates the object of an answer without content.
    pub(super) fn new(mut frame: AnswerFrame) -> Self {
        let request = std::mem::take(&mut frame.request);
        Self {
            frame,
            repeated: repeated_members(&request),
            wants_compaction: ends_with_compaction_trigger(&request),
            output: String::new(),
            ended_unix: None,
        }
    }

    /// Returns the answer's frame, from which the client's request has been removed.
    pub(super) fn frame(&self) -> &AnswerFrame {
        &self.frame
    }

    /// Whether the client has requested a summary that replaces the conversation.
    pub(super) fn wants_compaction(&self) -> bool {
        self.wants_compaction
    }

    /// Sets the time at which the answer ended, in seconds since the Unix epoch.
    pub(super) fn set_end(&mut self, ended_unix: i64) {
        self.ended_unix = Some(ended_unix);
    }

    /// Adds a complete item.
    pub(super) fn add_item(&mut self, item: &str) {
        push_element(&mut self.output, item);
    }

    /// Writes the members of the object.
    pub(super) fn push(&self, object: &mut JsonObjectWriter<'_>, status: ResponseStatus<'_>, usage: Option<&Usage>) {
        object.text("id", &format!("resp_{}", self.frame.id));
        object.text("object", "response");
        object.number("created_at", self.frame.created_unix);
        match (status, self.ended_unix) {
            (ResponseStatus::Completed, Some(ended)) => object.number("completed_at", ended),
            _ => object.null("completed_at"),
        }
        object.text("status", status.word());
        match status {
            ResponseStatus::Failed(failure) => object.object("error", |error| failure.push(error)),
            ResponseStatus::InProgress | ResponseStatus::Completed | ResponseStatus::Incomplete(_) => {
                object.null("error");
            }
        }
        match status {
            ResponseStatus::Incomplete(reason) => {
                object.object("incomplete_details", |details| details.text("reason", reason));
            }
            ResponseStatus::InProgress | ResponseStatus::Completed | ResponseStatus::Failed(_) => {
                object.null("incomplete_details");
            }
        }
        object.text("model", &self.frame.model);
        object.array("output", |output| output.raw(&self.output));
        for (name, json) in &self.repeated {
            object.raw(name, json);
        }
        match usage {
            Some(usage) => object.object("usage", |object| push_usage(object, usage)),
            None => object.null("usage"),
        }
    }
}

/// Writes the usage. The input count includes cached tokens and tokens written to the cache; the output count includes reasoning.
fn push_usage(object: &mut JsonObjectWriter<'_>, usage: &Usage) {
    let (input, output) = (usage.input_total(), usage.output_total());
    object.number("input_tokens", input);
    object.object("input_tokens_details", |details| {
        details.number("cached_tokens", usage.cache_read_total());
        details.number(
            "cache_write_tokens",
            usage.cache_write_short.saturating_add(usage.cache_write_long),
        );
    });
    object.number("output_tokens", output);
    object.object("output_tokens_details", |details| {
        details.number("reasoning_tokens", usage.output_reasoning);
    });
    object.number("total_tokens", input.saturating_add(output));
}

/// The members of a request that the answer repeats.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequestedMembers<'a> {
    #[serde(borrow)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow)]
    max_output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    parallel_tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    safety_identifier: Option<&'a RawValue>,
    #[serde(borrow)]
    temperature: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_choice: Option<&'a RawValue>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    top_p: Option<&'a RawValue>,
    #[serde(borrow)]
    truncation: Option<&'a RawValue>,
    #[serde(borrow)]
    user: Option<&'a RawValue>,
}

/// The members of a request's `text` and `reasoning` that the answer repeats.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequestedDetails<'a> {
    #[serde(borrow)]
    format: Option<&'a RawValue>,
    #[serde(borrow)]
    verbosity: Option<&'a RawValue>,
    #[serde(borrow)]
    effort: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
}

/// Returns the members of the response object that repeat the request, or that have the same value in every translated answer. A
/// member that the client did not send has the default of OpenAI's API.
fn repeated_members(request: &str) -> Vec<(&'static str, String)> {
    let requested: RequestedMembers<'_> = serde_json::from_str(request).unwrap_or_default();
    let text = requested_details(requested.text);
    let text = format!(
        r#"{{"format":{},"verbosity":{}}}"#,
        json_or(text.format, r#"{"type":"text"}"#),
        json_or(text.verbosity, r#""medium""#)
    );
    let reasoning = requested_details(requested.reasoning);
    let reasoning = format!(
        r#"{{"effort":{},"summary":{}}}"#,
        json_or(reasoning.effort, "null"),
        json_or(reasoning.summary, "null")
    );
    vec![
        ("background", "false".to_owned()),
        ("frequency_penalty", "0".to_owned()),
        ("instructions", json_or(requested.instructions, "null")),
        ("max_output_tokens", json_or(requested.max_output_tokens, "null")),
        ("max_tool_calls", "null".to_owned()),
        ("metadata", json_or(requested.metadata, "{}")),
        ("parallel_tool_calls", json_or(requested.parallel_tool_calls, "true")),
        ("presence_penalty", "0".to_owned()),
        ("previous_response_id", "null".to_owned()),
        ("prompt_cache_key", json_or(requested.prompt_cache_key, "null")),
        ("reasoning", reasoning),
        ("safety_identifier", json_or(requested.safety_identifier, "null")),
        ("service_tier", r#""default""#.to_owned()),
        ("store", "false".to_owned()),
        ("temperature", json_or(requested.temperature, "1")),
        ("text", text),
        ("tool_choice", json_or(requested.tool_choice, r#""auto""#)),
        ("tools", repeated_tools(requested.tools)),
        ("top_logprobs", "0".to_owned()),
        ("top_p", json_or(requested.top_p, "1")),
        ("truncation", json_or(requested.truncation, r#""disabled""#)),
        ("user", json_or(requested.user, "null")),
    ]
}

/// Returns the client's tools as JSON text. If a function lacks a member that the protocol requires, adds this member with the
/// value null.
fn repeated_tools(tools: Option<&RawValue>) -> String {
    let list: Option<Vec<&RawValue>> = tools.and_then(|tools| serde_json::from_str(tools.get()).ok());
    let mut text = String::new();
    push_array(&mut text, |array| {
        for tool in list.unwrap_or_default() {
            array.raw(&completed_tool(tool.get()));
        }
    });
    text
}

/// Returns a tool in one line. A function gets null for each of [`FUNCTION_MEMBERS`] that the client did not send.
fn completed_tool(tool: &str) -> Cow<'_, str> {
    let line = single_line(tool);
    let members = raw_members(tool).unwrap_or_default();
    let has = |name: &str| members.iter().any(|(member, _)| member == name);
    let is_function = members
        .iter()
        .any(|(member, value)| member == "type" && as_text(value).is_some_and(|kind| kind == "function"));
    let missing: Vec<&str> = FUNCTION_MEMBERS.into_iter().filter(|&name| !has(name)).collect();
    if !is_function || missing.is_empty() {
        return line;
    }
    let mut completed = line.strip_suffix('}').unwrap_or(&line).to_owned();
    for name in missing {
        // Writing to a string cannot fail.
        let _ = write!(completed, r#","{name}":null"#);
    }
    completed.push('}');
    Cow::Owned(completed)
}

/// The input of a request; empty if it is a single string.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequestedInput<'a> {
    #[serde(borrow)]
    input: Vec<&'a RawValue>,
}

/// Whether the last item of a request asks for a compaction.
fn ends_with_compaction_trigger(request: &str) -> bool {
    let requested: RequestedInput<'_> = serde_json::from_str(request).unwrap_or_default();
    let last = requested.input.last();
    let kind = last.and_then(|item| MemberReader::new(item.get(), "").ok()?.text("type").ok()?);
    kind.is_some_and(|kind| kind == COMPACTION_TRIGGER)
}

fn requested_details(value: Option<&RawValue>) -> RequestedDetails<'_> {
    let details = value.and_then(|value| serde_json::from_str(value.get()).ok());
    details.unwrap_or_default()
}

/// Returns a value's JSON text in one line, or the default if there is no value.
fn json_or(value: Option<&RawValue>, default: &str) -> String {
    value.map_or_else(|| default.to_owned(), |value| single_line(value.get()).into_owned())
}
