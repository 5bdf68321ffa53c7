//! Tools: what a request offers, when one is called, and arguments that roughly fit its schema.

use serde_json::{Value, json};

use super::ask::{Ask, text_at};
use super::offer::{Offer, Taking};
use super::script::Script;
use crate::domain::wire::protocol::Protocol;

/// Words in a prompt that ask for a tool, when any is offered.
const ASKING_WORDS: [&str; 3] = ["weather", "forecast", "temperature"];

/// The client-side tools that `body` offers, in order.
fn offers(protocol: Protocol, body: &Value) -> Vec<Offer> {
    let tools = list(body, "tools");
    match protocol {
        Protocol::Messages => tools
            .filter_map(|tool| Offer::new(tool, tool.get("input_schema")?))
            .collect(),
        Protocol::Responses => {
            // Agents also bring tools along as an item of the input.
            let added = list(body, "input")
                .filter(|item| text_at(item, "/type") == Some("additional_tools"))
                .flat_map(|item| list(item, "tools"));
            tools.chain(added).flat_map(responses_offers).collect()
        }
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
                Offer::new(declaration, schema.unwrap_or(&Value::Null))
            })
            .collect(),
    }
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// A tool of the Responses protocol, or those of a namespace.
fn responses_offers(tool: &Value) -> Vec<Offer> {
    if text_at(tool, "/type") != Some("namespace") {
        return responses_offer(tool).into_iter().collect();
    }
    let namespace = text_at(tool, "/name");
    let within = |offer: Offer| Offer {
        namespace: namespace.map(str::to_owned),
        ..offer
    };
    list(tool, "tools").filter_map(responses_offer).map(within).collect()
}

fn responses_offer(tool: &Value) -> Option<Offer> {
    match text_at(tool, "/type") {
        Some("function") => Offer::new(tool, tool.get("parameters").unwrap_or(&Value::Null)),
        Some("custom") => Some(Offer {
            taking: Taking::Text,
            arguments: json!("sample"),
            ..Offer::new(tool, &Value::Null)?
        }),
        _ => None,
    }
}

/// The tool to call: one that is forced; without a result yet, the one that a mark names, or the first when the prompt
/// asks for it.
pub(super) fn choose(protocol: Protocol, body: &Value, ask: &Ask, script: &Script) -> Option<Offer> {
    let (forced, forced_name) = match protocol {
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
    let has_result = ask.tool_result.is_some();
    let marked = script.tool.as_deref().filter(|_| !has_result);
    let asked = marked.is_some() || {
        let prompt = ask.prompt.to_lowercase();
        !has_result && ASKING_WORDS.iter().any(|word| prompt.contains(word))
    };
    if !(forced || asked) {
        return None;
    }
    let name = forced_name.or(marked);
    let mut offer = offers(protocol, body)
        .into_iter()
        .find(|offer| name.is_none_or(|name| name == offer.name))?;
    if let Some(input) = script
        .tool_input
        .clone()
        .filter(|_| marked == Some(offer.name.as_str()))
    {
        offer.arguments = input;
    }
    Some(offer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_provider::offer::fitting;

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

    fn chosen(protocol: Protocol, body: &Value, prompt: &str, result: Option<&str>) -> Option<Offer> {
        let ask = Ask {
            prompt: prompt.to_owned(),
            tool_result: result.map(str::to_owned),
            ..Ask::default()
        };
        choose(protocol, body, &ask, &Script::from_prompt(prompt).unwrap())
    }

    fn bodies(schema: &Value) -> [(Protocol, Value); 3] {
        let messages = json!({"tools": [{"type": "web_search_20250305", "name": "web_search"},
            {"name": "get_weather", "input_schema": schema}, {"name": "shell", "input_schema": {}}]});
        let responses = json!({"tools": [{"type": "web_search"},
            {"type": "function", "name": "get_weather", "parameters": schema}, {"type": "function", "name": "shell"}]});
        let gemini = json!({"tools": [{"functionDeclarations": [
            {"name": "get_weather", "parameters_json_schema": schema}, {"name": "shell"}]}]});
        [
            (Protocol::Messages, messages),
            (Protocol::Responses, responses),
            (Protocol::Gemini, gemini),
        ]
    }

    #[test]
    fn a_prompt_about_the_weather_calls_the_first_tool_of_each_protocol() {
        for (protocol, body) in bodies(&weather_schema()) {
            let call = chosen(protocol, &body, "The Weather in Rome?", None).unwrap();
            assert_eq!(
                (call.name.as_str(), call.arguments),
                ("get_weather", json!({"location": "Paris"}))
            );
            assert_eq!(chosen(protocol, &body, "weather", Some("18 C")), None);
            assert_eq!(chosen(protocol, &body, "hello", None), None);
        }
    }

    #[test]
    fn a_mark_calls_the_tool_it_names_with_its_input_until_there_is_a_result() {
        let prompt = r#"[[sample: tool=shell tool_input={"command": "echo weir"}]] do it"#;
        for (protocol, body) in bodies(&weather_schema()) {
            let call = chosen(protocol, &body, prompt, None).unwrap();
            assert_eq!(
                (call.name.as_str(), call.arguments),
                ("shell", json!({"command": "echo weir"}))
            );
            assert_eq!(chosen(protocol, &body, prompt, Some("weir")), None);
            assert_eq!(chosen(protocol, &json!({}), prompt, None), None, "it is not offered");
        }
    }

    #[test]
    fn a_tool_in_a_namespace_that_came_with_the_input_takes_free_text() {
        let body = json!({"input": [{"type": "additional_tools", "tools": [{"type": "namespace", "name": "functions",
            "tools": [{"type": "custom", "name": "exec"}, {"type": "function", "name": "wait"}]}]}]});
        let prompt = r#"[[sample: tool=exec tool_input="text(\"a b\")"]]"#;
        let call = chosen(Protocol::Responses, &body, prompt, None).unwrap();
        assert_eq!(
            (call.taking, call.namespace.as_deref()),
            (Taking::Text, Some("functions"))
        );
        assert_eq!(call.arguments_text(), r#"text("a b")"#);
    }

    #[test]
    fn a_forced_choice_calls_the_named_tool_and_none_forbids() {
        let tools = json!([{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}]);
        let body = json!({"tools": tools, "tool_choice": {"type": "tool", "name": "b"}});
        assert_eq!(chosen(Protocol::Messages, &body, "hello", None).unwrap().name, "b");
        let body = json!({"tools": tools, "tool_choice": {"type": "none"}});
        assert_eq!(chosen(Protocol::Messages, &body, "weather", None), None);
    }
}
