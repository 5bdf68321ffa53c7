//! A conversation as an agent keeps it, in each client's protocol: what it sends, and what it reads in an answer.

use serde_json::{Value as Json, json};

use crate::harness::request::Wire;

/// The instructions of every conversation.
pub(super) const SYSTEM: &str = "Be brief.";
/// The tools of every conversation. Each takes a city.
const TOOLS: [&str; 2] = ["weather", "time"];

/// The turns so far, in the form of the client's protocol.
pub(super) struct Conversation {
    wire: Wire,
    turns: Vec<Json>,
}

/// A call of a tool as the client reads it.
#[derive(Debug)]
pub(super) struct AgentCall {
    /// Gemini clients need no id.
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: Json,
}

impl Conversation {
    /// A conversation that begins with this question.
    pub(super) fn new(wire: Wire, question: &str) -> Conversation {
        let first = match wire {
            Wire::Messages => json!({"role": "user", "content": question}),
            Wire::Responses => {
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]})
            }
            Wire::Gemini => json!({"role": "user", "parts": [{"text": question}]}),
        };
        Conversation {
            wire,
            turns: vec![first],
        }
    }

    /// The body of the next request. The client keeps the state of the model's reasoning itself.
    pub(super) fn body(&self) -> Json {
        let (turns, tools) = (&self.turns, tools(self.wire));
        match self.wire {
            Wire::Messages => json!({"max_tokens": 512, "system": SYSTEM, "tools": tools, "messages": turns}),
            Wire::Responses => json!({
                "store": false,
                "include": ["reasoning.encrypted_content"],
                "instructions": SYSTEM,
                "tools": tools,
                "input": turns,
            }),
            Wire::Gemini => {
                json!({"systemInstruction": {"parts": [{"text": SYSTEM}]}, "tools": tools, "contents": turns})
            }
        }
    }

    /// Adds an answer as it came, and the results of its calls in their order.
    #[track_caller]
    pub(super) fn add_answer(&mut self, answer: &Json, results: &[&str]) {
        let calls = calls(self.wire, answer);
        assert_eq!(calls.len(), results.len(), "{answer}");
        let content = content(self.wire, answer);
        let results = calls.iter().zip(results);
        match self.wire {
            Wire::Messages => {
                let results =
                    results.map(|(call, text)| json!({"type": "tool_result", "tool_use_id": call.id, "content": text}));
                let results = Json::Array(results.collect());
                self.turns.push(json!({"role": "assistant", "content": content}));
                self.turns.push(json!({"role": "user", "content": results}));
            }
            Wire::Responses => {
                let results = results
                    .map(|(call, text)| json!({"type": "function_call_output", "call_id": call.id, "output": text}));
                self.turns.extend(content.iter().cloned());
                self.turns.extend(results);
            }
            Wire::Gemini => {
                let results = results.map(|(call, text)| {
                    let mut response = json!({"name": call.name, "response": {"output": text}});
                    if let Some(id) = &call.id {
                        response["id"] = id.as_str().into();
                    }
                    json!({"functionResponse": response})
                });
                let results = Json::Array(results.collect());
                self.turns.push(json!({"role": "model", "parts": content}));
                self.turns.push(json!({"role": "user", "parts": results}));
            }
        }
    }
}

fn tools(wire: Wire) -> Json {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools = TOOLS.iter().map(|name| {
        let description = format!("Tells the {name} in a city.");
        match wire {
            Wire::Messages => json!({"name": name, "description": description, "input_schema": schema}),
            Wire::Responses => json!({
                "type": "function",
                "name": name,
                "description": description,
                "parameters": schema,
                "strict": false,
            }),
            Wire::Gemini => json!({"name": name, "description": description, "parametersJsonSchema": schema}),
        }
    });
    let tools = Json::Array(tools.collect());
    match wire {
        Wire::Messages | Wire::Responses => tools,
        Wire::Gemini => json!([{"functionDeclarations": tools}]),
    }
}

/// The content of an answer: blocks, items or parts.
#[track_caller]
fn content(wire: Wire, answer: &Json) -> &Vec<Json> {
    let content = match wire {
        Wire::Messages => &answer["content"],
        Wire::Responses => &answer["output"],
        Wire::Gemini => &answer["candidates"][0]["content"]["parts"],
    };
    content.as_array().unwrap_or_else(|| panic!("no content: {answer}"))
}

/// The text of an answer.
#[track_caller]
pub(super) fn text(wire: Wire, answer: &Json) -> String {
    let content = content(wire, answer).iter();
    let texts: Vec<&str> = match wire {
        Wire::Messages => content.filter_map(|block| block["text"].as_str()).collect(),
        Wire::Responses => content.filter_map(|item| item["content"][0]["text"].as_str()).collect(),
        Wire::Gemini => {
            let parts = content.filter(|part| part["thought"] != true);
            parts.filter_map(|part| part["text"].as_str()).collect()
        }
    };
    texts.concat()
}

/// The reasoning that the client can show.
#[track_caller]
pub(super) fn thought(wire: Wire, answer: &Json) -> String {
    let content = content(wire, answer).iter();
    let texts: Vec<&str> = match wire {
        Wire::Messages => content.filter_map(|block| block["thinking"].as_str()).collect(),
        Wire::Responses => content.filter_map(|item| item["summary"][0]["text"].as_str()).collect(),
        Wire::Gemini => {
            let parts = content.filter(|part| part["thought"] == true);
            parts.filter_map(|part| part["text"].as_str()).collect()
        }
    };
    texts.concat()
}

/// The calls of an answer.
#[track_caller]
pub(super) fn calls(wire: Wire, answer: &Json) -> Vec<AgentCall> {
    let owned = |value: &Json| value.as_str().map(str::to_owned);
    let content = content(wire, answer).iter();
    match wire {
        Wire::Messages => {
            let blocks = content.filter(|block| block["type"] == "tool_use");
            let call = |block: &Json| AgentCall {
                id: owned(&block["id"]),
                name: owned(&block["name"]).unwrap(),
                arguments: block["input"].clone(),
            };
            blocks.map(call).collect()
        }
        Wire::Responses => {
            let items = content.filter(|item| item["type"] == "function_call");
            let call = |item: &Json| AgentCall {
                id: owned(&item["call_id"]),
                name: owned(&item["name"]).unwrap(),
                arguments: serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap(),
            };
            items.map(call).collect()
        }
        Wire::Gemini => {
            let functions = content.filter_map(|part| part.get("functionCall"));
            let call = |function: &Json| AgentCall {
                id: owned(&function["id"]),
                name: owned(&function["name"]).unwrap(),
                arguments: function["args"].clone(),
            };
            functions.map(call).collect()
        }
    }
}

/// Why the answer ends.
pub(super) fn stop(wire: Wire, answer: &Json) -> &str {
    let reason = match wire {
        Wire::Messages => &answer["stop_reason"],
        Wire::Responses => &answer["status"],
        Wire::Gemini => &answer["candidates"][0]["finishReason"],
    };
    reason
        .as_str()
        .unwrap_or_else(|| panic!("no reason for the end: {answer}"))
}

/// The usage as the client reads it, in the form of [`super::stage::REPORTED`].
pub(super) fn reported(wire: Wire, answer: &Json) -> [u64; 4] {
    let usage = match wire {
        Wire::Messages | Wire::Responses => &answer["usage"],
        Wire::Gemini => &answer["usageMetadata"],
    };
    let count = |value: &Json| value.as_u64().unwrap_or(0);
    match wire {
        Wire::Messages => {
            let read = count(&usage["cache_read_input_tokens"]);
            let input = count(&usage["input_tokens"]) + count(&usage["cache_creation_input_tokens"]) + read;
            let thinking = count(&usage["output_tokens_details"]["thinking_tokens"]);
            [input, read, count(&usage["output_tokens"]), thinking]
        }
        Wire::Responses => {
            let read = count(&usage["input_tokens_details"]["cached_tokens"]);
            let reasoning = count(&usage["output_tokens_details"]["reasoning_tokens"]);
            [
                count(&usage["input_tokens"]),
                read,
                count(&usage["output_tokens"]),
                reasoning,
            ]
        }
        Wire::Gemini => {
            let thoughts = count(&usage["thoughtsTokenCount"]);
            let output = count(&usage["candidatesTokenCount"]) + thoughts;
            [
                count(&usage["promptTokenCount"]),
                count(&usage["cachedContentTokenCount"]),
                output,
                thoughts,
            ]
        }
    }
}
