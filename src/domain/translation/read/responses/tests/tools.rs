//! Tools, in the list and in the input, and the choice among them.

use super::*;
use crate::domain::translation::tool_names::{ClientTool, ToolKind};

const FUNCTION: &str = r#"{"type":"function","name":"f","description":"d","strict":true,"parameters":{"b": 1.0}}"#;

fn with_tools(tools: &str) -> String {
    with_members(&format!(r#""tools":[{tools}]"#))
}

#[test]
fn a_function_keeps_its_schema_and_reports_what_only_responses_has() {
    let tool = r#"{"type":"function","name":"g","defer_loading":true,"allowed_callers":["direct"],"output_schema":{},"new":1}"#;
    let body = with_tools(&format!("{FUNCTION},{tool},{FUNCTION}"));
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools(), ["f", "g"]);
    let first = &reading.conversation.tools[0];
    assert_eq!(
        (first.schema.as_deref(), first.strict),
        (Some(r#"{"b": 1.0}"#), Some(true))
    );
    assert_eq!(
        (first.path.as_str(), first.description.as_deref()),
        ("tools[0]", Some("d"))
    );
    assert_eq!(
        reading.losses(),
        [
            "adapted tools[1].defer_loading",
            "dropped tools[1].allowed_callers",
            "dropped tools[1].output_schema",
            "unknown tools[1].new",
        ]
    );
}

#[test]
fn the_first_definition_of_a_tool_counts() {
    let body = with_tools(&format!(
        r#"{FUNCTION},{{"type":"function","name":"f","description":"other"}}"#
    ));
    let reading = strict(&body).unwrap();
    assert_eq!(reading.conversation.tools[0].description.as_deref(), Some("d"));
    assert_eq!(reading.losses(), ["dropped tools[1]"]);
}

#[test]
fn a_namespace_is_flattened_and_described_once() {
    let body = with_tools(
        r#"{"type":"namespace","name":"mcp__hub","description":"The hub.","tools":[
        {"type":"function","name":"find","description":"Finds."},{"type":"custom","name":"run","description":"Runs."}]}"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools(), ["mcp__hub__find", "mcp__hub__run"]);
    let descriptions: Vec<_> = reading
        .conversation
        .tools
        .iter()
        .map(|tool| tool.description.as_deref())
        .collect();
    assert_eq!(
        descriptions,
        [Some("About all tools of `mcp__hub`: The hub.\n\nFinds."), Some("Runs.")]
    );
    assert_eq!(
        reading.names.client_tool("mcp__hub__run"),
        Some(&ClientTool {
            namespace: Some("mcp__hub".to_owned()),
            name: "run".to_owned(),
            kind: ToolKind::Custom,
        })
    );
    assert_eq!(reading.losses(), ["adapted tools[0]", "adapted tools[0].tools[1]"]);
    let colliding = with_tools(
        r#"{"type":"namespace","name":"a","tools":[{"type":"function","name":"b__c"}]},
        {"type":"namespace","name":"a__b","tools":[{"type":"function","name":"c"}]}"#,
    );
    assert_eq!(refused_path(lossy(&colliding)), "tools[1].tools[0]");
}

#[test]
fn a_long_name_is_cut_and_reported() {
    let name = "n".repeat(70);
    let body = with_tools(&format!(r#"{{"type":"function","name":"{name}"}}"#));
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools()[0].len(), 64);
    assert_eq!(reading.losses(), ["adapted tools[0].name"]);
}

#[test]
fn a_custom_tool_is_a_function_whose_description_has_the_grammar() {
    let body = with_tools(
        r#"{"type":"custom","name":"exec","description":"Runs code.","format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}},
        {"type":"custom","name":"say","format":{"type":"text"}}"#,
    );
    let reading = strict(&body).unwrap();
    let [exec, say] = &reading.conversation.tools[..] else {
        panic!("two tools")
    };
    assert_eq!(
        exec.description.as_deref(),
        Some("Runs code.\n\n`input` must follow this grammar (lark):\nstart: /.+/")
    );
    assert_eq!(say.description, None);
    assert!(exec.schema.as_deref().unwrap().contains(r#""required":["input"]"#));
    assert_eq!(reading.names.client_tool("exec").unwrap().kind, ToolKind::Custom);
    assert_eq!(reading.losses(), ["adapted tools[0]", "adapted tools[1]"]);
}

#[test]
fn built_in_tools_of_the_client_are_functions_with_schemas_that_are_json() {
    let body = with_tools(
        r#"{"type":"local_shell"},{"type":"shell","environment":{"type":"local","skills":[{"name":"s","description":"d","path":"/p"}]}},
        {"type":"apply_patch"},{"type":"tool_search","execution":"client","description":"t","parameters":{"type":"object"}}"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools(), ["local_shell", "shell", "apply_patch", "tool_search"]);
    for tool in &reading.conversation.tools {
        let schema: serde_json::Value = serde_json::from_str(tool.schema.as_deref().unwrap()).unwrap();
        assert_eq!(schema["type"], "object", "{}", tool.name);
        assert!(tool.description.is_some(), "{}", tool.name);
    }
    let shell = reading.conversation.tools[1].description.as_deref().unwrap();
    assert!(shell.ends_with("\n- s (/p): d"), "{shell}");
    let kinds = ["local_shell", "shell", "apply_patch", "tool_search"]
        .map(|name| reading.names.client_tool(name).unwrap().kind);
    assert_eq!(
        kinds,
        [
            ToolKind::LocalShell,
            ToolKind::Shell,
            ToolKind::ApplyPatch,
            ToolKind::ToolSearch
        ]
    );
    assert_eq!(
        reading.losses(),
        [
            "adapted tools[0]",
            "adapted tools[1]",
            "adapted tools[2]",
            "adapted tools[3]"
        ]
    );
}

#[test]
fn offers_of_the_providers_tools_are_dropped_unless_there_is_nothing_else() {
    for tool in [
        r#"{"type":"web_search"}"#,
        r#"{"type":"web_search_preview_2025_03_11"}"#,
        r#"{"type":"code_interpreter","container":{"type":"auto"}}"#,
        r#"{"type":"image_generation"}"#,
        r#"{"type":"mcp","server_label":"s","server_url":"https://x"}"#,
        r#"{"type":"shell","environment":{"type":"container_auto"}}"#,
    ] {
        let both = with_tools(&format!("{FUNCTION},{tool}"));
        let reading = strict(&both).unwrap();
        assert_eq!(
            (reading.tools(), reading.losses()),
            (vec!["f"], vec!["dropped tools[1]".to_owned()]),
            "{tool}"
        );
        assert_eq!(refused_path(lossy(&with_tools(tool))), "tools[0]", "{tool}");
        let forbidden = with_members(&format!(r#""tools":[{tool}],"tool_choice":"none""#));
        assert_eq!(strict(&forbidden).unwrap().losses(), ["dropped tools[0]"], "{tool}");
    }
    // A search by the provider has nothing to find, because all tools are offered in full.
    let search = with_tools(r#"{"type":"tool_search"}"#);
    assert_eq!(strict(&search).unwrap().losses(), ["dropped tools[0]"]);
    let unknown = with_tools(&format!(r#"{FUNCTION},{{"type":"hologram"}}"#));
    assert_eq!(refused_path(strict(&unknown)), "tools[1]");
    assert_eq!(lossy(&unknown).unwrap().losses(), ["dropped tools[1]"]);
}

#[test]
fn tools_that_name_what_a_provider_keeps_are_refused() {
    for (tool, path) in [
        (
            r#"{"type":"file_search","vector_store_ids":["vs_1"]}"#,
            "vector_store_ids",
        ),
        (r#"{"type":"code_interpreter","container":"cntr_1"}"#, "container"),
        (
            r#"{"type":"code_interpreter","container":{"type":"auto","file_ids":["file_1"]}}"#,
            "container.file_ids",
        ),
        (
            r#"{"type":"image_generation","input_image_mask":{"file_id":"file_1"}}"#,
            "input_image_mask.file_id",
        ),
        (r#"{"type":"mcp","server_label":"s","tunnel_id":"t"}"#, "tunnel_id"),
        (
            r#"{"type":"shell","environment":{"type":"container_reference","container_id":"c"}}"#,
            "environment.container_id",
        ),
    ] {
        let body = with_tools(&format!("{FUNCTION},{tool}"));
        assert_eq!(refused_path(lossy(&body)), format!("tools[1].{path}"));
    }
}

#[test]
fn found_tools_join_the_list_at_its_end_and_the_result_names_them() {
    let found = r#"{"type":"namespace","name":"crm","description":"","tools":[{"type":"function","name":"list","defer_loading":true}]}"#;
    let items = format!(
        r#"{{"type":"tool_search_call","call_id":"c1","execution":"client","status":"completed","arguments":{{"query": "crm"}}}},
        {{"type":"tool_search_output","call_id":"c1","execution":"client","status":"completed","tools":[{found},{FUNCTION}]}},
        {{"type":"function_call","call_id":"c2","name":"list","namespace":"crm","arguments":"{{}}"}},
        {{"type":"tool_search_output","call_id":"c1","execution":"client","tools":[]}}"#
    );
    let search = r#"{"type":"tool_search","execution":"client","parameters":{}}"#;
    let body = format!(r#"{{"store":false,"input":[{items}],"tools":[{FUNCTION},{search}]}}"#);
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools(), ["f", "tool_search", "crm__list"]);
    assert_eq!(
        reading.blocks(),
        [
            r#"Assistant: call c1 tool_search {"query": "crm"}"#,
            r#"User: result c1 tool_search ["These tools can be called now: crm__list, f"]"#,
            "Assistant: call c2 crm__list {}",
            r#"User: result c1 tool_search ["No tool was found."]"#,
        ]
    );
    assert!(reading.losses().contains(&"adapted input[1]".to_owned()));
}

#[test]
fn a_search_by_the_provider_leaves_only_what_it_found() {
    let body = with_input(&format!(
        r#"{{"type":"tool_search_call","call_id":null,"execution":"server","arguments":{{"paths":["crm"]}}}},
        {{"type":"tool_search_output","call_id":null,"execution":"server","tools":[{FUNCTION}]}},
        {{"type":"function_call","call_id":"c","name":"f","namespace":"f","arguments":"{{}}"}}"#
    ));
    let reading = strict(&body).unwrap();
    assert_eq!(reading.tools(), ["f"]);
    assert_eq!(
        reading.blocks(),
        ["Assistant: call c f {}"],
        "found outside a namespace, called in one of its own name"
    );
    assert_eq!(reading.losses(), ["dropped input[0]", "adapted input[1]"]);
}

#[test]
fn every_choice_is_kept_by_the_names_at_the_provider() {
    let tools = format!(
        r#"{FUNCTION},{{"type":"custom","name":"exec"}},{{"type":"apply_patch"}},
        {{"type":"namespace","name":"crm","tools":[{{"type":"function","name":"list"}}]}},{{"type":"web_search"}}"#
    );
    let body = |choice: &str| with_members(&format!(r#""tools":[{tools}],"tool_choice":{choice}"#));
    for (choice, expected) in [
        (r#""auto""#, ToolChoice::Auto),
        (r#""none""#, ToolChoice::Forbidden),
        (r#""required""#, ToolChoice::Required),
        (r#"{"type":"function","name":"f"}"#, ToolChoice::Named("f".into())),
        (r#"{"type":"custom","name":"exec"}"#, ToolChoice::Named("exec".into())),
        (r#"{"type":"apply_patch"}"#, ToolChoice::Named("apply_patch".into())),
        (
            r#"{"type":"function","name":"list"}"#,
            ToolChoice::Named("crm__list".into()),
        ),
        (
            r#"{"type":"function","name":"list","namespace":"crm"}"#,
            ToolChoice::Named("crm__list".into()),
        ),
        ("null", ToolChoice::Unset),
    ] {
        let body = body(choice);
        let reading = strict(&body).unwrap();
        assert_eq!(reading.conversation.tool_choice, expected);
        assert_eq!(reading.tools().len(), 4);
    }
    for (choice, path) in [
        (r#""any""#, "tool_choice"),
        (r#"{"type":"web_search"}"#, "tool_choice"),
        (r#"{"type":"mcp","server_label":"s"}"#, "tool_choice"),
        (r#"{"type":"function","name":"unknown"}"#, "tool_choice"),
        (r#"{"type":"function"}"#, "tool_choice.name"),
        (
            r#"{"type":"allowed_tools","mode":"any","tools":[]}"#,
            "tool_choice.mode",
        ),
        (
            r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}"#,
            "tool_choice.tools",
        ),
    ] {
        assert_eq!(refused_path(lossy(&body(choice))), path, "{choice}");
    }
}

#[test]
fn allowed_tools_cut_the_list() {
    let tools = format!(
        r#"{FUNCTION},{{"type":"custom","name":"exec"}},
        {{"type":"namespace","name":"crm","tools":[{{"type":"function","name":"list"}},{{"type":"function","name":"drop"}}]}}"#
    );
    for (mode, allowed, expected, losses) in [
        ("auto", r#"{"type":"function","name":"f"}"#, vec!["f"], 0),
        (
            "required",
            r#"{"type":"namespace","name":"crm"},{"type":"custom","name":"exec"}"#,
            vec!["exec", "crm__list", "crm__drop"],
            0,
        ),
        (
            "auto",
            r#"{"type":"function","name":"list","namespace":"crm"},{"type":"mcp","server_label":"s"}"#,
            vec!["crm__list"],
            1,
        ),
    ] {
        let choice = format!(r#"{{"type":"allowed_tools","mode":"{mode}","tools":[{allowed}]}}"#);
        let body = with_members(&format!(r#""tools":[{tools}],"tool_choice":{choice}"#));
        let reading = strict(&body).unwrap();
        assert_eq!(reading.tools(), expected);
        let is_required = reading.conversation.tool_choice == ToolChoice::Required;
        assert_eq!(is_required, mode == "required");
        let losses_of_choice: Vec<String> = reading
            .losses()
            .into_iter()
            .filter(|loss| loss.contains("tool_choice"))
            .collect();
        assert_eq!(losses_of_choice.len(), losses + 1, "{losses_of_choice:?}");
        assert_eq!(
            losses_of_choice.last().map(String::as_str),
            Some("adapted tool_choice.tools")
        );
    }
}
