//! Tools: what a request offers, when one is called, and arguments that roughly fit its schema.

use serde_json::{Map, Value, json};

use super::ask::text_at;
use crate::domain::protocol::Protocol;

/// Words in a prompt that ask for a tool, when any is offered.
const ASKING_WORDS: [&str; 3] = ["weather", "forecast", "temperature"];

/// A tool the request offers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    /// The tool's name.
    pub(super) name: String,
    /// Arguments that roughly fit its schema.
    pub(super) arguments: Value,
}

/// The client-side tools that `body` offers, in order.
pub(super) fn offers(protocol: Protocol, body: &Value) -> Vec<Offer> {
    let tools = body.get("tools").and_then(Value::as_array).into_iter().flatten();
    match protocol {
        Protocol::Messages => tools
            .filter_map(|tool| offer(tool, tool.get("input_schema")?))
            .collect(),
        Protocol::Responses => tools
            .filter(|tool| text_at(tool, "/type") == Some("function"))
            .filter_map(|tool| offer(tool, tool.get("parameters").unwrap_or(&Value::Null)))
            .collect(),
        Protocol::Gemini => tools
            .filter_map(|tool| {
                tool.get("functionDeclarations")
                    .or_else(|| tool.get("function_declarations"))
            })
            .filter_map(Value::as_array)
            .flatten()
            .filter_map(|declaration| {
                let names = ["parameters", "parametersJsonSchema", "parameters_json_schema"];
                let schema = names.iter().find_map(|name| declaration.get(name));
                offer(declaration, schema.unwrap_or(&Value::Null))
            })
            .collect(),
    }
}

/// The tool to call: one that is forced, or the first when the prompt asks for it and no result has come yet.
pub(super) fn choose(
    protocol: Protocol,
    body: &Value,
    offers: Vec<Offer>,
    prompt: &str,
    has_result: bool,
) -> Option<Offer> {
    let (forced, name) = match protocol {
        Protocol::Messages => match text_at(body, "/tool_choice/type") {
            Some("none") => return None,
            Some("any") => (true, None),
            Some("tool") => (true, text_at(body, "/tool_choice/name")),
            _ => (false, None),
        },
        Protocol::Responses => match body.get("tool_choice") {
            Some(Value::String(choice)) if choice == "none" => return None,
            Some(Value::String(choice)) => (choice == "required", None),
            Some(Value::Object(choice)) => (
                choice.get("type").and_then(Value::as_str) == Some("function"),
                text_at(body, "/tool_choice/name"),
            ),
            _ => (false, None),
        },
        Protocol::Gemini => match text_at(body, "/toolConfig/functionCallingConfig/mode") {
            Some("NONE") => return None,
            Some("ANY") => (
                true,
                text_at(body, "/toolConfig/functionCallingConfig/allowedFunctionNames/0"),
            ),
            _ => (false, None),
        },
    };
    let asked = {
        let prompt = prompt.to_lowercase();
        !has_result && ASKING_WORDS.iter().any(|word| prompt.contains(word))
    };
    if !(forced || asked) {
        return None;
    }
    offers
        .into_iter()
        .find(|offer| name.is_none_or(|name| name == offer.name))
}

fn offer(tool: &Value, schema: &Value) -> Option<Offer> {
    Some(Offer {
        name: text_at(tool, "/name")?.to_owned(),
        arguments: fitting(schema),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn weather_schema() -> Value {
        json!({"type": "object", "properties": {"unit": {"type": "string", "enum": ["c", "f"]},
            "location": {"type": "string"}, "days": {"type": "integer"}}, "required": ["location"]})
    }

    #[test]
    fn arguments_fit_the_required_properties() {
        assert_eq!(fitting(&weather_schema()), json!({"location": "Paris"}));
        let gemini = json!({"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}});
        assert_eq!(fitting(&gemini), json!({"n": 1}));
        assert_eq!(fitting(&Value::Null), json!({}));
    }

    #[test]
    fn a_prompt_about_the_weather_calls_the_first_tool_of_each_protocol() {
        let schema = weather_schema();
        for (protocol, body) in [
            (
                Protocol::Messages,
                json!({"tools": [{"type": "web_search_20250305", "name": "web_search"},
                {"name": "get_weather", "input_schema": schema}]}),
            ),
            (
                Protocol::Responses,
                json!({"tools": [{"type": "web_search"},
                {"type": "function", "name": "get_weather", "parameters": schema}]}),
            ),
            (
                Protocol::Gemini,
                json!({"tools": [{"functionDeclarations": [
                {"name": "get_weather", "parameters_json_schema": schema}]}]}),
            ),
        ] {
            let call = choose(protocol, &body, offers(protocol, &body), "The Weather in Rome?", false).unwrap();
            assert_eq!(
                (call.name.as_str(), call.arguments),
                ("get_weather", json!({"location": "Paris"}))
            );
            assert_eq!(choose(protocol, &body, offers(protocol, &body), "weather", true), None);
            assert_eq!(choose(protocol, &body, offers(protocol, &body), "hello", false), None);
        }
    }

    #[test]
    fn a_forced_choice_calls_the_named_tool_and_none_forbids() {
        let tools = json!([{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}]);
        let body = json!({"tools": tools, "tool_choice": {"type": "tool", "name": "b"}});
        let call = choose(
            Protocol::Messages,
            &body,
            offers(Protocol::Messages, &body),
            "hello",
            false,
        );
        assert_eq!(call.unwrap().name, "b");
        let body = json!({"tools": tools, "tool_choice": {"type": "none"}});
        assert_eq!(
            choose(
                Protocol::Messages,
                &body,
                offers(Protocol::Messages, &body),
                "weather",
                false
            ),
            None
        );
    }
}
