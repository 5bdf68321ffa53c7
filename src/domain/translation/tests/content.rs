//! What an answer says, whatever its client's protocol is.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::maker;
use crate::domain::{
    translation::{
        call_ids::{CallIdForm, provider_id},
        reasoning::{CarriedReasoning, ReasoningState},
    },
    wire::{Protocol, UpstreamProtocol},
};

/// What an answer says.
#[derive(Debug, Default)]
pub(super) struct AnswerContent {
    /// Thoughts, texts and calls in order; neighbours of one kind are one. The words of a refusal are a text. Calls have the
    /// provider's ids.
    pub(super) items: Vec<Value>,
    /// The states of its reasoning, as their maker gets them back.
    pub(super) states: Vec<ReasoningState<'static>>,
    /// `end`, `calls`, `max_tokens` or `declined`.
    pub(super) end: &'static str,
}

/// The content of a client's final object.
pub(super) fn answer_content(client: Protocol, object: &Value) -> AnswerContent {
    match client {
        Protocol::Messages => message_content(object),
        Protocol::Responses => response_content(object),
        Protocol::Gemini => candidate_content(&object["candidates"][0]),
    }
}

/// The opaque text of a state that a provider of this protocol has made; `None` if it has none.
pub(super) fn opaque_text(protocol: UpstreamProtocol, state: &ReasoningState<'_>) -> Option<String> {
    match (protocol, state) {
        (UpstreamProtocol::Messages, ReasoningState::Thinking { signature, .. })
        | (UpstreamProtocol::Gemini, ReasoningState::Signature { signature }) => Some(signature.to_string()),
        (UpstreamProtocol::Messages, ReasoningState::Redacted { data }) => Some(data.to_string()),
        (UpstreamProtocol::Responses, ReasoningState::Item { json }) => {
            let item: Value = serde_json::from_str(json).unwrap();
            item["encrypted_content"].as_str().map(str::to_owned)
        }
        (UpstreamProtocol::Chat, ReasoningState::Text { text }) => Some(text.to_string()),
        // weir's own signature of thinking that its provider has not signed.
        _ => None,
    }
}

impl AnswerContent {
    fn add_text(&mut self, kind: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.items.last_mut().and_then(|item| item.get_mut(kind)) {
            Some(last) => *last = format!("{}{text}", last.as_str().unwrap()).into(),
            None => self.items.push(json!({ kind: text })),
        }
    }

    fn add_call(&mut self, name: &Value, id: Option<&str>, arguments: &Value) {
        let mut call = json!({ "call": name, "arguments": arguments });
        if let Some(id) = id {
            call["id"] = provider_id(id, CallIdForm::Any).into();
        }
        self.items.push(call);
    }

    fn add_state(&mut self, field: &str, visible: &str) {
        match CarriedReasoning::unwrap(field, visible, &maker()) {
            CarriedReasoning::Own(state) => self.states.push(state),
            CarriedReasoning::Foreign => panic!("{field} has no state of this maker"),
        }
    }

    fn has_calls(&self) -> bool {
        self.items.iter().any(|item| item.get("call").is_some())
    }
}

/// A member that must be a text.
fn text<'v>(object: &'v Value, name: &str) -> &'v str {
    object[name].as_str().unwrap_or_else(|| panic!("{name} of {object}"))
}

fn list<'v>(object: &'v Value, name: &str) -> &'v [Value] {
    object[name].as_array().unwrap_or_else(|| panic!("{name} of {object}"))
}

fn message_content(message: &Value) -> AnswerContent {
    let mut content = AnswerContent::default();
    for block in list(message, "content") {
        match text(block, "type") {
            "text" => content.add_text("text", text(block, "text")),
            "thinking" => {
                let thinking = text(block, "thinking");
                content.add_text("thought", thinking);
                content.add_state(text(block, "signature"), thinking);
            }
            "redacted_thinking" => content.add_state(text(block, "data"), ""),
            "tool_use" => content.add_call(&block["name"], block["id"].as_str(), &block["input"]),
            other => panic!("a block of type {other}"),
        }
    }
    content.end = match text(message, "stop_reason") {
        "end_turn" => "end",
        "tool_use" => "calls",
        "max_tokens" => "max_tokens",
        "refusal" => "declined",
        other => panic!("stop reason {other}"),
    };
    content
}

fn response_content(response: &Value) -> AnswerContent {
    let mut content = AnswerContent::default();
    let mut has_refusal = false;
    for item in list(response, "output") {
        match text(item, "type") {
            "message" => {
                for part in list(item, "content") {
                    has_refusal |= part["type"] == "refusal";
                    let words = part.get("refusal").unwrap_or(&part["text"]);
                    content.add_text("text", words.as_str().unwrap());
                }
            }
            "reasoning" => {
                let parts: Vec<&str> = list(item, "summary").iter().map(|part| text(part, "text")).collect();
                let summary = parts.join("\n\n");
                content.add_text("thought", &summary);
                if let Some(carrier) = item["encrypted_content"].as_str() {
                    content.add_state(carrier, &summary);
                }
            }
            // An agent does not run a call that the end of the answer has cut off.
            "function_call" if item["status"] == "incomplete" => {}
            "function_call" => {
                let arguments = serde_json::from_str(text(item, "arguments")).unwrap();
                content.add_call(&item["name"], item["call_id"].as_str(), &arguments);
            }
            other => panic!("an item of type {other}"),
        }
    }
    content.end = match (text(response, "status"), has_refusal) {
        ("completed", true) => "declined",
        ("completed", false) if content.has_calls() => "calls",
        ("completed", false) => "end",
        ("incomplete", _) => match text(&response["incomplete_details"], "reason") {
            "max_output_tokens" => "max_tokens",
            "content_filter" => "declined",
            other => panic!("incomplete because of {other}"),
        },
        (other, _) => panic!("status {other}"),
    };
    content
}

fn candidate_content(candidate: &Value) -> AnswerContent {
    let mut content = AnswerContent::default();
    for part in list(&candidate["content"], "parts") {
        if let Some(signature) = part["thoughtSignature"].as_str() {
            let carrier = String::from_utf8(STANDARD.decode(signature).unwrap()).unwrap();
            content.add_state(&carrier, "");
        }
        match part.get("functionCall") {
            Some(call) => content.add_call(&call["name"], call["id"].as_str(), &call["args"]),
            None if part["thought"] == true => content.add_text("thought", text(part, "text")),
            None => content.add_text("text", text(part, "text")),
        }
    }
    content.end = match text(candidate, "finishReason") {
        "STOP" if content.has_calls() => "calls",
        "STOP" => "end",
        "MAX_TOKENS" => "max_tokens",
        "SAFETY" => "declined",
        other => panic!("finish reason {other}"),
    };
    content
}
