//! Parses the parts of a request that determine its answer.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use crate::{
    domain::wire::{
        UpstreamProtocol,
        operation::{Operation, UpstreamOperation},
    },
    sample_provider::script::ScriptError,
};

/// The parts of one request that determine its answer.
#[derive(Debug, Default)]
pub(super) struct SampleRequest {
    pub(super) model: String,
    /// Whether the answer is streamed.
    pub(super) stream: bool,
    /// Whether the answer contains visible thinking.
    pub(super) thinking: bool,
    /// The text of the last user turn, which may be empty.
    pub(super) prompt: String,
    /// The result of a tool; `None` if the last turn has none.
    pub(super) tool_result: Option<String>,
    /// The tool that the answer calls; `None` for an answer without a call. The caller sets it, because it does not depend on the
    /// body alone.
    pub(super) call: Option<OfferedTool>,
    /// The JSON schema of the answer; `None` if the answer is plain text.
    pub(super) schema: Option<Value>,
}

/// The reason why a request cannot be answered.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct SampleRequestError {
    /// The `code` of the `chat/completions` error, which names the fault.
    pub(super) code: &'static str,
    /// The faulty field, and a description of its fault.
    message: String,
}

impl SampleRequestError {
    pub(super) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<ScriptError> for SampleRequestError {
    fn from(error: ScriptError) -> Self {
        Self::new("invalid_script", error.to_string())
    }
}

/// Parses `body`. `path_model` is the model's name in the path, which only the Gemini-style protocol has.
pub(super) fn read_request(
    operation: UpstreamOperation,
    path_model: Option<&str>,
    body: &Value,
) -> Result<SampleRequest, SampleRequestError> {
    let Some(fields) = body.as_object() else {
        return Err(SampleRequestError::new(
            "invalid_body",
            "the body must be a JSON object",
        ));
    };
    let missing = |name: &str| SampleRequestError::new("missing_required_parameter", format!("{name}: field required"));
    let model = path_model.or_else(|| text_at(body, "/model"));
    let model = model.ok_or_else(|| missing("model"))?.to_owned();
    let protocol = operation.protocol();
    let name = match protocol {
        UpstreamProtocol::Messages | UpstreamProtocol::Chat => "messages",
        UpstreamProtocol::Responses => "input",
        UpstreamProtocol::Gemini => "contents",
    };
    let wrapped = body
        .pointer("/generateContentRequest/contents")
        .filter(|_| protocol == UpstreamProtocol::Gemini);
    let turns = fields.get(name).or(wrapped).ok_or_else(|| missing(name))?;
    let mut ask = SampleRequest {
        model,
        ..SampleRequest::default()
    };
    match protocol {
        UpstreamProtocol::Messages => read_messages(body, turns, &mut ask),
        UpstreamProtocol::Responses => read_responses(body, turns, &mut ask),
        UpstreamProtocol::Gemini => read_gemini(body, turns, &mut ask),
        UpstreamProtocol::Chat => read_chat(body, turns, &mut ask),
    }
    if operation == UpstreamOperation::Client(Operation::StreamGenerateContent) {
        ask.stream = true;
    }
    Ok(ask)
}

fn read_messages(body: &Value, turns: &Value, ask: &mut SampleRequest) {
    ask.stream = flag(body, "/stream");
    ask.thinking = matches!(text_at(body, "/thinking/type"), Some("enabled" | "adaptive"));
    ask.schema = body.pointer("/output_config/format/schema").cloned();
    let turns = turns.as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(last) = turns.iter().rev().find(|turn| text_at(turn, "/role") == Some("user")) else {
        return;
    };
    match last.get("content") {
        Some(Value::String(text)) => text.clone_into(&mut ask.prompt),
        Some(Value::Array(blocks)) => {
            for block in blocks {
                match text_at(block, "/type") {
                    Some("text") => add_text(&mut ask.prompt, text_at(block, "/text")),
                    Some("tool_result") => ask.tool_result = Some(plain(block.get("content"))),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn read_responses(body: &Value, input: &Value, ask: &mut SampleRequest) {
    ask.stream = flag(body, "/stream");
    ask.thinking = body.get("reasoning").is_some_and(|reasoning| !reasoning.is_null())
        && text_at(body, "/reasoning/effort") != Some("none");
    ask.schema = body.pointer("/text/format/schema").cloned();
    let Value::Array(items) = input else {
        ask.prompt = plain(Some(input));
        return;
    };
    // The results of several parallel calls may follow each other. Text before these results belongs to an earlier turn.
    for item in items.iter().rev() {
        match text_at(item, "/type") {
            Some("function_call_output" | "custom_tool_call_output") => {
                ask.tool_result.get_or_insert_with(|| plain(item.get("output")));
                return;
            }
            None | Some("message") if text_at(item, "/role") == Some("user") => {
                ask.prompt = plain(item.get("content"));
                return;
            }
            _ => {}
        }
    }
}

fn read_gemini(body: &Value, turns: &Value, ask: &mut SampleRequest) {
    let configuration = body.get("generationConfig").or_else(|| body.get("generation_config"));
    if let Some(configuration) = configuration {
        let thinking = configuration
            .get("thinkingConfig")
            .or_else(|| configuration.get("thinking_config"));
        ask.thinking =
            thinking.is_some_and(|thinking| flag(thinking, "/includeThoughts") || flag(thinking, "/include_thoughts"));
        ask.schema = [
            "responseSchema",
            "response_schema",
            "responseJsonSchema",
            "response_json_schema",
        ]
        .iter()
        .find_map(|name| configuration.get(name))
        .cloned();
        let media = configuration
            .get("responseMimeType")
            .or_else(|| configuration.get("response_mime_type"));
        if ask.schema.is_none() && media.and_then(Value::as_str) == Some("application/json") {
            ask.schema = Some(Value::Object(Map::new()));
        }
    }
    let turns = match turns {
        Value::Array(turns) => turns.as_slice(),
        other => std::slice::from_ref(other),
    };
    let Some(last) = turns.iter().rev().find(|turn| text_at(turn, "/role") != Some("model")) else {
        return;
    };
    for part in last.get("parts").and_then(Value::as_array).into_iter().flatten() {
        add_text(&mut ask.prompt, text_at(part, "/text"));
        let result = part.get("functionResponse").or_else(|| part.get("function_response"));
        if let Some(result) = result {
            ask.tool_result = Some(result.get("response").map(Value::to_string).unwrap_or_default());
        }
    }
}

fn read_chat(body: &Value, turns: &Value, ask: &mut SampleRequest) {
    ask.stream = flag(body, "/stream");
    ask.thinking = text_at(body, "/reasoning_effort").is_some_and(|effort| effort != "none");
    ask.schema = match text_at(body, "/response_format/type") {
        Some("json_schema") => body.pointer("/response_format/json_schema/schema").cloned(),
        Some("json_object") => Some(Value::Object(Map::new())),
        _ => None,
    };
    let turns = turns.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_assistant = |turn: &&Value| text_at(turn, "/role") == Some("assistant");
    // Each tool result and each text of the user is a separate message. Together, the messages after the last answer are the
    // user's last turn.
    let last = turns.iter().rev().skip_while(is_assistant);
    let last: Vec<&Value> = last.take_while(|turn| !is_assistant(turn)).collect();
    for turn in last.into_iter().rev() {
        match text_at(turn, "/role") {
            Some("user") => add_text(&mut ask.prompt, Some(&plain(turn.get("content")))),
            Some("tool") => ask.tool_result = Some(plain(turn.get("content"))),
            _ => {}
        }
    }
}

/// Returns the text of a content field: the string, or the `text` of the field's blocks. Returns any other value as JSON.
fn plain(content: Option<&Value>) -> String {
    match content {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let mut joined = String::new();
            for block in blocks {
                add_text(&mut joined, text_at(block, "/text"));
            }
            joined
        }
        Some(other) => other.to_string(),
    }
}

fn add_text(joined: &mut String, text: Option<&str>) {
    if let Some(text) = text {
        if !joined.is_empty() {
            joined.push('\n');
        }
        joined.push_str(text);
    }
}

/// Returns whether the value at a JSON pointer is `true`.
pub(super) fn flag(value: &Value, pointer: &str) -> bool {
    value.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the string at a JSON pointer; `None` if there is no value or it is not a string.
pub(super) fn text_at<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// The operation and the model in a request's path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathTarget {
    pub(super) operation: UpstreamOperation,
    /// The model's name; `None` if the path contains none.
    pub(super) model: Option<String>,
}

/// Parses `path`; returns `None` for an unknown path. Only the end of the path is checked, so a path can have any provider's
/// prefix.
pub(super) fn parse_path(path: &str) -> Option<PathTarget> {
    let plain = |operation| Some(PathTarget { operation, model: None });
    if path.ends_with("/messages/count_tokens") {
        return plain(Operation::CountTokens.into());
    }
    if path.ends_with("/messages") {
        return plain(Operation::Messages.into());
    }
    if path.ends_with("/responses") {
        return plain(Operation::Responses.into());
    }
    if path.ends_with("/chat/completions") {
        return plain(UpstreamOperation::ChatCompletions);
    }
    let (folder, last) = path.rsplit_once('/')?;
    if !(folder.ends_with("/models") || folder.ends_with("/tunedModels")) {
        return None;
    }
    let last = percent_decode_str(last).decode_utf8().ok()?;
    let (model, verb) = last.rsplit_once(':')?;
    let operation = match verb {
        "generateContent" => Operation::GenerateContent,
        "streamGenerateContent" => Operation::StreamGenerateContent,
        "countTokens" => Operation::GeminiCountTokens,
        _ => return None,
    };
    Some(PathTarget {
        operation: operation.into(),
        model: Some(model.to_owned()),
    })
}

/// Returns whether the query of a Gemini-style request requests server-sent events (`alt=sse`).
pub(super) fn is_sse_query(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"))
}

/// A tool that the request offers to the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OfferedTool {
    /// The tool's name.
    pub(super) name: String,
    /// The namespace that contains the tool (Responses); `None` if the tool is not in a namespace.
    pub(super) namespace: Option<String>,
    /// The kind of the tool's input.
    pub(super) input_kind: ToolInputKind,
    /// Arguments that roughly match the tool's schema; a string if the input is free text.
    pub(super) arguments: Value,
}

/// The kind of a tool's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolInputKind {
    /// A JSON object.
    Json,
    /// Free text (custom tools of the Responses protocol).
    Text,
}

impl OfferedTool {
    pub(super) fn new(tool: &Value, schema: &Value) -> Option<Self> {
        Some(Self {
            name: tool.get("name")?.as_str()?.to_owned(),
            namespace: None,
            input_kind: ToolInputKind::Json,
            arguments: fitting_arguments(schema),
        })
    }

    /// Returns the arguments in the text form that a stream contains.
    pub(super) fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(text) if self.input_kind == ToolInputKind::Text => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Builds an object that roughly matches an object schema. The object has the required properties, or the first property if no
/// property is required.
pub(super) fn fitting_arguments(schema: &Value) -> Value {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return json!({});
    };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut object = Map::new();
    for (name, property) in properties {
        if required.contains(&name.as_str()) || (required.is_empty() && object.is_empty()) {
            object.insert(name.clone(), fitting_property(name, property));
        }
    }
    Value::Object(object)
}

fn fitting_property(name: &str, property: &Value) -> Value {
    if let Some(first) = property.pointer("/enum/0") {
        return first.clone();
    }
    let kind = match property.get("type") {
        Some(Value::String(kind)) => kind.to_lowercase(),
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str).unwrap_or("string").to_lowercase(),
        _ => "string".to_owned(),
    };
    match kind.as_str() {
        "integer" | "number" => property.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        "boolean" => json!(true),
        "array" => json!([]),
        // Only one level is built, because deeper schemas are not worth a recursion.
        "object" => json!({}),
        _ if ["location", "city", "place"]
            .iter()
            .any(|word| name.to_lowercase().contains(word)) =>
        {
            json!("Paris")
        }
        _ => json!("sample"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(operation: impl Into<UpstreamOperation>, body: &Value) -> SampleRequest {
        read_request(operation.into(), None, body).unwrap()
    }

    #[test]
    fn the_last_user_turn_is_read_in_every_protocol() {
        let messages = json!({"model": "m", "stream": true, "thinking": {"type": "adaptive"}, "messages": [
            {"role": "user", "content": "old"}, {"role": "assistant", "content": "x"},
            {"role": "user", "content": [{"type": "text", "text": "new"}]}, {"role": "system", "content": "s"}]});
        let responses = json!({"model": "m", "stream": true, "reasoning": {"effort": "low"}, "input": [
            {"role": "user", "content": "old"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "new"}]}]});
        let gemini = json!({"model": "m", "generationConfig": {"thinkingConfig": {"include_thoughts": true}},
            "contents": [{"role": "user", "parts": [{"text": "old"}]}, {"parts": [{"text": "new"}]}]});
        let chat = json!({"model": "m", "stream": true, "reasoning_effort": "low", "messages": [
            {"role": "user", "content": "old"}, {"role": "assistant", "content": "x"},
            {"role": "user", "content": [{"type": "text", "text": "new"}]}, {"role": "system", "content": "s"}]});
        for (operation, body) in [
            (Operation::Messages.into(), messages),
            (Operation::Responses.into(), responses),
            (Operation::StreamGenerateContent.into(), gemini),
            (UpstreamOperation::ChatCompletions, chat),
        ] {
            let ask = ask(operation, &body);
            assert_eq!(
                (ask.prompt.as_str(), ask.stream, ask.thinking),
                ("new", true, true),
                "{operation:?}"
            );
        }
    }

    #[test]
    fn tool_results_are_found() {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "18 C"}]}]}]});
        assert_eq!(ask(Operation::Messages, &body).tool_result.as_deref(), Some("18 C"));
        let body = json!({"model": "m", "input": [{"role": "user", "content": "weather?"},
            {"type": "function_call", "name": "f"}, {"type": "function_call_output", "call_id": "c", "output": "18 C"}]});
        assert_eq!(ask(Operation::Responses, &body).tool_result.as_deref(), Some("18 C"));
        let body = json!({"model": "m", "contents": [{"role": "user", "parts": [
            {"functionResponse": {"name": "f", "response": {"result": "18 C"}}}]}]});
        assert_eq!(
            ask(Operation::GenerateContent, &body).tool_result.as_deref(),
            Some(r#"{"result":"18 C"}"#)
        );
    }

    #[test]
    fn in_chat_results_and_the_texts_behind_them_are_one_turn() {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "weather?"},
            {"role": "assistant", "tool_calls": []}, {"role": "tool", "tool_call_id": "a", "content": "17 C"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "18 C"}]},
            {"role": "user", "content": "in short"}, {"role": "user", "content": "please"}]});
        let turn = ask(UpstreamOperation::ChatCompletions, &body);
        assert_eq!(turn.tool_result.as_deref(), Some("18 C"));
        assert_eq!(turn.prompt, "in short\nplease");
        // A prefilled beginning of the answer is not a separate turn.
        body["messages"]
            .as_array_mut()
            .unwrap()
            .push(json!({"role": "assistant", "content": "It"}));
        assert_eq!(ask(UpstreamOperation::ChatCompletions, &body).prompt, turn.prompt);
    }

    #[test]
    fn a_demanded_format_is_read_from_chat_too() {
        let schema = json!({"properties": {"n": {"type": "integer"}}});
        for (format, expected) in [
            (
                json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}),
                Some(schema.clone()),
            ),
            (json!({"type": "json_object"}), Some(json!({}))),
            (json!({"type": "text"}), None),
        ] {
            let body = json!({"model": "m", "messages": [], "response_format": format});
            assert_eq!(
                ask(UpstreamOperation::ChatCompletions, &body).schema,
                expected,
                "{format}"
            );
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        let chat = UpstreamOperation::ChatCompletions;
        for (operation, body, name) in [
            (Operation::Messages.into(), json!({"messages": []}), "model"),
            (Operation::Responses.into(), json!({"model": "m"}), "input"),
            (chat, json!({"messages": []}), "model"),
            (chat, json!({"model": "m"}), "messages"),
        ] {
            let error = read_request(operation, None, &body).unwrap_err();
            assert_eq!(error.to_string(), format!("{name}: field required"));
            assert_eq!(error.code, "missing_required_parameter");
        }
    }

    #[test]
    fn only_the_end_of_the_path_counts() {
        for (path, operation) in [
            ("/v1/messages", Operation::Messages.into()),
            ("/api/anthropic/v1/messages", Operation::Messages.into()),
            ("/v1/messages/count_tokens", Operation::CountTokens.into()),
            ("/responses", Operation::Responses.into()),
            ("/api/v3/responses", Operation::Responses.into()),
            ("/v1/chat/completions", UpstreamOperation::ChatCompletions),
            ("/openai/v1/chat/completions", UpstreamOperation::ChatCompletions),
        ] {
            assert_eq!(parse_path(path), Some(PathTarget { operation, model: None }), "{path}");
        }
        assert_eq!(parse_path("/v1/completions"), None);
        assert_eq!(parse_path("/v1/models/m:embedContent"), None);
    }

    #[test]
    fn gemini_paths_name_the_model_also_with_an_encoded_colon() {
        for path in [
            "/v1beta/models/g-2:streamGenerateContent",
            "/v1/models/g-2%3AstreamGenerateContent",
        ] {
            let expected = PathTarget {
                operation: Operation::StreamGenerateContent.into(),
                model: Some("g-2".to_owned()),
            };
            assert_eq!(parse_path(path), Some(expected), "{path}");
        }
    }

    #[test]
    fn alt_sse_is_found_among_other_pairs() {
        assert!(is_sse_query(Some("key=x&alt=sse")));
        assert!(!is_sse_query(Some("alt=json")));
        assert!(!is_sse_query(None));
    }
}
