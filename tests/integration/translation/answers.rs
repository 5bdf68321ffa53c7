//! Answers of a provider that only speaks `chat/completions`: their form, their usage, and what the logs say of them.

use serde_json::{Value as Json, json};

use super::chat_answers::{ChatTurn, DONE, chunk, chunk_with, usage_chunk};
use super::chat_provider::chat_provider;
use super::conversation::{reported, stop, text, thought};
use super::stage::{
    CHARGE, MODEL, PROVIDER, REPORTED, Stage, TRANSLATION, UPSTREAM_MODEL, Upstream, billed, protocol, question,
};
use super::streams::{events, folded, folded_chunks, types};
use crate::harness::RecordingProvider;
use crate::harness::books::cost;
use crate::harness::client::Response;
use crate::harness::request::{ALL_WIRES, Wire};

const SSE: &str = "text/event-stream; charset=utf-8";

const HELLO: ChatTurn = ChatTurn {
    reasoning: &["I need ", "no tool."],
    text: &["Hello", " w\u{f6}rld"],
    calls: &[],
};

const MESSAGES_EVENTS: &[&str] = &[
    "message_start",
    "ping",
    // Thinking in two pieces, and its signature.
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    // Text in two pieces.
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

const RESPONSES_EVENTS: &[&str] = &[
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_text.done",
    "response.reasoning_summary_part.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
];

fn hello() -> (RecordingProvider, Stage) {
    let provider = chat_provider(|body, answer| HELLO.answer(body, answer));
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    (provider, stage)
}

#[test]
fn a_stream_has_the_events_of_the_clients_protocol_in_their_order() {
    let (_provider, stage) = hello();
    for (wire, expected) in [(Wire::Messages, MESSAGES_EVENTS), (Wire::Responses, RESPONSES_EVENTS)] {
        let answer = stage.ask(wire, true, &question(wire, "hi"));
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        let stream = answer.text();
        let (found, _) = events(&stream);
        assert_eq!(types(&found), expected, "{wire:?}: {stream}");
        let head = match wire {
            Wire::Messages => &found[0]["message"],
            Wire::Responses | Wire::Gemini => &found[0]["response"],
        };
        assert_eq!(head["model"], MODEL, "{head}");
        if wire == Wire::Messages {
            // The provider's own count is not known yet, and agents display what this event says.
            assert!(head["usage"]["input_tokens"].as_u64() > Some(0), "{head}");
        }
    }
}

#[test]
fn a_stream_and_an_answer_in_one_piece_say_the_same_and_report_what_the_provider_reports() {
    let (provider, stage) = hello();
    for wire in ALL_WIRES {
        for is_stream in [true, false] {
            let answer = stage.ask(wire, is_stream, &question(wire, "hi"));
            let what = format!("{wire:?}, stream: {is_stream}: {}", answer.text());
            assert_eq!((answer.status, answer.complete), (200, true), "{what}");
            let content_type = if is_stream { SSE } else { "application/json" };
            assert_eq!(answer.header("content-type"), Some(content_type), "{what}");
            let nothing_lost = format!("from={}, to=chat", protocol(wire));
            assert_eq!(answer.header(TRANSLATION), Some(nothing_lost.as_str()), "{what}");
            let whole = match is_stream {
                true => folded(wire, &answer.text()),
                false => answer.json(),
            };
            // Gemini clients get reasoning only if they ask for it.
            let (end, shown) = match wire {
                Wire::Messages => ("end_turn", "I need no tool."),
                Wire::Responses => ("completed", "I need no tool."),
                Wire::Gemini => ("STOP", ""),
            };
            assert_eq!(text(wire, &whole), "Hello w\u{f6}rld", "{what}");
            assert_eq!(thought(wire, &whole), shown, "{what}");
            assert_eq!(stop(wire, &whole), end, "{what}");
            assert_eq!(reported(wire, &whole), REPORTED, "{what}");
            let sent: Json = serde_json::from_slice(&provider.last().body).unwrap();
            assert_eq!(sent["stream"] == true, is_stream, "{sent}");
            check_logs(&stage, &answer, wire, is_stream);
        }
    }
    stage.weir.books(6);
}

/// The access log says how the request was translated, and the row charges what the provider reported.
fn check_logs(stage: &Stage, answer: &Response, wire: Wire, is_stream: bool) {
    let line = stage.line(answer);
    assert_eq!(line["translated"], format!("{}->chat", protocol(wire)), "{line}");
    assert_eq!(line.get("losses"), None, "{line}");
    assert_eq!((&line["provider"], &line["outcome"]), (&PROVIDER.into(), &"ok".into()));
    let usage = json!({"input_uncached": 40, "cache_read": 10, "output_text": 18, "output_reasoning": 12});
    assert_eq!(line["usage"], usage, "{line}");
    let row = stage.row(answer);
    assert_eq!(
        (&row["protocol"], &row["stream"]),
        (&protocol(wire).into(), &is_stream.into())
    );
    assert_eq!(
        (&row["provider"], &row["model"]),
        (&PROVIDER.into(), &MODEL.into()),
        "{row}"
    );
    assert_eq!(
        (billed(&row), &row["usage_source"]),
        (REPORTED, &"reported".into()),
        "{row}"
    );
    assert_eq!(cost(&row), CHARGE, "{row}");
}

#[test]
fn a_gemini_client_without_sse_gets_an_array() {
    let (_provider, stage) = hello();
    let mut request = stage.request(Wire::Gemini, true, &question(Wire::Gemini, "hi"));
    request.target = request.target.replace("?alt=sse", "");
    let answer = stage.weir.exchange(&request);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let chunks = answer.json();
    let whole = folded_chunks(chunks.as_array().unwrap());
    assert_eq!(text(Wire::Gemini, &whole), "Hello w\u{f6}rld");
    assert_eq!(reported(Wire::Gemini, &whole), REPORTED);
}

#[test]
fn what_is_not_carried_over_stands_in_the_header_the_access_log_and_the_metrics() {
    let (provider, stage) = hello();
    let body = json!({
        "max_tokens": 512,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "top_k": 5,
        "metadata": {"user_id": "somebody"},
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "new_option": {"secret": "value"},
        "messages": [{"role": "user", "content": "hi"}],
    });
    let answer = stage.ask(Wire::Messages, false, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let header = concat!(
        r#"from=messages, to=chat, adapted=("thinking"), "#,
        r#"dropped=("metadata" "system[0].cache_control" "top_k"), unknown=("new_option")"#
    );
    assert_eq!(answer.header(TRANSLATION), Some(header));
    let line = stage.line(&answer);
    let mut losses: Vec<&str> = line["losses"]
        .as_array()
        .unwrap()
        .iter()
        .map(|loss| loss.as_str().unwrap())
        .collect();
    losses.sort_unstable();
    // A member that weir does not know can have any text as its name.
    let known = [
        "adapted thinking",
        "dropped metadata",
        "dropped system[0].cache_control",
        "dropped top_k",
    ];
    assert_eq!(losses, known, "{line}");
    let metrics = stage.weir.metrics();
    for (verdict, count) in [("adapted", 1), ("dropped", 3), ("unknown", 1)] {
        let counted =
            format!(r#"weir_translation_losses_total{{from="messages",to="chat",verdict="{verdict}"}} {count}"#);
        assert!(metrics.contains(&counted), "{counted}");
    }
    let sent: Json = serde_json::from_slice(&provider.last().body).unwrap();
    assert_eq!(sent["reasoning_effort"], "low", "{sent}");
    assert_eq!(sent["messages"][0], json!({"role": "system", "content": "Be brief."}));
}

#[test]
fn what_a_client_does_not_get_of_an_answer_stands_in_the_header_and_the_access_log() {
    let provider = chat_provider(|_, answer| {
        let function = json!({"name": "read", "arguments": "{\"path\": \"src/"});
        let call = json!({"id": "call_1", "type": "function", "function": function});
        let message = json!({"role": "assistant", "content": "I read it.", "tool_calls": [call]});
        let body = json!({
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": UPSTREAM_MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 30, "total_tokens": 80},
        });
        answer.json(&body.to_string());
    });
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    for (wire, end) in [(Wire::Messages, "max_tokens"), (Wire::Gemini, "MAX_TOKENS")] {
        let answer = stage.ask(wire, false, &question(wire, "hi"));
        let whole = answer.json();
        assert_eq!(
            (answer.status, text(wire, &whole).as_str()),
            (200, "I read it."),
            "{whole}"
        );
        assert_eq!(stop(wire, &whole), end, "{whole}");
        assert!(!answer.text().contains("src/"), "a client could run the call: {whole}");
        let header = format!(r#"from={}, to=chat, dropped=("answer.call")"#, protocol(wire));
        assert_eq!(answer.header(TRANSLATION), Some(header.as_str()));
        let line = stage.line(&answer);
        assert_eq!(line["losses"], json!(["dropped answer.call"]), "{line}");
    }
}

#[test]
fn reasoning_behind_text_reaches_a_messages_client_only_before_something_else() {
    let provider = chat_provider(|body, answer| {
        let function = json!({"name": "look", "arguments": "{}"});
        let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
        let has_tools = body["tools"].is_array();
        let mut deltas = vec![json!({"content": "Shown?"}), json!({"reasoning_content": "After."})];
        if has_tools {
            deltas.push(json!({"tool_calls": [call]}));
        }
        answer.sse();
        deltas.iter().for_each(|delta| answer.chunk(chunk(delta, None)));
        let reason = if has_tools { "tool_calls" } else { "stop" };
        answer.chunk(chunk(&json!({}), Some(reason)));
        answer.chunk(usage_chunk());
        answer.chunk(DONE);
        answer.end();
    });
    let stage = Stage::start(Upstream::Chat, &provider.base_url(), "strict");
    // Claude Code prints nothing of a message whose last text is followed by reasoning alone.
    let last = stage.ask(Wire::Messages, true, &question(Wire::Messages, "hi"));
    let message = folded(Wire::Messages, &last.text());
    assert_eq!(message["content"], json!([{"type": "text", "text": "Shown?"}]));
    let line = stage.line(&last);
    let lost = json!(["dropped answer.reasoning", "dropped answer.reasoning_state"]);
    assert_eq!(line["losses"], lost, "{line}");
    // Before a call it stays in its place, and returns to its maker.
    let mut body = question(Wire::Messages, "hi");
    body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    let called = stage.ask(Wire::Messages, true, &body);
    let message = folded(Wire::Messages, &called.text());
    let kinds: Vec<&Json> = message["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| &block["type"])
        .collect();
    assert_eq!(kinds, ["text", "thinking", "tool_use"], "{message}");
    assert_eq!(stage.line(&called).get("losses"), None, "{message}");
    let result = json!([{"type": "tool_result", "tool_use_id": "call_1", "content": "seen"}]);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": message["content"]}));
    messages.push(json!({"role": "user", "content": result}));
    assert_eq!(stage.ask(Wire::Messages, true, &body).status, 200);
    let sent: Json = serde_json::from_slice(&provider.last().body).unwrap();
    assert_eq!(sent["messages"][1]["reasoning_content"], "After.", "{sent}");
}

#[test]
fn the_edits_of_answers_apply_to_the_providers_own_answer() {
    const SAID: &str = "Hello";
    let provider = chat_provider(|body, answer| {
        // This host has another name for the text.
        let member = if body["stream"] == true { "delta" } else { "message" };
        let said = json!({"choices": [{"index": 0, member: {"reply": SAID}, "finish_reason": "stop"}]});
        if body["stream"] == true {
            answer.sse();
            answer.chunk(chunk_with(&said));
            answer.chunk(usage_chunk());
            answer.chunk(DONE);
            answer.end();
        } else {
            let usage = json!({"prompt_tokens": 50, "completion_tokens": 30, "total_tokens": 80});
            let mut whole = said;
            whole["usage"] = usage;
            answer.json(&whole.to_string());
        }
    });
    let edits: String = ["delta", "message"]
        .iter()
        .map(|member| {
            let path = format!("choices[].{member}.reply");
            format!("[[response]]\nop = \"rename\"\npath = \"{path}\"\nto = \"content\"\nprotocols = [\"chat\"]\n")
        })
        .collect();
    let model =
        format!("[[model]]\nname = \"{MODEL}\"\nupstream_name = \"{UPSTREAM_MODEL}\"\ntranslate = \"strict\"\n");
    let file = Upstream::Chat.file(PROVIDER, &provider.base_url()) + &edits + &model;
    let stage = Stage::with(&[(PROVIDER, &file)], Vec::new());
    for wire in ALL_WIRES {
        for is_stream in [true, false] {
            let answer = stage.ask(wire, is_stream, &question(wire, "hi"));
            let whole = match is_stream {
                true => folded(wire, &answer.text()),
                false => answer.json(),
            };
            assert_eq!(text(wire, &whole), SAID, "{wire:?}, stream: {is_stream}: {whole}");
        }
    }
}
