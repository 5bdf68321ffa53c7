//! Tests of the writer of Gemini requests.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::{
    translation::{
        ChatTraits, Translation,
        conversation::{
            BlockContent, ContentBlock, MediaContent, MediaKind, MediaSource, PlacedOption, ReasoningRequest, ToolCall,
            ToolCallResult,
            TurnRole::{self, Assistant, System, User},
        },
        losses::TranslationMode,
        reasoning::{ReasoningMaker, ReasoningState},
    },
    wire::{Protocol, UpstreamProtocol},
};

/// The model of most tests.
const MODEL: &str = "gemini-3-pro-preview";
/// A model before the third generation.
const OLD_MODEL: &str = "gemini-2.5-flash";
/// The signature of calls that another model made.
const SKIP: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// A request as it was written, and the losses as `verdict path`.
#[derive(Debug)]
struct WrittenGemini {
    body: String,
    losses: Vec<String>,
}

impl WrittenGemini {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn contents(&self) -> Value {
        self.json()["contents"].clone()
    }
}

fn try_write(
    conversation: &Conversation<'_>,
    model: &str,
    mode: TranslationMode,
) -> Result<WrittenGemini, Untranslatable> {
    let mut losses = TranslationLosses::new(mode);
    let target = TranslationTarget {
        translation: &Translation {
            from: Protocol::Responses,
            to: UpstreamProtocol::Gemini,
            mode,
            chat: ChatTraits::default(),
        },
        model,
        output_tokens_max: None,
        maker: &ReasoningMaker::new("host", model, "a"),
    };
    let body = write(conversation, &target, &mut losses)?;
    let losses = losses
        .iter()
        .map(|loss| format!("{} {}", loss.verdict.as_str(), loss.path))
        .collect();
    Ok(WrittenGemini { body, losses })
}

fn strict(conversation: &Conversation<'_>) -> Result<WrittenGemini, Untranslatable> {
    try_write(conversation, MODEL, TranslationMode::Strict)
}

fn written(conversation: &Conversation<'_>) -> WrittenGemini {
    strict(conversation).unwrap()
}

fn written_for(conversation: &Conversation<'_>, model: &str) -> WrittenGemini {
    try_write(conversation, model, TranslationMode::Strict).unwrap()
}

fn text(text: &str) -> BlockContent<'static> {
    BlockContent::Text(Cow::Owned(text.to_owned()))
}

fn signature(signature: &'static str) -> BlockContent<'static> {
    BlockContent::Reasoning(ReasoningState::Signature {
        signature: signature.into(),
    })
}

fn call(id: &'static str, arguments: &'static str) -> BlockContent<'static> {
    BlockContent::Call(ToolCall {
        id: id.into(),
        name: "read".into(),
        arguments: arguments.into(),
    })
}

fn result(call_id: &'static str, is_error: bool, content: Vec<BlockContent<'static>>) -> BlockContent<'static> {
    let content = content.into_iter().enumerate().map(|(index, content)| ContentBlock {
        path: format!("{call_id}[{index}]"),
        content,
    });
    BlockContent::Result(ToolCallResult {
        call_id: call_id.into(),
        name: Some("read".into()),
        content: content.collect(),
        is_error,
    })
}

fn media(
    kind: MediaKind,
    media_type: &'static str,
    data: &'static str,
    name: Option<&'static str>,
) -> BlockContent<'static> {
    BlockContent::Media(MediaContent {
        kind,
        source: MediaSource::Base64 {
            media_type: media_type.into(),
            data: data.into(),
        },
        name: name.map(Cow::Borrowed),
    })
}

fn media_at(kind: MediaKind, url: &'static str, media_type: Option<&'static str>) -> BlockContent<'static> {
    BlockContent::Media(MediaContent {
        kind,
        source: MediaSource::Url {
            url: url.into(),
            media_type: media_type.map(Cow::Borrowed),
        },
        name: None,
    })
}

/// A conversation of these blocks; the path of a block is its number.
fn conversation(blocks: Vec<(TurnRole, BlockContent<'static>)>) -> Conversation<'static> {
    let mut conversation = Conversation::default();
    for (index, (role, content)) in blocks.into_iter().enumerate() {
        let path = index.to_string();
        conversation.push(role, ContentBlock { path, content });
    }
    conversation
}

fn question() -> Conversation<'static> {
    conversation(vec![(User, text("hello"))])
}

fn tool(schema: Option<&'static str>) -> ToolDefinition<'static> {
    ToolDefinition {
        path: "tools[0]".to_owned(),
        name: "read".into(),
        description: None,
        schema: schema.map(Cow::Borrowed),
        strict: None,
    }
}

fn placed<T>(path: &'static str, value: T) -> Option<PlacedOption<T>> {
    Some(PlacedOption {
        path: path.into(),
        value,
    })
}

fn text_part(text: &str) -> Value {
    json!({ "text": text })
}

fn inline(media_type: &str, data: &str) -> Value {
    json!({"inlineData": {"mimeType": media_type, "data": data}})
}

fn response(id: &str, response: &Value) -> Value {
    json!({"functionResponse": {"id": id, "name": "read", "response": response}})
}

#[test]
fn members_come_in_a_fixed_order_with_options_behind_the_content() {
    let mut request = question();
    request.system = vec!["be brief".into(), "be kind".into()];
    request.tools = vec![ToolDefinition {
        description: Some("reads".into()),
        ..tool(Some(r#"{"type": "object", "x": 1.0}"#))
    }];
    request.tool_choice = ToolChoice::Named("read".into());
    request.options = RequestOptions {
        stream: true,
        max_tokens: placed("max_output_tokens", 9),
        temperature: placed("temperature", "0.10"),
        top_p: placed("top_p", "1.0"),
        top_k: placed("top_k", "40"),
        seed: placed("seed", "7"),
        presence_penalty: placed("presence_penalty", "0.5"),
        frequency_penalty: placed("frequency_penalty", "-0.5"),
        stop: placed("stop_sequences", vec!["END".into()]),
        reasoning: placed("reasoning.effort", ReasoningRequest::by_effort(ReasoningEffort::High)),
        shows_reasoning: None,
        format: placed(
            "text.format",
            AnswerFormat::Schema {
                name: Some("n".into()),
                description: Some("d".into()),
                schema: r#"{"type": "object"}"#.into(),
                strict: Some(true),
            },
        ),
        parallel_calls: placed("parallel_tool_calls", false),
        cache_key: placed("prompt_cache_key", "k".into()),
    };
    let written = written(&request);
    let expected = concat!(
        r#"{"systemInstruction":{"parts":[{"text":"be brief"},{"text":"be kind"}]},"#,
        r#""contents":[{"role":"user","parts":[{"text":"hello"}]}],"#,
        r#""tools":[{"functionDeclarations":[{"name":"read","description":"reads","#,
        r#""parametersJsonSchema":{"type": "object", "x": 1.0}}]}],"#,
        r#""toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["read"]}},"#,
        r#""generationConfig":{"maxOutputTokens":9,"temperature":0.10,"topP":1.0,"topK":40,"seed":7,"#,
        r#""presencePenalty":0.5,"frequencyPenalty":-0.5,"stopSequences":["END"],"#,
        r#""responseMimeType":"application/json","responseJsonSchema":{"type": "object"},"#,
        r#""thinkingConfig":{"thinkingLevel":"HIGH","includeThoughts":true}}}"#,
    );
    assert_eq!(written.body, expected);
    assert_eq!(
        written.losses,
        [
            "dropped text.format.name",
            "dropped text.format.description",
            "dropped text.format.strict",
            "adapted reasoning.effort",
            "dropped parallel_tool_calls",
            "dropped prompt_cache_key"
        ]
    );
}

#[test]
fn a_bare_request_is_its_contents() {
    assert_eq!(
        written(&question()).body,
        r#"{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}"#
    );
}

#[test]
fn calls_and_results_become_parts_with_the_results_first() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (Assistant, text("b")),
        (Assistant, signature("Eo+/AQ==")),
        (Assistant, call("call_1", r#"{"n": 1.0}"#)),
        (Assistant, call("", "broken")),
        (Assistant, BlockContent::Refusal("no".into())),
        (System, text("rule")),
        (User, text("hurry")),
        (User, result("call_1", false, vec![text("one"), text("two")])),
        (User, result("", true, vec![text("three")])),
        (User, text("go on")),
    ]));
    assert!(written.body.contains(r#""args":{"n": 1.0}"#), "{}", written.body);
    let contents = written.contents();
    assert_eq!(
        contents[1],
        json!({"role": "model", "parts": [
            text_part("b"),
            {"functionCall": {"id": "call_1", "name": "read", "args": {"n": 1.0}}, "thoughtSignature": "Eo+/AQ=="},
            {"functionCall": {"name": "read", "args": {"input": "broken"}}},
            text_part("no"),
        ]})
    );
    assert_eq!(
        contents[2],
        json!({"role": "user", "parts": [
            response("call_1", &json!({"output": "one\n\ntwo"})),
            {"functionResponse": {"name": "read", "response": {"error": "three"}}},
            text_part("<system>rule</system>"),
            text_part("hurry"),
            text_part("go on"),
        ]})
    );
    assert_eq!(contents.as_array().unwrap().len(), 3);
    assert_eq!(written.losses, ["adapted 4", "adapted 5", "adapted 6", "adapted 7"]);
}

#[test]
fn a_later_text_of_the_system_is_marked_and_joins_what_the_user_says() {
    let said = |texts: &[&str]| {
        let parts: Vec<Value> = texts.iter().map(|text| text_part(text)).collect();
        json!({"role": "user", "parts": parts})
    };
    let behind_user = written(&conversation(vec![(User, text("a")), (System, text("rule"))]));
    assert_eq!(behind_user.contents(), json!([said(&["a", "<system>rule</system>"])]));
    assert_eq!(behind_user.losses, ["adapted 1"]);
    for (next, expected) in [
        (vec![], said(&["<system>rule</system>"])),
        (
            vec![(User, text("go on")), (System, text("end"))],
            said(&["<system>rule</system>", "go on", "<system>end</system>"]),
        ),
    ] {
        let mut blocks = vec![
            (User, text("a")),
            (Assistant, call("call_1", "{}")),
            (System, text("rule")),
        ];
        blocks.extend(next);
        let contents = written(&conversation(blocks)).contents();
        assert_eq!(contents.as_array().unwrap().len(), 3);
        assert_eq!(contents[2], expected);
    }
}

#[test]
fn the_roles_of_contents_alternate() {
    let blocks = vec![
        (User, text("a")),
        // Nothing of this turn can be sent.
        (Assistant, signature("alone")),
        (System, text("rule")),
        (User, text("b")),
        (Assistant, call("call_1", "{}")),
        (System, text("between")),
        (User, result("call_1", false, vec![text("one")])),
        (System, text("behind")),
        (User, text("c")),
    ];
    let contents = written(&conversation(blocks)).contents();
    assert_eq!(
        contents[0]["parts"],
        json!([text_part("a"), text_part("<system>rule</system>"), text_part("b")])
    );
    assert_eq!(contents[1]["role"], "model");
    assert_eq!(
        contents[2]["parts"],
        json!([
            response("call_1", &json!({"output": "one"})),
            text_part("<system>between</system>"),
            text_part("<system>behind</system>"),
            text_part("c"),
        ])
    );
    assert_eq!(contents.as_array().unwrap().len(), 3);
}

#[test]
fn the_first_call_of_a_turn_has_a_signature() {
    let with = |model: &str, first: Option<BlockContent<'static>>| {
        let mut blocks = vec![(User, text("a"))];
        blocks.extend(first.map(|first| (Assistant, first)));
        blocks.extend([
            (Assistant, call("call_1", "{}")),
            (Assistant, call("call_2", "{}")),
            (User, result("call_1", false, Vec::new())),
            (User, result("call_2", false, Vec::new())),
        ]);
        let written = written_for(&conversation(blocks), model);
        let parts = written.contents()[1]["parts"].as_array().unwrap().clone();
        let calls = parts.into_iter().filter(|part| !part["functionCall"].is_null());
        let signatures: Vec<Value> = calls.map(|part| part["thoughtSignature"].clone()).collect();
        (signatures, written.losses)
    };
    let adapted = |path: &str| vec![format!("adapted {path}")];
    assert_eq!(
        with(MODEL, Some(signature("own"))),
        (vec![json!("own"), Value::Null], vec![])
    );
    assert_eq!(with(MODEL, None), (vec![json!(SKIP), Value::Null], adapted("1")));
    assert_eq!(
        with(MODEL, Some(text("b"))),
        (vec![json!(SKIP), Value::Null], adapted("2"))
    );
    // A name without a number may stand for any generation.
    assert_eq!(with("gemini-flash-latest", None).0, [json!(SKIP), Value::Null]);
    assert_eq!(with(OLD_MODEL, None), (vec![Value::Null, Value::Null], vec![]));
    assert_eq!(STANDARD.decode(SKIP).unwrap(), b"skip_thought_signature_validator");
}

#[test]
fn a_signature_belongs_to_the_part_behind_it_and_other_state_is_dropped() {
    let foreign = [
        ReasoningState::Item { json: "{}".into() },
        ReasoningState::Thinking {
            text: "t".into(),
            signature: "s".into(),
        },
        ReasoningState::Redacted { data: "d".into() },
        ReasoningState::Text { text: "t".into() },
    ];
    let mut blocks = vec![
        (User, text("a")),
        (Assistant, signature("lost")),
        (Assistant, signature("own")),
    ];
    blocks.extend(foreign.map(|state| (Assistant, BlockContent::Reasoning(state))));
    blocks.extend([
        (Assistant, text("b")),
        (Assistant, text("c")),
        (Assistant, signature("late")),
        (User, text("d")),
        (Assistant, signature("alone")),
        (User, text("e")),
    ]);
    let written = written(&conversation(blocks));
    let contents = written.contents();
    let signed = json!({"text": "b", "thoughtSignature": "own"});
    assert_eq!(contents[1], json!({"role": "model", "parts": [signed, text_part("c")]}));
    assert_eq!(
        contents[2],
        json!({"role": "user", "parts": [text_part("d"), text_part("e")]})
    );
    assert_eq!(contents.as_array().unwrap().len(), 3);
    let dropped = [1, 3, 4, 5, 6, 9, 11].map(|path| format!("dropped {path}"));
    assert_eq!(written.losses, dropped);
}

#[test]
fn a_turn_of_the_model_at_the_end_is_refused() {
    let refusal = |blocks| strict(&conversation(blocks)).unwrap_err().path;
    assert_eq!(
        refusal(vec![(User, text("a")), (Assistant, text("b")), (Assistant, text("c"))]),
        "2"
    );
    let ruled = conversation(vec![(User, text("a")), (Assistant, text("b")), (System, text("rule"))]);
    assert_eq!(written(&ruled).contents()[2]["role"], json!("user"));
    let nothing = conversation(vec![(User, text("a")), (Assistant, signature("alone"))]);
    assert_eq!(written(&nothing).contents().as_array().unwrap().len(), 1);
}

#[test]
fn a_result_without_its_call_is_refused_in_both_modes() {
    let BlockContent::Result(result) = result("call_1", false, vec![text("one")]) else {
        unreachable!()
    };
    let result = BlockContent::Result(ToolCallResult { name: None, ..result });
    for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
        let orphan = conversation(vec![(User, text("a")), (User, result.clone())]);
        assert_eq!(try_write(&orphan, MODEL, mode).unwrap_err().path, "1");
    }
}

#[test]
fn media_have_parts_and_texts_stay_texts() {
    let written = written(&conversation(vec![
        (User, media(MediaKind::Image, "image/png", "AAAA", None)),
        (User, media(MediaKind::Audio, "audio/wav", "AAAA", None)),
        (User, media(MediaKind::Video, "video/mp4", "AAAA", None)),
        (
            User,
            media(MediaKind::Document, "application/pdf", "JVBERi0xLjQ=", Some("a title")),
        ),
        (
            User,
            media(MediaKind::Document, "text/plain", "aGVsbG8=", Some("notes")),
        ),
        (User, media(MediaKind::Document, "text/plain", "aGVsbG8=", None)),
    ]));
    assert_eq!(
        written.contents()[0]["parts"],
        json!([
            inline("image/png", "AAAA"),
            inline("audio/wav", "AAAA"),
            inline("video/mp4", "AAAA"),
            text_part("a title"),
            inline("application/pdf", "JVBERi0xLjQ="),
            text_part("notes\n\nhello"),
            text_part("hello"),
        ])
    );
    assert_eq!(written.losses, ["adapted 3", "adapted 4", "adapted 5"]);
}

#[test]
fn media_at_a_url_have_the_stated_type_or_that_of_the_ending() {
    let at = |url: &'static str, media_type| conversation(vec![(User, media_at(MediaKind::Image, url, media_type))]);
    for (url, stated, expected, is_adapted) in [
        ("https://x/a", Some("image/webp"), "image/webp", false),
        ("https://x/a.png", Some("image/webp"), "image/webp", false),
        ("https://x/a.b/c.JPG?size=1.5#top.gif", None, "image/jpeg", true),
        ("https://x/a.pdf", None, "application/pdf", true),
    ] {
        let written = written(&at(url, stated));
        let file = json!({"fileData": {"mimeType": expected, "fileUri": url}});
        assert_eq!(written.contents()[0]["parts"], json!([file]));
        assert_eq!(written.losses == ["adapted 0"], is_adapted, "{url}");
    }
    for url in [
        "https://x/a",
        "https://x.png",
        "https://x/a.png/b",
        "https://x/a.unknown",
        "x",
        "",
    ] {
        for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
            assert_eq!(try_write(&at(url, None), MODEL, mode).unwrap_err().path, "0", "{url}");
        }
    }
}

#[test]
fn media_of_a_result_are_in_it_or_behind_it() {
    let request = conversation(vec![
        (Assistant, signature("own")),
        (Assistant, call("call_1", "{}")),
        (Assistant, call("call_2", "{}")),
        (
            User,
            result(
                "call_1",
                false,
                vec![
                    text("one"),
                    media(MediaKind::Image, "image/png", "AAAA", None),
                    media(MediaKind::Document, "text/plain", "aGVsbG8=", None),
                    media_at(MediaKind::Image, "https://x/a.png", Some("image/png")),
                ],
            ),
        ),
        (User, result("call_2", false, Vec::new())),
    ]);
    let place = "[attachment: see what follows this result]";
    let file = json!({"fileData": {"mimeType": "image/png", "fileUri": "https://x/a.png"}});
    let new = written(&request);
    let output = format!("one\n\nhello\n\n{place}");
    let mut first = response("call_1", &json!({ "output": output }));
    first["functionResponse"]["parts"] = json!([inline("image/png", "AAAA")]);
    let second = response("call_2", &json!({"output": ""}));
    assert_eq!(new.contents()[1]["parts"], json!([first, file, second]));
    assert_eq!(new.losses, ["adapted call_1[2]", "adapted call_1[3]"]);
    let old = written_for(&request, OLD_MODEL);
    let output = format!("one\n\n{place}\n\nhello\n\n{place}");
    let first = response("call_1", &json!({ "output": output }));
    assert_eq!(
        old.contents()[1]["parts"],
        json!([first, inline("image/png", "AAAA"), file, second])
    );
    assert_eq!(
        old.losses,
        ["adapted call_1[1]", "adapted call_1[2]", "adapted call_1[3]"]
    );
}

#[test]
fn a_schema_is_copied_but_for_what_stands_beside_references() {
    for (schema, expected, is_adapted) in [
        (None, r#"{"name":"read"}"#, false),
        (Some("{ }"), r#"{"name":"read","parametersJsonSchema":{ }}"#, false),
        (
            Some(r##"{"items": {"$ref": "#", "type": "x"}}"##),
            r##"{"name":"read","parametersJsonSchema":{"items":{"$ref":"#"}}}"##,
            true,
        ),
    ] {
        let mut request = question();
        request.tools = vec![tool(schema)];
        let as_tool = written(&request);
        assert!(as_tool.body.contains(expected), "{}", as_tool.body);
        assert_eq!(as_tool.losses == ["adapted tools[0]"], is_adapted);
        let Some(schema) = schema else { continue };
        let mut request = question();
        request.options.format = placed(
            "text.format",
            AnswerFormat::Schema {
                name: None,
                description: None,
                schema: schema.into(),
                strict: None,
            },
        );
        assert_eq!(written(&request).losses == ["adapted text.format"], is_adapted);
    }
    let mut request = question();
    request.tools = vec![ToolDefinition {
        strict: Some(true),
        ..tool(None)
    }];
    assert_eq!(written(&request).losses, ["dropped tools[0].strict"]);
}

#[test]
fn each_choice_of_tools_has_its_mode() {
    let mode = |mode: &str| json!({"functionCallingConfig": {"mode": mode}});
    let named = json!({"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}});
    for (choice, with_tools, without_tools) in [
        (ToolChoice::Unset, Value::Null, Value::Null),
        (ToolChoice::Auto, mode("AUTO"), Value::Null),
        (ToolChoice::Forbidden, mode("NONE"), Value::Null),
        (ToolChoice::Required, mode("ANY"), mode("ANY")),
        (ToolChoice::Named("read".into()), named.clone(), named),
    ] {
        let mut request = question();
        request.tool_choice = choice;
        assert_eq!(written(&request).json()["toolConfig"], without_tools);
        request.tools = vec![tool(None)];
        assert_eq!(written(&request).json()["toolConfig"], with_tools);
    }
}

#[test]
fn more_stop_sequences_than_five_are_refused_or_cut() {
    let mut request = question();
    request.options.stop = placed("stop_sequences", vec!["s".into(); 6]);
    assert_eq!(strict(&request).unwrap_err().path, "stop_sequences");
    let lossy = try_write(&request, MODEL, TranslationMode::Lossy).unwrap();
    assert_eq!(
        lossy.json()["generationConfig"]["stopSequences"],
        json!(["s", "s", "s", "s", "s"])
    );
    assert_eq!(lossy.losses, ["dropped stop_sequences"]);
    request.options.stop = placed("stop_sequences", vec!["s".into(); 5]);
    assert!(written(&request).losses.is_empty());
}

#[test]
fn json_without_a_schema_has_only_its_media_type() {
    let mut request = question();
    request.options.format = placed("text.format", AnswerFormat::Json);
    assert_eq!(
        written(&request).json()["generationConfig"],
        json!({"responseMimeType": "application/json"})
    );
}

#[test]
fn an_effort_is_a_level_since_the_third_generation_and_a_budget_before() {
    for (effort, level, budget) in [
        (ReasoningEffort::Off, "LOW", 0),
        (ReasoningEffort::Minimal, "LOW", 4_096),
        (ReasoningEffort::Low, "LOW", 4_096),
        (ReasoningEffort::Medium, "MEDIUM", 8_192),
        (ReasoningEffort::High, "HIGH", 16_384),
        (ReasoningEffort::ExtraHigh, "HIGH", 24_576),
        (ReasoningEffort::Max, "HIGH", 24_576),
    ] {
        let mut request = question();
        request.options.reasoning = placed("reasoning.effort", ReasoningRequest::by_effort(effort));
        for (model, member, value) in [
            (MODEL, "thinkingLevel", json!(level)),
            (OLD_MODEL, "thinkingBudget", json!(budget)),
        ] {
            let written = written_for(&request, model);
            let config = written.json()["generationConfig"]["thinkingConfig"].clone();
            assert_eq!(config[member], value, "{effort:?}");
            assert_eq!(config["includeThoughts"].is_null(), effort == ReasoningEffort::Off);
            assert_eq!(written.losses, ["adapted reasoning.effort"]);
        }
    }
    let mut request = question();
    request.options.reasoning = placed("thinking", ReasoningRequest::by_budget(10_000));
    let config = |model| written_for(&request, model).json()["generationConfig"]["thinkingConfig"].clone();
    assert_eq!(config(OLD_MODEL)["thinkingBudget"], json!(10_000));
    assert_eq!(config(MODEL)["thinkingLevel"], json!("MEDIUM"));
}

#[test]
fn thoughts_are_shown_as_the_client_wants_it() {
    let high = Some(ReasoningRequest::by_effort(ReasoningEffort::High));
    for (reasoning, shows, expected) in [
        (None, None, Value::Null),
        (None, Some(false), Value::Null),
        (None, Some(true), json!({"includeThoughts": true})),
        (high, None, json!({"thinkingLevel": "HIGH", "includeThoughts": true})),
        (
            high,
            Some(true),
            json!({"thinkingLevel": "HIGH", "includeThoughts": true}),
        ),
        (high, Some(false), json!({"thinkingLevel": "HIGH"})),
    ] {
        let mut request = question();
        request.options.reasoning = reasoning.and_then(|reasoning| placed("reasoning.effort", reasoning));
        request.options.shows_reasoning = shows;
        let body = written(&request).json();
        assert_eq!(body["generationConfig"]["thinkingConfig"], expected, "{shows:?}");
    }
}

#[test]
fn a_model_is_of_the_generation_in_its_name() {
    for (model, number) in [
        ("gemini-3-pro-preview", Some(3)),
        ("models/gemini-3.8-flash", Some(3)),
        ("gemini-10", Some(10)),
        ("gemini-2.5-flash", Some(2)),
        ("gemini-flash-latest", None),
        ("tunedModels/mine", None),
        ("", None),
    ] {
        assert_eq!(
            GeminiGeneration::of_model(model),
            GeminiGeneration { number },
            "{model}"
        );
    }
}

/// An exchange: a question, turns of calls with their results, and an answer.
fn exchanges() -> impl Strategy<Value = Vec<(TurnRole, BlockContent<'static>)>> {
    let step = (any::<bool>(), any::<bool>(), 1_usize..3, any::<bool>());
    ("[a-z\"\\\\]{1,8}", proptest::collection::vec(step, 0..3), any::<bool>()).prop_map(
        |(question, steps, has_rule)| {
            let mut blocks = vec![(User, text(&question))];
            if has_rule {
                blocks.push((System, text("rule")));
            }
            for (thinks, speaks, calls, reminds) in steps {
                let ids = ["call_1", "call_2"];
                if speaks {
                    blocks.push((Assistant, text("first")));
                }
                if thinks {
                    blocks.push((Assistant, signature("own")));
                }
                blocks.extend(ids.into_iter().take(calls).map(|id| (Assistant, call(id, "{}"))));
                if speaks {
                    blocks.push((System, text("between")));
                }
                let image = || media(MediaKind::Image, "image/png", "AAAA", None);
                blocks.extend(
                    ids.into_iter()
                        .take(calls)
                        .map(|id| (User, result(id, false, vec![text("out"), image()]))),
                );
                if reminds {
                    blocks.push((User, text("remember")));
                }
            }
            blocks.push((Assistant, text("answer")));
            blocks
        },
    )
}

proptest! {
    #[test]
    fn each_request_of_a_conversation_begins_with_the_contents_of_the_one_before(
        parts in proptest::collection::vec(exchanges(), 1..4),
        is_old in any::<bool>(),
    ) {
        let model = if is_old { OLD_MODEL } else { MODEL };
        let mut full = conversation(parts.into_iter().flatten().collect());
        full.push(User, ContentBlock { path: "end".to_owned(), content: text("end") });
        let whole = written_for(&full, model).body;
        for count in 1..full.turns.len() {
            // A request ends with a turn of the user, or with a text of the system behind one.
            let last = &full.turns[count - 1];
            let ends_request = last.role == User
                || (last.role == System && last.blocks.iter().any(|block| block.content == text("rule")));
            // What the system says next joins what the user has said.
            let joins = full.turns.get(count).is_some_and(|next| next.role == System);
            if !ends_request || joins {
                continue;
            }
            let mut shorter = full.clone();
            shorter.turns.truncate(count);
            let body = written_for(&shorter, model).body;
            let prefix = body.strip_suffix("]}").unwrap();
            prop_assert!(whole.starts_with(prefix), "{prefix}\n{whole}");
        }
    }
}
