//! Tests of the writer of Responses answers.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::translation::{
    answer::{WAITING_BYTES_MAX, write::AnswerForm},
    reasoning::{CARRIER_BYTES_MAX, CarriedReasoning, ReasoningMaker, unwrap_summary},
    tool_names::ToolNames,
};

/// With line breaks, which an event cannot have.
const REQUEST: &str = "{\n \"model\": \"m\", \"instructions\": \"Be\\nbrief.\", \"temperature\": 0.70,\r\n \"tools\": [\n \
                       {\"type\": \"function\",\n \"name\": \"read\"}\n ], \"text\": {\"verbosity\": \"low\"}, \"store\": true, \
                       \"service_tier\": \"flex\", \"tool_choice\": null, \"input\": \"hi\"\n}";

/// The time at which the answers end, in seconds since the Unix epoch.
const ENDED_UNIX: i64 = 1_790_000_007;

fn maker() -> ReasoningMaker {
    ReasoningMaker::new("groq", "gpt-oss-120b", "a")
}

fn frame(form: AnswerForm) -> AnswerFrame {
    let mut names = ToolNames::default();
    for (namespace, name, kind) in [
        (None, "read", ToolKind::Function),
        (Some("mcp__files"), "write", ToolKind::Function),
        (None, "exec", ToolKind::Custom),
        (Some("code"), "patch", ToolKind::Custom),
        (None, "tool_search", ToolKind::ToolSearch),
        (None, "local_shell", ToolKind::LocalShell),
        (None, "shell", ToolKind::Shell),
        (None, "apply_patch", ToolKind::ApplyPatch),
    ] {
        let tool = ClientTool {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            kind,
        };
        names.add(tool, "tools").unwrap();
    }
    AnswerFrame {
        form,
        id: "7f".to_owned(),
        model: "model-x".to_owned(),
        created_unix: 1_790_000_000,
        input_estimate: 9,
        shows_reasoning: true,
        maker: maker(),
        names,
        request: REQUEST.to_owned(),
    }
}

fn usage() -> Usage {
    Usage {
        input_uncached: 10,
        cache_read: 5,
        cache_write_short: 3,
        cache_write_long: 2,
        tool_input: 1,
        output_text: 7,
        output_reasoning: 4,
        ..Usage::default()
    }
}

fn written(frame: AnswerFrame, events: &[AnswerEvent<'static>]) -> String {
    let mut writer = ResponsesAnswerWriter::new(frame);
    let mut out = String::new();
    for event in events {
        writer.on_event(event.clone(), &mut out).unwrap();
    }
    writer.finish(&usage(), ENDED_UNIX, &mut out);
    out
}

fn streamed(events: &[AnswerEvent<'static>]) -> WrittenStream {
    WrittenStream::check(&written(frame(AnswerForm::Stream), events))
}

/// The only item of an answer with these events.
fn only_item(mut events: Vec<AnswerEvent<'static>>) -> Value {
    events.push(AnswerEvent::Stop(StopCause::Calls));
    let stream = streamed(&events);
    assert_eq!(stream.items.len(), 1, "{:?}", stream.items);
    stream.items[0].clone()
}

fn text(text: &str) -> AnswerEvent<'static> {
    AnswerEvent::Text(text.to_owned().into())
}

fn thought(text: &str) -> AnswerEvent<'static> {
    AnswerEvent::Thought(text.to_owned().into())
}

fn refusal(text: &str) -> AnswerEvent<'static> {
    AnswerEvent::Refusal(text.to_owned().into())
}

fn call(name: &str, pieces: &[&str]) -> Vec<AnswerEvent<'static>> {
    let mut events = vec![AnswerEvent::Call {
        call_index: 0,
        id: "toolu_1".into(),
        name: name.to_owned().into(),
    }];
    events.extend(pieces.iter().map(|json| AnswerEvent::Arguments {
        call_index: 0,
        json: (*json).to_owned().into(),
    }));
    events
}

fn citation(title: Option<&'static str>) -> AnswerEvent<'static> {
    AnswerEvent::Cited(Citation {
        url: "https://a.example/".into(),
        title: title.map(Into::into),
        quote: Some("quoted".into()),
    })
}

/// A written stream, which obeys the rules of the protocol.
#[derive(Debug, Default)]
struct WrittenStream {
    events: Vec<Value>,
    /// The items that are complete.
    items: Vec<Value>,
    open: Option<WrittenItem>,
}

/// An item that is not complete yet.
#[derive(Debug)]
struct WrittenItem {
    added: Value,
    parts: Vec<Value>,
    part: Option<Value>,
    annotations: Vec<Value>,
    /// The deltas of the open part, or of the call.
    text: String,
    is_text_done: bool,
}

impl WrittenStream {
    fn check(text: &str) -> Self {
        let mut frames: Vec<&str> = text.strip_suffix("\n\n").unwrap().split("\n\n").collect();
        let is_done = frames.pop_if(|last| *last == "data: [DONE]").is_some();
        let mut stream = Self::default();
        for (number, frame) in frames.iter().enumerate() {
            let lines: Vec<&str> = frame.split(['\n', '\r']).collect();
            assert_eq!(lines.len(), 2, "{frame}");
            let event: Value = serde_json::from_str(lines[1].strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(lines[0], format!("event: {}", event["type"].as_str().unwrap()));
            assert_eq!(event["sequence_number"], json!(number));
            stream.on_event(&event, number + 1 == frames.len());
            stream.events.push(event);
        }
        assert_eq!(is_done, stream.kinds().last() != Some(&"response.failed"));
        stream
    }

    fn on_event(&mut self, event: &Value, is_last: bool) {
        let kind = event["type"].as_str().unwrap();
        let response = &event["response"];
        let is_end = ["response.completed", "response.incomplete", "response.failed"].contains(&kind);
        assert_eq!(is_end, is_last, "{kind}");
        match kind {
            "response.created" | "response.in_progress" => {
                assert_eq!(self.events.len(), usize::from(kind == "response.in_progress"));
                assert_eq!(response["status"], "in_progress");
                assert_eq!([&response["output"], &response["usage"]], [&json!([]), &Value::Null]);
            }
            _ if is_end => {
                assert!(self.open.is_none() || kind == "response.failed");
                assert_eq!(response["status"], kind.strip_prefix("response.").unwrap());
                assert_eq!(response["output"], json!(self.items));
            }
            "response.output_item.added" => {
                assert!(self.open.is_none(), "items overlap");
                assert_eq!(event["output_index"], json!(self.items.len()));
                self.open = Some(WrittenItem::new(event["item"].clone()));
            }
            "response.output_item.done" => {
                assert_eq!(event["output_index"], json!(self.items.len()));
                self.open.take().unwrap().check_done(&event["item"]);
                self.items.push(event["item"].clone());
            }
            _ => {
                let open = self.open.as_mut().unwrap();
                assert_eq!(event["output_index"], json!(self.items.len()));
                assert_eq!(event["item_id"], open.added["id"]);
                open.on_event(kind, event);
            }
        }
    }

    fn kinds(&self) -> Vec<&str> {
        self.events
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect()
    }

    /// The response object of the last event.
    fn response(&self) -> &Value {
        &self.events.last().unwrap()["response"]
    }
}

impl WrittenItem {
    fn new(added: Value) -> Self {
        Self {
            added,
            parts: Vec::new(),
            part: None,
            annotations: Vec::new(),
            text: String::new(),
            is_text_done: false,
        }
    }

    fn on_event(&mut self, kind: &str, event: &Value) {
        let has = |words: &str| kind.contains(words);
        if has("reasoning_summary") {
            assert_eq!(event["summary_index"], json!(self.parts.len()));
        } else if has("content_part") || has("output_text") || has("refusal") {
            assert_eq!(event["content_index"], json!(self.parts.len()));
        }
        if has("output_text.delta") || has("output_text.done") {
            assert_eq!(event["logprobs"], json!([]));
        }
        match kind {
            "response.content_part.added" | "response.reasoning_summary_part.added" => {
                assert!(self.part.is_none(), "parts overlap");
                self.part = Some(event["part"].clone());
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => self.end_part(&event["part"]),
            "response.output_text.annotation.added" => {
                assert_eq!(event["annotation_index"], json!(self.annotations.len()));
                self.annotations.push(event["annotation"].clone());
            }
            _ if kind.ends_with(".delta") => {
                assert!(!self.is_text_done);
                self.text.push_str(event["delta"].as_str().unwrap());
            }
            _ => {
                let member = match kind {
                    "response.output_text.done" | "response.reasoning_summary_text.done" => "text",
                    "response.refusal.done" => "refusal",
                    "response.function_call_arguments.done" => "arguments",
                    "response.custom_tool_call_input.done" => "input",
                    _ => panic!("{kind} is no event of the protocol"),
                };
                assert_eq!(event[member], self.text.as_str());
                self.is_text_done = true;
            }
        }
    }

    fn end_part(&mut self, part: &Value) {
        let added = self.part.take().unwrap();
        assert_eq!(part["type"], added["type"]);
        assert!(std::mem::take(&mut self.is_text_done));
        let member = if part["type"] == "refusal" { "refusal" } else { "text" };
        assert_eq!(added[member], "");
        assert_eq!(part[member], std::mem::take(&mut self.text));
        if part["type"] == "output_text" {
            assert_eq!(part["annotations"], json!(std::mem::take(&mut self.annotations)));
        }
        self.parts.push(part.clone());
    }

    fn check_done(&self, item: &Value) {
        assert!(self.part.is_none());
        for member in ["id", "type", "call_id", "name", "namespace"] {
            assert_eq!(item[member], self.added[member]);
        }
        match item["type"].as_str().unwrap() {
            "message" => {
                assert!(!self.parts.is_empty());
                assert_eq!(item["content"], json!(self.parts));
            }
            "reasoning" => assert_eq!(item["summary"], json!(self.parts)),
            "function_call" => assert_eq!(item["arguments"], self.text.as_str()),
            "custom_tool_call" => assert_eq!(item["input"], self.text.as_str()),
            "compaction" => assert_eq!(item.get("status"), None),
            _ => assert_eq!(item["status"], "completed"),
        }
        let is_text_call = ["function_call", "custom_tool_call"].contains(&item["type"].as_str().unwrap());
        assert_eq!(self.is_text_done, is_text_call);
    }
}

const CAUSES: [StopCause; 8] = [
    StopCause::End,
    StopCause::Sequence,
    StopCause::Calls,
    StopCause::MaxTokens,
    StopCause::ContextFull,
    StopCause::Refused,
    StopCause::Filtered,
    StopCause::Malformed,
];

/// Arguments in pieces: of all tools, of none, not JSON, cut.
const ARGUMENTS: [&[&str]; 11] = [
    &[],
    &["", " "],
    &["{\"a\":", "1}"],
    &["{\"input\":\"x\\n", "y\"}"],
    &["\"words\""],
    &["{\n\"command\": [\"ls\"]}"],
    &["{\n\"commands\":", " [\"ls\"]}"],
    &[r#"{"type":"delete_file","path":"a"}"#],
    &["[1]"],
    &["no JSON"],
    &["{\"inp"],
];

const TOOLS: [&str; 9] = [
    "read",
    "mcp__files__write",
    "exec",
    "code__patch",
    "tool_search",
    "local_shell",
    "shell",
    "apply_patch",
    "made_up",
];

fn answers() -> impl Strategy<Value = Vec<AnswerEvent<'static>>> {
    let state = ReasoningState::Redacted { data: "r".into() };
    let block = prop_oneof![
        ".{0,3}".prop_map(|words| vec![text(&words)]),
        ".{0,3}".prop_map(|words| vec![thought(&words)]),
        ".{0,3}".prop_map(|words| vec![refusal(&words)]),
        Just(vec![AnswerEvent::Reasoning(state)]),
        Just(vec![citation(None)]),
        (0..TOOLS.len(), 0..ARGUMENTS.len()).prop_map(|(tool, arguments)| call(TOOLS[tool], ARGUMENTS[arguments])),
    ];
    let end = prop_oneof![
        8 => (0..CAUSES.len()).prop_map(|cause| AnswerEvent::Stop(CAUSES[cause])),
        1 => Just(AnswerEvent::Failed { status: 429, message: "slow down".into() }),
    ];
    let blocks = || prop::collection::vec(block.clone(), 0..6);
    (blocks(), end, blocks()).prop_map(|(before, end, after)| {
        let mut events = vec![AnswerEvent::Begin];
        events.extend(before.into_iter().flatten());
        events.push(end);
        events.extend(after.into_iter().flatten());
        events
    })
}

proptest! {
    #[test]
    fn a_stream_obeys_the_protocol_and_ends_with_what_a_non_streaming_answer_is(events in answers(), shows: bool) {
        let [stream, body] = [AnswerForm::Stream, AnswerForm::Whole].map(|form| {
            let mut frame = frame(form);
            frame.shows_reasoning = shows;
            written(frame, &events)
        });
        let stream = WrittenStream::check(&stream);
        let body: Value = serde_json::from_str(&body).unwrap();
        prop_assert_eq!(stream.response(), &body);
        prop_assert!(shows || !stream.kinds().iter().any(|kind| kind.contains("summary")));
    }
}

#[test]
fn a_text_is_a_message_with_one_part() {
    let events = [
        AnswerEvent::Begin,
        text("He"),
        text(""),
        text("llo"),
        AnswerEvent::Stop(StopCause::End),
    ];
    let stream = streamed(&events);
    assert_eq!(
        stream.kinds(),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let message = json!({
        "id": "msg_7f_0",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Hello"}],
    });
    assert_eq!(stream.items, [message]);
    let delta = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\
                 \"item_id\":\"msg_7f_0\",\"output_index\":0,\"content_index\":0,\"delta\":\"He\",\"logprobs\":[]}\n\n";
    assert!(written(frame(AnswerForm::Stream), &events).contains(delta));
}

#[test]
fn the_response_object_repeats_the_request_and_has_the_defaults_of_the_api() {
    let stream = streamed(&[text("x"), AnswerEvent::Stop(StopCause::End)]);
    let mut expected = json!({
        "id": "resp_7f",
        "object": "response",
        "created_at": 1_790_000_000,
        "completed_at": null,
        "status": "in_progress",
        "error": null,
        "incomplete_details": null,
        "model": "model-x",
        "output": [],
        "background": false,
        "frequency_penalty": 0,
        "instructions": "Be\nbrief.",
        "max_output_tokens": null,
        "max_tool_calls": null,
        "metadata": {},
        "parallel_tool_calls": true,
        "presence_penalty": 0,
        "previous_response_id": null,
        "prompt_cache_key": null,
        "reasoning": {"effort": null, "summary": null},
        "safety_identifier": null,
        "service_tier": "default",
        "store": false,
        "temperature": 0.7,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "auto",
        "tools": [{"type": "function", "name": "read", "description": null, "parameters": null, "strict": null}],
        "top_logprobs": 0,
        "top_p": 1,
        "truncation": "disabled",
        "user": null,
        "usage": null,
    });
    assert_eq!(stream.events[0]["response"], expected);
    assert_eq!(stream.events[1]["response"], expected);
    expected["status"] = json!("completed");
    expected["completed_at"] = json!(ENDED_UNIX);
    expected["output"] = json!(stream.items);
    expected["usage"] = json!({
        "input_tokens": 21,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 5},
        "output_tokens": 11,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 32,
    });
    assert_eq!(stream.response(), &expected);
    assert!(written(frame(AnswerForm::Whole), &[]).contains("\"temperature\":0.70,"));
}

#[test]
fn a_repeated_function_has_the_members_that_the_protocol_requires() {
    let mut frame = frame(AnswerForm::Whole);
    frame.request = r#"{"tools": [{"type": "function", "name": "f", "strict": null, "parameters": {"x": 1.0} },
        {"name": "g", "description": "d", "parameters": null, "strict": false, "type": "function"},
        {"type": "custom", "name": "h"}, 7]}"#
        .to_owned();
    let body = written(frame, &[]);
    let tools = concat!(
        r#""tools":[{"type": "function", "name": "f", "strict": null, "parameters": {"x": 1.0} ,"description":null},"#,
        r#"{"name": "g", "description": "d", "parameters": null, "strict": false, "type": "function"},"#,
        r#"{"type": "custom", "name": "h"},7]"#,
    );
    assert!(body.contains(tools), "{body}");
}

#[test]
fn what_the_client_sent_is_repeated_as_it_came() {
    let mut frame = frame(AnswerForm::Whole);
    frame.request = r#"{"max_output_tokens": 64, "metadata": {"a": "b"}, "parallel_tool_calls": false, "top_p": 0.5,
        "prompt_cache_key": "k", "reasoning": {"effort": "high"}, "text": {"format": {"type": "json_object"}},
        "tool_choice": {"type": "function", "name": "read"}, "truncation": "auto", "user": "u"}"#
        .to_owned();
    let body: Value = serde_json::from_str(&written(frame, &[])).unwrap();
    for (member, expected) in [
        ("max_output_tokens", json!(64)),
        ("metadata", json!({"a": "b"})),
        ("parallel_tool_calls", json!(false)),
        ("top_p", json!(0.5)),
        ("prompt_cache_key", json!("k")),
        ("reasoning", json!({"effort": "high", "summary": null})),
        (
            "text",
            json!({"format": {"type": "json_object"}, "verbosity": "medium"}),
        ),
        ("tool_choice", json!({"type": "function", "name": "read"})),
        ("truncation", json!("auto")),
        ("user", json!("u")),
    ] {
        assert_eq!(body[member], expected, "{member}");
    }
}

#[test]
fn each_end_has_its_status() {
    for (cause, status, reason) in [
        (StopCause::End, "completed", Value::Null),
        (StopCause::Sequence, "completed", Value::Null),
        (StopCause::Calls, "completed", Value::Null),
        (
            StopCause::MaxTokens,
            "incomplete",
            json!({"reason": "max_output_tokens"}),
        ),
        (
            StopCause::ContextFull,
            "incomplete",
            json!({"reason": "max_output_tokens"}),
        ),
        (StopCause::Refused, "completed", Value::Null),
        (StopCause::Filtered, "incomplete", json!({"reason": "content_filter"})),
        (StopCause::Malformed, "failed", Value::Null),
    ] {
        let stream = streamed(&[text("x"), AnswerEvent::Stop(cause)]);
        let response = stream.response();
        assert_eq!(response["status"], status, "{cause:?}");
        let completed_at = if status == "completed" {
            json!(ENDED_UNIX)
        } else {
            Value::Null
        };
        assert_eq!(response["completed_at"], completed_at, "{cause:?}");
        assert_eq!(response["incomplete_details"], reason, "{cause:?}");
        assert_eq!(response["usage"]["total_tokens"], 32, "{cause:?}");
        match cause {
            StopCause::Malformed => assert_eq!(response["error"]["code"], "server_error"),
            _ => assert_eq!(stream.items[0]["status"], status, "{cause:?}"),
        }
    }
}

#[test]
fn the_first_end_counts_and_content_behind_it_is_kept() {
    let stream = streamed(&[
        text("a"),
        AnswerEvent::Stop(StopCause::MaxTokens),
        text("b"),
        AnswerEvent::Stop(StopCause::End),
    ]);
    assert_eq!(stream.kinds().last(), Some(&"response.incomplete"));
    assert_eq!(stream.items[1]["content"][0]["text"], "b");
}

#[test]
fn visible_reasoning_is_a_summary_with_the_state_of_its_maker() {
    let state = ReasoningState::Text { text: "because".into() };
    let stream = streamed(&[
        thought("bec"),
        thought("ause"),
        AnswerEvent::Reasoning(state.clone()),
        text("x"),
        AnswerEvent::Stop(StopCause::End),
    ]);
    let item = &stream.items[0];
    assert_eq!(item["id"], "rs_7f_0");
    assert_eq!(item["summary"], json!([{"type": "summary_text", "text": "because"}]));
    let carrier = item["encrypted_content"].as_str().unwrap();
    assert_eq!(
        CarriedReasoning::unwrap(carrier, "because", &maker()),
        CarriedReasoning::Own(state)
    );
    assert_eq!(stream.items[1]["id"], "msg_7f_1");
    assert_eq!(
        &stream.kinds()[2..9],
        [
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
        ]
    );
}

#[test]
fn reasoning_that_the_client_does_not_want_to_see_is_an_item_with_its_state_alone() {
    let state = ReasoningState::Thinking {
        text: "because".into(),
        signature: "s".into(),
    };
    let mut frame = frame(AnswerForm::Stream);
    frame.shows_reasoning = false;
    let events = [
        text("a"),
        thought("because"),
        AnswerEvent::Reasoning(state.clone()),
        thought("no state"),
        text("b"),
        AnswerEvent::Stop(StopCause::End),
    ];
    let out = written(frame, &events);
    assert!(!out.contains("because") && !out.contains("no state"));
    let stream = WrittenStream::check(&out);
    let kinds: Vec<_> = stream.items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "reasoning", "message"]);
    let carrier = stream.items[1]["encrypted_content"].as_str().unwrap();
    assert_eq!(
        CarriedReasoning::unwrap(carrier, "", &maker()),
        CarriedReasoning::Own(state)
    );
}

#[test]
fn a_state_that_is_too_large_is_left_out() {
    let state = AnswerEvent::Reasoning(ReasoningState::Redacted {
        data: "x".repeat(CARRIER_BYTES_MAX).into(),
    });
    let end = AnswerEvent::Stop(StopCause::End);
    let stream = streamed(&[thought("why"), state.clone(), end.clone()]);
    assert_eq!(stream.items[0]["summary"][0]["text"], "why");
    assert_eq!(stream.items[0].get("encrypted_content"), None);
    let events = [text("a"), state, text("b"), end];
    let stream = streamed(&events);
    assert_eq!(stream.items.len(), 1);
    assert_eq!(stream.items[0]["content"][0]["text"], "ab");
    assert_eq!(losses(&events), ["reasoning_state"]);
}

/// What is lost of an answer.
fn losses(events: &[AnswerEvent<'static>]) -> Vec<&'static str> {
    let mut writer = ResponsesAnswerWriter::new(frame(AnswerForm::Stream));
    let mut out = String::new();
    for event in events {
        writer.on_event(event.clone(), &mut out).unwrap();
    }
    writer.losses().kinds().to_vec()
}

/// The frame of an answer to a request for a summary in the place of the conversation.
fn compaction_frame(form: AnswerForm) -> AnswerFrame {
    AnswerFrame {
        request: r#"{"model":"m","input":[{"role":"user","content":"hi"},{"type":"compaction_trigger"}]}"#.to_owned(),
        ..frame(form)
    }
}

#[test]
fn a_summary_is_the_only_item_and_any_model_can_read_it() {
    let state = ReasoningState::Text { text: "because".into() };
    let mut events = vec![
        AnswerEvent::Begin,
        thought("because"),
        AnswerEvent::Reasoning(state),
        text("The user "),
        text("wants tests."),
        citation(None),
    ];
    events.extend(call("read", &["{}"]));
    events.push(AnswerEvent::Stop(StopCause::End));
    let stream = WrittenStream::check(&written(compaction_frame(AnswerForm::Stream), &events));
    assert_eq!(
        stream.kinds(),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let item = &stream.items[0];
    assert_eq!([&item["id"], &item["type"]], ["cmp_7f_0", "compaction"]);
    let carrier = item["encrypted_content"].as_str().unwrap();
    assert!(carrier.split('.').nth(2) == Some("t"), "{carrier}");
    assert_eq!(unwrap_summary(carrier), Some("The user wants tests.".to_owned()));
    let body: Value = serde_json::from_str(&written(compaction_frame(AnswerForm::Whole), &events)).unwrap();
    assert_eq!(&body, stream.response());
    assert_eq!(body["output"], json!([item]));
    assert_eq!(body["usage"]["total_tokens"], 32);
}

#[test]
fn no_client_goes_on_with_a_summary_that_is_none() {
    let long = "x".repeat(CARRIER_BYTES_MAX);
    for (events, status) in [
        (
            vec![text("So far"), AnswerEvent::Stop(StopCause::MaxTokens)],
            "incomplete",
        ),
        (
            vec![text("So far"), AnswerEvent::Stop(StopCause::Filtered)],
            "incomplete",
        ),
        (vec![text("So far"), AnswerEvent::Stop(StopCause::Malformed)], "failed"),
        (vec![text(" \n"), AnswerEvent::Stop(StopCause::End)], "failed"),
        (vec![AnswerEvent::Stop(StopCause::Refused)], "failed"),
        (
            vec![text("Well"), refusal("no"), AnswerEvent::Stop(StopCause::End)],
            "failed",
        ),
        (vec![text(&long), AnswerEvent::Stop(StopCause::End)], "failed"),
        (
            vec![AnswerEvent::Failed {
                status: 429,
                message: "slow down".into(),
            }],
            "failed",
        ),
    ] {
        let stream = WrittenStream::check(&written(compaction_frame(AnswerForm::Stream), &events));
        assert_eq!(stream.response()["status"], status, "{events:?}");
        assert!(stream.items.is_empty(), "{events:?}");
    }
}

#[test]
fn only_a_trigger_at_the_end_of_the_input_asks_for_a_summary() {
    for request in [
        r#"{"input":[{"type":"compaction_trigger"},{"role":"user","content":"hi"}]}"#,
        r#"{"input":"compaction_trigger"}"#,
        r#"{"input":[]}"#,
        r#"{"input":[null]}"#,
        r#"{"type":"compaction_trigger"}"#,
    ] {
        let frame = AnswerFrame {
            request: request.to_owned(),
            ..frame(AnswerForm::Stream)
        };
        let stream = WrittenStream::check(&written(frame, &[text("x"), AnswerEvent::Stop(StopCause::End)]));
        assert_eq!(stream.items[0]["type"], "message", "{request}");
    }
}

#[test]
fn a_refusal_is_a_part_of_its_own() {
    let stream = streamed(&[
        text("Well"),
        refusal("I ca"),
        refusal("n't"),
        AnswerEvent::Stop(StopCause::Refused),
    ]);
    let content = &stream.items[0]["content"];
    assert_eq!(content[0]["text"], "Well");
    assert_eq!(content[1], json!({"type": "refusal", "refusal": "I can't"}));
    let stream = streamed(&[AnswerEvent::Stop(StopCause::Refused)]);
    assert_eq!(
        stream.items[0]["content"],
        json!([{"type": "refusal", "refusal": DECLINED}])
    );
}

#[test]
fn a_source_is_an_annotation_at_the_end_of_the_text_so_far() {
    let stream = streamed(&[
        citation(None),
        text("h\u{e9}"),
        citation(Some("A")),
        text("."),
        AnswerEvent::Stop(StopCause::End),
    ]);
    let annotation = |at: u32, title: &str| {
        json!({
            "type": "url_citation",
            "start_index": at,
            "end_index": at,
            "url": "https://a.example/",
            "title": title,
        })
    };
    assert_eq!(
        stream.items[0]["content"][0]["annotations"],
        json!([annotation(0, "https://a.example/"), annotation(2, "A")])
    );
}

#[test]
fn a_function_call_passes_in_pieces_with_its_namespace() {
    let item = only_item(call("mcp__files__write", &["{\"a\": ", "1.0}"]));
    assert_eq!(
        item,
        json!({
            "id": "fc_7f_0",
            "type": "function_call",
            "status": "completed",
            "call_id": "toolu_1",
            "name": "write",
            "namespace": "mcp__files",
            "arguments": "{\"a\": 1.0}",
        })
    );
    // Models leave out the namespace.
    let item = only_item(call("write", &["{}"]));
    assert_eq!(
        (&item["name"], &item["namespace"]),
        (&json!("write"), &json!("mcp__files"))
    );
    let item = only_item(call("patch", &["{\"input\":\"x\"}"]));
    assert_eq!(
        (&item["type"], &item["namespace"]),
        (&json!("custom_tool_call"), &json!("code"))
    );
    let item = only_item(call("made_up", &["{}"]));
    assert_eq!(item["name"], "made_up");
    assert_eq!(item.get("namespace"), None);
}

#[test]
fn a_call_without_arguments_has_an_empty_object_and_one_without_id_gets_one() {
    let call = AnswerEvent::Call {
        call_index: 3,
        id: "".into(),
        name: "read".into(),
    };
    let item = only_item(vec![call, AnswerEvent::CallEnd { call_index: 3 }]);
    assert_eq!(item["arguments"], "{}");
    assert_eq!(item["call_id"], "call_7f_0");
}

#[test]
fn an_id_that_clients_cannot_use_is_escaped() {
    let call = AnswerEvent::Call {
        call_index: 0,
        id: "functions.Bash:0".into(),
        name: "read".into(),
    };
    let item = only_item(vec![call]);
    assert_eq!(item["call_id"], call_ids::client_id("functions.Bash:0").as_ref());
}

#[test]
fn a_piece_behind_the_end_of_its_call_is_no_content() {
    let mut events = call("read", &["{}"]);
    events.push(AnswerEvent::CallEnd { call_index: 0 });
    events.push(AnswerEvent::Arguments {
        call_index: 0,
        json: "\n".into(),
    });
    assert_eq!(only_item(events)["arguments"], "{}");
}

#[test]
fn a_custom_tool_gets_its_input_as_a_text() {
    for (arguments, input) in [
        (r#"{"input":"*** Begin\nx"}"#, "*** Begin\nx"),
        (" {\"input\": \"\"} ", ""),
        ("\"words\"", "words"),
        ("{\"patch\":\"x\"}", "{\"patch\":\"x\"}"),
        ("ls -l", "ls -l"),
        ("", ""),
    ] {
        let item = only_item(call("code__patch", &[arguments]));
        assert_eq!(
            item,
            json!({
                "id": "ctc_7f_0",
                "type": "custom_tool_call",
                "status": "completed",
                "call_id": "toolu_1",
                "name": "patch",
                "namespace": "code",
                "input": input,
            })
        );
    }
}

#[test]
fn built_in_tools_get_their_own_items() {
    for (name, arguments, id, expected) in [
        (
            "tool_search",
            "{\"goal\":\n\"weather\"}",
            "tsc_7f_0",
            json!({"type": "tool_search_call", "execution": "client", "arguments": {"goal": "weather"}}),
        ),
        ("tool_search", "", "tsc_7f_0", json!({"arguments": {}})),
        (
            "local_shell",
            r#"{"type":"exec","command":["ls","-l"],"env":{"A":"b"},"timeout_ms":5}"#,
            "lsh_7f_0",
            json!({
                "type": "local_shell_call",
                "action": {"type": "exec", "command": ["ls", "-l"], "env": {"A": "b"}, "timeout_ms": 5},
            }),
        ),
        (
            "local_shell",
            r#"{"command":["ls"],"env":null,"working_directory":"/a"}"#,
            "lsh_7f_0",
            json!({"action": {"type": "exec", "command": ["ls"], "env": {}, "working_directory": "/a"}}),
        ),
        (
            "shell",
            r#"{"commands":["ls"]}"#,
            "sh_7f_0",
            json!({"type": "shell_call", "action": {"commands": ["ls"]}}),
        ),
        (
            "apply_patch",
            r#"{"type":"update_file","path":"a","diff":"@@"}"#,
            "apc_7f_0",
            json!({
                "type": "apply_patch_call",
                "operation": {"type": "update_file", "path": "a", "diff": "@@"},
            }),
        ),
        (
            "apply_patch",
            r#"{"type":"delete_file","path":"a"}"#,
            "apc_7f_0",
            json!({"operation": {"type": "delete_file", "path": "a"}}),
        ),
    ] {
        let item = only_item(call(name, &[arguments]));
        assert_eq!([&item["id"], &item["call_id"]], [id, "toolu_1"], "{item}");
        assert_eq!(item["status"], "completed");
        for (member, value) in expected.as_object().unwrap() {
            assert_eq!(&item[member], value, "{item}");
        }
    }
}

#[test]
fn a_call_that_its_tool_cannot_read_reaches_the_client_as_a_function_call() {
    for (name, arguments) in [
        ("tool_search", "[1]"),
        ("local_shell", r#"{"command":"ls"}"#),
        ("local_shell", r#"{"type":"run","command":["ls"]}"#),
        ("shell", r#"{"commands":[]}"#),
        ("apply_patch", r#"{"type":"create_file","path":"a"}"#),
        ("apply_patch", r#"{"type":"move_file","path":"a","diff":"x"}"#),
        ("apply_patch", "no JSON"),
    ] {
        let item = only_item(call(name, &[arguments]));
        assert_eq!(
            item,
            json!({
                "id": "fc_7f_0",
                "type": "function_call",
                "status": "completed",
                "call_id": "toolu_1",
                "name": name,
                "arguments": arguments,
            })
        );
    }
}

#[test]
fn a_call_that_the_end_of_the_answer_cuts_is_incomplete_and_cannot_be_run() {
    for (name, arguments, kind, status) in [
        ("read", "{\"a\":1}", "function_call", "completed"),
        ("read", "{\"a\"", "function_call", "incomplete"),
        ("read", "", "function_call", "incomplete"),
        ("exec", "{\"input\":\"rm -r", "custom_tool_call", "incomplete"),
        ("shell", "{\"commands\":[\"rm", "function_call", "incomplete"),
        ("tool_search", "", "function_call", "incomplete"),
    ] {
        let mut events = call(name, &[arguments]);
        events.push(AnswerEvent::Stop(StopCause::MaxTokens));
        let stream = streamed(&events);
        let item = &stream.items[0];
        assert_eq!([&item["type"], &item["status"]], [kind, status], "{name} {arguments}");
        let member = if name == "exec" { "input" } else { "arguments" };
        assert_eq!(item[member], arguments);
        // Whatever its arguments are, a call that was cut off stays incomplete.
        let mut events = call(name, &[arguments]);
        events.extend([
            AnswerEvent::CallCut { call_index: 0 },
            AnswerEvent::Stop(StopCause::Sequence),
        ]);
        let stream = streamed(&events);
        let item = &stream.items[0];
        assert_eq!(
            [&item["status"], &item[member]],
            ["incomplete", arguments],
            "{name} {arguments}"
        );
        assert!(losses(&events).is_empty());
    }
}

#[test]
fn texts_and_calls_that_are_too_large_to_keep_are_faults() {
    let mut out = String::new();
    let mut writer = ResponsesAnswerWriter::new(frame(AnswerForm::Whole));
    let mut write = |event: AnswerEvent<'static>| writer.on_event(event, &mut out);
    write(text(&"x".repeat(REPEATED_BYTES_MAX - 1))).unwrap();
    write(refusal("x")).unwrap();
    assert_eq!(write(text("x")), Err(AnswerFault::TextTooLong));

    let mut out = String::new();
    let mut writer = ResponsesAnswerWriter::new(frame(AnswerForm::Stream));
    for event in call("exec", &[&"x".repeat(WAITING_BYTES_MAX)]) {
        writer.on_event(event, &mut out).unwrap();
    }
    let more = AnswerEvent::Arguments {
        call_index: 0,
        json: "x".into(),
    };
    assert_eq!(writer.on_event(more, &mut out), Err(AnswerFault::CallsTooLarge));
    let mut writer = ResponsesAnswerWriter::new(frame(AnswerForm::Stream));
    for event in call("read", &[&"x".repeat(WAITING_BYTES_MAX), "x"]) {
        writer.on_event(event, &mut out).unwrap();
    }
}

#[test]
fn a_failure_has_the_code_on_which_agents_act() {
    for (status, message, code, kind) in [
        (429, "slow down", "rate_limit_exceeded", "rate_limit_error"),
        (529, "busy", "server_is_overloaded", "server_error"),
        (503, "busy", "server_is_overloaded", "server_error"),
        (500, "oops", "server_error", "server_error"),
        (502, "oops", "server_error", "server_error"),
        (408, "late", "server_error", "invalid_request_error"),
        (402, "pay", "insufficient_quota", "invalid_request_error"),
        (
            400,
            "Prompt is too long: 9 > 8",
            "context_length_exceeded",
            "invalid_request_error",
        ),
        (400, "bad schema", "invalid_prompt", "invalid_request_error"),
    ] {
        let failed = AnswerEvent::Failed {
            status,
            message: message.into(),
        };
        let stream = streamed(&[text("x"), failed, text("y"), AnswerEvent::Stop(StopCause::End)]);
        let error = json!({"code": code, "message": message});
        assert_eq!(stream.response()["error"], error);
        assert_eq!(stream.response()["usage"], Value::Null);
        let beside = json!({"type": kind, "code": code, "message": message});
        assert_eq!(stream.events.last().unwrap()["error"], beside);
    }
}

#[test]
fn a_stream_that_fails_leaves_its_call_open() {
    let mut writer = ResponsesAnswerWriter::new(frame(AnswerForm::Stream));
    let mut out = String::new();
    for event in call("read", &["{}"]) {
        writer.on_event(event, &mut out).unwrap();
    }
    writer.fail(502, "the provider broke the answer off", &mut out);
    let length = out.len();
    writer.fail(500, "again", &mut out);
    writer.finish(&usage(), ENDED_UNIX, &mut out);
    assert_eq!(out.len(), length);
    let stream = WrittenStream::check(&out);
    assert!(stream.open.is_some() && stream.items.is_empty());

    let mut writer = ResponsesAnswerWriter::new(frame(AnswerForm::Stream));
    let mut out = String::new();
    writer.fail(429, "wait", &mut out);
    let kinds = ["response.created", "response.in_progress", "response.failed"];
    assert_eq!(WrittenStream::check(&out).kinds(), kinds);
}

#[test]
fn only_the_end_of_a_non_streaming_answer_writes() {
    let mut writer = ResponsesAnswerWriter::new(frame(AnswerForm::Whole));
    let mut out = String::new();
    for event in [AnswerEvent::Begin, text("x"), AnswerEvent::Stop(StopCause::End)] {
        writer.on_event(event, &mut out).unwrap();
    }
    writer.fail(500, "no", &mut out);
    assert_eq!(out, "");
    writer.finish(&usage(), ENDED_UNIX, &mut out);
    let body: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(body["status"], "completed");
    assert_eq!(body["output"][0]["content"][0]["text"], "x");
}
