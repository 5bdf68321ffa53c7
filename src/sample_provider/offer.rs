//! Tools that a request offers, with arguments that roughly fit their schemas.

use serde_json::{Map, Value, json};

/// A tool that the request offers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OfferedTool {
    /// The tool's name.
    pub(super) name: String,
    /// The namespace that it is in (Responses).
    pub(super) namespace: Option<String>,
    /// The kind of its input.
    pub(super) input_kind: ToolInputKind,
    /// Arguments that roughly fit its schema; a string for free text.
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

    /// The arguments as text for a stream.
    pub(super) fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(text) if self.input_kind == ToolInputKind::Text => text.clone(),
            other => other.to_string(),
        }
    }
}

/// An object that roughly fits an object schema: its required properties, or the first one if none is required.
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
        // Only one level: deeper schemas are not worth a recursion here.
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
