//! Requests of Gemini clients, and what is understood of them.

mod contents;
mod options;
mod tools;

use proptest::prelude::*;

use super::*;
use crate::domain::{
    translation::{
        ChatTraits, Translation, call_ids::CallIdForm, conversation::MediaSource, losses::TranslationMode,
        reasoning::ReasoningMaker, tool_names::provider_name,
    },
    wire::{Protocol, UpstreamProtocol},
};

/// A request that was read.
struct GeminiReading<'a> {
    conversation: Conversation<'a>,
    names: ToolNames,
    losses: TranslationLosses,
}

impl GeminiReading<'_> {
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
                MediaSource::Url { url, media_type } => format!("{:?} {name} {media_type:?} {url}", media.kind),
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

fn read_for(body: &str, mode: TranslationMode, call_ids: CallIdForm) -> Result<GeminiReading<'_>, Untranslatable> {
    let translation = Translation {
        from: Protocol::Gemini,
        to: UpstreamProtocol::Chat,
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
    Ok(GeminiReading {
        conversation,
        names,
        losses,
    })
}

fn strict(body: &str) -> Result<GeminiReading<'_>, Untranslatable> {
    read_for(body, TranslationMode::Strict, CallIdForm::Any)
}

fn lossy(body: &str) -> Result<GeminiReading<'_>, Untranslatable> {
    read_for(body, TranslationMode::Lossy, CallIdForm::Any)
}

/// A body with these contents and nothing else.
fn with_contents(contents: &str) -> String {
    format!(r#"{{"contents":[{contents}]}}"#)
}

/// A body with these members in addition to a short content.
fn with_members(members: &str) -> String {
    format!(r#"{{"contents":[{{"parts":[{{"text":"hi"}}]}}],{members}}}"#)
}

/// The path of the refusal.
fn refused_path(reading: Result<GeminiReading<'_>, Untranslatable>) -> String {
    reading.map(|reading| reading.blocks()).unwrap_err().path
}

/// A turn of Gemini CLI, shortened: its members and part types are those that Gemini CLI 0.61 sends.
const GEMINI_CLI: &str = r#"{"contents":[
 {"role":"user","parts":[{"text":"<context>"},{"text":"where am I?"}]},
 {"role":"model","parts":[{"text":"I look."},
  {"functionCall":{"name":"list_directory","args":{"dir_path": ".", "depth": 1.0},"id":"call_a"},
   "thoughtSignature":"skip_thought_signature_validator"},
  {"functionCall":{"name":"read_file","args":{},"id":"weir_ZnVuY3Rpb25zLnJlYWQ6MA"}}]},
 {"role":"user","parts":[
  {"functionResponse":{"id":"call_a","name":"list_directory","response":{"output":"src"}}},
  {"functionResponse":{"id":"weir_ZnVuY3Rpb25zLnJlYWQ6MA","name":"read_file","response":{"error":"File not found."}}},
  {"fileData":{"mimeType":"image/png","fileUri":"https://example.com/a.png"}}]}],
"systemInstruction":{"role":"user","parts":[{"text":"rules"}]},
"tools":[{"functionDeclarations":[
 {"name":"list_directory","description":"Lists.","parametersJsonSchema":{"type":"object","properties":{}}},
 {"name":"read_file","description":"Reads.","parametersJsonSchema":{"type":"object"}}]}],
"generationConfig":{"temperature":1,"topP":0.95,"topK":64,"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"HIGH"}}}"#;

#[test]
fn a_turn_of_gemini_cli_passes_in_strict_mode_without_losses() {
    let reading = strict(GEMINI_CLI).unwrap();
    assert_eq!(reading.conversation.system, ["rules"]);
    assert_eq!(
        reading.blocks(),
        [
            "User: <context>",
            "User: where am I?",
            "Assistant: I look.",
            r#"Assistant: call call_a list_directory {"dir_path": ".", "depth": 1.0}"#,
            "Assistant: call functions.read:0 read_file {}",
            r#"User: result call_a list_directory ["src"]"#,
            r#"User: result functions.read:0 read_file error ["File not found."]"#,
            r#"User: Image  Some("image/png") https://example.com/a.png"#,
        ]
    );
    assert_eq!(reading.tools(), ["list_directory", "read_file"]);
    assert!(reading.losses().is_empty(), "{:?}", reading.losses());
    assert_eq!(reading.conversation.options.shows_reasoning, Some(true));
}

/// Turns of a user and of the model that pass in lossy mode, of every kind that becomes content.
fn exchanges() -> impl Strategy<Value = Vec<&'static str>> {
    let exchange = prop::sample::select(vec![
        r#"{"role":"user","parts":[{"text":"u"},{"inlineData":{"mimeType":"image/png","data":"aGk"}}]},
           {"role":"model","parts":[{"text":"a"},{"text":"b"}]},{"role":"model","parts":[{"text":""}]}"#,
        r#"{"parts":{"text":"u"}},{"role":"model","parts":[{"functionCall":{"name":"f"}},{"functionCall":{"name":"f"}}]},
           {"parts":[{"functionResponse":{"name":"f","response":{"result":1}}}]},
           {"role":"function","parts":[{"functionResponse":{"name":"f","response":{"a":1,"b":2}}}]},
           {"role":"model","parts":[{"text":"done"}]}"#,
        r#"{"role":"user","parts":[{"text":"u"}]},
           {"role":"model","parts":[{"text":"think","thought":true},{"functionCall":{"name":"g","id":"c1","args":{"a": 1}},
            "thoughtSignature":"Q2tNQg=="}]},
           {"role":"user","parts":[{"functionResponse":{"id":"c1","response":{}}}]},
           {"role":"model","parts":[{"executableCode":{"language":"PYTHON","code":"1"}}]}"#,
    ]);
    prop::collection::vec(exchange, 0..12)
}

/// Any JSON of a few levels, with the names that contents, parts and tools have.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "null",
        "true",
        "0",
        "-1.5",
        "\"\"",
        "\"text\"",
        "\"model\"",
        "\"https://x/y\"",
        "\"image/png\"",
        "[]",
        "{}",
    ]);
    let name = prop::sample::select(vec![
        "role",
        "parts",
        "text",
        "thought",
        "thoughtSignature",
        "thought_signature",
        "functionCall",
        "functionResponse",
        "function_response",
        "name",
        "id",
        "args",
        "response",
        "inlineData",
        "mimeType",
        "data",
        "fileData",
        "fileUri",
        "executableCode",
        "functionDeclarations",
        "parameters",
        "type",
        "items",
        "properties",
        "googleSearch",
        "functionCallingConfig",
        "mode",
        "allowedFunctionNames",
        "thinkingConfig",
        "new",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 48, 6, move |inner| {
        let member = (name.clone(), inner.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|list| format!("[{}]", list.join(","))),
            prop::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn the_first_exchanges_become_the_same_whatever_follows(exchanges in exchanges(), cut in 0_usize..12) {
        let first = &exchanges[..cut.min(exchanges.len())];
        let (short, long) = (with_contents(&first.join(",")), with_contents(&exchanges.join(",")));
        let (short, long) = (lossy(&short).unwrap(), lossy(&long).unwrap());
        prop_assert!(long.conversation.turns.starts_with(&short.conversation.turns));
        prop_assert!(long.losses().starts_with(&short.losses()));
    }

    #[test]
    fn any_json_is_read_or_refused_by_a_reason(name in prop::sample::select(MEMBERS.to_vec()), value in json()) {
        for body in [
            with_contents(&value),
            with_contents(&format!(r#"{{"role":"model","parts":[{value}]}}"#)),
            with_contents(&format!(r#"{{"role":"user","parts":[{{"{name}":{value}}}]}}"#)),
            with_members(&format!(r#""{name}":{value}"#)),
            with_members(&format!(r#""generationConfig":{{"{name}":{value}}}"#)),
            with_members(&format!(r#""tools":[{{"functionDeclarations":[{{"name":"f","{name}":{value}}}]}}]"#)),
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

/// Names of members at every level.
const MEMBERS: [&str; 22] = [
    "systemInstruction",
    "tools",
    "toolConfig",
    "tool_config",
    "generationConfig",
    "cachedContent",
    "text",
    "thought",
    "thoughtSignature",
    "functionCall",
    "functionResponse",
    "inlineData",
    "fileData",
    "toolCall",
    "thinkingConfig",
    "responseSchema",
    "responseMimeType",
    "responseModalities",
    "candidateCount",
    "parameters",
    "parametersJsonSchema",
    "description",
];
