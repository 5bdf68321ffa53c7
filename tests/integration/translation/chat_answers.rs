//! What a provider of `chat/completions` answers, as a stream and in one piece.

use serde_json::{Value as Json, json};

use super::stage::UPSTREAM_MODEL;
use crate::harness::answer::Answer;

/// The event behind the last chunk.
pub(super) const DONE: &str = "data: [DONE]\n\n";

/// What the model says in one answer, in the pieces of a stream.
pub(super) struct ChatTurn {
    pub(super) reasoning: &'static [&'static str],
    pub(super) text: &'static [&'static str],
    pub(super) calls: &'static [ChatCall],
}

/// A call of a tool.
pub(super) struct ChatCall {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    /// The pieces of the arguments.
    pub(super) arguments: &'static [&'static str],
}

impl ChatTurn {
    /// Answers as the request with this body wants it.
    pub(super) fn answer(&self, body: &Json, answer: &mut Answer<'_>) {
        if body["stream"] == true {
            answer.sse();
            self.events().iter().for_each(|event| answer.chunk(event));
            answer.end();
        } else {
            answer.json(&self.whole().to_string());
        }
    }

    /// The events of a stream. The arguments of several calls come in turns.
    fn events(&self) -> Vec<String> {
        let mut deltas = vec![json!({"role": "assistant", "content": ""})];
        deltas.extend(self.reasoning.iter().map(|piece| json!({"reasoning_content": piece})));
        deltas.extend(self.text.iter().map(|piece| json!({"content": piece})));
        for (index, ChatCall { id, name, .. }) in self.calls.iter().enumerate() {
            let function = json!({"name": name, "arguments": ""});
            deltas.push(json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}));
        }
        let rounds = self.calls.iter().map(|call| call.arguments.len()).max();
        for round in 0..rounds.unwrap_or(0) {
            for (index, call) in self.calls.iter().enumerate() {
                if let Some(piece) = call.arguments.get(round) {
                    deltas.push(json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}));
                }
            }
        }
        let mut events: Vec<String> = deltas.iter().map(|delta| chunk(delta, None)).collect();
        events.push(chunk(&json!({}), Some(self.reason())));
        events.push(usage_chunk());
        events.push(DONE.to_owned());
        events
    }

    fn whole(&self) -> Json {
        let text = self.text.concat();
        let mut message = json!({"role": "assistant", "content": null});
        if !text.is_empty() {
            message["content"] = text.into();
        }
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = self.reasoning.concat().into();
        }
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(|call| {
                let function = json!({"name": call.name, "arguments": call.arguments.concat()});
                json!({"id": call.id, "type": "function", "function": function})
            });
            message["tool_calls"] = Json::Array(calls.collect());
        }
        json!({
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": UPSTREAM_MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": self.reason()}],
            "usage": usage(),
        })
    }

    fn reason(&self) -> &'static str {
        if self.calls.is_empty() { "stop" } else { "tool_calls" }
    }
}

/// The usage that [`super::stage::REPORTED`] stands for.
fn usage() -> Json {
    json!({
        "prompt_tokens": 50,
        "completion_tokens": 30,
        "total_tokens": 80,
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 12},
    })
}

/// A chunk that adds this to the answer, or ends it for this reason.
pub(super) fn chunk(delta: &Json, reason: Option<&str>) -> String {
    chunk_with(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}))
}

/// The chunk behind the end of the answer, with the usage.
pub(super) fn usage_chunk() -> String {
    chunk_with(&json!({"choices": [], "usage": usage()}))
}

/// A chunk with these members beside those that all have.
pub(super) fn chunk_with(members: &Json) -> String {
    let mut chunk =
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": UPSTREAM_MODEL});
    for (name, value) in members.as_object().unwrap() {
        chunk[name] = value.clone();
    }
    format!("data: {chunk}\n\n")
}
