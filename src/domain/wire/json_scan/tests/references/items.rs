//! Input items: which of them name another.

use super::{Protocol, StateKind, named, one};

fn item(members: &str) -> Vec<(StateKind, String)> {
    named(Protocol::Responses, &format!(r#"{{"input":[{{{members}}}]}}"#))
}

#[test]
fn an_item_names_another_if_it_has_nothing_of_its_own() {
    for members in [
        r#""type":"item_reference","id":"x""#,
        r#""id":"x","type":"item_reference""#,
        r#""id":"x""#,
        r#""id":"x","type":null,"role":null"#,
        r#""id":"x","status":"completed""#,
        r#""type":"reasoning","id":"x","summary":[]"#,
        r#""type":"reasoning","id":"x","summary":[],"content":[],"encrypted_content":null"#,
        r#""type":"reasoning","id":"x","content":[{"type":"reasoning_text","text":""}]"#,
        r#""type":"reasoning","id":"x","content":null,"content":[{"type":"reasoning_text","text":"t"}]"#,
        r#""type":"reasoning","id":"x","status":"completed","name":"n""#,
        r#""type":"reasoning","id":"x","encrypted_content":"""#,
        r#""type":"reasoning","id":"x","encrypted_content":"e","encrypted_content":null"#,
        r#""type":"compaction","id":"x","encrypted_content":null"#,
        r#""type":"image_generation_call","id":"x","status":"completed""#,
        r#""type":"image_generation_call","id":"x","revised_prompt":"p","result":null"#,
        r#""type":"message","id":"x","role":"assistant","status":"completed""#,
        r#""type":"not_known_yet","id":"x""#,
        r#""type":"message","type":"item_reference","id":"x","role":"user""#,
    ] {
        assert_eq!(item(members), one(StateKind::Item, "x"), "{members}");
    }
    let several = r#"{"input":[{"id":"a"},{"role":"user","content":[{"id":"n","type":"item_reference"}]},{"id":"b","id":"c"}],"x":1}"#;
    let ids: Vec<String> = named(Protocol::Responses, several)
        .into_iter()
        .map(|(_, id)| id)
        .collect();
    assert_eq!(ids, ["a", "b", "c"]);
    let behind = r#"{"input":[{"id":"a"}],"previous_response_id":"b"}"#;
    let ids: Vec<String> = named(Protocol::Responses, behind)
        .into_iter()
        .map(|(_, id)| id)
        .collect();
    assert_eq!(ids, ["a", "b"], "in the order of the text");
}

/// One of every type of the SDK's `ResponseInputItemParam`, with content of its own.
const OF_THEIR_OWN: [&str; 33] = [
    r#""role":"user","content":"hi","id":"x""#,
    r#""type":"message","id":"x","role":"user","content":[{"type":"input_text","text":"hi"}]"#,
    r#""type":"message","id":"x","role":"assistant","status":"completed","content":[{"type":"output_text","text":"t"}]"#,
    r#""type":"file_search_call","id":"x","queries":["q"],"status":"completed""#,
    r#""type":"computer_call","id":"x","call_id":"c","action":{"type":"screenshot"},"pending_safety_checks":[]"#,
    r#""type":"computer_call_output","id":"x","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:"}"#,
    r#""type":"web_search_call","id":"x","status":"completed","action":{"type":"search","query":"q"}"#,
    r#""type":"function_call","id":"x","call_id":"c","name":"f","arguments":"{}""#,
    r#""type":"function_call_output","id":"x","call_id":"c","output":"o""#,
    r#""type":"tool_search_call","id":"x","arguments":{"file_id":"f","container_id":"c"}"#,
    r#""type":"tool_search_output","id":"x","tools":[{"type":"function","name":"f","parameters":{"file_id":"f"}}]"#,
    r#""type":"additional_tools","id":"x","role":"developer","tools":[]"#,
    r#""type":"configuration_update","id":"x","reasoning":{"effort":"low"}"#,
    r#""type":"reasoning","id":"x","summary":[],"content":[{"type":"reasoning_text","text":"t"}]"#,
    r#""type":"reasoning","id":"x","content":[{"text":"","type":"reasoning_text"},{"text":"t","type":"reasoning_text"}]"#,
    r#""type":"reasoning","id":"x","summary":[],"encrypted_content":"e","content":null"#,
    r#""type":"reasoning","summary":[]"#,
    r#""type":"compaction","id":"x","encrypted_content":"e""#,
    r#""type":"image_generation_call","id":"x","result":"aGk=","status":"completed""#,
    r#""type":"code_interpreter_call","id":"x","code":"1","container_id":"","outputs":null"#,
    r#""type":"local_shell_call","id":"x","call_id":"c","action":{"type":"exec","command":["ls"],"env":{"file_id":"f"}}"#,
    r#""type":"local_shell_call_output","id":"x","output":"o""#,
    r#""type":"shell_call","id":"x","call_id":"c","action":{"commands":["ls"]},"environment":{"type":"local"}"#,
    r#""type":"shell_call_output","id":"x","call_id":"c","output":[{"stdout":"o","stderr":"","outcome":{"type":"exit"}}]"#,
    r#""type":"apply_patch_call","id":"x","call_id":"c","operation":{"type":"delete_file","path":"p"}"#,
    r#""type":"apply_patch_call_output","id":"x","call_id":"c","status":"completed""#,
    r#""type":"mcp_list_tools","id":"x","server_label":"s","tools":[{"name":"n","input_schema":{"container":"c"},"annotations":{"container":"c"}}]"#,
    r#""type":"mcp_approval_request","id":"x","arguments":"{}","name":"n","server_label":"s""#,
    r#""type":"mcp_approval_response","id":"x","approval_request_id":"a","approve":true"#,
    r#""type":"mcp_call","id":"x","arguments":"{}","name":"n","server_label":"s","error":{"content":[{"file_id":"f"}]}"#,
    r#""type":"custom_tool_call","id":"x","call_id":"c","name":"n","input":"i""#,
    r#""type":"compaction_trigger","id":"x""#,
    r#""type":"program_output","id":"x","call_id":"c","result":"r","status":"completed""#,
];

#[test]
fn an_item_of_any_type_with_content_of_its_own_names_nothing() {
    for members in OF_THEIR_OWN {
        assert_eq!(item(members), [], "{members}");
    }
}

#[test]
fn a_summary_is_content_where_nothing_is_kept() {
    let summary = r#""type":"reasoning","id":"x","summary":[{"type":"summary_text","text":"t"}]"#;
    for rest in ["", r#","encrypted_content":null,"content":[]"#] {
        let members = format!("{summary}{rest}");
        assert_eq!(item(&members), one(StateKind::SummarizedItem, "x"), "{members}");
    }
    let asked = |before: &str, after: &str| {
        named(
            Protocol::Responses,
            &format!(r#"{{{before}"input":[{{{summary}}}]{after}}}"#),
        )
    };
    for (before, after) in [
        (r#""store":false,"#, ""),
        ("", r#","store":false"#),
        (r#""st\u006fre":false,"#, r#","store":false"#),
    ] {
        assert_eq!(asked(before, after), [], "{before} {after}");
    }
    // What a provider may take for a wish to keep the answer.
    for (before, after) in [
        ("", r#","store":true"#),
        (r#""store":true,"#, r#","store":false"#),
        (r#""store":false,"#, r#","store":null"#),
        (r#""store":"false","#, ""),
        (r#""store":[false],"#, ""),
        (r#""metadata":{"store":false},"#, ""),
    ] {
        assert_eq!(
            asked(before, after),
            one(StateKind::SummarizedItem, "x"),
            "{before} {after}"
        );
    }
    // Nothing of its own is nothing, whatever is kept.
    let bare =
        r#"{"store":false,"input":[{"type":"reasoning","id":"x","summary":[]},{"type":"item_reference","id":"y"}]}"#;
    let kinds: Vec<StateKind> = named(Protocol::Responses, bare)
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, [StateKind::Item, StateKind::Item]);
}
