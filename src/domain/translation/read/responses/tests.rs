//! Requests of Responses clients, and what is understood of them.

mod input;
mod options;
mod tools;

use proptest::prelude::*;

use super::*;
use crate::domain::{
    translation::{
        ChatTraits, Translation,
        call_ids::{CallIdForm, provider_id},
        conversation::MediaSource,
        losses::TranslationMode,
        reasoning::ReasoningMaker,
    },
    wire::Protocol,
};

/// A request that was read.
struct Reading<'a> {
    conversation: Conversation<'a>,
    names: ToolNames,
    losses: TranslationLosses,
}

impl Reading<'_> {
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
        BlockContent::Result(result) => {
            let content: Vec<String> = result.content.iter().map(|block| described(&block.content)).collect();
            let name = result.name.as_deref().unwrap_or("?");
            let error = if result.is_error { " error" } else { "" };
            format!("result {} {name}{error} {content:?}", result.call_id)
        }
    }
}

fn maker() -> ReasoningMaker {
    ReasoningMaker::new("groq", "gpt-oss-120b", "a")
}

fn read_for(
    body: &str,
    to: UpstreamProtocol,
    mode: TranslationMode,
    call_ids: CallIdForm,
) -> Result<Reading<'_>, Untranslatable> {
    let translation = Translation {
        from: Protocol::Responses,
        to,
        mode,
        chat: ChatTraits {
            call_ids,
            ..ChatTraits::default()
        },
    };
    let target = TranslationTarget {
        translation: &translation,
        model: "gpt-oss-120b",
        output_tokens_max: None,
        maker: &maker(),
    };
    let (mut names, mut losses) = (ToolNames::default(), TranslationLosses::new(mode));
    let conversation = read(body, &target, &mut names, &mut losses)?;
    Ok(Reading {
        conversation,
        names,
        losses,
    })
}

fn strict(body: &str) -> Result<Reading<'_>, Untranslatable> {
    read_for(body, UpstreamProtocol::Chat, TranslationMode::Strict, CallIdForm::Any)
}

fn lossy(body: &str) -> Result<Reading<'_>, Untranslatable> {
    read_for(body, UpstreamProtocol::Chat, TranslationMode::Lossy, CallIdForm::Any)
}

/// A body with these items and nothing that is reported.
fn with_input(items: &str) -> String {
    format!(r#"{{"model":"m","store":false,"input":[{items}]}}"#)
}

/// A body with these members in addition to a short input.
fn with_members(members: &str) -> String {
    format!(r#"{{"model":"m","store":false,"input":"hi",{members}}}"#)
}

/// The path of the refusal.
fn refused_path(reading: Result<Reading<'_>, Untranslatable>) -> String {
    reading.map(|reading| reading.blocks()).unwrap_err().path
}

/// A turn of Codex, shortened: its members, item and tool types are those that Codex 0.169 sends.
const CODEX: &str = r#"{"model":"gpt-oss","stream":true,"store":false,"tool_choice":"auto","parallel_tool_calls":true,
"include":["reasoning.encrypted_content"],"prompt_cache_key":"5f1c","reasoning":{"effort":"medium","summary":"auto"},
"text":{"verbosity":"low"},"client_metadata":{"x-codex-installation-id":"i"},
"input":[
 {"type":"additional_tools","role":"developer","tools":[{"type":"custom","name":"exec","description":"Runs code.",
  "format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}}]},
 {"type":"message","role":"developer","content":[{"type":"input_text","text":"rules"},{"type":"input_text","text":"skills"}]},
 {"type":"message","role":"user","content":[{"type":"input_text","text":"where am I?"}]},
 {"type":"reasoning","id":"rs_1","summary":[],"content":null,"encrypted_content":"gAAAA"},
 {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}],"phase":"commentary"},
 {"type":"custom_tool_call","status":"completed","call_id":"call_1","name":"exec","input":"ls(\"a\")"},
 {"type":"custom_tool_call_output","call_id":"call_1","output":[{"type":"input_text","text":"src"}]},
 {"type":"function_call","name":"spawn","namespace":"multi_agent_v1","arguments":"{\"n\": 1.0}","call_id":"call_2"},
 {"type":"function_call_output","call_id":"call_2","output":"started"},
 {"type":"agent_message","author":"/root/a","recipient":"/root","content":[{"type":"input_text","text":"done"}]},
 {"type":"message","role":"developer","content":[{"type":"input_text","text":"be brief"}]}],
"tools":[
 {"type":"function","name":"wait","description":"Waits.","strict":false,"parameters":{"type":"object","properties":{}}},
 {"type":"namespace","name":"multi_agent_v1","description":"Agents.","tools":[
  {"type":"function","name":"spawn","description":"Starts one.","strict":false,"parameters":{"type":"object"}}]},
 {"type":"tool_search","execution":"client","description":"Finds tools.","parameters":{"type":"object"}},
 {"type":"web_search","external_web_access":false}]}"#;

#[test]
fn a_turn_of_codex_passes_in_strict_mode() {
    let reading = strict(CODEX).unwrap();
    assert_eq!(reading.conversation.system, ["rules", "skills"]);
    assert_eq!(
        reading.blocks(),
        [
            "User: where am I?",
            "Assistant: I look.",
            r#"Assistant: call call_1 exec {"input":"ls(\"a\")"}"#,
            r#"User: result call_1 exec ["src"]"#,
            r#"Assistant: call call_2 multi_agent_v1__spawn {"n": 1.0}"#,
            r#"User: result call_2 multi_agent_v1__spawn ["started"]"#,
            "User: [message from /root/a to /root]\ndone",
            "System: be brief",
        ]
    );
    assert_eq!(
        reading.tools(),
        ["wait", "multi_agent_v1__spawn", "tool_search", "exec"]
    );
    assert_eq!(
        reading.losses(),
        [
            "dropped reasoning.summary",
            "dropped text.verbosity",
            "dropped client_metadata",
            "adapted tools[1]",
            "adapted tools[2]",
            "dropped tools[3]",
            "adapted input[0]",
            "adapted input[0].tools[0]",
            "dropped input[3]",
            "dropped input[4].phase",
            "adapted input[9]",
        ]
    );
    let options = &reading.conversation.options;
    assert!(options.stream && options.shows_reasoning == Some(true));
    assert_eq!(options.cache_key.as_ref().map(|key| &*key.value), Some("5f1c"));
    assert_eq!(reading.conversation.tool_choice, ToolChoice::Auto);
}

#[test]
fn the_cases_of_openresponses_pass_without_losses_but_that_nothing_is_kept() {
    let tool = r#"{"type":"function","name":"get_weather","description":"d","parameters":{"type":"object"}}"#;
    for (body, expected) in [
        (
            r#"{"model":"m","input":[{"type":"message","role":"user","content":"Say hello."}],"stream":false}"#
                .to_owned(),
            vec!["User: Say hello."],
        ),
        (
            r#"{"model":"m","input":[{"type":"message","role":"system","content":"A pirate."},
                {"type":"message","role":"user","content":"Hi"},{"type":"message","role":"assistant","content":"Arr"},
                {"type":"message","role":"user","content":"Who?"}]}"#
                .to_owned(),
            vec!["User: Hi", "Assistant: Arr", "User: Who?"],
        ),
        (
            format!(r#"{{"model":"m","input":[{{"role":"user","content":"Rain?"}}],"tools":[{tool}]}}"#),
            vec!["User: Rain?"],
        ),
    ] {
        let reading = strict(&body).unwrap();
        assert_eq!(reading.blocks(), expected, "{body}");
        assert_eq!(reading.losses(), ["dropped store"], "{body}");
    }
}

/// Items that pass in lossy mode, of every kind that becomes content.
fn items() -> impl Strategy<Value = Vec<&'static str>> {
    let item = prop::sample::select(vec![
        r#"{"role":"user","content":"u"}"#,
        r#"{"role":"developer","content":[{"type":"input_text","text":"d"}]}"#,
        r#"{"role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]},{"type":"refusal","refusal":"r"}]}"#,
        r#"{"type":"function_call","name":"f","namespace":"n","arguments":"{}","call_id":"c1"}"#,
        r#"{"type":"function_call_output","call_id":"c1","output":"o"}"#,
        r#"{"type":"custom_tool_call","name":"f","input":"x","call_id":"functions.f:0"}"#,
        r#"{"type":"custom_tool_call_output","call_id":"functions.f:0","output":[{"type":"input_image","image_url":"https://x/y.png"}]}"#,
        r#"{"type":"tool_search_output","call_id":"c1","tools":[{"type":"function","name":"f"},{"type":"function","name":"n"}]}"#,
        r#"{"type":"shell_call","call_id":"c2","action":{"commands":["ls"]}}"#,
        r#"{"type":"shell_call_output","call_id":"c2","output":[]}"#,
        r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]}"#,
        r#"{"type":"web_search_call","action":{"type":"search","query":"q"}}"#,
    ]);
    prop::collection::vec(item, 0..24)
}

/// Any JSON of a few levels, with the names that items have.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "null",
        "true",
        "0",
        "-1.5",
        "\"\"",
        "\"text\"",
        "\"data:,x\"",
        "\"data:image/png;base64,aGk=\"",
        "[]",
        "{}",
    ]);
    let name = prop::sample::select(vec![
        "type",
        "role",
        "content",
        "text",
        "call_id",
        "id",
        "output",
        "arguments",
        "name",
        "tools",
        "action",
        "format",
        "encrypted_content",
        "summary",
        "image_url",
        "file_data",
        "namespace",
        "environment",
        "reasoning",
        "new",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 48, 6, move |inner| {
        let member = (name.clone(), inner.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|list| format!("[{}]", list.join(","))),
            prop::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn the_first_items_become_the_same_whatever_follows(items in items(), cut in 0_usize..24) {
        let first = &items[..cut.min(items.len())];
        let (short, long) = (with_input(&first.join(",")), with_input(&items.join(",")));
        let (short, long) = (lossy(&short).unwrap(), lossy(&long).unwrap());
        prop_assert!(long.conversation.system.starts_with(&short.conversation.system));
        prop_assert!(long.blocks().starts_with(&short.blocks()));
        prop_assert!(long.conversation.tools.starts_with(&short.conversation.tools));
    }

    #[test]
    fn any_json_is_read_or_refused_by_a_path(kind in prop::sample::select(KINDS.to_vec()), value in json()) {
        let members = value.strip_prefix('{').and_then(|value| value.strip_suffix('}')).unwrap_or("");
        let comma = if members.is_empty() { "" } else { "," };
        let item = format!(r#"{{"type":"{kind}"{comma}{members}}}"#);
        for body in [
            with_input(&item),
            with_members(&format!(r#""tools":[{item}]"#)),
            with_members(&format!(r#""tool_choice":{item}"#)),
            with_members(&format!(r#""{kind}":{value}"#)),
            value.clone(),
        ] {
            for reading in [strict(&body), lossy(&body)] {
                if let Err(refusal) = reading {
                    prop_assert!(!refusal.reason.is_empty());
                }
            }
        }
    }
}

/// Types of items, parts, tools and choices, and names of options.
const KINDS: [&str; 31] = [
    "message",
    "reasoning",
    "compaction",
    "compaction_trigger",
    "agent_message",
    "additional_tools",
    "configuration_update",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "tool_search_call",
    "function_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "tool_search_output",
    "web_search_call",
    "mcp_call",
    "function",
    "custom",
    "namespace",
    "tool_search",
    "shell",
    "mcp",
    "allowed_tools",
    "text",
    "include",
    "prompt_cache_options",
    "tools",
];
