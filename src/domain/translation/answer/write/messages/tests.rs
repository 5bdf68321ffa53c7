//! Tests of the writer of Messages answers.

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;
use crate::domain::translation::{
    answer::write::AnswerForm,
    conversation::ToolCall,
    reasoning::{CARRIER_BYTES_MAX, CarriedReasoning, ReasoningMaker},
    tool_names::{ClientTool, ToolKind, ToolNames},
};

/// A stream as the official SDK accumulates it.
#[derive(Debug)]
struct AccumulatedMessage {
    /// The message; null if the stream has failed before it began.
    message: Value,
    /// The type of the last event.
    last: String,
}

impl AccumulatedMessage {
    /// Reads a stream, and checks each rule of the protocol on the way: the message begins once, the indexes of blocks are dense,
    /// no blocks overlap, each block has its end, thinking is signed, and nothing follows the last event.
    fn read(stream: &str) -> Self {
        let mut read = Self {
            message: Value::Null,
            last: String::new(),
        };
        let mut open: Option<usize> = None;
        let mut arguments = String::new();
        for event in stream_events(stream) {
            let kind = event["type"].as_str().unwrap().to_owned();
            assert!(!matches!(read.last.as_str(), "message_stop" | "error"), "{stream}");
            assert_eq!(kind == "message_stop", read.last == "message_delta", "{stream}");
            if kind == "message_start" {
                assert!(read.message.is_null(), "{stream}");
                read.message = event["message"].clone();
            } else if kind != "error" {
                let content = read.message["content"].as_array_mut().unwrap();
                match kind.as_str() {
                    "content_block_start" => {
                        assert_eq!(open, None, "{stream}");
                        assert_eq!(event["index"], content.len(), "{stream}");
                        open = Some(content.len());
                        content.push(event["content_block"].clone());
                        arguments.clear();
                    }
                    "content_block_delta" => {
                        assert_eq!(event["index"], open.unwrap(), "{stream}");
                        add_delta(&mut content[open.unwrap()], &event["delta"], &mut arguments);
                    }
                    "content_block_stop" => {
                        let index = open.take().unwrap();
                        assert_eq!(event["index"], index, "{stream}");
                        end_block(&mut content[index], &arguments);
                    }
                    "message_delta" => {
                        assert_eq!(open, None, "{stream}");
                        for (name, value) in event["delta"].as_object().unwrap() {
                            read.message[name] = value.clone();
                        }
                        for (name, count) in event["usage"].as_object().unwrap() {
                            read.message["usage"][name] = count.clone();
                        }
                    }
                    "ping" | "message_stop" => {}
                    other => panic!("{other} in {stream}"),
                }
            }
            read.last = kind;
        }
        read
    }
}

/// The data of the events, each on its own line behind its name.
fn stream_events(stream: &str) -> Vec<Value> {
    let mut frames: Vec<&str> = stream.split("\n\n").collect();
    assert_eq!(frames.pop(), Some(""), "{stream}");
    let read = |frame: &str| {
        let (name, data) = frame.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    };
    frames.into_iter().map(read).collect()
}

fn add_delta(block: &mut Value, delta: &Value, arguments: &mut String) {
    let mut append = |member: &str| {
        let joined = format!("{}{}", block[member].as_str().unwrap(), delta[member].as_str().unwrap());
        block[member] = joined.into();
    };
    match delta["type"].as_str().unwrap() {
        "text_delta" => append("text"),
        "thinking_delta" => append("thinking"),
        "signature_delta" => append("signature"),
        "input_json_delta" => arguments.push_str(delta["partial_json"].as_str().unwrap()),
        "citations_delta" => {
            if block["citations"].is_null() {
                block["citations"] = json!([]);
            }
            block["citations"]
                .as_array_mut()
                .unwrap()
                .push(delta["citation"].clone());
        }
        other => panic!("{other}"),
    }
}

/// Arguments that the model has not completed count as in a message.
fn end_block(block: &mut Value, arguments: &str) {
    match block["type"].as_str().unwrap() {
        "thinking" => assert_ne!(block["signature"], ""),
        "redacted_thinking" => assert_ne!(block["data"], ""),
        "text" => assert_ne!(block["text"], ""),
        "tool_use" => {
            let call = ToolCall {
                id: "".into(),
                name: "".into(),
                arguments: arguments.into(),
            };
            block["input"] = serde_json::from_str(&call.object_arguments().0).unwrap();
        }
        other => panic!("{other}"),
    }
}

fn maker() -> ReasoningMaker {
    ReasoningMaker::new("host", "m", "a")
}

fn frame(form: AnswerForm, shows_reasoning: bool) -> AnswerFrame {
    AnswerFrame {
        form,
        id: "01".into(),
        model: "big".into(),
        created_unix: 0,
        input_estimate: 25,
        shows_reasoning,
        maker: maker(),
        names: ToolNames::default(),
        request: String::new(),
    }
}

fn usage() -> Usage {
    Usage {
        input_uncached: 100,
        input_image: 10,
        tool_input: 1,
        cache_read: 40,
        cache_read_audio: 2,
        cache_write_short: 5,
        cache_write_long: 7,
        output_text: 30,
        output_reasoning: 12,
        ..Usage::default()
    }
}

fn written(frame: AnswerFrame, events: &[AnswerEvent<'static>]) -> String {
    let mut writer = MessagesAnswerWriter::new(frame);
    let mut out = String::new();
    for event in events {
        writer.on_event(event.clone(), &mut out).unwrap();
    }
    writer.finish(&usage(), &mut out);
    writer.finish(&usage(), &mut out);
    writer.fail(500, "too late", &mut out);
    out
}

/// The message that the client of a stream has, and that it gets without a stream.
fn message(shows_reasoning: bool, events: &[AnswerEvent<'static>]) -> Value {
    let stream = written(frame(AnswerForm::Stream, shows_reasoning), events);
    let read = AccumulatedMessage::read(&stream);
    assert_eq!(read.last, "message_stop");
    let body: Value = serde_json::from_str(&written(frame(AnswerForm::Whole, shows_reasoning), events)).unwrap();
    assert_eq!(read.message, body);
    check_last_block(&body);
    body
}

/// Agents display nothing of a message whose last text is followed by reasoning alone.
fn check_last_block(message: &Value) {
    let blocks = message["content"].as_array().unwrap().iter().rev();
    let is_reasoning = |block: &&Value| block["type"] == "thinking" || block["type"] == "redacted_thinking";
    let reasoning = blocks.clone().take_while(is_reasoning).count();
    let before = blocks.clone().nth(reasoning);
    let is_hidden = reasoning > 0 && before.is_some_and(|block| block["type"] == "text");
    assert!(!is_hidden, "{message}");
}

fn content(shows_reasoning: bool, events: &[AnswerEvent<'static>]) -> Value {
    message(shows_reasoning, events)["content"].clone()
}

fn text(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Text(text.into())
}

fn thought(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Thought(text.into())
}

fn call(call_index: u32, id: &'static str, name: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Call {
        call_index,
        id: id.into(),
        name: name.into(),
    }
}

fn arguments(call_index: u32, json: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Arguments {
        call_index,
        json: json.into(),
    }
}

fn text_state(text: &'static str) -> ReasoningState<'static> {
    ReasoningState::Text { text: text.into() }
}

fn item() -> ReasoningState<'static> {
    ReasoningState::Item {
        json: r#"{"type":"reasoning","encrypted_content":"x"}"#.into(),
    }
}

fn carrier(state: &ReasoningState<'_>, visible: &str) -> String {
    state.wrap(&maker(), visible).unwrap()
}

#[test]
fn a_stream_has_the_events_of_the_protocol() {
    let events = [
        AnswerEvent::Begin,
        text("Hel\n"),
        text("lo"),
        call(0, "call_1", "get"),
        arguments(0, "{\"a\""),
        arguments(0, ":1}"),
        AnswerEvent::Stop(StopCause::Calls),
    ];
    let expected = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"big","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0}}}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel\n"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"call_1","name":"get","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":":1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":111,"cache_creation_input_tokens":12,"cache_read_input_tokens":42,"output_tokens":42,"output_tokens_details":{"thinking_tokens":12}}}

event: message_stop
data: {"type":"message_stop"}

"#;
    assert_eq!(written(frame(AnswerForm::Stream, true), &events), expected);
}

#[test]
fn a_message_has_the_same_content_in_one_object() {
    let events = [text("Hi"), AnswerEvent::Stop(StopCause::End)];
    assert_eq!(
        written(frame(AnswerForm::Whole, true), &events),
        r#"{"id":"msg_01","type":"message","role":"assistant","model":"big","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":111,"cache_creation_input_tokens":12,"cache_read_input_tokens":42,"output_tokens":42,"output_tokens_details":{"thinking_tokens":12}}}"#
    );
}

#[test]
fn the_input_counts_sum_to_all_input() {
    let usage = usage();
    let message = message(true, &[text("x")]);
    let count = |name: &str| message["usage"][name].as_u64().unwrap();
    let input = count("input_tokens") + count("cache_creation_input_tokens") + count("cache_read_input_tokens");
    assert_eq!(
        (input, count("output_tokens")),
        (usage.input_total(), usage.output_total())
    );
}

#[test]
fn visible_reasoning_is_signed_with_its_state() {
    for state in [text_state("because"), item()] {
        let events = [
            thought("bec"),
            thought("ause"),
            AnswerEvent::Reasoning(state.clone()),
            text("So"),
        ];
        let content = content(true, &events);
        assert_eq!(content[0]["thinking"], "because");
        let signature = content[0]["signature"].as_str().unwrap();
        assert_eq!(signature, carrier(&state, "because"));
        assert_eq!(
            CarriedReasoning::unwrap(signature, "because", &maker()),
            CarriedReasoning::Own(state)
        );
        assert_eq!(content[1], json!({"type": "text", "text": "So"}));
    }
}

#[test]
fn visible_reasoning_without_a_state_is_its_own_state() {
    let too_large = ReasoningState::Redacted {
        data: "x".repeat(CARRIER_BYTES_MAX).into(),
    };
    let signed = json!({"type": "thinking", "thinking": "why", "signature": carrier(&text_state("why"), "why")});
    assert_eq!(content(true, &[thought("why"), text("So")])[0], signed);
    assert_eq!(content(true, &[thought("why")])[0], signed);
    assert_eq!(
        content(true, &[thought("why"), AnswerEvent::Reasoning(too_large)])[0],
        signed
    );
}

#[test]
fn reasoning_that_the_client_does_not_see_is_redacted() {
    let redacted = |state: &ReasoningState<'_>| json!({"type": "redacted_thinking", "data": carrier(state, "")});
    let state = AnswerEvent::Reasoning(text_state("why"));
    let hidden = content(false, &[thought("why"), state, text("So")]);
    assert_eq!(
        hidden,
        json!([redacted(&text_state("why")), {"type": "text", "text": "So"}])
    );
    let opaque = AnswerEvent::Reasoning(item());
    let visible = content(
        true,
        &[opaque.clone(), opaque.clone(), thought("why"), opaque, text("So")],
    );
    let thinking = json!({"type": "thinking", "thinking": "why", "signature": carrier(&item(), "why")});
    assert_eq!(
        visible,
        json!([redacted(&item()), redacted(&item()), thinking, {"type": "text", "text": "So"}])
    );
}

#[test]
fn a_state_behind_text_needs_a_call_that_follows() {
    let state = || AnswerEvent::Reasoning(item());
    let kinds = |events: &[AnswerEvent<'static>]| {
        let content = content(true, events);
        let blocks = content.as_array().unwrap().iter();
        blocks
            .map(|block| block["type"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(&[text("a"), state(), AnswerEvent::Stop(StopCause::End)]),
        ["text"]
    );
    assert_eq!(kinds(&[text("a"), state(), text("b")]), ["text"]);
    assert_eq!(
        kinds(&[text("a"), state(), call(0, "c", "get"), arguments(0, "{}")]),
        ["text", "redacted_thinking", "tool_use"]
    );
}

#[test]
fn visible_reasoning_behind_text_waits_for_the_content_that_follows() {
    let signed = |text: &str, signature: String| json!({"type": "thinking", "thinking": text, "signature": signature});
    let why = signed("because", carrier(&item(), "because"));
    let reasoning = [thought("bec"), thought("ause"), AnswerEvent::Reasoning(item())];
    let answer = |behind: &[AnswerEvent<'static>]| {
        let mut events = vec![text("a")];
        events.extend(reasoning.iter().cloned());
        events.extend(behind.iter().cloned());
        events
    };
    let said = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(content(true, &answer(&[text("b")])), json!([said("a"), why, said("b")]));
    let used = json!({"type": "tool_use", "id": "c", "name": "get", "input": {}});
    let called = [
        call(0, "c", "get"),
        arguments(0, "{}"),
        AnswerEvent::Stop(StopCause::Calls),
    ];
    assert_eq!(content(true, &answer(&called)), json!([said("a"), why, used]));
    // Without a state it has its own, and several thoughts stay in order.
    let again = [AnswerEvent::Reasoning(item()), thought("so"), text("b")];
    let hidden = json!({"type": "redacted_thinking", "data": carrier(&item(), "")});
    let so = signed("so", carrier(&text_state("so"), "so"));
    assert_eq!(
        content(true, &answer(&again)),
        json!([said("a"), why, hidden, so, said("b")])
    );
    // A stream gets nothing of it before.
    let mut writer = MessagesAnswerWriter::new(frame(AnswerForm::Stream, true));
    let mut out = String::new();
    for event in answer(&[]) {
        writer.on_event(event, &mut out).unwrap();
    }
    assert!(
        !out.contains("thinking_delta") && !out.contains("content_block_stop"),
        "{out}"
    );
}

#[test]
fn visible_reasoning_behind_the_last_text_is_left_out_and_reported() {
    let stop = AnswerEvent::Stop(StopCause::End);
    let (why, state) = (thought("why"), AnswerEvent::Reasoning(item()));
    for (behind, lost) in [
        (vec![why.clone(), state.clone()], vec!["reasoning", "reasoning_state"]),
        (vec![why.clone()], vec!["reasoning"]),
        (vec![state.clone(), why.clone()], vec!["reasoning_state", "reasoning"]),
    ] {
        let mut events = vec![thought("first"), text("Shown?")];
        events.extend(behind);
        events.push(stop.clone());
        let content = content(true, &events);
        assert_eq!(content.as_array().unwrap().len(), 2);
        assert_eq!(content[1], json!({"type": "text", "text": "Shown?"}));
        assert_eq!(losses(&events), [lost.clone(), lost]);
    }
    // Behind a call it stays: the agent goes on with the call.
    let events = [text("a"), call(0, "c", "get"), arguments(0, "{}"), why, stop];
    assert_eq!(content(true, &events)[2]["type"], "thinking");
}

#[test]
fn reasoning_behind_text_is_left_out_and_reported_if_it_is_too_long() {
    for (bytes, kinds, lost) in [
        (REPEATED_BYTES_MAX, vec!["text", "thinking", "tool_use"], vec![]),
        (REPEATED_BYTES_MAX + 1, vec!["text", "tool_use"], vec!["reasoning"]),
    ] {
        let mut writer = MessagesAnswerWriter::new(frame(AnswerForm::Whole, true));
        let mut out = String::new();
        let first = AnswerEvent::Thought("x".repeat(bytes - 1).into());
        for event in [text("a"), first, thought("x"), call(0, "c", "get"), arguments(0, "{}")] {
            writer.on_event(event, &mut out).unwrap();
        }
        writer.finish(&usage(), &mut out);
        let message: Value = serde_json::from_str(&out).unwrap();
        let blocks = message["content"].as_array().unwrap();
        let found: Vec<&str> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
        assert_eq!((found, writer.losses().kinds()), (kinds, lost.as_slice()), "{bytes}");
    }
}

#[test]
fn states_that_wait_are_limited() {
    let large = || {
        AnswerEvent::Reasoning(ReasoningState::Redacted {
            data: "x".repeat(CARRIER_BYTES_MAX / 2).into(),
        })
    };
    let mut events: Vec<_> = (0..100).map(|_| large()).collect();
    events.push(text("So"));
    let message = message(true, &events).to_string();
    assert!(message.len() < WAITING_BYTES_MAX + 2_048, "{}", message.len());
}

#[test]
fn visible_reasoning_is_limited() {
    let mut writer = MessagesAnswerWriter::new(frame(AnswerForm::Stream, true));
    let mut out = String::new();
    let most = AnswerEvent::Thought("x".repeat(REPEATED_BYTES_MAX).into());
    writer.on_event(most, &mut out).unwrap();
    assert_eq!(writer.on_event(thought("x"), &mut out), Err(AnswerFault::TextTooLong));
}

#[test]
fn calls_have_ids_and_names_of_the_client() {
    let mut names = ToolNames::default();
    let tool = ClientTool {
        namespace: None,
        name: "my.tool".into(),
        kind: ToolKind::Function,
    };
    let name = names.add(tool, "tools[0]").unwrap();
    let frame = AnswerFrame {
        names,
        ..frame(AnswerForm::Whole, true)
    };
    let known = AnswerEvent::Call {
        call_index: 1,
        id: "functions.get:0".into(),
        name: name.into(),
    };
    let events = [
        call(0, "", "invented"),
        known,
        arguments(1, "{\"a\": 1.0}"),
        call(2, "", "b"),
    ];
    let body: Value = serde_json::from_str(&written(frame, &events)).unwrap();
    assert_eq!(
        body["content"],
        json!([
            {"type": "tool_use", "id": "toolu_01_0", "name": "invented", "input": {}},
            {"type": "tool_use", "id": client_id("functions.get:0"), "name": "my.tool", "input": {"a": 1.0}},
            {"type": "tool_use", "id": "toolu_01_2", "name": "b", "input": {}},
        ])
    );
}

#[test]
fn arguments_are_always_an_object() {
    let input = |pieces: &[&'static str]| {
        let mut events = vec![call(0, "c", "get")];
        events.extend(pieces.iter().copied().map(|piece| arguments(0, piece)));
        events.push(arguments(7, "of no open call"));
        content(true, &events)[0]["input"].clone()
    };
    assert_eq!(input(&[]), json!({}));
    assert_eq!(input(&["", " ", "\n{", "}"]), json!({}));
    assert_eq!(input(&["nu", "ll"]), json!({"input": "null"}));
    assert_eq!(input(&["[", "1]"]), json!({"input": "[1]"}));
    assert_eq!(input(&["{\"a\":", "\"x"]), json!({"input": "{\"a\":\"x"}));
}

#[test]
fn arguments_that_have_to_be_kept_are_limited() {
    let mut writer = MessagesAnswerWriter::new(frame(AnswerForm::Stream, true));
    let mut out = String::new();
    writer.on_event(call(0, "c", "get"), &mut out).unwrap();
    let piece = |json: String| AnswerEvent::Arguments {
        call_index: 0,
        json: json.into(),
    };
    writer.on_event(piece("x".repeat(WAITING_BYTES_MAX)), &mut out).unwrap();
    assert_eq!(
        writer.on_event(piece("x".into()), &mut out),
        Err(AnswerFault::CallsTooLarge)
    );
}

/// What is lost of an answer, in both forms.
fn losses(events: &[AnswerEvent<'static>]) -> [Vec<&'static str>; 2] {
    [AnswerForm::Stream, AnswerForm::Whole].map(|form| {
        let mut writer = MessagesAnswerWriter::new(frame(form, true));
        let mut out = String::new();
        for event in events {
            writer.on_event(event.clone(), &mut out).unwrap();
        }
        writer.losses().kinds().to_vec()
    })
}

#[test]
fn a_call_that_was_cut_off_is_not_in_a_message_and_incomplete_in_a_stream() {
    let cut = AnswerEvent::CallCut { call_index: 0 };
    let stop = AnswerEvent::Stop(StopCause::MaxTokens);
    for (arguments_so_far, piece) in [("{\"a\":", "{\"a\":"), ("", ""), ("[1", "")] {
        let events = [
            text("a"),
            AnswerEvent::Reasoning(item()),
            call(0, "c", "get"),
            arguments(0, arguments_so_far),
            cut.clone(),
            stop.clone(),
        ];
        let body: Value = serde_json::from_str(&written(frame(AnswerForm::Whole, true), &events)).unwrap();
        assert_eq!(
            body["content"],
            json!([{"type": "text", "text": "a"}]),
            "{arguments_so_far}"
        );
        assert_eq!(body["stop_reason"], "max_tokens");
        let stream = stream_events(&written(frame(AnswerForm::Stream, true), &events));
        let deltas = stream
            .iter()
            .filter_map(|event| event["delta"]["partial_json"].as_str());
        assert_eq!(deltas.collect::<String>(), piece);
        let end = &stream[stream.len() - 2];
        assert_eq!(end["delta"]["stop_reason"], "max_tokens");
        assert_eq!(losses(&events), [vec![], vec!["call", "reasoning_state"]]);
    }
    // A call before it is complete.
    let events = [
        call(0, "c", "get"),
        arguments(0, "{}"),
        call(1, "d", "get"),
        AnswerEvent::CallCut { call_index: 1 },
        stop,
    ];
    let body: Value = serde_json::from_str(&written(frame(AnswerForm::Whole, true), &events)).unwrap();
    assert_eq!(body["content"].as_array().unwrap().len(), 1);
    assert_eq!(body["content"][0]["id"], "c");
}

#[test]
fn what_a_message_cannot_have_is_reported() {
    let too_large = AnswerEvent::Reasoning(ReasoningState::Redacted {
        data: "x".repeat(CARRIER_BYTES_MAX).into(),
    });
    let cited = |url: &'static str| {
        AnswerEvent::Cited(Citation {
            url: url.into(),
            title: None,
            quote: None,
        })
    };
    let stop = AnswerEvent::Stop(StopCause::End);
    for (events, lost) in [
        (
            vec![
                thought("why"),
                AnswerEvent::Reasoning(item()),
                text("a"),
                cited("http://a"),
                stop.clone(),
            ],
            vec![],
        ),
        (vec![too_large.clone(), text("a")], vec!["reasoning_state"]),
        (vec![thought("why"), too_large, text("a")], vec!["reasoning_state"]),
        (
            vec![text("a"), AnswerEvent::Reasoning(item()), stop],
            vec!["reasoning_state"],
        ),
        (vec![cited("http://a"), text("a")], vec!["citation"]),
        (vec![text("a"), cited(""), cited("")], vec!["citation"]),
        (
            vec![AnswerEvent::Lost("image"), AnswerEvent::Lost("audio")],
            vec!["image", "audio"],
        ),
    ] {
        assert_eq!(losses(&events), [lost.clone(), lost]);
    }
}

fn citation(url: &str, title: Option<&str>, words: &str) -> Value {
    json!({
        "type": "web_search_result_location",
        "cited_text": words,
        "url": url,
        "title": title,
        "encrypted_index": "",
    })
}

#[test]
fn a_source_with_an_address_is_cited_in_its_text() {
    let cited = |url: &'static str, quote: Option<&'static str>| {
        AnswerEvent::Cited(Citation {
            url: url.into(),
            title: quote.map(|_| "Page".into()),
            quote: quote.map(Into::into),
        })
    };
    let events = [
        cited("http://before.any.text", None),
        text("a"),
        cited("http://a", Some("words")),
        cited("", Some("no address")),
        cited("http://b", None),
        text("b"),
    ];
    let citations = [
        citation("http://a", Some("Page"), "words"),
        citation("http://b", None, ""),
    ];
    assert_eq!(
        content(true, &events),
        json!([{"type": "text", "text": "ab", "citations": citations}])
    );
}

#[test]
fn each_end_has_its_word() {
    let reason = |events: &[AnswerEvent<'static>], cause: StopCause| {
        let mut events = events.to_vec();
        events.extend([AnswerEvent::Stop(cause), AnswerEvent::Stop(StopCause::End)]);
        message(true, &events)["stop_reason"].as_str().unwrap().to_owned()
    };
    for (cause, after_text, after_call, after_refusal) in [
        (StopCause::End, "end_turn", "tool_use", "refusal"),
        (StopCause::Sequence, "stop_sequence", "stop_sequence", "stop_sequence"),
        (StopCause::Calls, "end_turn", "tool_use", "refusal"),
        (StopCause::MaxTokens, "max_tokens", "max_tokens", "max_tokens"),
        (
            StopCause::ContextFull,
            "model_context_window_exceeded",
            "model_context_window_exceeded",
            "model_context_window_exceeded",
        ),
        (StopCause::Refused, "refusal", "refusal", "refusal"),
        (StopCause::Filtered, "refusal", "refusal", "refusal"),
        (StopCause::Malformed, "end_turn", "end_turn", "end_turn"),
    ] {
        assert_eq!(reason(&[text("x")], cause), after_text, "{cause:?}");
        assert_eq!(reason(&[call(0, "c", "get")], cause), after_call, "{cause:?}");
        assert_eq!(
            reason(&[AnswerEvent::Refusal("no".into())], cause),
            after_refusal,
            "{cause:?}"
        );
    }
    assert_eq!(message(true, &[text("x")])["stop_reason"], "end_turn");
}

#[test]
fn words_of_refusal_are_text() {
    let events = [AnswerEvent::Refusal("I can".into()), AnswerEvent::Refusal("not".into())];
    assert_eq!(content(true, &events), json!([{"type": "text", "text": "I cannot"}]));
}

#[test]
fn an_unreadable_call_without_anything_else_is_a_fault() {
    for form in [AnswerForm::Stream, AnswerForm::Whole] {
        let mut writer = MessagesAnswerWriter::new(frame(form, true));
        let mut out = String::new();
        writer.on_event(thought("why"), &mut out).unwrap();
        let stop = writer.on_event(AnswerEvent::Stop(StopCause::Malformed), &mut out);
        assert_eq!(stop, Err(AnswerFault::Unreadable));
    }
}

#[test]
fn an_answer_without_content_is_a_message() {
    assert_eq!(content(true, &[AnswerEvent::Stop(StopCause::MaxTokens)]), json!([]));
    assert_eq!(content(true, &[AnswerEvent::Begin, text(""), thought("")]), json!([]));
}

#[test]
fn a_failure_ends_the_stream_with_the_error_of_its_status() {
    for (status, kind) in [
        (400, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ] {
        let mut writer = MessagesAnswerWriter::new(frame(AnswerForm::Stream, true));
        let mut out = String::new();
        writer.on_event(text("a"), &mut out).unwrap();
        let failed = AnswerEvent::Failed {
            status,
            message: "a \"b\"\n".into(),
        };
        writer.on_event(failed, &mut out).unwrap();
        writer.on_event(text("b"), &mut out).unwrap();
        writer.finish(&usage(), &mut out);
        let end = format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"a \\\"b\\\"\\n\"}}}}\n\n"
        );
        assert!(out.ends_with(&end), "{out}");
        assert_eq!(AccumulatedMessage::read(&out).last, "error");
    }
}

#[test]
fn a_prompt_above_the_context_fails_in_the_words_on_which_agents_act() {
    let mut writer = MessagesAnswerWriter::new(frame(AnswerForm::Stream, true));
    let mut out = String::new();
    writer.fail(400, "Your input exceeds the context window.", &mut out);
    let message = "prompt is too long: Your input exceeds the context window.";
    assert!(out.contains(message), "{out}");
}

#[test]
fn a_failure_of_a_message_is_a_fault() {
    let mut writer = MessagesAnswerWriter::new(frame(AnswerForm::Whole, true));
    let mut out = String::new();
    let failed = AnswerEvent::Failed {
        status: 500,
        message: "no".into(),
    };
    assert_eq!(writer.on_event(failed, &mut out), Err(AnswerFault::Unreadable));
    writer.fail(500, "no", &mut out);
    assert_eq!(out, "");
}

fn any_event() -> impl Strategy<Value = AnswerEvent<'static>> {
    let pieces = ["{", "\"a\":1", "}", "{\"b\":\"x\"}", "null", " ", "\n", ""];
    let state = prop_oneof![
        Just(item()),
        ".{0,4}".prop_map(|text| ReasoningState::Text { text: text.into() }),
    ];
    let address = (select(vec!["", "http://a", "http://b"]), ".{0,3}", any::<bool>());
    prop_oneof![
        1 => Just(AnswerEvent::Begin),
        4 => ".{0,4}".prop_map(|text| AnswerEvent::Text(text.into())),
        4 => ".{0,4}".prop_map(|text| AnswerEvent::Thought(text.into())),
        1 => ".{0,4}".prop_map(|text| AnswerEvent::Refusal(text.into())),
        2 => state.prop_map(AnswerEvent::Reasoning),
        3 => (0..3_u32, ".{0,4}", "[a-z]{1,3}").prop_map(|(call_index, id, name)| AnswerEvent::Call {
            call_index,
            id: id.into(),
            name: name.into(),
        }),
        8 => (0..3_u32, select(pieces.to_vec())).prop_map(|(call_index, piece)| arguments(call_index, piece)),
        2 => address.prop_map(|(url, quote, has_title)| AnswerEvent::Cited(Citation {
            url: url.into(),
            title: has_title.then(|| "t".into()),
            quote: Some(quote.into()),
        })),
        1 => select(vec![StopCause::End, StopCause::Calls, StopCause::MaxTokens, StopCause::Filtered])
            .prop_map(AnswerEvent::Stop),
    ]
}

proptest! {
    #[test]
    fn a_stream_accumulates_to_the_message(
        events in prop::collection::vec(any_event(), 0..24),
        shows_reasoning: bool,
    ) {
        message(shows_reasoning, &events);
    }

    #[test]
    fn a_stream_may_fail_anywhere(events in prop::collection::vec(any_event(), 0..24)) {
        let mut writer = MessagesAnswerWriter::new(frame(AnswerForm::Stream, true));
        let mut out = String::new();
        for event in events {
            writer.on_event(event, &mut out).unwrap();
        }
        writer.fail(503, "gone", &mut out);
        prop_assert_eq!(AccumulatedMessage::read(&out).last, "error");
    }
}
