//! Clients: each reads a written answer as the official SDK of its protocol does, and checks the protocol's rules on the way.

use serde_json::{Value, json};

use crate::domain::{
    translation::{answer::write::AnswerForm, conversation::ToolCall},
    wire::Protocol,
};

/// The ends of lines by Unicode: some clients end an event's line at each of them.
const LINE_ENDS: [char; 10] = [
    '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}',
];

/// What a client has at the end of an answer.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClientAnswer {
    /// The final object; null if the answer has failed.
    pub(super) object: Value,
    /// The error that has ended the stream.
    pub(super) error: Option<Value>,
}

/// Reads an answer in this form.
pub(super) fn read_answer(client: Protocol, form: AnswerForm, text: &str) -> ClientAnswer {
    match (form, client) {
        (AnswerForm::Whole, _) => ClientAnswer {
            object: parse(text),
            error: None,
        },
        (AnswerForm::Stream | AnswerForm::Array, Protocol::Messages) => read_messages(text),
        (AnswerForm::Stream | AnswerForm::Array, Protocol::Responses) => read_responses(text),
        (AnswerForm::Stream | AnswerForm::Array, Protocol::Gemini) => read_chunks(&gemini_chunks(form, text)),
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The data of a stream's events, each behind its name.
fn named_events(text: &str) -> Vec<Value> {
    let mut frames: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(frames.pop(), Some(""), "{text}");
    let data = |frame: &str| {
        let (name, data) = frame.split_once("\ndata: ").unwrap_or_else(|| panic!("{frame}"));
        assert!(!data.contains(['\n', '\r']), "{frame}");
        let data = parse(data);
        assert_eq!(data["type"].as_str(), name.strip_prefix("event: "), "{frame}");
        data
    };
    frames.into_iter().map(data).collect()
}

/// A Messages stream so far.
#[derive(Default)]
struct MessageStream {
    message: Value,
    error: Option<Value>,
    is_block_open: bool,
    /// The arguments of the open call, or of the last one.
    arguments: String,
    /// The type of the last event.
    last: String,
}

fn read_messages(text: &str) -> ClientAnswer {
    let mut stream = MessageStream::default();
    for event in named_events(text) {
        stream.on_event(&event);
    }
    assert!(matches!(stream.last.as_str(), "message_stop" | "error"), "{text}");
    let object = match stream.error {
        Some(_) => Value::Null,
        None => stream.message,
    };
    ClientAnswer {
        object,
        error: stream.error,
    }
}

impl MessageStream {
    fn on_event(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap();
        let last = self.last.as_str();
        assert!(!matches!(last, "message_stop" | "error"), "{kind} follows the end");
        assert_eq!(kind == "message_stop", last == "message_delta", "{kind} follows {last}");
        match kind {
            "message_start" => {
                assert!(self.message.is_null(), "the message begins twice");
                self.message = event["message"].clone();
                assert_eq!(self.message["content"], json!([]));
            }
            "error" => self.error = Some(event["error"].clone()),
            "ping" | "message_stop" => {}
            _ => self.on_content(kind, event),
        }
        self.last = kind.to_owned();
    }

    fn on_content(&mut self, kind: &str, event: &Value) {
        let blocks = self.message["content"].as_array_mut().unwrap();
        match kind {
            "content_block_start" => {
                assert!(!self.is_block_open, "blocks overlap");
                assert_eq!(event["index"], json!(blocks.len()));
                blocks.push(event["content_block"].clone());
                self.is_block_open = true;
                self.arguments.clear();
            }
            "content_block_delta" => {
                assert!(self.is_block_open, "a piece of no block");
                assert_eq!(event["index"], json!(blocks.len() - 1));
                add_delta(blocks.last_mut().unwrap(), &event["delta"], &mut self.arguments);
            }
            "content_block_stop" => {
                assert!(self.is_block_open, "the end of no block");
                assert_eq!(event["index"], json!(blocks.len() - 1));
                end_block(blocks.last_mut().unwrap(), &self.arguments);
                self.is_block_open = false;
            }
            "message_delta" => {
                assert!(!self.is_block_open, "the message ends within a block");
                let is_cut = !matches!(event["delta"]["stop_reason"].as_str(), Some("tool_use" | "end_turn"));
                let is_incomplete = serde_json::from_str::<Value>(&self.arguments).is_err();
                // An agent does not run a call that the end of the message has cut off.
                blocks.pop_if(|block| is_cut && is_incomplete && block["type"] == "tool_use");
                merge(&mut self.message, &event["delta"]);
                merge(&mut self.message["usage"], &event["usage"]);
            }
            other => panic!("{other} is no event of the protocol"),
        }
    }
}

fn merge(object: &mut Value, changes: &Value) {
    for (name, value) in changes.as_object().unwrap() {
        object[name] = value.clone();
    }
}

fn add_delta(block: &mut Value, delta: &Value, arguments: &mut String) {
    let (kind, member) = match delta["type"].as_str().unwrap() {
        "text_delta" => ("text", "text"),
        "thinking_delta" => ("thinking", "thinking"),
        "signature_delta" => ("thinking", "signature"),
        "citations_delta" => ("text", "citation"),
        "input_json_delta" => ("tool_use", "partial_json"),
        other => panic!("{other} is no piece of a block"),
    };
    assert_eq!(block["type"], kind);
    if member == "citation" {
        if block["citations"].is_null() {
            block["citations"] = json!([]);
        }
        block["citations"].as_array_mut().unwrap().push(delta[member].clone());
        return;
    }
    let piece = delta[member].as_str().unwrap();
    if member == "partial_json" {
        arguments.push_str(piece);
        return;
    }
    let joined = format!("{}{piece}", block[member].as_str().unwrap());
    block[member] = joined.into();
}

/// Arguments that the model has not completed count as in a message.
fn end_block(block: &mut Value, arguments: &str) {
    if block["type"] == "tool_use" {
        let call = ToolCall {
            id: "".into(),
            name: "".into(),
            arguments: arguments.into(),
        };
        block["input"] = parse(&call.object_arguments().0);
    }
}

/// A Responses stream so far.
#[derive(Default)]
struct ResponseStream {
    /// The items that are complete.
    items: Vec<Value>,
    /// The item that has begun.
    open: Option<Value>,
    /// The texts of the open item that are complete.
    texts: Vec<String>,
    /// The open text so far.
    text: String,
    is_over: bool,
}

fn read_responses(text: &str) -> ClientAnswer {
    let without_mark = text.strip_suffix("data: [DONE]\n\n");
    let events = named_events(without_mark.unwrap_or(text));
    let mut stream = ResponseStream::default();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], json!(number));
        stream.on_event(number, event);
    }
    assert!(stream.is_over, "{text}");
    let last = events.last().unwrap();
    let has_failed = last["type"] == "response.failed";
    assert_eq!(without_mark.is_none(), has_failed, "{text}");
    ClientAnswer {
        object: last["response"].clone(),
        error: has_failed.then(|| last["response"]["error"].clone()),
    }
}

impl ResponseStream {
    fn on_event(&mut self, number: usize, event: &Value) {
        let kind = event["type"].as_str().unwrap();
        assert!(!self.is_over, "{kind} follows the end");
        let response = &event["response"];
        match kind {
            "response.created" | "response.in_progress" => {
                assert_eq!(number, usize::from(kind == "response.in_progress"));
                assert_eq!(response["status"], "in_progress");
                assert_eq!(response["output"], json!([]));
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                assert!(self.open.is_none() || kind == "response.failed", "an item has no end");
                assert_eq!(response["status"].as_str(), kind.strip_prefix("response."));
                assert_eq!(response["output"], json!(self.items));
                self.is_over = true;
            }
            "response.output_item.added" => {
                assert_eq!(event["output_index"], json!(self.items.len()));
                assert!(self.open.is_none(), "items overlap");
                self.open = Some(event["item"].clone());
                self.texts.clear();
            }
            "response.output_item.done" => {
                assert_eq!(event["output_index"], json!(self.items.len()));
                let added = self.open.take().unwrap();
                check_item(&added, &event["item"], &self.texts);
                self.items.push(event["item"].clone());
            }
            _ => self.on_piece(kind, event),
        }
    }

    fn on_piece(&mut self, kind: &str, event: &Value) {
        let open = self.open.as_ref().unwrap();
        assert_eq!(event["output_index"], json!(self.items.len()), "{kind}");
        assert_eq!(event["item_id"], open["id"], "{kind}");
        if kind.contains("reasoning_summary") {
            assert!(event["summary_index"].is_u64(), "{kind}");
        }
        if kind.ends_with("_part.added") {
            let index = event.get("summary_index").unwrap_or(&event["content_index"]);
            assert_eq!(*index, json!(self.texts.len()), "{kind}");
            return;
        }
        let member = match kind {
            "response.content_part.done"
            | "response.reasoning_summary_part.done"
            | "response.output_text.annotation.added" => return,
            "response.output_text.done" | "response.reasoning_summary_text.done" => "text",
            "response.refusal.done" => "refusal",
            "response.function_call_arguments.done" => "arguments",
            "response.custom_tool_call_input.done" => "input",
            _ => "delta",
        };
        let piece = event[member].as_str().unwrap_or_else(|| panic!("{event}"));
        if member == "delta" {
            assert!(kind.ends_with(".delta"), "{kind} is no event of the protocol");
            self.text.push_str(piece);
        } else {
            assert_eq!(piece, self.text, "{kind}");
            self.texts.push(std::mem::take(&mut self.text));
        }
    }
}

/// Checks that a complete item is the one that was begun, with the texts that its events had.
fn check_item(added: &Value, item: &Value, texts: &[String]) {
    for member in ["id", "type", "call_id", "name", "namespace"] {
        assert_eq!(item[member], added[member], "{item}");
    }
    let parts = |name: &str| -> Vec<Value> {
        let parts = item[name].as_array().unwrap().iter();
        parts
            .map(|part| part.get("refusal").unwrap_or(&part["text"]).clone())
            .collect()
    };
    let complete = match item["type"].as_str().unwrap() {
        "message" => parts("content"),
        "reasoning" => parts("summary"),
        "function_call" => vec![item["arguments"].clone()],
        "custom_tool_call" => vec![item["input"].clone()],
        _ => Vec::new(),
    };
    assert_eq!(json!(complete), json!(texts), "{item}");
}

/// The chunks of a Gemini answer: of an array, or of a stream, which has nothing but one line of data in each event.
pub(super) fn gemini_chunks(form: AnswerForm, text: &str) -> Vec<Value> {
    if form == AnswerForm::Array {
        return serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    }
    let mut frames: Vec<&str> = text.split("\r\n\r\n").collect();
    assert_eq!(frames.pop(), Some(""), "{text}");
    let data = |frame: &str| {
        assert!(!frame.contains(LINE_ENDS), "{frame}");
        let data = frame.strip_prefix("data: ").unwrap_or_else(|| panic!("{frame}"));
        assert!(data.starts_with('{'), "{frame}");
        parse(data)
    };
    frames.into_iter().map(data).collect()
}

fn read_chunks(chunks: &[Value]) -> ClientAnswer {
    let (last, earlier) = chunks.split_last().unwrap();
    let mut parts = Vec::new();
    for chunk in earlier {
        assert!(chunk.get("error").is_none(), "{chunk} is not the last one");
        read_chunk(chunk, false, &mut parts);
    }
    if let Some(error) = last.get("error") {
        return ClientAnswer {
            object: Value::Null,
            error: Some(error.clone()),
        };
    }
    read_chunk(last, true, &mut parts);
    let mut object = last.clone();
    object["candidates"][0]["content"]["parts"] = parts.into();
    ClientAnswer { object, error: None }
}

fn read_chunk(chunk: &Value, is_last: bool, parts: &mut Vec<Value>) {
    assert_eq!(chunk["modelVersion"], "big");
    assert!(chunk["responseId"].is_string(), "{chunk}");
    let candidates = chunk["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 1, "{chunk}");
    let candidate = &candidates[0];
    assert_eq!(candidate["content"]["role"], "model", "{chunk}");
    assert_eq!(candidate["finishReason"].is_string(), is_last, "{chunk}");
    assert_eq!(chunk["usageMetadata"].is_object(), is_last, "{chunk}");
    for part in candidate["content"]["parts"].as_array().unwrap() {
        add_part(parts, part);
    }
}

/// Adds a part: neighbouring texts of one kind are one.
fn add_part(parts: &mut Vec<Value>, part: &Value) {
    if *part == json!({"text": ""}) && !parts.is_empty() {
        return;
    }
    if let Some(call) = part.get("functionCall") {
        assert!(call["args"].is_object(), "{part}");
    } else if let Some(last) = parts.last_mut()
        && last.get("text").is_some()
        && last.get("thought") == part.get("thought")
        && part.get("thoughtSignature").is_none()
    {
        let joined = format!("{}{}", last["text"].as_str().unwrap(), part["text"].as_str().unwrap());
        last["text"] = joined.into();
        return;
    }
    parts.push(part.clone());
}
