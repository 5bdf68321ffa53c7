//! Tools, changes of them, and the choice among them.

use super::*;
use crate::domain::translation::tool_names::{ClientTool, ToolKind};

/// A request with these tools, the messages `hi` and these members.
fn with_tools(tools: &Value, more: &str) -> String {
    with_members(&format!(r#""tools":{tools}{more}"#))
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "input_schema": { "type": "object" } })
}

#[test]
fn a_tool_of_the_client_is_kept_with_its_schema_as_it_is_spelled() {
    let body = with_members(
        r#""tools":[{"type":"custom","name":"read","description":"Reads.","strict":true,
        "input_schema":{"type": "object", "x":1.0}},
        {"name":"plain","input_schema":{},"type":null,"defer_loading":false}]"#,
    );
    let reading = strict(&body).unwrap();
    assert!(reading.losses().is_empty(), "{:?}", reading.losses());
    let first = &reading.conversation.tools[0];
    assert_eq!(first.path, "tools[0]");
    assert_eq!(first.name, "read");
    assert_eq!(first.description.as_deref(), Some("Reads."));
    assert_eq!(first.schema.as_deref(), Some(r#"{"type": "object", "x":1.0}"#));
    assert_eq!(first.strict, Some(true));
    assert_eq!(reading.conversation.tools[1].strict, None);
    let expected = ClientTool {
        namespace: None,
        name: "read".to_owned(),
        kind: ToolKind::Function,
    };
    assert_eq!(reading.names.client_tool("read"), Some(&expected));
}

#[test]
fn preferences_of_tools_are_reported() {
    let body = with_members(
        r#""tools":[{"name":"a.b","input_schema":{},"cache_control":{},"allowed_callers":["direct"],
        "eager_input_streaming":true,"input_examples":[],"defer_loading":true,"new":1}]"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools(), [provider_name(None, "a.b")]);
    assert_eq!(
        reading.losses(),
        [
            "adapted tools[0].name",
            "adapted tools[0].defer_loading",
            "dropped tools[0].cache_control",
            "dropped tools[0].allowed_callers",
            "dropped tools[0].eager_input_streaming",
            "dropped tools[0].input_examples",
            "unknown tools[0].new",
        ]
    );
}

#[test]
fn a_tool_without_name_or_schema_is_refused() {
    assert_eq!(
        refused_path(&with_tools(&json!([{ "name": "a" }]), "")),
        "tools[0].input_schema"
    );
    assert_eq!(
        refused_path(&with_tools(&json!([{ "input_schema": {} }]), "")),
        "tools[0].name"
    );
}

#[test]
fn tools_that_claude_knows_become_functions() {
    for (kind, name) in [
        ("bash_20250124", "bash"),
        ("text_editor_20250124", "str_replace_editor"),
        ("text_editor_20250429", "str_replace_based_edit_tool"),
        ("text_editor_20250728", "str_replace_based_edit_tool"),
        ("memory_20250818", "memory"),
    ] {
        let body = with_tools(&json!([{ "type": kind, "name": name }]), "");
        let reading = strict(&body).unwrap();
        assert_eq!(reading.losses(), ["adapted tools[0]"]);
        let tool = &reading.conversation.tools[0];
        assert_eq!(tool.name, name);
        let schema: Value = serde_json::from_str(tool.schema.as_deref().unwrap()).unwrap();
        assert_eq!(schema["type"], "object");
        assert!(schema["properties"]["command"].is_object(), "{schema}");
        let description = tool.description.as_deref().unwrap();
        assert!(!description.contains("  "), "{description}");
        if let Some(commands) = schema["properties"]["command"]["enum"].as_array() {
            for command in commands {
                assert!(description.contains(command.as_str().unwrap()), "{description}");
            }
        }
    }
    let body = with_tools(
        &json!([{ "type": "text_editor_20250728", "name": "e", "max_characters": 9 }]),
        "",
    );
    let losses = strict(&body).unwrap().losses();
    assert_eq!(losses, ["adapted tools[0]", "dropped tools[0].max_characters"]);
}

#[test]
fn tools_that_cannot_be_described_are_refused_in_strict_mode() {
    for kind in [
        "computer_20251124",
        "computer_toolset_20260801",
        "browser_toolset_20260801",
        "bash_20270101",
        "telepathy",
    ] {
        let body = with_tools(&json!([{ "type": kind, "name": "t" }, tool("read")]), "");
        assert_eq!(refused_path(&body), "tools[0]");
        let reading = lossy(&body).unwrap();
        assert_eq!(reading.tools(), ["read"]);
        assert_eq!(reading.losses(), ["dropped tools[0]"]);
    }
}

#[test]
fn tools_that_the_provider_would_run_are_left_out_unless_they_are_needed() {
    for (kind, name) in [
        ("web_search_20260318", "web_search"),
        ("web_fetch_20250910", "web_fetch"),
        ("code_execution_20260521", "code_execution"),
        ("advisor_20260301", "advisor"),
    ] {
        let hosted = json!({ "type": kind, "name": name, "max_uses": 5 });
        let both = json!([hosted, tool("read")]);
        let body = with_tools(&both, "");
        let reading = strict(&body).unwrap();
        assert_eq!(reading.tools(), ["read"]);
        assert_eq!(reading.losses(), ["dropped tools[0]"]);
        let forced = format!(r#","tool_choice":{{"type":"tool","name":"{name}"}}"#);
        let alone = json!([hosted]);
        for (body, path) in [
            (with_tools(&alone, ""), "tools[0]"),
            (with_tools(&alone, r#","tool_choice":{"type":"any"}"#), "tools[0]"),
            (with_tools(&both, &forced), "tool_choice"),
        ] {
            for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
                let refusal = refusal(&body, mode);
                assert!(refusal.starts_with(&format!("{path}: ")), "{refusal}");
            }
        }
        let forbidden = with_tools(&alone, r#","tool_choice":{"type":"none"}"#);
        assert!(strict(&forbidden).is_ok());
    }
}

#[test]
fn a_search_among_tools_is_left_out_because_all_are_offered() {
    for kind in ["tool_search_tool_bm25_20251119", "tool_search_tool_regex"] {
        let body = with_tools(&json!([{ "type": kind, "name": kind }]), "");
        assert_eq!(strict(&body).unwrap().losses(), ["dropped tools[0]"]);
    }
}

#[test]
fn tools_of_mcp_servers_are_refused_in_both_modes() {
    let body = with_tools(
        &json!([{ "type": "mcp_toolset", "mcp_server_name": "s" }, tool("read")]),
        "",
    );
    for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
        assert!(refusal(&body, mode).starts_with("tools[0]: "));
    }
}

#[test]
fn a_choice_is_carried_over_and_a_name_must_be_offered() {
    let tools = json!([tool("read"), tool("a.b")]);
    let flat = provider_name(None, "a.b");
    for (choice, expected) in [
        (r#"{"type":"auto"}"#, ToolChoice::Auto),
        (r#"{"type":"any"}"#, ToolChoice::Required),
        (r#"{"type":"none"}"#, ToolChoice::Forbidden),
        (r#"{"type":"tool","name":"a.b"}"#, ToolChoice::Named(flat)),
    ] {
        let body = with_tools(&tools, &format!(r#","tool_choice":{choice}"#));
        let reading = strict(&body).unwrap();
        assert_eq!(reading.conversation.tool_choice, expected);
        assert_eq!(reading.conversation.options.parallel_calls, None);
    }
    let body = with_tools(
        &tools,
        r#","tool_choice":{"type":"auto","disable_parallel_tool_use":true,"new":1}"#,
    );
    let reading = strict(&body).unwrap();
    let parallel = reading.conversation.options.parallel_calls.as_ref();
    assert_eq!(
        parallel.map(|option| (&*option.path, option.value)),
        Some(("tool_choice.disable_parallel_tool_use", false))
    );
    assert_eq!(reading.losses(), ["adapted tools[1].name", "unknown tool_choice.new"]);
    for (choice, path) in [
        (r#"{"type":"tool","name":"other"}"#, "tool_choice"),
        (r#"{"type":"required"}"#, "tool_choice.type"),
        (r#"{"type":"tool"}"#, "tool_choice.name"),
    ] {
        let body = with_tools(&tools, &format!(r#","tool_choice":{choice}"#));
        assert_eq!(refused_path(&body), path);
    }
}

#[test]
fn tools_that_messages_add_join_the_end_and_those_they_withdraw_leave() {
    let body = json!({ "max_tokens": 9, "tools": [tool("a"), tool("b"), tool("c")], "messages": [
        { "role": "user", "content": "go" },
        { "role": "system", "content": [
            { "type": "tool_removal", "tool": { "type": "tool_reference", "name": "a" } },
            { "type": "tool_removal", "tool": { "type": "tool_reference", "name": "b" }, "cache_control": {} },
            { "type": "tool_addition", "tool": { "type": "tool_definition", "definition": tool("d") } },
            { "type": "text", "text": "changed" },
        ] },
        { "role": "system", "content": [
            { "type": "tool_addition", "tool": { "type": "tool_reference", "name": "b" } },
            { "type": "tool_addition", "tool": { "type": "tool_reference", "name": "web_search" } },
            { "type": "tool_addition", "tool": { "type": "tool_definition", "definition": tool("d") } },
        ] },
    ] })
    .to_string();
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools(), ["b", "c", "d"]);
    assert_eq!(
        reading.conversation.tools[2].path,
        "messages[1].content[2].tool.definition"
    );
    assert_eq!(reading.blocks(), ["User: go", "System: changed"]);
    assert_eq!(
        reading.losses(),
        [
            "adapted messages[1].content[0]",
            "adapted messages[1].content[1]",
            "dropped messages[1].content[1].cache_control",
            "adapted messages[1].content[2]",
            "adapted messages[2].content[0]",
            "dropped messages[2].content[1]",
            "adapted messages[2].content[2]",
            "dropped messages[2].content[2].tool.definition",
        ]
    );
}

#[test]
fn a_tool_that_was_withdrawn_can_be_defined_anew() {
    let anew = json!({ "name": "a", "description": "new", "input_schema": {} });
    let body = json!({ "max_tokens": 9, "tools": [tool("a"), tool("b")], "messages": [
        { "role": "user", "content": [
            { "type": "text", "text": "go" },
            { "type": "tool_removal", "tool": { "type": "tool_reference", "name": "a" } },
            { "type": "tool_addition", "tool": { "type": "tool_definition", "definition": anew } },
        ] },
    ] })
    .to_string();
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools(), ["a", "b"]);
    assert_eq!(reading.conversation.tools[0].description.as_deref(), Some("new"));
}

#[test]
fn changes_that_name_mcp_servers_or_define_nothing_are_refused() {
    for (change, path) in [
        (
            json!({ "type": "mcp_tool_reference", "server_name": "s", "name": "n" }),
            "tool",
        ),
        (json!({ "type": "mcp_toolset_reference", "server_name": "s" }), "tool"),
        (json!({ "type": "tool_definition" }), "tool.definition"),
        (
            json!({ "type": "tool_definition", "definition": { "type": "mcp_toolset", "mcp_server_name": "s" } }),
            "tool.definition",
        ),
        (json!({ "type": "tool_rumour" }), "tool.type"),
    ] {
        let body = with_messages(&json!([
            { "role": "user", "content": "go" },
            { "role": "system", "content": [{ "type": "tool_addition", "tool": change }] },
        ]));
        assert_eq!(refused_path(&body), format!("messages[1].content[0].{path}"));
    }
}

#[test]
fn two_names_that_would_be_one_at_the_provider_are_refused_by_both() {
    let flat = provider_name(None, "a.b").into_owned();
    let body = with_tools(&json!([tool("a.b"), tool(&flat)]), "");
    let refusal = refusal(&body, TranslationMode::Lossy);
    assert!(
        refusal.starts_with("tools[1]: ") && refusal.contains("`a.b`") && refusal.contains(&flat),
        "{refusal}"
    );
}
