//! Tools: which ones a request offers, and which one to call.

use serde_json::{Value, json};

use super::ask::{SampleRequest, text_at};
use super::offer::{OfferedTool, ToolInputKind};
use super::script::SampleScript;
use crate::domain::wire::protocol::Protocol;

/// Words in a prompt that make the answer call an offered tool.
const ASKING_WORDS: [&str; 3] = ["weather", "forecast", "temperature"];

/// The client-side tools that `body` offers, in order.
fn offers(protocol: Protocol, body: &Value) -> Vec<OfferedTool> {
    let tools = array_items(body, "tools");
    match protocol {
        Protocol::Messages => tools
            .filter_map(|tool| OfferedTool::new(tool, tool.get("input_schema")?))
            .collect(),
        Protocol::Responses => {
            // Agents also offer tools in an item of the input.
            let added = array_items(body, "input")
                .filter(|item| text_at(item, "/type") == Some("additional_tools"))
                .flat_map(|item| array_items(item, "tools"));
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
                OfferedTool::new(declaration, schema.unwrap_or(&Value::Null))
            })
            .collect(),
    }
}

fn array_items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// A tool of the Responses protocol, or the tools of a namespace.
fn responses_offers(tool: &Value) -> Vec<OfferedTool> {
    if text_at(tool, "/type") != Some("namespace") {
        return responses_offer(tool).into_iter().collect();
    }
    let namespace = text_at(tool, "/name");
    let within = |offer: OfferedTool| OfferedTool {
        namespace: namespace.map(str::to_owned),
        ..offer
    };
    array_items(tool, "tools")
        .filter_map(responses_offer)
        .map(within)
        .collect()
}

fn responses_offer(tool: &Value) -> Option<OfferedTool> {
    match text_at(tool, "/type") {
        Some("function") => OfferedTool::new(tool, tool.get("parameters").unwrap_or(&Value::Null)),
        Some("custom") => Some(OfferedTool {
            input_kind: ToolInputKind::Text,
            arguments: json!("sample"),
            ..OfferedTool::new(tool, &Value::Null)?
        }),
        _ => None,
    }
}

/// The tool to call: one that the request forces, or, if the last turn has no tool result, the one that the script names, or
/// the first one if the prompt has an asking word.
pub(super) fn choose_tool(
    protocol: Protocol,
    body: &Value,
    ask: &SampleRequest,
    script: &SampleScript,
) -> Option<OfferedTool> {
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
    use crate::sample_provider::offer::fitting_arguments;

    fn weather_schema() -> Value {
        json!({"type": "object", "properties": {"unit": {"type": "string", "enum": ["c", "f"]},
            "location": {"type": "string"}, "days": {"type": "integer"}}, "required": ["location"]})
    }

    #[test]
    fn arguments_fit_the_required_properties() {
        assert_eq!(fitting_arguments(&weather_schema()), json!({"location": "Paris"}));
        let gemini = json!({"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}});
        assert_eq!(fitting_arguments(&gemini), json!({"n": 1}));
        assert_eq!(fitting_arguments(&Value::Null), json!({}));
    }

    fn chosen(protocol: Protocol, body: &Value, prompt: &str, result: Option<&str>) -> Option<OfferedTool> {
        let ask = SampleRequest {
            prompt: prompt.to_owned(),
            tool_result: result.map(str::to_owned),
            ..SampleRequest::default()
        };
        choose_tool(protocol, body, &ask, &SampleScript::from_prompt(prompt).unwrap())
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
            (call.input_kind, call.namespace.as_deref()),
            (ToolInputKind::Text, Some("functions"))
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
