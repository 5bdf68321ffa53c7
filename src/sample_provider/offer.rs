//! A tool that a request offers, with arguments that roughly fit its schema.

use serde_json::{Map, Value, json};

/// A tool the request offers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    /// The tool's name.
    pub(super) name: String,
    /// The namespace it is offered in (Responses).
    pub(super) namespace: Option<String>,
    /// What it takes.
    pub(super) taking: Taking,
    /// Arguments that roughly fit its schema; a string where it takes free text.
    pub(super) arguments: Value,
}

/// What a tool takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taking {
    /// A JSON object.
    Json,
    /// Free text (the Responses protocol's custom tools).
    Text,
}

impl Offer {
    pub(super) fn new(tool: &Value, schema: &Value) -> Option<Self> {
        Some(Self {
            name: tool.get("name")?.as_str()?.to_owned(),
            namespace: None,
            taking: Taking::Json,
            arguments: fitting(schema),
        })
    }

    /// The arguments as they are written in a stream.
    pub(super) fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(text) if self.taking == Taking::Text => text.clone(),
            other => other.to_string(),
        }
    }
}

/// An object that roughly fits an object schema: its required properties, or the first one when none is required.
pub(super) fn fitting(schema: &Value) -> Value {
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
        // One level only: deeper schemas are not worth their recursion here.
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
