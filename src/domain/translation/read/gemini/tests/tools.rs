//! The functions that a request offers, and the choice among them.

use super::*;
use crate::domain::translation::{
    conversation::ToolChoice,
    tool_names::{ClientTool, ToolKind},
};

/// A body that offers the functions `f`, `g` and `a_b`, with this configuration of calls.
fn with_calling(config: &str) -> String {
    with_members(&format!(
        r#""tools":[{{"functionDeclarations":[{{"name":"f"}},{{"name":"g"}}]}},{{"functionDeclarations":{{"name":"a_b"}}}}],
        "toolConfig":{{"functionCallingConfig":{config}}}"#
    ))
}

fn with_function(members: &str) -> String {
    with_members(&format!(
        r#""tools":[{{"functionDeclarations":[{{"name":"f",{members}}}]}}]"#
    ))
}

#[test]
fn a_json_schema_is_kept_and_google_s_form_is_converted() {
    for (members, schema, losses) in [
        (r#""description":"d""#, None, vec![]),
        (
            r#""parametersJsonSchema":{"type": "object", "x": 1.0}"#,
            Some(r#"{"type": "object", "x": 1.0}"#),
            vec![],
        ),
        (
            r#""parameters_json_schema":{"type":"OBJECT"},"parameters":{"type":"OBJECT"}"#,
            Some(r#"{"type":"OBJECT"}"#),
            vec!["dropped tools[0].functionDeclarations[0].parameters"],
        ),
        (
            r#""parameters":{"type": "object", "properties": {}}"#,
            Some(r#"{"type": "object", "properties": {}}"#),
            vec![],
        ),
        (
            r#""parameters":{"type":"OBJECT","properties":{"a":{"type":"STRING","nullable":true,"format":"date"}}}"#,
            Some(r#"{"type":"object","properties":{"a":{"type":["string","null"],"format":"date"}}}"#),
            vec!["adapted tools[0].functionDeclarations[0].parameters"],
        ),
    ] {
        let body = with_function(members);
        let reading = strict(&body).unwrap();
        assert_eq!(reading.conversation.tools[0].schema.as_deref(), schema, "{members}");
        assert_eq!(reading.losses(), losses, "{members}");
    }
    for (members, name) in [
        (r#""parameters":"x""#, "parameters"),
        (r#""parameters":{"items":1}"#, "parameters"),
        (r#""parametersJsonSchema":[]"#, "parametersJsonSchema"),
    ] {
        let path = format!("tools[0].functionDeclarations[0].{name}");
        assert_eq!(refused_path(lossy(&with_function(members))), path);
    }
}

#[test]
fn members_of_a_function_are_reported() {
    for (members, loss) in [
        (
            r#""response":{"type":"STRING"}"#,
            Some("dropped tools[0].functionDeclarations[0].response"),
        ),
        (
            r#""response_json_schema":{}"#,
            Some("dropped tools[0].functionDeclarations[0].response_json_schema"),
        ),
        (
            r#""behavior":"NON_BLOCKING""#,
            Some("dropped tools[0].functionDeclarations[0].behavior"),
        ),
        (r#""behavior":"BLOCKING""#, None),
        (r#""mood":1"#, Some("unknown tools[0].functionDeclarations[0].mood")),
    ] {
        let body = with_function(members);
        assert_eq!(strict(&body).unwrap().losses(), Vec::from_iter(loss), "{members}");
    }
}

#[test]
fn names_are_made_fit_for_providers_and_restored() {
    let body = with_members(
        r#""tools":{"function_declarations":[{"name":"mcp.files:read"},{"name":"f","description":"1"},
        {"name":"f","description":"2"}]}"#,
    );
    let reading = strict(&body).unwrap();
    let flat = provider_name(None, "mcp.files:read").into_owned();
    assert_eq!(reading.tools(), [flat.as_str(), "f"]);
    assert_eq!(reading.conversation.tools[1].description.as_deref(), Some("1"));
    let client = ClientTool {
        namespace: None,
        name: "mcp.files:read".to_owned(),
        kind: ToolKind::Function,
    };
    assert_eq!(reading.names.client_tool(&flat), Some(&client));
    assert_eq!(
        reading.losses(),
        [
            "adapted tools.function_declarations[0].name",
            "dropped tools.function_declarations[2]"
        ]
    );
    let body = with_members(&format!(
        r#""tools":[{{"functionDeclarations":[{{"name":"mcp.files:read"}},{{"name":"{flat}"}}]}}]"#
    ));
    assert_eq!(refused_path(lossy(&body)), "tools[0].functionDeclarations[1]");
    let body = with_members(r#""tools":[{"functionDeclarations":[{"description":"d"}]}]"#);
    assert_eq!(refused_path(lossy(&body)), "tools[0].functionDeclarations[0].name");
}

#[test]
fn tools_that_another_provider_runs_are_dropped_and_refused_alone() {
    for name in [
        "googleSearch",
        "google_search",
        "googleSearchRetrieval",
        "enterpriseWebSearch",
        "parallelAiSearch",
        "exaAiSearch",
        "urlContext",
        "googleMaps",
        "codeExecution",
        "computerUse",
        "mcpServers",
        "fileSearch",
    ] {
        let tools = format!(r#""tools":[{{"functionDeclarations":[{{"name":"f"}}]}},{{"{name}":{{}}}}]"#);
        let body = with_members(&tools);
        let reading = strict(&body).unwrap();
        assert_eq!(reading.losses(), [format!("dropped tools[1].{name}")]);
        assert_eq!(reading.tools(), ["f"]);
        let alone = with_members(&format!(r#""tools":[{{"{name}":{{}}}}]"#));
        assert_eq!(refused_path(lossy(&alone)), format!("tools[0].{name}"));
    }
    let body = with_members(r#""tools":[{"googleSearch":{}}],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#);
    assert_eq!(strict(&body).unwrap().losses(), ["dropped tools[0].googleSearch"]);
}

#[test]
fn stores_and_unknown_tools_are_refused() {
    for (tool, path) in [
        (
            r#"{"fileSearch":{"fileSearchStoreNames":["x"]}}"#,
            "tools[0].fileSearch.fileSearchStoreNames",
        ),
        (r#"{"retrieval":{"vertexAiSearch":{}}}"#, "tools[0].retrieval"),
    ] {
        assert_eq!(
            refused_path(lossy(&with_members(&format!(r#""tools":[{tool}]"#)))),
            path
        );
    }
    let body = with_members(r#""tools":[{"functionDeclarations":[{"name":"f"}],"telepathy":{}}]"#);
    assert_eq!(refused_path(strict(&body)), "tools[0].telepathy");
    assert_eq!(lossy(&body).unwrap().losses(), ["unknown tools[0].telepathy"]);
}

#[test]
fn the_choice_is_kept_or_the_list_is_cut() {
    let mode = "adapted toolConfig.functionCallingConfig.mode";
    let allowed = "adapted toolConfig.functionCallingConfig.allowedFunctionNames";
    let all = vec!["f", "g", "a_b"];
    for (config, choice, tools, losses) in [
        ("{}", ToolChoice::Unset, all.clone(), vec![]),
        (r#"{"mode":"MODE_UNSPECIFIED"}"#, ToolChoice::Unset, all.clone(), vec![]),
        (r#"{"mode":"AUTO"}"#, ToolChoice::Auto, all.clone(), vec![]),
        (r#"{"mode":"any"}"#, ToolChoice::Required, all.clone(), vec![]),
        (r#"{"mode":"NONE"}"#, ToolChoice::Forbidden, all.clone(), vec![]),
        (r#"{"mode":"VALIDATED"}"#, ToolChoice::Auto, all.clone(), vec![mode]),
        (
            r#"{"mode":"ANY","allowed_function_names":["g"]}"#,
            ToolChoice::Named("g".into()),
            all.clone(),
            vec![],
        ),
        (
            r#"{"mode":"ANY","allowedFunctionNames":["a_b","f","h"]}"#,
            ToolChoice::Required,
            vec!["f", "a_b"],
            vec![
                "dropped toolConfig.functionCallingConfig.allowedFunctionNames[2]",
                allowed,
            ],
        ),
        (
            r#"{"mode":"ANY","allowedFunctionNames":["a_b","f","g"]}"#,
            ToolChoice::Required,
            all.clone(),
            vec![],
        ),
        (
            r#"{"mode":"VALIDATED","allowedFunctionNames":["f"]}"#,
            ToolChoice::Auto,
            vec!["f"],
            vec![mode, allowed],
        ),
        (
            r#"{"mode":"NONE","allowedFunctionNames":["f"]}"#,
            ToolChoice::Forbidden,
            all.clone(),
            vec!["dropped toolConfig.functionCallingConfig.allowedFunctionNames"],
        ),
        (
            r#"{"streamFunctionCallArguments":true,"mood":1}"#,
            ToolChoice::Unset,
            all.clone(),
            vec![
                "dropped toolConfig.functionCallingConfig.streamFunctionCallArguments",
                "unknown toolConfig.functionCallingConfig.mood",
            ],
        ),
    ] {
        let body = with_calling(config);
        let reading = strict(&body).unwrap();
        assert_eq!(reading.conversation.tool_choice, choice, "{config}");
        assert_eq!(reading.tools(), tools, "{config}");
        assert_eq!(reading.losses(), losses, "{config}");
    }
}

#[test]
fn a_choice_that_cannot_be_met_is_refused() {
    for (config, name) in [
        (r#"{"mode":"SOMETIMES"}"#, "mode"),
        (r#"{"mode":"ANY","allowedFunctionNames":["h"]}"#, "allowedFunctionNames"),
        (r#"{"allowedFunctionNames":"f"}"#, "allowedFunctionNames"),
    ] {
        let path = format!("toolConfig.functionCallingConfig.{name}");
        assert_eq!(refused_path(lossy(&with_calling(config))), path);
    }
    let body = with_members(r#""tool_config":{"function_calling_config":{"mode":"ANY"}}"#);
    assert_eq!(refused_path(lossy(&body)), "toolConfig.functionCallingConfig.mode");
    let body = with_members(r#""toolConfig":{"retrievalConfig":{},"includeServerSideToolInvocations":true,"mood":1}"#);
    assert_eq!(
        strict(&body).unwrap().losses(),
        [
            "dropped toolConfig.retrievalConfig",
            "dropped toolConfig.includeServerSideToolInvocations",
            "unknown toolConfig.mood",
        ]
    );
}
