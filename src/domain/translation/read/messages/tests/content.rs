//! Instructions, messages and blocks, by the rows of the table of content.

use super::*;
use crate::domain::translation::{call_ids::client_id, reasoning::wrap_summary};

/// What the content of one user message becomes, and the losses.
fn user_content(content: &Value) -> (Vec<String>, Vec<String>) {
    let body = with_messages(&json!([{ "role": "user", "content": content }]));
    let reading = strict(&body).unwrap();
    (reading.blocks(), reading.losses())
}

/// A request with this block in a message of this role, behind a question.
fn with_block(role: &str, block: &Value) -> String {
    with_messages(&json!([
        { "role": "user", "content": "go" },
        { "role": role, "content": [block] },
        { "role": "user", "content": "on" },
    ]))
}

#[test]
fn instructions_are_a_text_or_blocks_and_the_billing_block_is_left_out() {
    let body = with_members(r#""system":"Be brief.""#);
    assert_eq!(strict(&body).unwrap().conversation.system, ["Be brief."]);
    let body = with_members(
        r#""system":[{"type":"text","text":"x-anthropic-billing-header: cch=1","cache_control":{}},
        {"type":"text","text":""},{"type":"text","text":"a\n"}]"#,
    );
    let reading = strict(&body).unwrap();
    assert_eq!(reading.conversation.system, ["a\n"]);
    assert_eq!(reading.losses(), ["dropped system[0]"]);
    let body = with_members(r#""system":[{"type":"image","source":{}}]"#);
    assert_eq!(refused_path(&body), "system[0]");
}

#[test]
fn messages_of_the_system_join_the_instructions_only_before_the_first_turn() {
    let body = with_messages(&json!([
        { "role": "system", "content": "first" },
        { "role": "user", "content": "go" },
        { "role": "system", "content": [{ "type": "text", "text": "later" }] },
        { "role": "system", "content": "last", "clear_at": "never" },
    ]));
    let reading = strict(&body).unwrap();
    assert_eq!(reading.conversation.system, ["first"]);
    assert_eq!(reading.blocks(), ["User: go", "System: later", "System: last"]);
    assert!(reading.losses().is_empty(), "{:?}", reading.losses());
}

#[test]
fn neighbours_of_one_role_are_one_turn_and_empty_texts_are_left_out() {
    let body = with_messages(&json!([
        { "role": "user", "content": "a" },
        { "role": "user", "content": [{ "type": "text", "text": "" }, { "type": "text", "text": "b" }] },
        { "role": "assistant", "content": "" },
        { "role": "user", "content": "c" },
    ]));
    let reading = strict(&body).unwrap();
    assert_eq!(reading.conversation.turns.len(), 1);
    assert_eq!(reading.blocks(), ["User: a", "User: b", "User: c"]);
}

#[test]
fn a_request_without_content_is_refused() {
    assert_eq!(
        refusal(r#"{"max_tokens":1}"#, TranslationMode::Lossy),
        "messages: is missing"
    );
    for messages in [
        json!([]),
        json!([{ "role": "user", "content": "" }]),
        json!([{ "role": "system", "content": "s" }]),
    ] {
        let body = with_messages(&messages);
        assert_eq!(
            refusal(&body, TranslationMode::Lossy),
            "messages: must have a message with content"
        );
    }
    let body = with_messages(&json!([{ "role": "tool", "content": "a" }]));
    assert_eq!(refused_path(&body), "messages[0].role");
    let body = with_messages(&json!([{ "role": "user" }]));
    assert_eq!(refused_path(&body), "messages[0].content");
    let body = with_messages(&json!([{ "role": "user", "content": "a", "name": "b" }]));
    assert_eq!(refused_path(&body), "messages[0].name");
}

#[test]
fn an_answer_that_the_request_begins_depends_on_the_provider() {
    let body = with_messages(&json!([
        { "role": "user", "content": "go" },
        { "role": "assistant", "content": "The answer is" },
    ]));
    assert!(strict(&body).unwrap().losses().is_empty());
    for protocol in [UpstreamProtocol::Responses, UpstreamProtocol::Gemini] {
        let refusal = read_with(&body, &to(protocol, TranslationMode::Lossy)).err().unwrap();
        assert_eq!(refusal.path, "messages[1]");
    }
}

#[test]
fn texts_and_images_of_the_user_are_kept() {
    let (blocks, losses) = user_content(&json!([
        { "type": "text", "text": "see", "citations": [], "cache_control": null },
        { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA==" },
          "cache_control": { "type": "ephemeral" }, "transformations": { "oversized_image": "error" } },
        { "type": "image", "source": { "type": "url", "url": "https://a/b.png" } },
    ]));
    assert_eq!(
        blocks,
        [
            "User: see",
            "User: Image  image/png AA==",
            "User: Image  https://a/b.png"
        ]
    );
    assert_eq!(
        losses,
        [
            "dropped messages[0].content[1].cache_control",
            "dropped messages[0].content[1].transformations",
        ]
    );
}

#[test]
fn documents_are_files_or_texts_below_their_titles() {
    let (blocks, losses) = user_content(&json!([
        { "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBERi0=" },
          "title": "Plan", "context": "Draft.", "citations": { "enabled": false } },
        { "type": "document", "source": { "type": "url", "url": "https://a/b.pdf" }, "citations": { "enabled": true } },
        { "type": "document", "title": "Notes",
          "source": { "type": "text", "media_type": "text/plain", "data": "words" } },
        { "type": "document", "title": "Parts", "source": { "type": "content", "content": [
            { "type": "text", "text": "one" },
            { "type": "image", "source": { "type": "url", "url": "https://a/c.png" } },
        ] } },
        { "type": "search_result", "title": "T", "source": "https://s", "content": [
            { "type": "text", "text": "x" }, { "type": "text", "text": "y" },
        ] },
    ]));
    assert_eq!(
        blocks,
        [
            "User: Draft.",
            "User: Document Plan application/pdf JVBERi0=",
            "User: Document  https://a/b.pdf",
            "User: Notes\n\nwords",
            "User: Parts",
            "User: one",
            "User: Image  https://a/c.png",
            "User: T\nhttps://s\n\nx\n\ny",
        ]
    );
    assert_eq!(
        losses,
        [
            "adapted messages[0].content[0].context",
            "dropped messages[0].content[1].citations",
            "adapted messages[0].content[2]",
            "adapted messages[0].content[3]",
            "adapted messages[0].content[4]",
        ]
    );
}

#[test]
fn files_kept_elsewhere_and_unknown_content_are_refused_in_both_modes() {
    let stored = json!({ "type": "file", "file_id": "file_1" });
    for (block, path) in [
        (
            json!({ "type": "image", "source": stored }),
            "messages[1].content[0].source.file_id",
        ),
        (
            json!({ "type": "document", "source": stored }),
            "messages[1].content[0].source.file_id",
        ),
        (
            json!({ "type": "container_upload", "file_id": "file_1" }),
            "messages[1].content[0].file_id",
        ),
        (json!({ "type": "hologram" }), "messages[1].content[0]"),
        (
            json!({ "type": "text", "text": "a", "tone": "b" }),
            "messages[1].content[0].tone",
        ),
        (
            json!({ "type": "tool_use", "id": "a", "name": "b", "input": {} }),
            "messages[1].content[0]",
        ),
        (json!({ "type": "thinking", "thinking": "a" }), "messages[1].content[0]"),
    ] {
        let body = with_block("user", &block);
        for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
            let refusal = refusal(&body, mode);
            assert!(refusal.starts_with(&format!("{path}: ")), "{refusal}");
        }
    }
    let image = json!({ "type": "image", "source": { "type": "url", "url": "https://a" } });
    assert_eq!(refused_path(&with_block("assistant", &image)), "messages[1].content[0]");
}

#[test]
fn citations_of_the_model_are_left_out_and_reported() {
    let block = json!({ "type": "text", "text": "a", "citations": [{ "type": "char_location", "cited_text": "b" }] });
    let body = with_block("assistant", &block);
    let reading = strict(&body).unwrap();
    assert_eq!(reading.blocks(), ["User: go", "Assistant: a", "User: on"]);
    assert_eq!(reading.losses(), ["dropped messages[1].content[0].citations"]);
}

#[test]
fn results_have_texts_and_media_and_may_report_a_failure() {
    let mut messages = called();
    messages.push(json!({ "role": "user", "content": [
        { "type": "tool_result", "tool_use_id": "toolu_1", "is_error": true, "toolset_name": "t", "content": [
            { "type": "text", "text": "no" },
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA==" } },
            { "type": "tool_reference", "tool_name": "a.b" },
        ] },
        { "type": "tool_result", "tool_use_id": "toolu_1", "content": "yes" },
        { "type": "tool_result", "tool_use_id": "toolu_1", "cache_control": { "type": "ephemeral" } },
        { "type": "text", "text": "and now" },
    ] }));
    let body = with_messages(&Value::Array(messages));
    let reading = strict(&body).unwrap();
    let tool = provider_name(None, "a.b");
    assert_eq!(
        reading.blocks(),
        [
            "User: go".to_owned(),
            r#"Assistant: call toolu_1 read {"path":"a"}"#.to_owned(),
            format!(
                "User: result toolu_1 read failed: no | Image  image/png AA== | The tool `{tool}` can be called now."
            ),
            "User: result toolu_1 read: yes".to_owned(),
            "User: result toolu_1 read: ".to_owned(),
            "User: and now".to_owned(),
        ]
    );
    assert_eq!(
        reading.losses(),
        [
            "adapted messages[2].content[0].content[2]",
            "dropped messages[2].content[0].toolset_name",
            "dropped messages[2].content[2].cache_control",
        ]
    );
}

#[test]
fn a_result_without_its_call_is_refused_by_its_id() {
    let block = json!({ "type": "tool_result", "tool_use_id": "toolu_9", "content": "a" });
    let body = with_block("user", &block);
    assert_eq!(
        refusal(&body, TranslationMode::Lossy),
        "messages[1].content[0].tool_use_id: no call before this result has the id `toolu_9`; \
         send the whole conversation"
    );
}

#[test]
fn ids_and_names_return_to_the_provider_as_it_knows_them() {
    let id = client_id("functions.Bash:0").into_owned();
    let body = with_messages(&json!([
        { "role": "user", "content": "go" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": "a b", "input": null }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": "c" }] },
    ]));
    let name = provider_name(None, "a b");
    let blocks = strict(&body).unwrap().blocks();
    assert_eq!(blocks[1], format!("Assistant: call functions.Bash:0 {name} {{}}"));
    assert_eq!(blocks[2], format!("User: result functions.Bash:0 {name}: c"));
    let mut short = to(UpstreamProtocol::Chat, TranslationMode::Strict);
    short.chat.call_ids = CallIdForm::NineAlphanumeric;
    let reading = read_with(&body, &short).unwrap();
    let expected = provider_id(&id, CallIdForm::NineAlphanumeric);
    assert_eq!(reading.blocks()[2], format!("User: result {expected} {name}: c"));
    short.to = UpstreamProtocol::Gemini;
    assert_eq!(read_with(&body, &short).unwrap().blocks()[2], blocks[2]);
}

#[test]
fn a_call_by_a_program_of_another_provider_is_refused_in_strict_mode() {
    let caller = json!({ "type": "code_execution_20260120", "tool_id": "srvtoolu_1" });
    let block = json!({ "type": "tool_use", "id": "a", "name": "b", "input": {}, "caller": caller });
    let body = with_block("assistant", &block);
    assert_eq!(refused_path(&body), "messages[1].content[0].caller");
    let reading = lossy(&body).unwrap();
    assert_eq!(reading.blocks()[1], "Assistant: call a b {}");
    assert_eq!(reading.losses(), ["dropped messages[1].content[0].caller"]);
}

#[test]
fn thinking_returns_to_its_maker_alone() {
    let state = ReasoningState::Text { text: "because".into() };
    let carrier = state.wrap(&maker(), "because").unwrap();
    let foreign = state.wrap(&ReasoningMaker::new("other", "m", "a"), "because").unwrap();
    let item = ReasoningState::Item { json: "{}".into() };
    let hidden = item.wrap(&maker(), "").unwrap();
    let body = with_messages(&json!([
        { "role": "user", "content": "go" },
        { "role": "assistant", "content": [
            { "type": "thinking", "thinking": "because", "signature": carrier },
            { "type": "thinking", "thinking": "because", "signature": foreign },
            { "type": "thinking", "thinking": "", "signature": carrier },
            { "type": "thinking", "thinking": "because" },
            { "type": "redacted_thinking", "data": hidden },
            { "type": "redacted_thinking", "data": "EqMB" },
            { "type": "text", "text": "yes" },
        ] },
        { "role": "user", "content": "on" },
    ]));
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        [
            "User: go".to_owned(),
            format!("Assistant: {state:?}"),
            format!("Assistant: {item:?}"),
            "Assistant: yes".to_owned(),
            "User: on".to_owned(),
        ]
    );
    assert_eq!(
        reading.losses(),
        [
            "dropped messages[1].content[1]",
            "dropped messages[1].content[2]",
            "dropped messages[1].content[3]",
            "dropped messages[1].content[5]",
        ]
    );
}

#[test]
fn a_summary_of_weir_becomes_a_text_and_one_of_others_is_refused() {
    let carrier = wrap_summary("so far", &ReasoningMaker::new("groq", "other", "b")).unwrap();
    let own = json!({ "type": "compaction", "content": "so far", "encrypted_content": carrier });
    let body = with_block("assistant", &own);
    let reading = strict(&body).unwrap();
    assert_eq!(
        reading.blocks(),
        [
            "User: go",
            "User: [summary of the conversation before this point]\nso far",
            "User: on"
        ]
    );
    assert_eq!(reading.losses(), ["adapted messages[1].content[0]"]);
    let other = json!({ "type": "compaction", "content": "so far", "signature": "EqMB" });
    assert_eq!(refused_path(&with_block("assistant", &other)), "messages[1].content[0]");
    let failed = with_block("assistant", &json!({ "type": "compaction", "content": null }));
    assert_eq!(strict(&failed).unwrap().losses(), ["dropped messages[1].content[0]"]);
}

#[test]
fn what_tools_of_another_provider_did_is_refused_or_kept_as_a_text() {
    for (block, text) in [
        (
            json!({ "type": "server_tool_use", "id": "s", "name": "web_search", "input": { "query": "q" } }),
            r#"[server_tool_use] web_search {"query":"q"}"#,
        ),
        (
            json!({ "type": "web_search_tool_result", "tool_use_id": "s", "content": [
                { "type": "web_search_result", "title": "T", "url": "https://u", "encrypted_content": "e" },
            ] }),
            "[web_search_tool_result]\nT\nhttps://u",
        ),
        (
            json!({ "type": "web_fetch_tool_result", "tool_use_id": "s", "content": {
                "type": "web_fetch_result", "url": "https://u", "content": {
                    "type": "document", "title": "T", "source": { "type": "text", "data": "words" } } } }),
            "[web_fetch_tool_result]\nhttps://u\nT\nwords",
        ),
        (
            json!({ "type": "web_fetch_tool_result", "tool_use_id": "s", "content": {
                "type": "web_fetch_result", "url": "https://u", "content": {
                    "type": "document", "source": { "type": "base64", "data": "JVBERi0=" } } } }),
            "[web_fetch_tool_result]\nhttps://u",
        ),
        (
            json!({ "type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": {
                "type": "bash_code_execution_result", "stdout": "out", "stderr": "", "return_code": 0 } }),
            "[bash_code_execution_tool_result]\nout\n",
        ),
        (
            json!({ "type": "tool_search_tool_result", "tool_use_id": "s", "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{ "type": "tool_reference", "tool_name": "n" }] } }),
            "[tool_search_tool_result]\nn",
        ),
        (
            json!({ "type": "mcp_tool_use", "id": "s", "name": "n", "server_name": "srv", "input": {} }),
            "[mcp_tool_use] srv n {}",
        ),
        (
            json!({ "type": "mcp_tool_result", "tool_use_id": "s", "content": "done" }),
            "[mcp_tool_result]\ndone",
        ),
        (
            json!({ "type": "web_search_tool_result", "tool_use_id": "s", "content": {
                "type": "web_search_tool_result_error", "error_code": "unavailable" } }),
            "[web_search_tool_result]\nunavailable",
        ),
    ] {
        let body = with_block("assistant", &block);
        assert_eq!(refused_path(&body), "messages[1].content[0]");
        let reading = lossy(&body).unwrap();
        assert_eq!(reading.blocks()[1], format!("Assistant: {text}"));
        assert_eq!(reading.losses(), ["dropped messages[1].content[0]"]);
    }
}

#[test]
fn marks_that_no_model_reads_are_left_out_and_reported() {
    for block in [
        json!({ "type": "fallback", "from": { "model": "a" }, "to": { "model": "b" } }),
        json!({ "type": "mcp_tool_listing", "mcp_server_name": "s", "tools": [] }),
    ] {
        let body = with_block("assistant", &block);
        let reading = strict(&body).unwrap();
        assert_eq!(reading.blocks(), ["User: go", "User: on"]);
        assert_eq!(reading.losses(), ["dropped messages[1].content[0]"]);
    }
}
