//! Tests of the writer of Responses requests.

use std::borrow::Cow;

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
    wire::UpstreamProtocol,
};

/// A request as it was written, and the losses as `verdict path`.
#[derive(Debug)]
struct WrittenResponses {
    body: String,
    losses: Vec<String>,
}

impl WrittenResponses {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn input(&self) -> Value {
        self.json()["input"].clone()
    }
}

fn try_write(
    conversation: &Conversation<'_>,
    from: Protocol,
    mode: TranslationMode,
) -> Result<WrittenResponses, Untranslatable> {
    let mut losses = TranslationLosses::new(mode);
    let target = TranslationTarget {
        translation: &Translation {
            from,
            to: UpstreamProtocol::Responses,
            mode,
            chat: ChatTraits::default(),
        },
        model: "m",
        output_tokens_max: None,
        maker: &ReasoningMaker::new("host", "m", "a"),
    };
    let body = write(conversation, &target, &mut losses)?;
    let losses = losses
        .iter()
        .map(|loss| format!("{} {}", loss.verdict.as_str(), loss.path))
        .collect();
    Ok(WrittenResponses { body, losses })
}

fn strict(conversation: &Conversation<'_>) -> Result<WrittenResponses, Untranslatable> {
    try_write(conversation, Protocol::Messages, TranslationMode::Strict)
}

fn written(conversation: &Conversation<'_>) -> WrittenResponses {
    strict(conversation).unwrap()
}

fn text(text: &str) -> BlockContent<'static> {
    BlockContent::Text(Cow::Owned(text.to_owned()))
}

fn item(json: &'static str) -> BlockContent<'static> {
    BlockContent::Reasoning(ReasoningState::Item { json: json.into() })
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

fn media_at(kind: MediaKind, url: &'static str, name: Option<&'static str>) -> BlockContent<'static> {
    BlockContent::Media(MediaContent {
        kind,
        source: MediaSource::Url {
            url: url.into(),
            media_type: None,
        },
        name: name.map(Cow::Borrowed),
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

fn tool(schema: Option<&'static str>, strict: Option<bool>) -> ToolDefinition<'static> {
    ToolDefinition {
        path: "tools[0]".to_owned(),
        name: "read".into(),
        description: None,
        schema: schema.map(Cow::Borrowed),
        strict,
    }
}

fn placed<T>(path: &'static str, value: T) -> Option<PlacedOption<T>> {
    Some(PlacedOption {
        path: path.into(),
        value,
    })
}

fn message(role: &str, content: &Value) -> Value {
    json!({"type": "message", "role": role, "content": content})
}

fn text_part(text: &str) -> Value {
    json!({"type": "input_text", "text": text})
}

#[test]
fn members_come_in_a_fixed_order_with_options_behind_the_content() {
    let mut request = question();
    request.system = vec!["be brief".into(), "be kind".into()];
    request.tools = vec![ToolDefinition {
        description: Some("reads".into()),
        ..tool(Some(r#"{"type": "object", "x": 1.0}"#), Some(true))
    }];
    request.tool_choice = ToolChoice::Named("read".into());
    request.options = RequestOptions {
        stream: true,
        max_tokens: placed("max_tokens", 900),
        temperature: placed("temperature", "0.10"),
        top_p: placed("top_p", "1.0"),
        top_k: placed("top_k", "40"),
        seed: placed("seed", "7"),
        presence_penalty: placed("presencePenalty", "0.5"),
        frequency_penalty: placed("frequencyPenalty", "-0.5"),
        stop: placed("stop_sequences", Vec::new()),
        reasoning: placed(
            "output_config.effort",
            ReasoningRequest::by_effort(ReasoningEffort::High),
        ),
        shows_reasoning: None,
        format: placed(
            "output_config.format",
            AnswerFormat::Schema {
                name: None,
                description: Some("d".into()),
                schema: r#"{"type": "object"}"#.into(),
                strict: Some(true),
            },
        ),
        parallel_calls: placed("tool_choice.disable_parallel_tool_use", false),
        cache_key: placed("metadata.user_id", "k".into()),
    };
    let written = written(&request);
    let expected = concat!(
        r#"{"model":"m","instructions":"be brief\n\nbe kind","#,
        r#""input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}],"#,
        r#""tools":[{"type":"function","name":"read","description":"reads","#,
        r#""parameters":{"type": "object", "x": 1.0},"strict":true}],"#,
        r#""tool_choice":{"type":"function","name":"read"},"#,
        r#""stream":true,"store":false,"include":["reasoning.encrypted_content"],"#,
        r#""max_output_tokens":900,"temperature":0.10,"top_p":1.0,"reasoning":{"effort":"high","summary":"auto"},"#,
        r#""text":{"format":{"type":"json_schema","name":"answer","description":"d","#,
        r#""schema":{"type": "object"},"strict":true}},"parallel_tool_calls":false,"prompt_cache_key":"k"}"#,
    );
    assert_eq!(written.body, expected);
    assert_eq!(
        written.losses,
        [
            "dropped top_k",
            "dropped seed",
            "dropped presencePenalty",
            "dropped frequencyPenalty",
            "adapted output_config.effort"
        ]
    );
}

#[test]
fn a_maximum_below_the_least_that_the_provider_accepts_is_raised() {
    for (tokens, sent, losses) in [(1, 16, vec!["adapted max_tokens"]), (16, 16, vec![]), (17, 17, vec![])] {
        let mut request = question();
        request.options.max_tokens = placed("max_tokens", tokens);
        let written = written(&request);
        assert!(
            written.body.contains(&format!(r#""max_output_tokens":{sent}"#)),
            "{}",
            written.body
        );
        assert_eq!(written.losses, losses);
    }
}

#[test]
fn a_bare_request_says_only_that_nothing_is_kept() {
    let expected = concat!(
        r#"{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}],"#,
        r#""store":false,"include":["reasoning.encrypted_content"]}"#,
    );
    assert_eq!(written(&question()).body, expected);
}

#[test]
fn everything_stays_in_its_place() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (User, text("b")),
        (Assistant, text("c")),
        (Assistant, call("call_1", r#"{"n": 1.0}"#)),
        (Assistant, call("functions.Bash:0", "")),
        (Assistant, text("d")),
        (Assistant, BlockContent::Refusal("no".into())),
        (System, text("rule")),
        (User, text("hurry")),
        (User, result("call_1", false, vec![text("one"), text("two")])),
        (User, text("between")),
        (User, result("functions.Bash:0", true, vec![text("three")])),
    ]));
    let answered = |content: &Value| message("assistant", content);
    assert_eq!(
        written.input(),
        json!([
            message("user", &json!([text_part("a"), text_part("b")])),
            answered(&json!([{"type": "output_text", "text": "c"}])),
            {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": r#"{"n": 1.0}"#},
            {"type": "function_call", "call_id": "functions.Bash:0", "name": "read", "arguments": "{}"},
            answered(&json!([{"type": "output_text", "text": "d"}, {"type": "refusal", "refusal": "no"}])),
            message("developer", &json!([text_part("rule")])),
            message("user", &json!([text_part("hurry")])),
            {"type": "function_call_output", "call_id": "call_1", "output": "one\n\ntwo"},
            message("user", &json!([text_part("between")])),
            {"type": "function_call_output", "call_id": "functions.Bash:0", "output": "[error]\nthree"},
        ])
    );
    assert_eq!(written.losses, ["adapted 11"]);
}

#[test]
fn a_result_with_more_than_texts_is_a_list() {
    let written = written(&conversation(vec![
        (Assistant, call("call_1", "{}")),
        (Assistant, call("call_2", "{}")),
        (Assistant, call("call_3", "{}")),
        (
            User,
            result(
                "call_1",
                true,
                vec![text("one"), media(MediaKind::Image, "image/png", "AAAA", None)],
            ),
        ),
        (User, result("call_2", false, Vec::new())),
        (User, result("call_3", true, Vec::new())),
    ]));
    let input = written.input();
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"});
    assert_eq!(
        input[3]["output"],
        json!([text_part("[error]"), text_part("one"), image])
    );
    assert_eq!(input[4]["output"], json!(""));
    assert_eq!(input[5]["output"], json!("[error]"));
    assert_eq!(written.losses, ["adapted 3", "adapted 5"]);
}

#[test]
fn a_reasoning_item_returns_byte_for_byte_and_other_state_is_dropped() {
    let own = r#"{"id":"rs_1", "type":"reasoning","summary":[],"encrypted_content":"gA\u0041+/=","n":1.50}"#;
    let foreign = [
        ReasoningState::Thinking {
            text: "t".into(),
            signature: "s".into(),
        },
        ReasoningState::Redacted { data: "d".into() },
        ReasoningState::Signature { signature: "s".into() },
        ReasoningState::Text { text: "t".into() },
    ];
    let mut blocks = vec![(User, text("a")), (Assistant, item(own))];
    blocks.extend(foreign.map(|state| (Assistant, BlockContent::Reasoning(state))));
    blocks.extend([
        (Assistant, call("call_1", "{}")),
        (User, result("call_1", false, vec![text("one")])),
    ]);
    let written = written(&conversation(blocks));
    assert!(
        written.body.contains(&format!(r#"}},{own},{{"type":"function_call""#)),
        "{}",
        written.body
    );
    assert_eq!(written.losses, ["dropped 2", "dropped 3", "dropped 4", "dropped 5"]);
}

#[test]
fn a_forged_item_cannot_leave_its_place() {
    for forged in [
        r#"{"type":"reasoning"}],"model":"other","input":[{"type":"reasoning"}"#,
        r#"{"type":"item_reference","id":"msg_1"}"#,
        r#"{"type":"reasoning"},{"type":"message"}"#,
        r#"["reasoning"]"#,
        "{}",
        "",
    ] {
        let written = written(&conversation(vec![
            (User, text("a")),
            (Assistant, item(forged)),
            (Assistant, text("b")),
            (User, text("c")),
        ]));
        assert_eq!(written.input().as_array().unwrap().len(), 3, "{forged}");
        assert_eq!(written.json()["model"], json!("m"));
        assert_eq!(written.losses, ["dropped 1"]);
    }
}

#[test]
fn reasoning_at_the_end_of_a_turn_is_dropped() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (Assistant, text("b")),
        (Assistant, item(r#"{"type":"reasoning"}"#)),
        (User, text("c")),
        (Assistant, item(r#"{"type":"reasoning"}"#)),
        (User, text("d")),
    ]));
    assert_eq!(written.input().as_array().unwrap().len(), 4);
    assert_eq!(written.losses, ["dropped 2", "dropped 4"]);
}

#[test]
fn a_turn_of_the_model_at_the_end_is_refused() {
    let refusal = |blocks| strict(&conversation(blocks)).unwrap_err().path;
    assert_eq!(
        refusal(vec![(User, text("a")), (Assistant, text("b")), (Assistant, text("c"))]),
        "2"
    );
    let ruled = conversation(vec![(User, text("a")), (Assistant, text("b")), (System, text("rule"))]);
    assert_eq!(written(&ruled).input()[2]["role"], json!("developer"));
    let nothing = conversation(vec![(User, text("a")), (Assistant, item("{}"))]);
    assert_eq!(written(&nothing).input().as_array().unwrap().len(), 1);
}

#[test]
fn images_and_documents_have_parts() {
    let written = written(&conversation(vec![
        (User, media_at(MediaKind::Image, "https://x/y.png", Some("a map"))),
        (
            User,
            media(MediaKind::Document, "application/pdf", "JVBERi0xLjQ=", None),
        ),
        (
            User,
            media(
                MediaKind::Document,
                "application/pdf",
                "JVBERi0xLjQ=",
                Some("Q3 report"),
            ),
        ),
        (
            User,
            media(MediaKind::Document, "application/x", "/w==", Some("a.docx")),
        ),
        (User, media_at(MediaKind::Document, "https://x/y.pdf", Some("a title"))),
        (
            User,
            media(MediaKind::Document, "text/plain", "aGVsbG8=", Some("notes")),
        ),
        (User, media(MediaKind::Document, "text/plain", "aGVsbG8=", None)),
    ]));
    let pdf = "data:application/pdf;base64,JVBERi0xLjQ=";
    assert_eq!(
        written.input()[0]["content"],
        json!([
            text_part("a map"),
            {"type": "input_image", "image_url": "https://x/y.png"},
            {"type": "input_file", "filename": "document.pdf", "file_data": pdf},
            {"type": "input_file", "filename": "Q3 report.pdf", "file_data": pdf},
            {"type": "input_file", "filename": "a.docx", "file_data": "data:application/x;base64,/w=="},
            text_part("a title"),
            {"type": "input_file", "file_url": "https://x/y.pdf"},
            text_part("notes\n\nhello"),
            text_part("hello"),
        ])
    );
    assert_eq!(written.losses, ["adapted 0", "adapted 4", "adapted 5", "adapted 6"]);
}

#[test]
fn audio_and_video_are_refused_in_both_modes() {
    for content in [
        media(MediaKind::Audio, "audio/wav", "AAAA", None),
        media_at(MediaKind::Video, "https://x/y.mp4", None),
    ] {
        for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
            let refusal = |blocks| {
                let refused = try_write(&conversation(blocks), Protocol::Gemini, mode);
                refused.unwrap_err().path
            };
            assert_eq!(refusal(vec![(User, text("a")), (User, content.clone())]), "1");
            let in_result = vec![
                (Assistant, call("call_1", "{}")),
                (User, result("call_1", false, vec![content.clone()])),
            ];
            assert_eq!(refusal(in_result), "call_1[0]");
        }
    }
}

#[test]
fn a_tool_is_not_strict_unless_the_client_wants_it() {
    for (schema, strict, expected) in [
        (
            None,
            None,
            r#""parameters":{"type":"object","properties":{}},"strict":false}"#,
        ),
        (Some("{ }"), Some(false), r#""parameters":{ },"strict":false}"#),
        (Some("{}"), Some(true), r#""parameters":{},"strict":true}"#),
    ] {
        let mut request = question();
        request.tools = vec![tool(schema, strict)];
        let written = written(&request);
        assert!(written.body.contains(expected), "{}", written.body);
        assert!(written.losses.is_empty());
    }
}

#[test]
fn each_choice_of_tools_has_its_word() {
    let named = json!({"type": "function", "name": "read"});
    for (choice, with_tools, without_tools) in [
        (ToolChoice::Unset, Value::Null, Value::Null),
        (ToolChoice::Auto, json!("auto"), Value::Null),
        (ToolChoice::Forbidden, json!("none"), Value::Null),
        (ToolChoice::Required, json!("required"), json!("required")),
        (ToolChoice::Named("read".into()), named.clone(), named),
    ] {
        let mut request = question();
        request.tool_choice = choice;
        request.options.parallel_calls = placed("parallel", false);
        assert_eq!(written(&request).json()["tool_choice"], without_tools);
        assert_eq!(written(&request).json()["parallel_tool_calls"], Value::Null);
        request.tools = vec![tool(None, None)];
        assert_eq!(written(&request).json()["tool_choice"], with_tools);
        assert_eq!(written(&request).json()["parallel_tool_calls"], json!(false));
        request.options.parallel_calls = placed("parallel", true);
        assert_eq!(written(&request).json()["parallel_tool_calls"], Value::Null);
    }
}

#[test]
fn stop_sequences_are_refused_or_dropped() {
    let mut request = question();
    request.options.stop = placed("stop_sequences", vec!["END".into()]);
    assert_eq!(strict(&request).unwrap_err().path, "stop_sequences");
    let lossy = try_write(&request, Protocol::Messages, TranslationMode::Lossy).unwrap();
    assert_eq!(lossy.losses, ["dropped stop_sequences"]);
    assert!(!lossy.body.contains("stop"), "{}", lossy.body);
}

#[test]
fn an_answer_in_json_has_its_format() {
    let mut request = question();
    request.options.format = placed("responseMimeType", AnswerFormat::Json);
    assert_eq!(
        written(&request).json()["text"],
        json!({"format": {"type": "json_object"}})
    );
    request.options.format = placed(
        "responseJsonSchema",
        AnswerFormat::Schema {
            name: Some("n".into()),
            description: None,
            schema: r#"{"x": 1.0}"#.into(),
            strict: None,
        },
    );
    let WrittenResponses { body, losses } = written(&request);
    let expected = r#""text":{"format":{"type":"json_schema","name":"n","schema":{"x": 1.0},"strict":false}}"#;
    assert!(body.contains(expected), "{body}");
    assert_eq!(losses, ["adapted responseJsonSchema"]);
}

#[test]
fn a_schema_is_as_strict_as_it_is_at_the_clients_own_provider() {
    let closed = r#"{"type":"object","properties":{},"additionalProperties":false}"#;
    let open = r#"{"type":"object","properties":{}}"#;
    for (from, stated, schema, strict, is_adapted) in [
        (Protocol::Messages, None, closed, true, false),
        (Protocol::Gemini, None, closed, true, false),
        (Protocol::Gemini, None, open, false, true),
        (Protocol::Messages, Some(true), open, true, false),
        (Protocol::Messages, Some(false), closed, false, false),
    ] {
        let mut request = question();
        let format = AnswerFormat::Schema {
            name: None,
            description: None,
            schema: schema.into(),
            strict: stated,
        };
        request.options.format = placed("output_config.format", format);
        let written = try_write(&request, from, TranslationMode::Strict).unwrap();
        assert_eq!(written.json()["text"]["format"]["strict"], json!(strict));
        assert_eq!(!written.losses.is_empty(), is_adapted, "{from:?} {stated:?} {schema}");
    }
}

#[test]
fn reasoning_has_an_effort_and_a_summary_unless_the_client_declines_it() {
    let high = Some(ReasoningRequest::by_effort(ReasoningEffort::High));
    let off = Some(ReasoningRequest::by_effort(ReasoningEffort::Off));
    let budget = Some(ReasoningRequest::by_budget(9_000));
    let shown = |effort: &str| json!({"effort": effort, "summary": "auto"});
    for (from, request, shows, expected) in [
        (Protocol::Messages, None, None, Value::Null),
        (Protocol::Messages, None, Some(true), json!({"summary": "auto"})),
        (Protocol::Messages, None, Some(false), Value::Null),
        (Protocol::Messages, high, None, shown("high")),
        (Protocol::Messages, high, Some(true), shown("high")),
        (Protocol::Messages, high, Some(false), json!({"effort": "high"})),
        (Protocol::Messages, off, Some(true), json!({"effort": "none"})),
        (Protocol::Messages, budget, None, shown("medium")),
        (Protocol::Gemini, budget, None, json!({"effort": "medium"})),
        (Protocol::Gemini, budget, Some(true), shown("medium")),
    ] {
        let mut conversation = question();
        conversation.options.reasoning = request.and_then(|request| placed("thinking", request));
        conversation.options.shows_reasoning = shows;
        let written = try_write(&conversation, from, TranslationMode::Strict).unwrap();
        assert_eq!(written.json()["reasoning"], expected, "{from:?} {request:?} {shows:?}");
        assert_eq!(written.losses == ["adapted thinking"], request.is_some());
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
                if thinks {
                    blocks.push((Assistant, item(r#"{"type":"reasoning"}"#)));
                }
                if speaks {
                    blocks.push((Assistant, text("first")));
                }
                blocks.extend(ids.into_iter().take(calls).map(|id| (Assistant, call(id, "{}"))));
                if speaks {
                    blocks.push((System, text("between")));
                }
                blocks.extend(
                    ids.into_iter()
                        .take(calls)
                        .map(|id| (User, result(id, false, vec![text("out")]))),
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
    fn each_request_of_a_conversation_begins_with_the_input_of_the_one_before(
        parts in proptest::collection::vec(exchanges(), 1..4),
    ) {
        let mut full = conversation(parts.into_iter().flatten().collect());
        full.push(User, ContentBlock { path: "end".to_owned(), content: text("end") });
        let whole = written(&full).body;
        for count in 1..full.turns.len() {
            // A request ends with a turn of the user or of the system.
            if full.turns[count - 1].role == Assistant {
                continue;
            }
            let mut shorter = full.clone();
            shorter.turns.truncate(count);
            let body = written(&shorter).body;
            let (prefix, _) = body.split_once(r#"],"store":"#).unwrap();
            prop_assert!(whole.starts_with(prefix), "{prefix}\n{whole}");
        }
    }
}
