//! Tests of the writer of `chat/completions` requests.

use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::{
    translation::{
        ChatReasoning, ChatTraits, ReasoningBack, Translation,
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
struct WrittenChat {
    body: String,
    losses: Vec<String>,
}

impl WrittenChat {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn messages(&self) -> Value {
        self.json()["messages"].clone()
    }
}

fn chat_host(mode: TranslationMode, chat: ChatTraits) -> Translation {
    Translation {
        from: Protocol::Messages,
        to: UpstreamProtocol::Chat,
        mode,
        chat,
    }
}

fn try_write(conversation: &Conversation<'_>, translation: &Translation) -> Result<WrittenChat, Untranslatable> {
    let mut losses = TranslationLosses::new(translation.mode);
    let target = TranslationTarget {
        translation,
        model: "m",
        output_tokens_max: None,
        maker: &ReasoningMaker::new("host", "m", "a"),
    };
    let body = write(conversation, &target, &mut losses)?;
    let losses = losses
        .iter()
        .map(|loss| format!("{} {}", loss.verdict.as_str(), loss.path))
        .collect();
    Ok(WrittenChat { body, losses })
}

fn written(conversation: &Conversation<'_>) -> WrittenChat {
    written_for(conversation, ChatTraits::default())
}

fn written_for(conversation: &Conversation<'_>, chat: ChatTraits) -> WrittenChat {
    try_write(conversation, &chat_host(TranslationMode::Strict, chat)).unwrap()
}

fn text(text: &str) -> BlockContent<'static> {
    BlockContent::Text(Cow::Owned(text.to_owned()))
}

fn thought(text: &str) -> BlockContent<'static> {
    BlockContent::Reasoning(ReasoningState::Text {
        text: Cow::Owned(text.to_owned()),
    })
}

fn call(id: &'static str, arguments: &'static str) -> BlockContent<'static> {
    BlockContent::Call(ToolCall {
        id: id.into(),
        name: "read".into(),
        arguments: arguments.into(),
    })
}

fn result(call_id: &'static str, content: Vec<BlockContent<'static>>) -> BlockContent<'static> {
    let content = content.into_iter().enumerate().map(|(index, content)| ContentBlock {
        path: format!("{call_id}[{index}]"),
        content,
    });
    BlockContent::Result(ToolCallResult {
        call_id: call_id.into(),
        name: Some("read".into()),
        content: content.collect(),
        is_error: false,
    })
}

fn failed(call_id: &'static str, content: Vec<BlockContent<'static>>) -> BlockContent<'static> {
    match result(call_id, content) {
        BlockContent::Result(result) => BlockContent::Result(ToolCallResult {
            is_error: true,
            ..result
        }),
        other => other,
    }
}

fn media(kind: MediaKind, media_type: &'static str, data: &str) -> BlockContent<'static> {
    BlockContent::Media(MediaContent {
        kind,
        source: MediaSource::Base64 {
            media_type: media_type.into(),
            data: Cow::Owned(data.to_owned()),
        },
        name: Some("notes.txt".into()),
    })
}

fn image_at(url: &'static str) -> BlockContent<'static> {
    BlockContent::Media(MediaContent {
        kind: MediaKind::Image,
        source: MediaSource::Url {
            url: url.into(),
            media_type: None,
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

fn tool(name: &'static str) -> ToolDefinition<'static> {
    ToolDefinition {
        path: "tools[0]".to_owned(),
        name: name.into(),
        description: None,
        schema: None,
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
fn members_come_in_a_fixed_order_with_the_cache_key_last() {
    let mut request = conversation(vec![(User, text("hello"))]);
    request.system = vec!["be brief".into(), "be kind".into()];
    request.tools = vec![ToolDefinition {
        description: Some("reads".into()),
        schema: Some(r#"{"type": "object", "x": 1.0}"#.into()),
        strict: Some(true),
        ..tool("read")
    }];
    request.tool_choice = ToolChoice::Auto;
    request.options = RequestOptions {
        stream: true,
        max_tokens: placed("max_tokens", 9),
        temperature: placed("temperature", "0.10"),
        top_p: placed("top_p", "1.0"),
        top_k: placed("top_k", "40"),
        seed: placed("seed", "7"),
        presence_penalty: placed("presencePenalty", "0.5"),
        frequency_penalty: placed("frequencyPenalty", "-0.5"),
        stop: placed("stop_sequences", vec!["END".into()]),
        reasoning: placed("thinking", ReasoningRequest::by_effort(ReasoningEffort::High)),
        shows_reasoning: None,
        format: placed("format", AnswerFormat::Json),
        parallel_calls: placed("parallel_tool_calls", false),
        cache_key: placed("prompt_cache_key", "k".into()),
    };
    let written = written(&request);
    let expected = concat!(
        r#"{"model":"m","messages":[{"role":"system","content":"be brief\n\nbe kind"},{"role":"user","content":"hello"}],"#,
        r#""tools":[{"type":"function","function":{"name":"read","description":"reads","#,
        r#""parameters":{"type": "object", "x": 1.0},"strict":true}}],"tool_choice":"auto","#,
        r#""stream":true,"stream_options":{"include_usage":true},"max_tokens":9,"temperature":0.10,"top_p":1.0,"#,
        r#""seed":7,"presence_penalty":0.5,"frequency_penalty":-0.5,"stop":["END"],"#,
        r#""response_format":{"type":"json_object"},"parallel_tool_calls":false,"reasoning_effort":"high","#,
        r#""prompt_cache_key":"k"}"#,
    );
    assert_eq!(written.body, expected);
    assert_eq!(written.losses, ["dropped top_k", "adapted thinking"]);
}

#[test]
fn what_the_client_does_not_state_is_not_written() {
    let written = written(&conversation(vec![(User, text("hello"))]));
    assert_eq!(
        written.body,
        r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#
    );
    assert!(written.losses.is_empty(), "{:?}", written.losses);
}

#[test]
fn later_texts_of_the_system_stay_or_become_marked_texts_of_the_user() {
    let request = conversation(vec![(User, text("a")), (System, text("b")), (Assistant, text("c"))]);
    let inside = written(&request);
    assert_eq!(inside.messages()[1], json!({"role": "system", "content": "b"}));
    assert!(inside.losses.is_empty(), "{:?}", inside.losses);
    let marked = written_for(
        &request,
        ChatTraits {
            system_inside: false,
            ..ChatTraits::default()
        },
    );
    assert_eq!(
        marked.messages()[0],
        json!({"role": "user", "content": "a\n\n<system>b</system>"})
    );
    assert_eq!(marked.losses, ["adapted 1"]);
}

#[test]
fn calls_and_results_become_tool_messages() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (Assistant, text("b")),
        (Assistant, call("call_1", r#"{"n": 1.0}"#)),
        (Assistant, call("functions.Bash:0", "")),
        (User, result("call_1", vec![text("one"), text("two")])),
        (User, failed("functions.Bash:0", vec![text("no such file")])),
        (Assistant, call("call_3", "broken")),
        (User, failed("call_3", Vec::new())),
    ]));
    let calls = json!([
        {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{\"n\": 1.0}"}},
        {"id": "functions.Bash:0", "type": "function", "function": {"name": "read", "arguments": "{}"}},
    ]);
    let broken = json!([{"id": "call_3", "type": "function", "function": {"name": "read", "arguments": "broken"}}]);
    assert_eq!(
        written.messages(),
        json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call_1", "content": "one\n\ntwo"},
            {"role": "tool", "tool_call_id": "functions.Bash:0", "content": "[error]\nno such file"},
            {"role": "assistant", "content": null, "tool_calls": broken},
            {"role": "tool", "tool_call_id": "call_3", "content": "[error]"},
        ])
    );
    assert_eq!(written.losses, ["adapted 5", "adapted 7"]);
}

#[test]
fn images_of_results_follow_all_results_of_the_turn() {
    let written = written(&conversation(vec![
        (Assistant, call("call_1", "{}")),
        (Assistant, call("call_2", "{}")),
        (
            User,
            result(
                "call_1",
                vec![text("seen"), media(MediaKind::Image, "image/png", "AAAA")],
            ),
        ),
        (User, result("call_2", vec![text("done")])),
        (User, text("what is it?")),
    ]));
    let messages = written.messages();
    assert_eq!(
        messages[1]["content"],
        json!("seen\n\n[image: see the user message below]")
    );
    assert_eq!(messages[2]["content"], json!("done"));
    assert_eq!(
        messages[3],
        json!({"role": "user", "content": [
            {"type": "text", "text": "[image of the tool result call_1]"},
            {"type": "text", "text": "notes.txt"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "text", "text": "what is it?"},
        ]})
    );
    assert_eq!(written.losses, ["adapted call_1[1]"]);
}

#[test]
fn nothing_is_put_between_a_call_and_its_result() {
    let written = written(&conversation(vec![
        (Assistant, text("before")),
        (Assistant, call("call_1", "{}")),
        (Assistant, text("behind")),
        (System, text("rule")),
        (User, text("hurry")),
        (User, result("call_1", vec![text("one")])),
        (Assistant, text("later")),
    ]));
    let messages = written.messages();
    let roles: Vec<&str> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["assistant", "tool", "system", "user", "assistant"]);
    assert_eq!(messages[0]["content"], json!("before\n\nbehind"));
    assert_eq!(messages[3]["content"], json!("hurry"));
    assert_eq!(written.losses, ["adapted 2", "adapted 4", "adapted 3"]);
}

#[test]
fn a_host_can_want_a_message_of_the_assistant_between_a_result_and_the_user() {
    let traits = ChatTraits {
        system_inside: false,
        user_after_results: false,
        ..ChatTraits::default()
    };
    let roles_and_losses = |behind: Vec<(TurnRole, BlockContent<'static>)>| {
        let mut blocks = vec![
            (User, text("question")),
            (Assistant, call("call_1", "{}")),
            (User, result("call_1", vec![text("one")])),
        ];
        blocks.extend(behind);
        let written = written_for(&conversation(blocks), traits.clone());
        let messages = written.messages();
        let roles = messages.as_array().unwrap().iter().skip(3);
        let roles: Vec<String> = roles
            .map(|message| message["role"].as_str().unwrap().to_owned())
            .collect();
        (roles.join(" "), written.losses.join(", "))
    };
    let image = || result("call_2", vec![media(MediaKind::Image, "image/png", "AAAA")]);
    let adapted_3 = "adapted 3".to_owned();
    for (behind, roles, losses) in [
        (Vec::new(), "", String::new()),
        (vec![(Assistant, text("done"))], "assistant", String::new()),
        (
            vec![(Assistant, text("done")), (User, text("more"))],
            "assistant user",
            String::new(),
        ),
        (vec![(User, text("a reminder"))], "assistant user", adapted_3.clone()),
        (
            vec![(System, text("rule")), (User, text("more"))],
            "assistant user",
            adapted_3,
        ),
        (
            vec![(User, image()), (User, result("call_3", Vec::new()))],
            "tool tool assistant user",
            "adapted call_2[0]".to_owned(),
        ),
    ] {
        assert_eq!(roles_and_losses(behind), (roles.to_owned(), losses), "{roles}");
    }
    let everywhere = written(&conversation(vec![
        (Assistant, call("call_1", "{}")),
        (User, result("call_1", Vec::new())),
        (User, text("a reminder")),
    ]));
    assert_eq!(everywhere.messages().as_array().unwrap().len(), 3);
}

/// The roles of the messages of a request.
fn roles_of(written: &WrittenChat) -> Vec<String> {
    let messages = written.messages();
    let roles = messages.as_array().unwrap().iter().map(|message| &message["role"]);
    roles.map(|role| role.as_str().unwrap().to_owned()).collect()
}

#[test]
fn neighbours_of_one_role_become_one_message() {
    let state = BlockContent::Reasoning(ReasoningState::Signature {
        signature: "of another maker".into(),
    });
    let mut request = conversation(vec![
        (System, text("rule")),
        (System, text("another")),
        (User, text("a")),
        (Assistant, state),
        (User, image_at("https://x/y.png")),
        (Assistant, text("b")),
        (Assistant, call("call_1", "{}")),
        (User, result("call_1", vec![text("one")])),
        (System, text("first")),
        (System, text("second")),
        (User, text("c")),
    ]);
    request.system = vec!["be brief".into(), "be kind".into()];
    let inside = written(&request);
    assert_eq!(
        roles_of(&inside),
        ["system", "user", "assistant", "tool", "system", "user"]
    );
    let messages = inside.messages();
    assert_eq!(messages[0]["content"], json!("be brief\n\nbe kind\n\nrule\n\nanother"));
    assert_eq!(
        messages[1]["content"],
        json!([
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        ])
    );
    assert_eq!(messages[4]["content"], json!("first\n\nsecond"));
    let traits = ChatTraits {
        system_inside: false,
        ..ChatTraits::default()
    };
    let marked = written_for(&request, traits);
    assert_eq!(roles_of(&marked), ["system", "user", "assistant", "tool", "user"]);
    assert_eq!(
        marked.messages()[4]["content"],
        json!("<system>first</system>\n\n<system>second</system>\n\nc")
    );
}

#[test]
fn results_stay_messages_of_their_own_and_turns_of_the_model_around_a_lost_one_join() {
    let lossy = chat_host(TranslationMode::Lossy, ChatTraits::default());
    let request = conversation(vec![
        (Assistant, text("before")),
        (User, media(MediaKind::Document, "application/pdf", "JVBERi0xLjQ=")),
        (Assistant, text("behind")),
        (Assistant, call("call_1", "{}")),
        (Assistant, call("call_2", "{}")),
        (User, result("call_1", vec![text("one")])),
        (User, result("call_2", vec![text("two")])),
    ]);
    let written = try_write(&request, &lossy).unwrap();
    assert_eq!(roles_of(&written), ["assistant", "tool", "tool"]);
    let messages = written.messages();
    assert_eq!(messages[0]["content"], json!("before\n\nbehind"));
    assert_eq!(messages[0]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(written.losses, ["dropped 1"]);
}

#[test]
fn the_name_of_an_image_becomes_a_text_before_it() {
    let written = written(&conversation(vec![(
        User,
        media(MediaKind::Image, "image/png", "AAAA"),
    )]));
    assert_eq!(
        written.messages()[0]["content"],
        json!([
            {"type": "text", "text": "notes.txt"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ])
    );
    assert_eq!(written.losses, ["adapted 0"]);
}

#[test]
fn a_text_of_the_system_behind_a_call_without_result_is_not_lost() {
    for next in [None, Some((User, text("go on"))), Some((Assistant, text("done")))] {
        let mut blocks = vec![(Assistant, call("call_1", "{}")), (System, text("rule"))];
        blocks.extend(next);
        let messages = written(&conversation(blocks)).messages();
        assert_eq!(messages[1], json!({"role": "system", "content": "rule"}));
    }
}

#[test]
fn a_refusal_becomes_text() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (Assistant, BlockContent::Refusal("no".into())),
    ]));
    assert_eq!(written.messages()[1], json!({"role": "assistant", "content": "no"}));
    assert_eq!(written.losses, ["adapted 1"]);
}

#[test]
fn texts_and_images_of_the_user_become_parts() {
    let written = written(&conversation(vec![
        (User, text("a")),
        (User, image_at("https://x/y.png")),
        (User, text("b")),
    ]));
    assert_eq!(
        written.messages()[0]["content"],
        json!([
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            {"type": "text", "text": "b"},
        ])
    );
    assert!(written.losses.is_empty(), "{:?}", written.losses);
}

#[test]
fn reasoning_returns_where_and_when_the_host_wants_it() {
    let request = conversation(vec![
        (User, text("first")),
        (Assistant, thought("old")),
        (Assistant, call("call_1", "{}")),
        (User, result("call_1", vec![text("one")])),
        (Assistant, thought("plain")),
        (Assistant, text("answer")),
        (User, text("second")),
        (Assistant, thought("new")),
        (Assistant, call("call_2", "{}")),
        (User, result("call_2", vec![text("two")])),
        (User, text("a reminder beside the result")),
    ]);
    let kept_by = |reasoning, reasoning_back, member: &str| {
        let traits = ChatTraits {
            reasoning,
            reasoning_back,
            ..ChatTraits::default()
        };
        let written = written_for(&request, traits);
        let messages = written.messages();
        let texts = messages
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|message| message[member].as_str());
        let texts: Vec<String> = texts.map(str::to_owned).collect();
        assert_eq!(texts.len() + written.losses.len(), 3, "{:?}", written.losses);
        texts
    };
    for (place, member) in [
        (ChatReasoning::ReasoningContent, "reasoning_content"),
        (ChatReasoning::Reasoning, "reasoning"),
    ] {
        assert_eq!(kept_by(place, ReasoningBack::Calls, member), ["new"]);
        assert_eq!(kept_by(place, ReasoningBack::Always, member), ["old", "plain", "new"]);
        assert!(kept_by(place, ReasoningBack::Never, member).is_empty());
    }
    assert!(kept_by(ChatReasoning::Hidden, ReasoningBack::Always, "reasoning_content").is_empty());
}

#[test]
fn reasoning_can_be_a_part_of_the_content() {
    let traits = ChatTraits {
        reasoning: ChatReasoning::Content,
        reasoning_back: ReasoningBack::Always,
        ..ChatTraits::default()
    };
    let request = conversation(vec![
        (User, text("a")),
        (Assistant, thought("because")),
        (Assistant, text("b")),
        (User, text("c")),
        (Assistant, text("without")),
    ]);
    let messages = written_for(&request, traits).messages();
    assert_eq!(
        messages[1]["content"],
        json!([
            {"type": "thinking", "thinking": [{"type": "text", "text": "because"}]},
            {"type": "text", "text": "b"},
        ])
    );
    assert_eq!(messages[3]["content"], json!("without"));
}

#[test]
fn state_of_other_protocols_is_dropped_and_a_turn_without_anything_else_vanishes() {
    let states = [
        ReasoningState::Thinking {
            text: "t".into(),
            signature: "s".into(),
        },
        ReasoningState::Redacted { data: "d".into() },
        ReasoningState::Item { json: "{}".into() },
        ReasoningState::Signature { signature: "s".into() },
    ];
    for state in states {
        let request = conversation(vec![
            (User, text("a")),
            (Assistant, BlockContent::Reasoning(state)),
            (User, text("b")),
        ]);
        let written = written(&request);
        assert_eq!(written.messages(), json!([{"role": "user", "content": "a\n\nb"}]));
        assert_eq!(written.losses, ["dropped 1"]);
    }
}

#[test]
fn a_document_of_text_becomes_text_and_another_is_refused() {
    // "hello" and "%PDF-1.4".
    let request = |data: &str| {
        let document = media(MediaKind::Document, "application/octet-stream", data);
        conversation(vec![(User, text("a")), (User, document)])
    };
    let readable = written(&request("aGVsbG8="));
    assert_eq!(
        readable.messages(),
        json!([{"role": "user", "content": "a\n\nnotes.txt\n\nhello"}])
    );
    assert_eq!(readable.losses, ["adapted 1"]);
    for data in ["JVBERi0xLjQ=", "AAAA", "/w==", "no base64", ""] {
        let strict = chat_host(TranslationMode::Strict, ChatTraits::default());
        assert_eq!(try_write(&request(data), &strict).unwrap_err().path, "1");
        let lossy = chat_host(TranslationMode::Lossy, ChatTraits::default());
        let written = try_write(&request(data), &lossy).unwrap();
        assert_eq!(written.messages(), json!([{"role": "user", "content": "a"}]));
        assert_eq!(written.losses, ["dropped 1"]);
    }
}

#[test]
fn audio_and_video_are_refused_in_both_modes() {
    for kind in [MediaKind::Audio, MediaKind::Video] {
        for mode in [TranslationMode::Strict, TranslationMode::Lossy] {
            let host = chat_host(mode, ChatTraits::default());
            let direct = conversation(vec![(User, media(kind, "x/y", "AAAA"))]);
            assert_eq!(try_write(&direct, &host).unwrap_err().path, "0");
            let in_result = conversation(vec![
                (Assistant, call("call_1", "{}")),
                (User, result("call_1", vec![media(kind, "x/y", "AAAA")])),
            ]);
            assert_eq!(try_write(&in_result, &host).unwrap_err().path, "call_1[0]");
        }
    }
}

#[test]
fn more_than_four_stop_sequences_are_refused_or_cut() {
    let mut request = conversation(vec![(User, text("a"))]);
    request.options.stop = placed("stop_sequences", ["1", "2", "3", "4", "5"].map(Cow::Borrowed).to_vec());
    let strict = chat_host(TranslationMode::Strict, ChatTraits::default());
    assert_eq!(try_write(&request, &strict).unwrap_err().path, "stop_sequences");
    let lossy = chat_host(TranslationMode::Lossy, ChatTraits::default());
    let written = try_write(&request, &lossy).unwrap();
    assert_eq!(written.json()["stop"], json!(["1", "2", "3", "4"]));
    assert_eq!(written.losses, ["dropped stop_sequences"]);
}

#[test]
fn a_schema_for_the_answer_always_has_a_name() {
    let mut request = conversation(vec![(User, text("a"))]);
    request.options.format = placed(
        "output_config.format",
        AnswerFormat::Schema {
            name: None,
            description: Some("d".into()),
            schema: r#"{"type": "object"}"#.into(),
            strict: Some(true),
        },
    );
    assert_eq!(
        written(&request).json()["response_format"],
        json!({"type": "json_schema", "json_schema": {
            "name": "answer", "description": "d", "schema": {"type": "object"}, "strict": true,
        }})
    );
}

#[test]
fn a_schema_is_as_strict_as_it_is_at_the_clients_own_provider() {
    let closed =
        r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#;
    let open = r#"{"type":"object","properties":{"a":{"type":"string"}}}"#;
    for (from, stated, schema, strict, is_adapted) in [
        (Protocol::Messages, None, closed, json!(true), false),
        (Protocol::Gemini, None, closed, json!(true), false),
        (Protocol::Messages, None, open, json!(false), true),
        (Protocol::Responses, None, closed, Value::Null, false),
        (Protocol::Responses, Some(true), open, json!(true), false),
        (Protocol::Responses, Some(false), closed, json!(false), false),
    ] {
        let mut request = conversation(vec![(User, text("a"))]);
        let format = AnswerFormat::Schema {
            name: None,
            description: None,
            schema: schema.into(),
            strict: stated,
        };
        request.options.format = placed("output_config.format", format);
        let mut host = chat_host(TranslationMode::Strict, ChatTraits::default());
        host.from = from;
        let written = try_write(&request, &host).unwrap();
        assert_eq!(written.json()["response_format"]["json_schema"]["strict"], strict);
        assert_eq!(!written.losses.is_empty(), is_adapted, "{from:?} {stated:?} {schema}");
    }
}

#[test]
fn each_choice_of_tools_has_its_word() {
    let named = json!({"type": "function", "function": {"name": "read"}});
    for (choice, with_tools, without_tools) in [
        (ToolChoice::Unset, Value::Null, Value::Null),
        (ToolChoice::Auto, json!("auto"), Value::Null),
        (ToolChoice::Forbidden, json!("none"), Value::Null),
        (ToolChoice::Required, json!("required"), json!("required")),
        (ToolChoice::Named("read".into()), named.clone(), named.clone()),
    ] {
        let mut request = conversation(vec![(User, text("a"))]);
        request.tool_choice = choice;
        request.options.parallel_calls = placed("parallel_tool_calls", false);
        let body = written(&request).json();
        assert_eq!(body["tool_choice"], without_tools);
        assert_eq!(body["parallel_tool_calls"], Value::Null);
        request.tools = vec![tool("read")];
        let body = written(&request).json();
        assert_eq!(body["tool_choice"], with_tools);
        assert_eq!(body["parallel_tool_calls"], json!(false));
        let parameters = &body["tools"][0]["function"]["parameters"];
        assert_eq!(*parameters, json!({"type": "object", "properties": {}}));
    }
}

#[test]
fn an_effort_is_adapted_unless_it_is_a_responses_clients_own_word() {
    let budget = ReasoningRequest::by_budget(9_000);
    for (from, request, word, is_adapted) in [
        (
            Protocol::Responses,
            ReasoningRequest::by_effort(ReasoningEffort::Minimal),
            "minimal",
            false,
        ),
        (
            Protocol::Responses,
            ReasoningRequest::by_effort(ReasoningEffort::Off),
            "none",
            false,
        ),
        (
            Protocol::Responses,
            ReasoningRequest::by_effort(ReasoningEffort::Max),
            "xhigh",
            true,
        ),
        (
            Protocol::Messages,
            ReasoningRequest::by_effort(ReasoningEffort::Low),
            "low",
            true,
        ),
        (Protocol::Gemini, budget, "medium", true),
    ] {
        let mut conversation = conversation(vec![(User, text("a"))]);
        conversation.options.reasoning = placed("reasoning", request);
        let mut host = chat_host(TranslationMode::Strict, ChatTraits::default());
        host.from = from;
        let written = try_write(&conversation, &host).unwrap();
        assert_eq!(written.json()["reasoning_effort"], json!(word));
        assert_eq!(!written.losses.is_empty(), is_adapted, "{from:?} {request:?}");
    }
}

/// An exchange: a question, turns of calls with their results, and an answer.
fn exchanges() -> impl Strategy<Value = Vec<(TurnRole, BlockContent<'static>)>> {
    let step = (any::<bool>(), any::<bool>(), any::<bool>(), 1_usize..3, any::<bool>());
    ("[a-z\"\\\\]{1,8}", proptest::collection::vec(step, 0..3), any::<bool>()).prop_map(
        |(question, steps, has_rule)| {
            let mut blocks = vec![(User, text(&question))];
            if has_rule {
                blocks.push((System, text("rule")));
            }
            for (thinks, speaks, is_late, calls, reminds) in steps {
                let ids = ["call_1", "call_2"];
                if thinks {
                    blocks.push((Assistant, thought("because")));
                }
                if speaks && !is_late {
                    blocks.push((Assistant, text("first")));
                }
                blocks.extend(ids.into_iter().take(calls).map(|id| (Assistant, call(id, "{}"))));
                if speaks && is_late {
                    blocks.push((Assistant, text("later")));
                    blocks.push((System, text("between")));
                }
                let image = || media(MediaKind::Image, "image/png", "AAAA");
                blocks.extend(
                    ids.into_iter()
                        .take(calls)
                        .map(|id| (User, result(id, vec![text("out"), image()]))),
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
        system_inside in any::<bool>(),
        user_after_results in any::<bool>(),
    ) {
        let traits = ChatTraits {
            system_inside,
            user_after_results,
            reasoning_back: ReasoningBack::Always,
            ..ChatTraits::default()
        };
        let full = conversation(parts.into_iter().flatten().collect());
        let whole = written_for(&full, traits.clone()).body;
        for count in 1..full.turns.len() {
            // A request ends with a turn of the user, or with a text of the system behind one.
            let last = &full.turns[count - 1];
            let ends_request = last.role == User
                || (last.role == System && last.blocks.iter().any(|block| block.content == text("rule")));
            // What the system says next joins a message of the user where the host takes it as one.
            let joins = !system_inside && full.turns.get(count).is_some_and(|next| next.role == System);
            if !ends_request || joins {
                continue;
            }
            let mut shorter = full.clone();
            shorter.turns.truncate(count);
            let body = written_for(&shorter, traits.clone()).body;
            let prefix = body.strip_suffix("]}").unwrap();
            prop_assert!(whole.starts_with(prefix), "{prefix}\n{whole}");
        }
    }
}
