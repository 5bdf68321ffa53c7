//! Tests of the writer of Messages requests.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::{
    translation::{
        ChatTraits, Translation,
        conversation::{
            BlockContent, ContentBlock, MediaContent, MediaKind, MediaSource, PlacedOption, ReasoningEffort,
            ReasoningRequest, ToolCall, ToolCallResult,
            TurnRole::{self, Assistant, System, User},
        },
        losses::TranslationMode,
        reasoning::{ReasoningMaker, ReasoningState},
    },
    wire::UpstreamProtocol,
};

/// A request as it was written, and the losses as `verdict path`.
#[derive(Debug)]
struct WrittenMessages {
    body: String,
    losses: Vec<String>,
}

impl WrittenMessages {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn messages(&self) -> Value {
        self.json()["messages"].clone()
    }
}

fn try_write(
    conversation: &Conversation<'_>,
    from: Protocol,
    mode: TranslationMode,
    output_tokens_max: Option<u64>,
) -> Result<WrittenMessages, Untranslatable> {
    let mut losses = TranslationLosses::new(mode);
    let target = TranslationTarget {
        translation: &Translation {
            from,
            to: UpstreamProtocol::Messages,
            mode,
            chat: ChatTraits::default(),
        },
        model: "m",
        output_tokens_max,
        maker: &ReasoningMaker::new("host", "m", "a"),
    };
    let body = write(conversation, &target, &mut losses)?;
    let losses = losses
        .iter()
        .map(|loss| format!("{} {}", loss.verdict.as_str(), loss.path))
        .collect();
    Ok(WrittenMessages { body, losses })
}

fn strict(conversation: &Conversation<'_>) -> Result<WrittenMessages, Untranslatable> {
    try_write(conversation, Protocol::Responses, TranslationMode::Strict, None)
}

fn written(conversation: &Conversation<'_>) -> WrittenMessages {
    strict(conversation).unwrap()
}

fn text(text: &str) -> BlockContent<'static> {
    BlockContent::Text(Cow::Owned(text.to_owned()))
}

fn thinking(text: &'static str) -> BlockContent<'static> {
    BlockContent::Reasoning(ReasoningState::Thinking {
        text: text.into(),
        signature: "EqQB/+==".into(),
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

fn media(kind: MediaKind, media_type: &'static str, data: &'static str) -> BlockContent<'static> {
    BlockContent::Media(MediaContent {
        kind,
        source: MediaSource::Base64 {
            media_type: media_type.into(),
            data: data.into(),
        },
        name: None,
    })
}

fn media_at(kind: MediaKind, url: &'static str) -> BlockContent<'static> {
    BlockContent::Media(MediaContent {
        kind,
        source: MediaSource::Url {
            url: url.into(),
            media_type: None,
        },
        name: Some("a title".into()),
    })
}

/// A conversation of these blocks with a maximum of 8,000 output tokens; the path of a block is its number.
fn conversation(blocks: Vec<(TurnRole, BlockContent<'static>)>) -> Conversation<'static> {
    let mut conversation = Conversation::default();
    conversation.options.max_tokens = placed("max_output_tokens", 8_000);
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

#[test]
fn members_come_in_a_fixed_order_with_options_behind_the_content() {
    let mut request = question();
    request.system = vec!["be brief".into(), " \n".into(), "be kind".into()];
    request.tools = vec![ToolDefinition {
        description: Some("reads".into()),
        strict: Some(true),
        ..tool(Some(r#"{"type": "object", "x": 1.0}"#))
    }];
    request.tool_choice = ToolChoice::Named("read".into());
    request.options = RequestOptions {
        stream: true,
        max_tokens: placed("max_output_tokens", 9),
        temperature: placed("temperature", "0.10"),
        top_p: placed("top_p", "1.0"),
        top_k: placed("topK", "40"),
        seed: placed("seed", "7"),
        presence_penalty: placed("presencePenalty", "0.5"),
        frequency_penalty: placed("frequencyPenalty", "-0.5"),
        stop: placed("stopSequences", vec!["END".into()]),
        reasoning: None,
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
        r#"{"model":"m","system":[{"type":"text","text":"be brief"},{"type":"text","text":"be kind"}],"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}],"#,
        r#""tools":[{"name":"read","description":"reads","input_schema":{"type": "object", "x": 1.0},"strict":true}],"#,
        r#""tool_choice":{"type":"tool","name":"read","disable_parallel_tool_use":true},"max_tokens":9,"stream":true,"#,
        r#""output_config":{"format":{"type":"json_schema","schema":{"type": "object"}}},"#,
        r#""temperature":0.10,"top_p":1.0,"top_k":40,"stop_sequences":["END"]}"#,
    );
    assert_eq!(written.body, expected);
    assert_eq!(
        written.losses,
        [
            "text.format.name",
            "text.format.description",
            "text.format.strict",
            "seed",
            "presencePenalty",
            "frequencyPenalty",
            "prompt_cache_key"
        ]
        .map(|path| format!("dropped {path}"))
    );
}

#[test]
fn the_maximum_of_output_tokens_is_always_written() {
    let mut request = question();
    request.options.max_tokens = None;
    for (from, path) in [
        (Protocol::Messages, "max_tokens"),
        (Protocol::Responses, "max_output_tokens"),
        (Protocol::Gemini, "generationConfig.maxOutputTokens"),
    ] {
        for (known, expected) in [(Some(64_000), 64_000), (None, 32_000)] {
            let written = try_write(&request, from, TranslationMode::Strict, known).unwrap();
            assert_eq!(written.json()["max_tokens"], json!(expected));
            assert_eq!(written.losses, [format!("adapted {path}")]);
        }
    }
    request.options.max_tokens = placed("max_output_tokens", 0);
    assert_eq!(strict(&request).unwrap_err().path, "max_output_tokens");
}

#[test]
fn calls_and_results_become_blocks_with_the_results_first() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (Assistant, text("b")),
        (Assistant, call("call_1", r#"{"n": 1.0}"#)),
        (Assistant, call("functions.Bash:0", "broken")),
        (Assistant, text("c")),
        (System, text("rule")),
        (User, text("hurry")),
        (User, result("call_1", false, vec![text("one")])),
        (
            User,
            result(
                "functions.Bash:0",
                true,
                vec![text("two"), media(MediaKind::Image, "image/png", "AAAA")],
            ),
        ),
    ]));
    assert!(written.body.contains(r#""input":{"n": 1.0}"#), "{}", written.body);
    let messages = written.messages();
    let escaped = "weir_ZnVuY3Rpb25zLkJhc2g6MA";
    assert_eq!(
        messages[1]["content"],
        json!([
            {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "call_1", "name": "read", "input": {"n": 1.0}},
            {"type": "tool_use", "id": escaped, "name": "read", "input": {"input": "broken"}},
            {"type": "text", "text": "c"},
        ])
    );
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    assert_eq!(
        messages[2],
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": "one"},
            {"type": "tool_result", "tool_use_id": escaped, "is_error": true,
                "content": [{"type": "text", "text": "two"}, image]},
            {"type": "text", "text": "<system>rule</system>"},
            {"type": "text", "text": "hurry"},
        ]})
    );
    assert_eq!(messages.as_array().unwrap().len(), 3);
    assert_eq!(written.losses, ["adapted 3", "adapted 6", "adapted 5"]);
}

#[test]
fn an_empty_result_has_no_content_unless_it_is_an_error() {
    let written = written(&conversation(vec![
        (Assistant, call("call_1", "")),
        (Assistant, call("call_2", "")),
        (User, result("call_1", false, vec![text(" \n")])),
        (User, result("call_2", true, Vec::new())),
    ]));
    assert_eq!(
        written.messages()[1]["content"],
        json!([
            {"type": "tool_result", "tool_use_id": "call_1"},
            {"type": "tool_result", "tool_use_id": "call_2", "content": "[error]", "is_error": true},
        ])
    );
    assert_eq!(written.messages()[0]["content"][0]["input"], json!({}));
}

#[test]
fn a_later_text_of_the_system_is_a_marked_message_of_its_own() {
    let marked = json!({"role": "user", "content": [{"type": "text", "text": "<system>rule</system>"}]});
    let behind_user = written(&conversation(vec![(User, text("a")), (System, text("rule"))]));
    assert_eq!(behind_user.messages()[1], marked);
    assert_eq!(behind_user.losses, ["adapted 1"]);
    for next in [None, Some((User, text("go on"))), Some((User, text(" ")))] {
        let mut blocks = vec![
            (User, text("a")),
            (Assistant, call("call_1", "{}")),
            (System, text("rule")),
        ];
        blocks.extend(next);
        assert_eq!(written(&conversation(blocks)).messages()[2], marked);
    }
}

#[test]
fn thinking_returns_byte_for_byte_and_other_state_is_dropped() {
    let redacted = || BlockContent::Reasoning(ReasoningState::Redacted { data: "Eo/+==".into() });
    let foreign = [
        ReasoningState::Item { json: "{}".into() },
        ReasoningState::Signature { signature: "s".into() },
        ReasoningState::Text { text: "t".into() },
    ];
    let mut blocks = vec![
        (User, text("a")),
        (Assistant, thinking("so \"that\"\n\u{7f}\u{2028}")),
        (Assistant, redacted()),
    ];
    blocks.extend(foreign.map(|state| (Assistant, BlockContent::Reasoning(state))));
    blocks.extend([
        (Assistant, call("call_1", "{}")),
        (User, result("call_1", false, vec![text("one")])),
    ]);
    let written = written(&conversation(blocks));
    let expected = concat!(
        r#"{"type":"thinking","thinking":"so \"that\"\n"#,
        "\u{7f}\u{2028}",
        r#"","signature":"EqQB/+=="},{"type":"redacted_thinking","data":"Eo/+=="},{"type":"tool_use""#
    );
    assert!(written.body.contains(expected), "{}", written.body);
    assert_eq!(written.losses, ["dropped 3", "dropped 4", "dropped 5"]);
}

#[test]
fn thinking_at_the_end_of_a_turn_is_dropped() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (Assistant, thinking("first")),
        (Assistant, text("b")),
        (Assistant, thinking("cut")),
        (User, text("c")),
        (Assistant, thinking("only")),
        (User, text("d")),
    ]));
    let messages = written.messages();
    assert_eq!(messages[1]["content"].as_array().unwrap().len(), 2);
    assert_eq!(messages.as_array().unwrap().len(), 4);
    assert_eq!(written.losses, ["dropped 3", "dropped 5"]);
}

#[test]
fn a_turn_of_the_model_at_the_end_is_refused() {
    let refusal = |blocks| strict(&conversation(blocks)).unwrap_err().path;
    assert_eq!(refusal(vec![(User, text("a")), (Assistant, text("b"))]), "1");
    assert_eq!(
        refusal(vec![(User, text("a")), (Assistant, text("b")), (User, text(" "))]),
        "1"
    );
    let nothing = conversation(vec![(User, text("a")), (Assistant, thinking("cut"))]);
    assert_eq!(written(&nothing).messages().as_array().unwrap().len(), 1);
}

#[test]
fn a_refusal_becomes_text_and_white_space_alone_vanishes() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (User, text("\n")),
        (Assistant, text("  ")),
        (Assistant, BlockContent::Refusal("no".into())),
        (User, text("b")),
    ]));
    let messages = written.messages();
    assert_eq!(messages[0]["content"], json!([{"type": "text", "text": "a"}]));
    assert_eq!(messages[1]["content"], json!([{"type": "text", "text": "no"}]));
    assert_eq!(written.losses, ["adapted 3"]);
}

#[test]
fn images_and_documents_have_sources() {
    let written = written(&conversation(vec![
        (User, media_at(MediaKind::Image, "https://x/y.png")),
        (User, media(MediaKind::Document, "application/pdf", "JVBERi0xLjQ=")),
        (User, media_at(MediaKind::Document, "https://x/y.pdf")),
        (User, media(MediaKind::Document, "text/markdown", "aGVsbG8=")),
    ]));
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQ="});
    let hello = json!({"type": "text", "media_type": "text/plain", "data": "hello"});
    assert_eq!(
        written.messages()[0]["content"],
        json!([
            {"type": "text", "text": "a title"},
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
            {"type": "document", "source": pdf},
            {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}, "title": "a title"},
            {"type": "document", "source": hello},
        ])
    );
    assert_eq!(written.losses, ["adapted 0"]);
}

#[test]
fn content_without_a_place_is_refused_in_both_modes() {
    for content in [
        media(MediaKind::Audio, "audio/wav", "AAAA"),
        media(MediaKind::Video, "video/mp4", "AAAA"),
        media(MediaKind::Document, "application/zip", "/w=="),
        media(MediaKind::Document, "text/plain", "no base64"),
    ] {
        for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
            let direct = conversation(vec![(User, text("a")), (User, content.clone())]);
            assert_eq!(
                try_write(&direct, Protocol::Responses, mode, None).unwrap_err().path,
                "1"
            );
            let in_result = conversation(vec![
                (Assistant, call("call_1", "{}")),
                (User, result("call_1", false, vec![content.clone()])),
            ]);
            assert_eq!(
                try_write(&in_result, Protocol::Responses, mode, None).unwrap_err().path,
                "call_1[0]"
            );
        }
    }
}

#[test]
fn a_schema_of_a_tool_always_has_a_type() {
    for (schema, expected, is_adapted) in [
        (None, r#"{"type":"object","properties":{}}"#, false),
        (Some(r#"{"type": "object"}"#), r#"{"type": "object"}"#, false),
        (Some("{ }"), r#"{"type":"object" }"#, true),
        (
            Some(r#"{"properties":{"a":1.0}}"#),
            r#"{"type":"object","properties":{"a":1.0}}"#,
            true,
        ),
    ] {
        let mut request = question();
        request.tools = vec![tool(schema)];
        let written = written(&request);
        assert!(
            written.body.contains(&format!(r#""input_schema":{expected}}}"#)),
            "{}",
            written.body
        );
        assert_eq!(written.losses == ["adapted tools[0]"], is_adapted);
    }
}

#[test]
fn each_choice_of_tools_has_its_type() {
    let named = json!({"type": "tool", "name": "read"});
    let any = json!({"type": "any"});
    for (choice, with_tools, without_tools) in [
        (ToolChoice::Unset, Value::Null, Value::Null),
        (ToolChoice::Auto, json!({"type": "auto"}), Value::Null),
        (ToolChoice::Forbidden, json!({"type": "none"}), Value::Null),
        (ToolChoice::Required, any.clone(), any),
        (ToolChoice::Named("read".into()), named.clone(), named),
    ] {
        let mut request = question();
        request.tool_choice = choice;
        assert_eq!(written(&request).json()["tool_choice"], without_tools);
        request.tools = vec![tool(None)];
        assert_eq!(written(&request).json()["tool_choice"], with_tools);
        request.options.parallel_calls = placed("parallel_tool_calls", true);
        assert_eq!(written(&request).json()["tool_choice"], with_tools);
    }
}

#[test]
fn calls_one_at_a_time_are_part_of_the_choice() {
    for (choice, kind, expected) in [
        (ToolChoice::Unset, "auto", json!(true)),
        (ToolChoice::Auto, "auto", json!(true)),
        (ToolChoice::Required, "any", json!(true)),
        (ToolChoice::Forbidden, "none", Value::Null),
    ] {
        let mut request = question();
        request.tools = vec![tool(None)];
        request.tool_choice = choice;
        request.options.parallel_calls = placed("parallel_tool_calls", false);
        let body = written(&request).json();
        assert_eq!(body["tool_choice"]["type"], json!(kind));
        assert_eq!(body["tool_choice"]["disable_parallel_tool_use"], expected);
    }
}

#[test]
fn json_without_a_schema_is_refused_or_dropped() {
    let mut request = question();
    request.options.format = placed("text.format", AnswerFormat::Json);
    assert_eq!(strict(&request).unwrap_err().path, "text.format");
    let lossy = try_write(&request, Protocol::Responses, TranslationMode::Lossy, None).unwrap();
    assert_eq!(lossy.json()["output_config"], Value::Null);
    assert_eq!(lossy.losses, ["dropped text.format"]);
}

#[test]
fn an_effort_becomes_adaptive_thinking_with_that_effort() {
    for (effort, thinking, word) in [
        (ReasoningEffort::Off, "disabled", Value::Null),
        (ReasoningEffort::Minimal, "adaptive", json!("low")),
        (ReasoningEffort::Low, "adaptive", json!("low")),
        (ReasoningEffort::Medium, "adaptive", json!("medium")),
        (ReasoningEffort::High, "adaptive", json!("high")),
        (ReasoningEffort::ExtraHigh, "adaptive", json!("xhigh")),
        (ReasoningEffort::Max, "adaptive", json!("max")),
    ] {
        let mut request = question();
        request.options.reasoning = placed("reasoning.effort", ReasoningRequest::by_effort(effort));
        let written = written(&request);
        assert_eq!(written.json()["thinking"], json!({"type": thinking}));
        assert_eq!(written.json()["output_config"]["effort"], word);
        assert_eq!(written.losses.is_empty(), effort == ReasoningEffort::Off, "{effort:?}");
    }
}

#[test]
fn a_budget_stays_within_what_the_protocol_allows() {
    let enabled = |budget: u64| json!({"type": "enabled", "budget_tokens": budget});
    for (budget, max_tokens, expected) in [
        (0, 8_000, json!({"type": "disabled"})),
        (1, 8_000, enabled(1_024)),
        (4_000, 8_000, enabled(4_000)),
        (9_000, 8_000, enabled(7_999)),
        (9_000, 1_025, enabled(1_024)),
        (9_000, 1_024, json!({"type": "adaptive"})),
    ] {
        let mut request = question();
        request.options.max_tokens = placed("max_output_tokens", max_tokens);
        request.options.reasoning = placed("thinkingConfig", ReasoningRequest::by_budget(budget));
        let body = written(&request).json();
        assert_eq!(body["thinking"], expected);
        let has_effort = !body["output_config"]["effort"].is_null();
        assert_eq!(has_effort, expected["type"] == json!("adaptive"));
    }
}

#[test]
fn a_budget_is_dropped_where_calls_were_made_without_thinking() {
    let with = |first: BlockContent<'static>| {
        let mut request = conversation(vec![
            (User, text("a")),
            (Assistant, first),
            (Assistant, call("call_1", "{}")),
            (User, result("call_1", false, vec![text("one")])),
        ]);
        request.options.reasoning = placed("thinkingConfig", ReasoningRequest::by_budget(4_000));
        written(&request)
    };
    let own = with(thinking("because"));
    assert_eq!(own.json()["thinking"]["type"], json!("enabled"));
    let foreign = with(text("b"));
    assert_eq!(foreign.json()["thinking"], Value::Null);
    assert_eq!(foreign.losses, ["dropped thinkingConfig"]);
}

#[test]
fn a_forced_call_is_made_without_thinking() {
    for choice in [ToolChoice::Required, ToolChoice::Named("read".into())] {
        let mut request = question();
        request.tools = vec![tool(None)];
        request.tool_choice = choice;
        request.options.shows_reasoning = Some(true);
        assert_eq!(written(&request).json()["thinking"], Value::Null);
        request.options.reasoning = placed("reasoning.effort", ReasoningRequest::by_effort(ReasoningEffort::High));
        let written = written(&request);
        assert_eq!(written.json()["thinking"], Value::Null);
        assert_eq!(written.json()["output_config"], json!({"effort": "high"}));
        assert_eq!(written.losses, ["adapted reasoning.effort"]);
    }
}

#[test]
fn the_wish_to_see_reasoning_is_dropped_where_there_is_none() {
    let path = "generationConfig.thinkingConfig.includeThoughts";
    let mut request = question();
    request.options.shows_reasoning = Some(true);
    request.options.reasoning = placed("thinkingConfig", ReasoningRequest::by_budget(0));
    for (from, losses) in [
        (Protocol::Gemini, vec![format!("dropped {path}")]),
        (Protocol::Responses, Vec::new()),
    ] {
        let written = try_write(&request, from, TranslationMode::Strict, None).unwrap();
        assert_eq!(written.json()["thinking"], json!({"type": "disabled"}));
        assert_eq!(written.losses, losses);
    }
}

#[test]
fn thinking_is_shown_as_the_client_wants_it() {
    let path = "generationConfig.thinkingConfig.includeThoughts";
    for (from, losses) in [
        // The reader of Responses reports the member.
        (Protocol::Responses, Vec::new()),
        (Protocol::Gemini, vec![format!("adapted {path}")]),
    ] {
        for (shows, display) in [(true, "summarized"), (false, "omitted")] {
            let mut request = question();
            request.options.shows_reasoning = Some(shows);
            let bare = try_write(&request, from, TranslationMode::Strict, None).unwrap();
            assert_eq!(bare.json()["thinking"].is_null(), !shows);
            assert_eq!(bare.losses, if shows { losses.clone() } else { Vec::new() });
            request.options.reasoning = placed("reasoning.effort", ReasoningRequest::by_effort(ReasoningEffort::Low));
            let written = try_write(&request, from, TranslationMode::Strict, None).unwrap();
            assert_eq!(
                written.json()["thinking"],
                json!({"type": "adaptive", "display": display})
            );
            let effort = vec!["adapted reasoning.effort".to_owned()];
            assert_eq!(written.losses, [effort, losses.clone()].concat());
        }
    }
}

#[test]
fn how_tokens_are_chosen_is_dropped_while_thinking_is_on() {
    let mut request = question();
    request.options.temperature = placed("temperature", "0.5");
    request.options.top_p = placed("topP", "0.9");
    request.options.top_k = placed("topK", "64");
    request.options.reasoning = placed("reasoning.effort", ReasoningRequest::by_effort(ReasoningEffort::Low));
    let thinking = written(&request);
    for name in ["temperature", "top_p", "top_k"] {
        assert_eq!(thinking.json()[name], Value::Null);
    }
    assert_eq!(
        thinking.losses,
        [
            "adapted reasoning.effort",
            "dropped temperature",
            "dropped topP",
            "dropped topK"
        ]
    );
    request.options.reasoning = placed("reasoning.effort", ReasoningRequest::by_effort(ReasoningEffort::Off));
    assert_eq!(written(&request).json()["temperature"], json!(0.5));
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
                    blocks.push((Assistant, thinking("because")));
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
    fn each_request_of_a_conversation_begins_with_the_messages_of_the_one_before(
        parts in proptest::collection::vec(exchanges(), 1..4),
    ) {
        let mut full = conversation(parts.into_iter().flatten().collect());
        full.push(User, ContentBlock { path: "end".to_owned(), content: text("end") });
        let whole = written(&full).body;
        for count in 1..full.turns.len() {
            // A request ends with a turn of the user, or with a text of the system behind one.
            let last = &full.turns[count - 1];
            let ends_request = last.role == User
                || (last.role == System && last.blocks.iter().any(|block| block.content == text("rule")));
            if !ends_request {
                continue;
            }
            let mut shorter = full.clone();
            shorter.turns.truncate(count);
            let body = written(&shorter).body;
            let prefix = body.strip_suffix(r#"],"max_tokens":8000}"#).unwrap();
            prop_assert!(whole.starts_with(prefix), "{prefix}\n{whole}");
        }
    }
}
