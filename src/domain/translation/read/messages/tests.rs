//! Requests of Messages clients, and what is understood of them.

mod content;
mod options;
mod tools;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::{
    translation::{
        ChatTraits, Translation,
        call_ids::{CallIdForm, provider_id},
        conversation::{MediaSource, ToolCallResult},
        losses::TranslationMode,
        reasoning::{ReasoningMaker, ReasoningState},
        tool_names::provider_name,
    },
    wire::{Protocol, UpstreamProtocol},
};

/// A request that was read.
struct MessagesReading<'a> {
    conversation: Conversation<'a>,
    names: ToolNames,
    losses: TranslationLosses,
}

impl MessagesReading<'_> {
    /// `role: content` of every block.
    fn blocks(&self) -> Vec<String> {
        let turns = self.conversation.turns.iter();
        let blocks = turns.flat_map(|turn| turn.blocks.iter().map(move |block| (turn.role, block)));
        blocks
            .map(|(role, block)| format!("{role:?}: {}", described(&block.content)))
            .collect()
    }

    /// `verdict path` of every loss.
    fn losses(&self) -> Vec<String> {
        let losses = self.losses.iter();
        losses
            .map(|loss| format!("{} {}", loss.verdict.as_str(), loss.path))
            .collect()
    }

    /// The names of the tools at the provider.
    fn tools(&self) -> Vec<&str> {
        self.conversation.tools.iter().map(|tool| &*tool.name).collect()
    }
}

fn described(content: &BlockContent<'_>) -> String {
    match content {
        BlockContent::Text(text) => text.to_string(),
        BlockContent::Refusal(text) => format!("refusal {text}"),
        BlockContent::Media(media) => {
            let name = media.name.as_deref().unwrap_or_default();
            match &media.source {
                MediaSource::Base64 { media_type, data } => format!("{:?} {name} {media_type} {data}", media.kind),
                MediaSource::Url { url, .. } => format!("{:?} {name} {url}", media.kind),
            }
        }
        BlockContent::Reasoning(state) => format!("{state:?}"),
        BlockContent::Call(call) => format!("call {} {} {}", call.id, call.name, call.arguments),
        BlockContent::Result(result) => described_result(result),
    }
}

fn described_result(result: &ToolCallResult<'_>) -> String {
    let content: Vec<String> = result.content.iter().map(|block| described(&block.content)).collect();
    let name = result.name.as_deref().unwrap_or_default();
    let failed = if result.is_error { " failed" } else { "" };
    format!("result {} {name}{failed}: {}", result.call_id, content.join(" | "))
}

fn maker() -> ReasoningMaker {
    ReasoningMaker::new("host", "m", "a")
}

fn to(to: UpstreamProtocol, mode: TranslationMode) -> Translation {
    Translation {
        from: Protocol::Messages,
        to,
        mode,
        chat: ChatTraits::default(),
    }
}

fn read_with<'a>(body: &'a str, translation: &Translation) -> Result<MessagesReading<'a>, Untranslatable> {
    let mut names = ToolNames::default();
    let mut losses = TranslationLosses::new(translation.mode);
    let target = TranslationTarget {
        translation,
        model: "m",
        output_tokens_max: None,
        maker: &maker(),
    };
    let conversation = read(body, &target, &mut names, &mut losses)?;
    Ok(MessagesReading {
        conversation,
        names,
        losses,
    })
}

fn strict(body: &str) -> Result<MessagesReading<'_>, Untranslatable> {
    read_with(body, &to(UpstreamProtocol::Chat, TranslationMode::Strict))
}

fn lossy(body: &str) -> Result<MessagesReading<'_>, Untranslatable> {
    read_with(body, &to(UpstreamProtocol::Chat, TranslationMode::Lossy))
}

/// The refusal of a request, in a mode.
fn refusal(body: &str, mode: TranslationMode) -> String {
    match read_with(body, &to(UpstreamProtocol::Chat, mode)) {
        Ok(reading) => format!("not refused: {:?}", reading.losses()),
        Err(refusal) => refusal.to_string(),
    }
}

/// The path of a refusal in strict mode.
fn refused_path(body: &str) -> String {
    match strict(body) {
        Ok(reading) => format!("not refused: {:?}", reading.losses()),
        Err(refusal) => refusal.path,
    }
}

/// A request with these messages.
fn with_messages(messages: &Value) -> String {
    json!({ "model": "m", "max_tokens": 9, "messages": messages }).to_string()
}

/// A request with one message and these members.
fn with_members(members: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"hi"}}],{members}}}"#)
}

/// The beginning of a history: a question, and a call of `read` with the id `toolu_1`.
fn called() -> Vec<Value> {
    vec![
        json!({ "role": "user", "content": "go" }),
        json!({ "role": "assistant", "content": [
            { "type": "tool_use", "id": "toolu_1", "name": "read", "input": { "path": "a" } },
        ] }),
    ]
}

/// A request as Claude Code sends it, with its tools shortened.
fn claude_code() -> String {
    r#"{"model":"claude-opus-5-5","max_tokens":128000,"stream":true,
        "system":[
            {"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.329.abc; cc_entrypoint=cli; cch=1f2e3;"},
            {"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}},
            {"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral","ttl":"1h"}}],
        "messages":[
            {"role":"user","content":[
                {"type":"text","text":"<system-reminder>a</system-reminder>"},
                {"type":"text","text":"List the files.","cache_control":{"type":"ephemeral"}}]},
            {"role":"assistant","content":[
                {"type":"thinking","thinking":"","signature":"EqMBCkYIARgC"},
                {"type":"text","text":"I will."},
                {"type":"tool_use","id":"toolu_01","name":"Bash","input":{"command": "ls"},"caller":{"type":"direct"}},
                {"type":"tool_use","id":"toolu_02","name":"ToolSearch","input":{"query":"select:WebFetch"}}]},
            {"role":"user","content":[
                {"tool_use_id":"toolu_01","type":"tool_result","content":"a.rs","is_error":false},
                {"tool_use_id":"toolu_02","type":"tool_result","content":[
                    {"type":"tool_reference","tool_name":"WebFetch"}]}]},
            {"role":"system","content":"The tools have changed.","clear_at":"next_user_message"},
            {"role":"system","content":[],"output_config":{"effort":"high"}}],
        "tools":[
            {"name":"Bash","description":"Runs a command.","input_schema":{"type":"object","properties":{}}},
            {"name":"ToolSearch","description":"Finds tools.","input_schema":{"type":"object"}},
            {"name":"WebFetch","description":"Fetches.","input_schema":{"type":"object"},"defer_loading":true,
                "eager_input_streaming":true}],
        "metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"5f0c\"}"},
        "thinking":{"type":"adaptive","display":"omitted","block_binding":{"prefix_mismatch_behavior":"drop_block"}},
        "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
        "output_config":{"effort":"medium"},"safeguards":{"x":1},"diagnostics":{"previous_message_id":null}}"#
        .to_owned()
}

#[test]
fn claude_code_passes_in_strict_mode_and_every_loss_is_reported() {
    let body = claude_code();
    let reading = strict(&body).unwrap();
    assert_eq!(reading.conversation.system, ["You are an agent.", "Be brief."]);
    assert_eq!(
        reading.blocks(),
        [
            "User: <system-reminder>a</system-reminder>",
            "User: List the files.",
            "Assistant: I will.",
            r#"Assistant: call toolu_01 Bash {"command": "ls"}"#,
            r#"Assistant: call toolu_02 ToolSearch {"query":"select:WebFetch"}"#,
            "User: result toolu_01 Bash: a.rs",
            "User: result toolu_02 ToolSearch: The tool `WebFetch` can be called now.",
            "System: The tools have changed.",
        ]
    );
    assert_eq!(reading.tools(), ["Bash", "ToolSearch", "WebFetch"]);
    let options = &reading.conversation.options;
    assert_eq!(
        options.reasoning.as_ref().map(|option| option.value.effort),
        Some(ReasoningEffort::High)
    );
    assert_eq!(options.shows_reasoning, Some(false));
    assert_eq!(
        reading.losses(),
        [
            "dropped thinking.block_binding",
            "dropped metadata",
            "dropped context_management",
            "dropped diagnostics",
            "dropped safeguards",
            "dropped system[0]",
            "dropped system[1].cache_control",
            "dropped system[2].cache_control",
            "adapted tools[2].defer_loading",
            "dropped tools[2].eager_input_streaming",
            "dropped messages[0].content[1].cache_control",
            "dropped messages[1].content[0]",
            "adapted messages[2].content[1].content[0]",
            "dropped messages[3].clear_at",
            "adapted output_config.effort",
            "adapted messages[4].output_config.effort",
        ]
    );
}

#[test]
fn a_request_that_is_cut_anywhere_is_refused_and_never_fails() {
    let body = claude_code();
    for (end, _) in body.char_indices() {
        let cut = body.get(..end).unwrap();
        assert!(strict(cut).is_err(), "{cut}");
    }
}

/// A random message, valid where it stands: the calls of message `n` have the id `toolu_n`.
fn message() -> impl Strategy<Value = (bool, Vec<u8>)> {
    (any::<bool>(), prop::collection::vec(0_u8..6, 1..4))
}

fn messages_of(shapes: &[(bool, Vec<u8>)]) -> Value {
    let mut called_ids: Vec<String> = Vec::new();
    let mut messages = vec![json!({ "role": "user", "content": "begin" })];
    for (number, (is_user, kinds)) in shapes.iter().enumerate() {
        let mut blocks = Vec::new();
        for (index, kind) in kinds.iter().enumerate() {
            let text = json!({ "type": "text", "text": format!("text {number}.{index}") });
            blocks.push(match (*is_user, *kind, called_ids.last().cloned()) {
                (true, 0 | 1, Some(id)) => json!({ "type": "tool_result", "tool_use_id": id, "content": [text] }),
                (true, 2, _) => json!({ "type": "image", "source": { "type": "url", "url": "https://a/b" } }),
                (false, 0 | 1, _) => {
                    let id = format!("toolu_{number}_{index}");
                    called_ids.push(id.clone());
                    json!({ "type": "tool_use", "id": id, "name": "read", "input": { "n": number } })
                }
                (false, 2, _) => json!({ "type": "thinking", "thinking": "t", "signature": "other" }),
                _ => text,
            });
        }
        let role = if *is_user { "user" } else { "assistant" };
        messages.push(json!({ "role": role, "content": blocks }));
        if kinds.len() > 2 && *is_user {
            messages.push(json!({ "role": "system", "content": format!("reminder {number}") }));
        }
    }
    Value::Array(messages)
}

proptest! {
    #[test]
    fn the_first_messages_are_read_alike(shapes in prop::collection::vec(message(), 1..8), cut in 0_usize..8) {
        let first = shapes.get(..cut.min(shapes.len())).unwrap();
        let (first, all) = (with_messages(&messages_of(first)), with_messages(&messages_of(&shapes)));
        let (first, all) = (strict(&first).unwrap().blocks(), strict(&all).unwrap().blocks());
        prop_assert_eq!(all.get(..first.len()), Some(&*first));
    }

    #[test]
    fn any_text_is_refused_or_read_and_never_fails(text in ".*", value in "[\\[\\]{}\",:a-z0-9 ]*") {
        let _ = strict(&text);
        let _ = lossy(&with_members(&format!(r#""thinking":{value}"#)));
        let block = json!({ "type": text, "content": value }).to_string();
        let body = format!(r#"{{"max_tokens":1,"messages":[{{"role":"assistant","content":[{block}]}}]}}"#);
        let _ = lossy(&body);
    }
}
