//! Messages, calls, results and reasoning.

use super::*;
use crate::domain::translation::reasoning::{ReasoningState, wrap_summary};

#[test]
fn a_text_is_the_users_and_instructions_are_the_systems() {
    let reading = strict(r#"{"input":"say \"hi\"","instructions":"be kind","store":false}"#).unwrap();
    assert_eq!(reading.blocks(), ["User: say \"hi\""]);
    assert_eq!(reading.conversation.system, ["be kind"]);
    assert!(reading.losses().is_empty());
    assert_eq!(refused_path(strict(r#"{"model":"m"}"#)), "input");
    assert_eq!(refused_path(strict(r#"{"input":7}"#)), "input");
}

#[test]
fn only_the_leading_system_messages_are_instructions() {
    let body = with_input(
        r#"{"role":"system","content":"a"},{"role":"developer","content":[{"type":"input_text","text":"b"}]},
        {"role":"user","content":"u"},{"role":"developer","content":"c"},{"role":"system","content":"d"},
        {"role":"user","content":[{"type":"input_text","text":"v"},{"type":"input_text","text":""}]}"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(reading.conversation.system, ["a", "b"]);
    assert_eq!(reading.blocks(), ["User: u", "System: c", "System: d", "User: v"]);
    assert_eq!(reading.conversation.turns.len(), 4);
}

#[test]
fn every_part_of_a_message_is_carried_over_with_its_path() {
    let body = with_input(
        r#"{"role":"user","content":[
        {"type":"input_text","text":"look","prompt_cache_breakpoint":{"mode":"explicit"}},
        {"type":"input_image","detail":"high","image_url":"data:image/png;base64,aGk="},
        {"type":"input_image","detail":"auto","image_url":"https://x.example/y.png"},
        {"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;name=a;base64,JVBERi0x"},
        {"type":"input_file","file_data":"JVBERi0x"},
        {"type":"input_file","file_url":"https://x.example/z.pdf"},
        {"type":"input_file","filename":"n.md","file_data":"aGVsbG8="},
        {"type":"input_audio","input_audio":{"data":"UklG","format":"wav"}},
        {"type":"input_audio","audio_url":"data:audio/mp3;base64,SUQz"}]},
        {"role":"assistant","content":[{"type":"output_text","text":"seen","annotations":[{"type":"url_citation"}],"logprobs":[]},
        {"type":"refusal","refusal":"no"}],"id":"msg_1","status":"completed","type":"message"}"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        [
            "User: look",
            "User: Image  image/png aGk=",
            "User: Image  https://x.example/y.png",
            "User: Document a.pdf application/pdf JVBERi0x",
            "User: Document  application/pdf JVBERi0x",
            "User: Document  https://x.example/z.pdf",
            "User: n.md\n\nhello",
            "User: Audio  audio/wav UklG",
            "User: Audio  audio/mp3 SUQz",
            "Assistant: seen",
            "Assistant: refusal no",
        ]
    );
    assert_eq!(reading.conversation.turns[0].blocks[2].path, "input[0].content[2]");
    assert_eq!(
        reading.losses(),
        [
            "dropped input[0].content[0].prompt_cache_breakpoint",
            "dropped input[0].content[1].detail",
            "adapted input[0].content[6]",
            "dropped input[1].content[0].annotations",
        ]
    );
}

#[test]
fn a_call_and_its_result_keep_their_text() {
    let body = with_input(
        r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{\"b\": 1.50, \"a\":[]}","status":"completed"},
        {"type":"function_call","call_id":"call_2","name":"f","arguments":""},
        {"type":"function_call_output","id":"fo_1","call_id":"call_2","output":[{"type":"input_text","text":"two"},
            {"type":"input_image","image_url":"https://x.example/y.png"}],"status":"completed"},
        {"type":"function_call_output","call_id":"call_1","output":"one","name":"f","namespace":null},
        {"type":"function_call_output","call_id":"call_9","output":"","name":"g"}"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        [
            r#"Assistant: call call_1 f {"b": 1.50, "a":[]}"#,
            "Assistant: call call_2 f ",
            r#"User: result call_2 f ["two", "Image  https://x.example/y.png"]"#,
            r#"User: result call_1 f ["one"]"#,
            "User: result call_9 g []",
        ]
    );
    assert!(reading.losses().is_empty());
}

#[test]
fn ids_of_calls_return_to_the_provider_in_its_form() {
    let body = with_input(
        r#"{"type":"function_call","call_id":"weir_ZnVuY3Rpb25zLkJhc2g6MA","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"weir_ZnVuY3Rpb25zLkJhc2g6MA","output":"o"}"#,
    );
    let read = |to, form| read_for(&body, to, TranslationMode::Strict, form).unwrap().blocks();
    let plain = [
        "Assistant: call functions.Bash:0 f {}",
        "User: result functions.Bash:0 f [\"o\"]",
    ];
    assert_eq!(read(UpstreamProtocol::Chat, CallIdForm::Any), plain);
    assert_eq!(read(UpstreamProtocol::Messages, CallIdForm::NineAlphanumeric), plain);
    let short = provider_id("functions.Bash:0", CallIdForm::NineAlphanumeric);
    let blocks = read(UpstreamProtocol::Chat, CallIdForm::NineAlphanumeric);
    assert_eq!(blocks[0], format!("Assistant: call {short} f {{}}"));
    assert_eq!(blocks[1], format!("User: result {short} f [\"o\"]"));
}

#[test]
fn calls_of_built_in_tools_are_calls_of_functions() {
    let body = with_input(
        r#"{"type":"local_shell_call","id":"lsh_1","call_id":null,"status":"completed","action":{"type":"exec","command":["ls"],"env":{}}},
        {"type":"local_shell_call_output","id":"lsh_1","output":"{\"output\":\"a\"}"},
        {"type":"shell_call","call_id":"c2","action":{"commands":["ls"]},"environment":{"type":"local"}},
        {"type":"shell_call_output","call_id":"c2","output":[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}],"max_output_length":9},
        {"type":"apply_patch_call","call_id":"c3","status":"completed","operation":{"type":"delete_file","path":"p"},"caller":{"type":"direct"}},
        {"type":"apply_patch_call_output","call_id":"c3","status":"failed","output":"no such file"},
        {"type":"apply_patch_call_output","call_id":"c3","status":"completed"}"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        [
            r#"Assistant: call lsh_1 local_shell {"type":"exec","command":["ls"],"env":{}}"#,
            r#"User: result lsh_1 local_shell ["{\"output\":\"a\"}"]"#,
            r#"Assistant: call c2 shell {"commands":["ls"]}"#,
            r#"User: result c2 shell ["[{\"stdout\":\"a\",\"stderr\":\"\",\"outcome\":{\"type\":\"exit\",\"exit_code\":0}}]"]"#,
            r#"Assistant: call c3 apply_patch {"type":"delete_file","path":"p"}"#,
            r#"User: result c3 apply_patch error ["no such file"]"#,
            "User: result c3 apply_patch []",
        ]
    );
    assert_eq!(reading.losses(), ["dropped input[3].max_output_length"]);
}

#[test]
fn reasoning_returns_to_its_maker_and_to_nobody_else() {
    let state = ReasoningState::Text { text: "because".into() };
    let own = state.wrap(&maker(), "because").unwrap();
    let other = state.wrap(&ReasoningMaker::new("x", "y", "z"), "because").unwrap();
    let item = |carrier: &str, members: &str| {
        format!(r#"{{"type":"reasoning","id":"rs_1","encrypted_content":"{carrier}",{members}}}"#)
    };
    let summary = r#""summary":[{"type":"summary_text","text":"because"}]"#;
    let content = r#""summary":[],"content":[{"type":"reasoning_text","text":"because"}]"#;
    let kept = format!("Assistant: {state:?}");
    for (item, expected) in [
        (item(&own, summary), Some(&kept)),
        (item(&own, content), Some(&kept)),
        // Its text was left to the summary, which the client has not returned.
        (item(&own, r#""summary":[]"#), None),
        (item(&other, summary), None),
        (item("gAAAAABp", summary), None),
        (item("", content), None),
        (item(&own, r#""summary":"x","content":7"#), None),
    ] {
        let body = with_input(&item);
        let reading = strict(&body).unwrap();
        assert_eq!(reading.blocks().first(), expected, "{item}");
        let losses: &[&str] = if expected.is_some() { &[] } else { &["dropped input[0]"] };
        assert_eq!(reading.losses(), losses, "{item}");
    }
    let whole = ReasoningState::Redacted { data: "opaque".into() };
    let body = with_input(&item(&whole.wrap(&maker(), "").unwrap(), r#""summary":[]"#));
    assert_eq!(strict(&body).unwrap().blocks(), [format!("Assistant: {whole:?}")]);
}

#[test]
fn a_compaction_is_read_if_weir_has_made_it_for_whatever_model() {
    let reasoning = ReasoningState::Text { text: "so far".into() };
    for kind in ["compaction", "context_compaction"] {
        let item = |carrier: &str| {
            with_input(&format!(
                r#"{{"type":"{kind}","id":"c","encrypted_content":"{carrier}","metadata":{{}}}}"#
            ))
        };
        for by in [maker(), ReasoningMaker::new("anthropic", "claude", "b")] {
            let own = item(&wrap_summary("so far", &by).unwrap());
            let reading = strict(&own).unwrap();
            assert_eq!(
                reading.blocks(),
                ["User: [summary of the conversation before this point]\nso far"]
            );
            assert_eq!(reading.losses(), ["adapted input[0]", "dropped input[0].metadata"]);
        }
        for other in ["gAAAA", "", reasoning.wrap(&maker(), "").unwrap().as_str()] {
            assert_eq!(refused_path(lossy(&item(other))), "input[0].encrypted_content");
        }
    }
}

/// A request for a summary in the place of the conversation, as Codex 0.169 sends it, with these tools.
fn compaction_request(tools: &str) -> String {
    format!(
        r#"{{"model":"m","store":false,"stream":true,"tool_choice":"auto","tools":[{tools}],
        "text":{{"format":{{"type":"json_object"}}}},
        "input":[{{"role":"user","content":"begin"}},
        {{"type":"function_call","call_id":"c","name":"f","arguments":"{{}}"}},
        {{"type":"function_call_output","call_id":"c","output":"o"}},
        {{"type":"compaction_trigger"}}]}}"#
    )
}

#[test]
fn a_request_for_a_summary_is_a_text_of_the_user_and_calls_nothing() {
    let body = compaction_request(r#"{"type":"function","name":"f"}"#);
    for (to, tools, loss) in [
        (UpstreamProtocol::Messages, vec!["f"], "adapted tool_choice"),
        (UpstreamProtocol::Gemini, Vec::new(), "dropped tools"),
        (UpstreamProtocol::Chat, Vec::new(), "dropped tools"),
        (UpstreamProtocol::Responses, Vec::new(), "dropped tools"),
    ] {
        let reading = read_for(&body, to, TranslationMode::Strict, CallIdForm::Any).unwrap();
        let blocks = reading.blocks();
        assert_eq!(blocks[..2], ["User: begin", "Assistant: call c f {}"]);
        assert!(
            blocks[3].starts_with("User: Summarize this conversation"),
            "{}",
            blocks[3]
        );
        assert_eq!(reading.tools(), tools);
        assert_eq!(reading.conversation.tool_choice, ToolChoice::Forbidden);
        assert!(reading.conversation.options.format.is_none());
        assert_eq!(reading.losses(), ["adapted input[3]", loss, "dropped text.format"]);
    }
}

#[test]
fn a_request_for_a_summary_needs_no_tools_and_is_the_last_item() {
    let hosted = compaction_request(r#"{"type":"web_search"}"#);
    assert!(strict(&hosted).unwrap().tools().is_empty());
    let trigger = r#"{"type":"compaction_trigger"}"#;
    let refusal = |items: &str| lossy(&with_input(items)).map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        refusal(&format!(r#"{trigger},{{"role":"user","content":"go on"}}"#)),
        "input[0]: a summary can be requested only of the whole conversation; send this as the last item"
    );
    assert!(refusal(r#"{"type":"compaction_trigger","new":1}"#).starts_with("input[0].new: "));
}

#[test]
fn the_last_update_of_the_configuration_counts() {
    let body = with_input(
        r#"{"type":"configuration_update","reasoning":{"effort":"low"}},{"role":"user","content":"u"},
        {"type":"configuration_update","reasoning":{"effort":"high"},"text":{"format":{"type":"json_object"}}}"#,
    );
    let reading = strict(&body).unwrap();
    let options = &reading.conversation.options;
    assert_eq!(
        options.reasoning.as_ref().unwrap().value.effort.responses_word(),
        "high"
    );
    assert_eq!(options.reasoning.as_ref().unwrap().path, "input[2].reasoning.effort");
    assert_eq!(options.format.as_ref().unwrap().path, "input[2].text.format");
    assert_eq!(
        reading.losses(),
        [
            "adapted input[0]",
            "adapted input[2]",
            "adapted input[0].reasoning.effort"
        ]
    );
}

/// Items that cannot be carried over, each with the path behind that of the item.
const REFUSED: &[(&str, &str)] = &[
    (r#"{"type":"item_reference","id":"msg_1"}"#, ""),
    (r#"{"id":"msg_1"}"#, ""),
    (r#"{"type":"hologram","name":"x"}"#, ""),
    (r#"{"role":"tool","content":"x"}"#, ".role"),
    (r#"{"role":"user"}"#, ".content"),
    (r#"{"role":"user","content":"x","mood":"good"}"#, ".mood"),
    (
        r#"{"role":"user","content":[{"type":"input_video","video_url":"u"}]}"#,
        ".content[0]",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_text","text":"x","new":1}]}"#,
        ".content[0].new",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_image","file_id":"file_1"}]}"#,
        ".content[0].file_id",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_file","file_id":"file_1"}]}"#,
        ".content[0].file_id",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_file","filename":"a"}]}"#,
        ".content[0]",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_file","filename":"a.txt","file_data":"!"}]}"#,
        ".content[0].file_data",
    ),
    (
        r#"{"role":"user","content":[{"type":"input_image","image_url":"data:image/png,x"}]}"#,
        ".content[0].image_url",
    ),
    (
        r#"{"role":"user","content":[{"type":"refusal","refusal":"x"}]}"#,
        ".content[0]",
    ),
    (
        r#"{"role":"assistant","content":[{"type":"input_image","image_url":"https://x"}]}"#,
        ".content[0]",
    ),
    (
        r#"{"role":"system","content":[{"type":"input_image","image_url":"https://x"}]}"#,
        ".content[0]",
    ),
    (r#"{"type":"function_call","name":"f","arguments":"{}"}"#, ".call_id"),
    (r#"{"type":"function_call","name":"f","call_id":"c"}"#, ".arguments"),
    (
        r#"{"type":"function_call","name":"f","call_id":"c","arguments":"{}","encrypted_function_args":["m"]}"#,
        ".encrypted_function_args",
    ),
    (r#"{"type":"function_call_output","name":"f","output":"x"}"#, ".call_id"),
    (r#"{"type":"function_call_output","call_id":"c"}"#, ".output"),
    (
        r#"{"type":"function_call_output","call_id":"c","output":[{"type":"refusal","refusal":"x"}]}"#,
        ".output[0]",
    ),
    (
        r#"{"type":"function_call_output","call_id":"c","output":[{"type":"encrypted_content","encrypted_content":"x"}]}"#,
        ".output[0]",
    ),
    (
        r#"{"type":"agent_message","author":"a","recipient":"b","content":[{"type":"encrypted_content","encrypted_content":"x"}]}"#,
        ".content[0]",
    ),
    (
        r#"{"type":"shell_call","call_id":"c","action":{"commands":[]},"environment":{"type":"container_reference","container_id":"x"}}"#,
        ".environment",
    ),
    (r#"{"type":"local_shell_call","call_id":"c"}"#, ".action"),
    (r#"{"type":"compaction"}"#, ".encrypted_content"),
];

#[test]
fn what_cannot_be_carried_over_is_refused_by_its_path() {
    for (item, path) in REFUSED {
        let body = with_input(&format!(r#"{{"role":"user","content":"first"}},{item}"#));
        assert_eq!(refused_path(lossy(&body)), format!("input[1]{path}"), "{item}");
    }
}

#[test]
fn tools_that_another_provider_ran_become_a_line_of_text_in_lossy_mode_only() {
    for (item, line) in [
        (
            r#"{"type":"web_search_call","id":"ws","status":"completed","action":{"type":"search","query":"q"}}"#,
            "Assistant: [web_search_call] q",
        ),
        (
            r#"{"type":"mcp_call","id":"m","name":"find","server_label":"hub","arguments":"{}","output":"o"}"#,
            "Assistant: [mcp_call] hub find {} o",
        ),
        (
            r#"{"type":"code_interpreter_call","id":"c","code":"1+1","container_id":"x","outputs":[{"type":"logs","logs":"2"}]}"#,
            "Assistant: [code_interpreter_call] 1+1\n2",
        ),
        (
            r#"{"type":"file_search_call","id":"f","queries":["q"],"results":[{"text":"t"}]}"#,
            "Assistant: [file_search_call]\nt",
        ),
        (
            r#"{"type":"image_generation_call","id":"i","result":"aGk="}"#,
            "Assistant: [image_generation_call]",
        ),
        (
            r#"{"type":"mcp_approval_response","approval_request_id":"a","approve":false,"reason":"why"}"#,
            "User: [mcp_approval_response] why declined",
        ),
        (
            r#"{"type":"program_output","id":"p","call_id":"c","result":"r","status":"completed"}"#,
            "Assistant: [program_output] r",
        ),
    ] {
        let body = with_input(item);
        assert_eq!(refused_path(strict(&body)), "input[0]", "{item}");
        let reading = lossy(&body).unwrap();
        assert_eq!(reading.blocks(), [line]);
        assert_eq!(reading.losses(), ["dropped input[0]"]);
    }
    let program = with_input(
        r#"{"type":"function_call","name":"f","call_id":"c","arguments":"{}","caller":{"type":"program","caller_id":"p"}}"#,
    );
    assert_eq!(refused_path(strict(&program)), "input[0].caller");
    assert_eq!(lossy(&program).unwrap().losses(), ["dropped input[0].caller"]);
}

#[test]
fn what_stands_beside_a_call_is_reported_and_an_annotation_of_each_item_once() {
    let metadata = r#""internal_chat_message_metadata_passthrough":{"turn_id":"t"}"#;
    let body = with_input(&format!(
        r#"{{"role":"user","content":"u",{metadata}}},
        {{"type":"shell_call","call_id":"c","action":{{"commands":["ls"]}},"caller":{{"type":"direct","new":1}},
        "environment":{{"type":"local","skills":[{{"name":"s","description":"d","path":"/p"}}],"new":1}},{metadata}}},
        {{"type":"shell_call_output","call_id":"c","output":[],{metadata}}}"#
    ));
    assert_eq!(
        strict(&body).unwrap().losses(),
        [
            "dropped input[0].internal_chat_message_metadata_passthrough",
            "dropped input[1].environment.skills",
            "unknown input[1].environment.new",
            "unknown input[1].caller.new",
        ]
    );
}
