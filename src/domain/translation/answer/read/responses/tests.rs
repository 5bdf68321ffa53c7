//! Tests of the reader of Responses.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::{
    translation::{answer::Citation, reasoning::ReasoningState},
    wire::json_pick::Picker,
};

/// Reads the data of events.
fn try_stream(events: &[Value]) -> Result<Vec<AnswerEvent<'static>>, AnswerFault> {
    let mut reader = ResponsesAnswerReader::default();
    let mut read = Vec::new();
    for event in events {
        reader.on_event("", &event.to_string(), &mut |event| {
            read.push(event.into_owned());
            Ok(())
        })?;
    }
    Ok(read)
}

fn stream(events: &[Value]) -> Vec<AnswerEvent<'static>> {
    try_stream(events).unwrap()
}

fn body(body: &str) -> Result<Vec<AnswerEvent<'static>>, AnswerFault> {
    let mut read = Vec::new();
    ResponsesAnswerReader::default().on_body(body, &mut |event| {
        read.push(event.into_owned());
        Ok(())
    })?;
    Ok(read)
}

/// An event of this type, without the prefix, about the item with this number.
fn about(number: u64, kind: &str, mut members: Value) -> Value {
    members["type"] = format!("response.{kind}").into();
    members["output_index"] = number.into();
    members["item_id"] = "changes_with_each_event".into();
    members
}

fn added(number: u64, item: Value) -> Value {
    let mut members = json!({});
    members["item"] = item;
    about(number, "output_item.added", members)
}

fn done(number: u64, item: Value) -> Value {
    let mut members = json!({});
    members["item"] = item;
    about(number, "output_item.done", members)
}

fn delta(number: u64, kind: &str, delta: &str) -> Value {
    about(
        number,
        kind,
        json!({ "delta": delta, "content_index": 0, "logprobs": [] }),
    )
}

fn created() -> Value {
    json!({ "type": "response.created", "response": { "status": "in_progress", "output": [], "error": null } })
}

fn completed() -> Value {
    json!({ "type": "response.completed", "response": { "status": "completed", "output": [], "error": null } })
}

fn text(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Text(text.into())
}

fn thought(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Thought(text.into())
}

fn reasoning(json: &Value) -> AnswerEvent<'static> {
    let json = json.to_string().into();
    AnswerEvent::Reasoning(ReasoningState::Item { json })
}

fn call(call_index: u32, id: &'static str, name: &'static str) -> AnswerEvent<'static> {
    let (id, name) = (id.into(), name.into());
    AnswerEvent::Call { call_index, id, name }
}

fn arguments(call_index: u32, json: &'static str) -> AnswerEvent<'static> {
    let json = json.into();
    AnswerEvent::Arguments { call_index, json }
}

fn call_end(call_index: u32) -> AnswerEvent<'static> {
    AnswerEvent::CallEnd { call_index }
}

fn stop(cause: StopCause) -> AnswerEvent<'static> {
    AnswerEvent::Stop(cause)
}

fn message(text: &str) -> Value {
    let part = json!({ "type": "output_text", "text": text, "annotations": [] });
    json!({ "type": "message", "role": "assistant", "content": [part] })
}

#[test]
fn text_passes_by_its_deltas_and_is_not_repeated() {
    let events = stream(&[
        created(),
        json!({ "type": "response.in_progress", "response": {} }),
        added(0, json!({ "type": "message", "id": "msg_1", "content": [] })),
        about(
            0,
            "content_part.added",
            json!({ "content_index": 0, "part": { "type": "output_text", "text": "" } }),
        ),
        delta(0, "output_text.delta", "Hel"),
        delta(0, "output_text.delta", "lo"),
        about(0, "output_text.done", json!({ "content_index": 0, "text": "Hello" })),
        about(
            0,
            "content_part.done",
            json!({ "content_index": 0, "part": { "type": "output_text", "text": "Hello" } }),
        ),
        done(0, message("Hello")),
        json!({ "type": "response.completed", "response": { "status": "completed", "output": [message("Hello")] } }),
        completed(),
    ]);
    assert_eq!(
        events,
        [AnswerEvent::Begin, text("Hel"), text("lo"), stop(StopCause::End)]
    );
}

#[test]
fn content_that_only_a_later_event_has_is_passed_on() {
    let text_done = about(0, "output_text.done", json!({ "content_index": 0, "text": "Hello" }));
    let part_done = about(
        0,
        "content_part.done",
        json!({ "content_index": 0, "part": { "type": "output_text", "text": "Hello" } }),
    );
    let last = json!({ "type": "response.completed", "response": { "output": [message("Hello")] } });
    for later in [text_done, part_done, done(0, message("Hello"))] {
        let events = stream(&[created(), later.clone(), completed()]);
        assert_eq!(
            events,
            [AnswerEvent::Begin, text("Hello"), stop(StopCause::End)],
            "{later}"
        );
        let events = stream(&[
            created(),
            delta(0, "output_text.delta", "Hel"),
            later.clone(),
            completed(),
        ]);
        assert_eq!(events[1..3], [text("Hel"), text("lo")], "{later}");
    }
    let events = stream(&[created(), last]);
    assert_eq!(events, [AnswerEvent::Begin, text("Hello"), stop(StopCause::End)]);
}

#[test]
fn reasoning_passes_with_blank_lines_between_its_parts_and_its_item_as_it_came() {
    let item = json!({
        "type": "reasoning",
        "id": "rs_9",
        "summary": [{ "type": "summary_text", "text": "One" }, { "type": "summary_text", "text": "Two" }],
        "encrypted_content": "b3BhcXVl",
        "new_member": 1.50,
    });
    let part = |number: u64, kind: &str, name: &str, text: &str| {
        about(
            0,
            &format!("reasoning_summary_{kind}"),
            json!({ "summary_index": number, name: text }),
        )
    };
    let with_deltas = [
        created(),
        added(
            0,
            json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "partial" }),
        ),
        about(
            0,
            "reasoning_summary_part.added",
            json!({ "summary_index": 0, "part": { "type": "summary_text", "text": "" } }),
        ),
        part(0, "text.delta", "delta", "O"),
        part(0, "text.delta", "delta", "ne"),
        part(0, "text.done", "text", "One"),
        about(
            0,
            "reasoning_summary_part.done",
            json!({ "summary_index": 0, "part": { "type": "summary_text", "text": "One" } }),
        ),
        part(1, "text.delta", "delta", "Two"),
        done(0, item.clone()),
    ];
    assert_eq!(
        stream(&with_deltas),
        [
            AnswerEvent::Begin,
            thought("O"),
            thought("ne"),
            thought("\n\n"),
            thought("Two"),
            reasoning(&item),
        ]
    );
    assert_eq!(
        stream(&[created(), done(0, item.clone())]),
        [
            AnswerEvent::Begin,
            thought("One"),
            thought("\n\n"),
            thought("Two"),
            reasoning(&item)
        ]
    );
    // The bytes are the provider's.
    let spelled = r#"{"type":"reasoning", "summary":[],  "encrypted_content":"\u0061"}"#;
    let events = body(&format!(r#"{{"output":[ {spelled} ]}}"#)).unwrap();
    let json = spelled.into();
    assert_eq!(events[1], AnswerEvent::Reasoning(ReasoningState::Item { json }));
}

#[test]
fn reasoning_of_open_models_passes() {
    let item =
        json!({ "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": "Because" }] });
    let events = stream(&[
        created(),
        delta(0, "reasoning_text.delta", "Because"),
        about(
            0,
            "reasoning_text.done",
            json!({ "content_index": 0, "text": "Because" }),
        ),
        about(
            0,
            "content_part.done",
            json!({ "content_index": 0, "part": { "type": "reasoning_text", "text": "Because" } }),
        ),
        done(0, item.clone()),
    ]);
    assert_eq!(events, [AnswerEvent::Begin, thought("Because"), reasoning(&item)]);
    let events = stream(&[created(), done(0, item.clone())]);
    assert_eq!(events, [AnswerEvent::Begin, thought("Because"), reasoning(&item)]);
}

#[test]
fn calls_pass_by_their_numbers_whatever_their_ids() {
    let function = |id: &str, name: &str, arguments: &str| {
        let call_id = format!("call_{name}");
        json!({ "type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments })
    };
    let events = stream(&[
        created(),
        added(1, function("fc_1", "read", "")),
        added(2, function("fc_2", "list", "")),
        delta(1, "function_call_arguments.delta", "{\"p\""),
        delta(2, "function_call_arguments.delta", "{}"),
        delta(1, "function_call_arguments.delta", ": 1}"),
        about(1, "function_call_arguments.done", json!({ "arguments": "{\"p\": 1}" })),
        done(1, function("fc_3", "read", "{\"p\": 1}")),
        done(2, function("fc_4", "list", "{ }")),
        done(2, function("fc_4", "list", "{ }")),
        completed(),
    ]);
    assert_eq!(
        events,
        [
            AnswerEvent::Begin,
            call(0, "call_read", "read"),
            call(1, "call_list", "list"),
            arguments(0, "{\"p\""),
            arguments(1, "{}"),
            arguments(0, ": 1}"),
            call_end(0),
            call_end(1),
            stop(StopCause::Calls),
        ]
    );
}

#[test]
fn arguments_without_deltas_and_calls_without_a_beginning_pass() {
    let item =
        |arguments: Value| json!({ "type": "function_call", "call_id": "a", "name": "read", "arguments": arguments });
    let expected = |json: &'static str| {
        [
            AnswerEvent::Begin,
            call(0, "a", "read"),
            arguments(0, json),
            call_end(0),
            stop(StopCause::Calls),
        ]
    };
    let whole = "{\"p\":1}";
    let arguments_done = about(0, "function_call_arguments.done", json!({ "arguments": whole }));
    for events in [
        vec![
            added(0, item("".into())),
            arguments_done.clone(),
            done(0, item(whole.into())),
            completed(),
        ],
        vec![added(0, item("".into())), done(0, item(whole.into())), completed()],
        vec![done(0, item(whole.into())), completed()],
        // Pieces of a call whose name comes with its end.
        vec![
            delta(0, "function_call_arguments.delta", "{\"p\""),
            arguments_done,
            done(0, item(whole.into())),
            completed(),
        ],
        vec![done(0, item(json!({ "p": 1 }))), completed()],
    ] {
        assert_eq!(stream(&events), expected(whole), "{events:?}");
    }
    assert_eq!(stream(&[done(0, item("".into())), completed()]), expected("{}"));
    let without_name = json!({ "type": "function_call", "call_id": "a", "arguments": whole });
    assert_eq!(
        stream(&[done(0, without_name), completed()])[1..],
        [AnswerEvent::Lost("call_without_name"), stop(StopCause::End)]
    );
}

#[test]
fn items_without_numbers_are_told_apart_by_their_order() {
    let without_number = |mut event: Value| {
        event["output_index"] = Value::Null;
        event
    };
    let call_item = json!({ "type": "function_call", "call_id": "a", "name": "read", "arguments": "{}" });
    let with_beginnings = [
        added(0, json!({ "type": "message" })),
        delta(0, "output_text.delta", "Text"),
        done(0, message("Text")),
        added(0, call_item.clone()),
        done(0, call_item.clone()),
    ];
    let without_beginnings = [done(0, message("Text")), done(0, call_item)];
    for events in [&with_beginnings[..], &without_beginnings[..]] {
        let events: Vec<Value> = events.iter().cloned().map(without_number).collect();
        assert_eq!(
            stream(&events),
            [
                AnswerEvent::Begin,
                text("Text"),
                call(0, "a", "read"),
                arguments(0, "{}"),
                call_end(0)
            ]
        );
    }
}

#[test]
fn the_input_of_a_custom_tool_becomes_an_object_when_it_is_complete() {
    let item = |input: Value, status: &str| {
        let mut item = json!({ "type": "custom_tool_call", "call_id": "a", "name": "exec", "input": input });
        item["status"] = status.into();
        item
    };
    let expected = [
        call(0, "a", "exec"),
        arguments(0, r#"{"input":"say \"x\"\n"}"#),
        call_end(0),
        stop(StopCause::Calls),
    ];
    let pieces = [
        created(),
        added(0, item("".into(), "in_progress")),
        delta(0, "custom_tool_call_input.delta", "say "),
        delta(0, "custom_tool_call_input.delta", "\"x\"\n"),
    ];
    for input in [Value::Null, "say \"x\"\n".into()] {
        let end = [done(0, item(input, "completed")), completed()];
        assert_eq!(stream(&[&pieces[..], &end[..]].concat())[1..], expected);
    }
    let details = json!({ "reason": "max_output_tokens" });
    let incomplete = json!({ "type": "response.incomplete", "response": { "incomplete_details": details } });
    let end = [done(0, item("say".into(), "incomplete")), incomplete];
    assert_eq!(
        stream(&[&pieces[..], &end[..]].concat())[1..],
        [AnswerEvent::Lost("call"), stop(StopCause::MaxTokens)]
    );
    let long = delta(0, "custom_tool_call_input.delta", &"x".repeat(WAITING_BYTES_MAX + 1));
    assert_eq!(try_stream(&[long]), Err(AnswerFault::CallsTooLarge));
}

#[test]
fn a_call_that_its_provider_calls_incomplete_is_cut_off() {
    let item = json!({
        "type": "function_call", "call_id": "a", "name": "read", "arguments": "{\"p\"", "status": "incomplete",
    });
    let answer = json!({
        "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" }, "output": [item.clone()],
    });
    let expected = [
        AnswerEvent::Begin,
        call(0, "a", "read"),
        arguments(0, "{\"p\""),
        AnswerEvent::CallCut { call_index: 0 },
        stop(StopCause::MaxTokens),
    ];
    let last = json!({ "type": "response.incomplete", "response": answer });
    assert_eq!(stream(&[created(), done(0, item), last]), expected);
    assert_eq!(body(&answer.to_string()).unwrap(), expected);
}

/// Reads an event as one that is too large to be held.
fn on_large_event(reader: &mut ResponsesAnswerReader, event: &Value) -> Result<Vec<AnswerEvent<'static>>, AnswerFault> {
    let text = event.to_string();
    let mut picker = Picker::new(&LARGE_EVENT_PATHS);
    picker.push(text.as_bytes());
    assert!(picker.is_done());
    let mut read = Vec::new();
    reader.on_large_event("", &picker, &mut |event| {
        read.push(event.into_owned());
        Ok(())
    })?;
    Ok(read)
}

#[test]
fn a_large_event_with_the_answer_ends_it_as_a_small_one_does() {
    let error = json!({ "code": "rate_limit_exceeded", "message": "slow" });
    for response in [
        json!({ "status": "completed", "error": null, "incomplete_details": null, "output": [message("x")] }),
        json!({ "output": [], "incomplete_details": { "reason": "content_filter" }, "status": "incomplete" }),
        json!({ "output": [message("x")], "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" } }),
        json!({ "status": "failed", "error": error, "output": [] }),
        json!({ "status": "failed", "error": null }),
        json!({}),
    ] {
        for kind in ["completed", "incomplete", "failed", "cancelled"] {
            let event = json!({ "type": format!("response.{kind}"), "response": response });
            let begun = |reader: &mut ResponsesAnswerReader| {
                for event in [created(), delta(0, "output_text.delta", "x")] {
                    reader.on_event("", &event.to_string(), &mut |_| Ok(())).unwrap();
                }
            };
            let (mut large, mut small) = (ResponsesAnswerReader::default(), ResponsesAnswerReader::default());
            begun(&mut large);
            begun(&mut small);
            let mut expected = Vec::new();
            let mut emit = |event: AnswerEvent<'_>| {
                expected.push(event.into_owned());
                Ok(())
            };
            small.on_event("", &event.to_string(), &mut emit).unwrap();
            assert_eq!(on_large_event(&mut large, &event), Ok(expected), "{event}");
            assert_eq!(
                on_large_event(&mut large, &event),
                Ok(Vec::new()),
                "the answer has ended"
            );
        }
    }
}

#[test]
fn a_large_event_that_repeats_the_request_begins_the_answer() {
    for kind in ["created", "queued", "in_progress"] {
        let mut reader = ResponsesAnswerReader::default();
        let event = json!({ "type": format!("response.{kind}"), "response": { "output": [] } });
        assert_eq!(on_large_event(&mut reader, &event), Ok(vec![AnswerEvent::Begin]));
        assert_eq!(on_large_event(&mut reader, &event), Ok(Vec::new()));
    }
}

#[test]
fn a_large_event_with_content_of_its_own_is_a_fault() {
    let answer = json!({ "status": "completed", "output": [message("x")] });
    for event in [
        json!({ "type": "response.completed", "response": answer }),
        delta(0, "output_text.delta", "x"),
        done(0, message("x")),
        json!({ "type": "error", "error": { "message": "x" } }),
        json!({ "delta": "x" }),
    ] {
        let mut reader = ResponsesAnswerReader::default();
        assert_eq!(
            on_large_event(&mut reader, &event),
            Err(AnswerFault::EventTooLarge),
            "{event}"
        );
    }
}

#[test]
fn a_refusal_passes_and_is_the_cause_of_the_stop() {
    let item = json!({ "type": "message", "content": [{ "type": "refusal", "refusal": "I can not." }] });
    let refusal = |text: &'static str| AnswerEvent::Refusal(text.into());
    let events = stream(&[
        delta(0, "refusal.delta", "I can "),
        about(
            0,
            "refusal.done",
            json!({ "content_index": 0, "refusal": "I can not." }),
        ),
        done(0, item.clone()),
        completed(),
    ]);
    assert_eq!(
        events,
        [
            AnswerEvent::Begin,
            refusal("I can "),
            refusal("not."),
            stop(StopCause::Refused)
        ]
    );
    let events = stream(&[done(0, item), completed()]);
    assert_eq!(
        events,
        [AnswerEvent::Begin, refusal("I can not."), stop(StopCause::Refused)]
    );
}

#[test]
fn sources_are_named_once() {
    let annotations = json!([
        { "type": "url_citation", "url": "https://a", "title": "A", "start_index": 0 },
        { "type": "file_citation", "file_id": "x" },
    ]);
    let part = json!({ "type": "output_text", "text": "Text", "annotations": annotations });
    let item = json!({ "type": "message", "content": [part] });
    let expected = [
        text("Text"),
        AnswerEvent::Cited(Citation {
            url: "https://a".into(),
            title: Some("A".into()),
            quote: None,
        }),
        AnswerEvent::Lost("citation"),
        stop(StopCause::End),
    ];
    let annotation = |number: usize| {
        about(
            0,
            "output_text.annotation.added",
            json!({ "annotation": annotations[number] }),
        )
    };
    let head = [created(), delta(0, "output_text.delta", "Text")];
    let tail = [done(0, item), completed()];
    for named in [vec![], vec![annotation(0)], vec![annotation(0), annotation(1)]] {
        assert_eq!(stream(&[&head[..], &named[..], &tail[..]].concat())[1..], expected);
    }
}

#[test]
fn other_items_are_reported() {
    for (kind, lost) in [
        ("web_search_call", "server_tool"),
        ("mcp_list_tools", "server_tool"),
        ("tool_search_output", "server_tool"),
        ("compaction", "compaction"),
        ("new_kind", "output_item"),
    ] {
        let item = json!({ "type": kind, "content": 5 });
        let events = stream(&[
            added(0, item.clone()),
            about(0, "web_search_call.searching", json!({})),
            done(0, item),
        ]);
        assert_eq!(events, [AnswerEvent::Begin, AnswerEvent::Lost(lost)], "{kind}");
    }
    let parts = json!([{ "type": "output_audio" }, { "type": "output_text", "text": "Text" }]);
    let item = json!({ "type": "message", "content": parts });
    assert_eq!(
        stream(&[done(0, item)]),
        [AnswerEvent::Begin, AnswerEvent::Lost("content_part"), text("Text")]
    );
}

#[test]
fn every_status_has_its_cause() {
    let call_item = json!({ "type": "function_call", "call_id": "a", "name": "read", "arguments": "{\"p" });
    for (status, reason, output, cause) in [
        ("completed", Value::Null, json!([message("x")]), StopCause::End),
        ("completed", Value::Null, json!([call_item]), StopCause::Calls),
        (
            "incomplete",
            "max_output_tokens".into(),
            json!([call_item]),
            StopCause::MaxTokens,
        ),
        (
            "incomplete",
            "content_filter".into(),
            json!([message("x")]),
            StopCause::Filtered,
        ),
        ("incomplete", Value::Null, json!([message("x")]), StopCause::MaxTokens),
    ] {
        let answer =
            json!({ "status": status, "incomplete_details": { "reason": reason }, "output": output, "error": null });
        let last = Some(stop(cause));
        assert_eq!(body(&answer.to_string()).unwrap().pop(), last, "{answer}");
        let event = json!({ "type": format!("response.{status}"), "response": answer });
        assert_eq!(stream(&[created(), event]).pop(), last, "{answer}");
        let misnamed = json!({ "type": "response.completed", "response": answer });
        assert_eq!(stream(&[created(), misnamed]).pop(), last, "{answer}");
    }
    let unfinished = json!({ "status": "in_progress", "output": [] });
    assert_eq!(body(&unfinished.to_string()), Ok(vec![AnswerEvent::Begin]));
}

#[test]
fn an_error_ends_the_answer_with_its_status() {
    let failed = |status, message: &'static str| {
        let message = message.into();
        AnswerEvent::Failed { status, message }
    };
    let error = json!({ "code": "rate_limit_exceeded", "message": "slow" });
    for (event, expected) in [
        (
            json!({ "type": "error", "code": "server_error", "message": "down" }),
            failed(500, "down"),
        ),
        (json!({ "type": "error", "error": error }), failed(429, "slow")),
        (json!({ "error": error }), failed(429, "slow")),
        (
            json!({ "type": "response.failed", "response": { "status": "failed", "error": error } }),
            failed(429, "slow"),
        ),
        (
            json!({ "type": "response.failed", "response": {}, "error": error }),
            failed(429, "slow"),
        ),
        (
            json!({ "type": "response.failed" }),
            failed(502, "the provider reported an error"),
        ),
    ] {
        assert_eq!(stream(&[event.clone(), completed()]), [expected], "{event}");
    }
    for answer in [
        json!({ "error": error }),
        json!({ "status": "failed", "output": [], "error": error }),
    ] {
        assert_eq!(body(&answer.to_string()), Ok(vec![failed(429, "slow")]), "{answer}");
    }
}

#[test]
fn what_is_no_answer_is_a_fault() {
    for no_answer in ["", "{}", "[]", "\"x\"", "{", r#"{"output":5}"#, r#"{"output":[{}]}"#] {
        assert_eq!(body(no_answer), Err(AnswerFault::Unreadable), "{no_answer}");
    }
    let items: Vec<Value> = (0..=4_096)
        .map(|number| added(number, json!({ "type": "message" })))
        .collect();
    assert_eq!(try_stream(&items), Err(AnswerFault::Unreadable));
    assert_eq!(stream(&items[1..]), [AnswerEvent::Begin]);
}

proptest! {
    #[test]
    fn no_event_is_too_strange(events in prop::collection::vec(strange_event(), 0..10)) {
        let mut reader = ResponsesAnswerReader::default();
        let (mut begins, mut stops) = (0, 0);
        for event in &events {
            let _ = reader.on_event("", event, &mut |event| {
                begins += usize::from(event == AnswerEvent::Begin);
                stops += usize::from(matches!(event, AnswerEvent::Stop(_) | AnswerEvent::Failed { .. }));
                Ok(())
            });
        }
        prop_assert!(begins <= 1 && stops <= 1, "{begins} {stops}");
    }

    /// A text whose deltas stop anywhere, with or without each of the events that repeat it.
    #[test]
    fn a_text_arrives_once(whole in "\\PC{1,12}", cut in 0_usize..12, repeats: [bool; 2]) {
        let chars: Vec<char> = whole.chars().collect();
        let head: String = chars.iter().take(cut).collect();
        let mut events = vec![created(), delta(0, "output_text.delta", &head)];
        if repeats[0] {
            events.push(about(0, "output_text.done", json!({ "content_index": 0, "text": whole })));
        }
        if repeats[1] {
            events.push(about(0, "content_part.done", json!({ "part": { "type": "output_text", "text": whole } })));
        }
        events.push(done(0, message(&whole)));
        let passed: String = stream(&events).iter().filter_map(|event| match event {
            AnswerEvent::Text(text) => Some(text.as_ref()),
            _ => None,
        }).collect();
        prop_assert_eq!(passed, whole);
    }
}

/// Events in any order, with members of any kind, and texts that are none.
fn strange_event() -> impl Strategy<Value = String> {
    let item = prop_oneof![
        Just(json!(null)),
        Just(json!(5)),
        Just(json!({})),
        Just(message("x")),
        Just(json!({ "type": "reasoning", "summary": [{ "text": "x" }] })),
        Just(json!({ "type": "function_call", "name": "x", "arguments": "{" })),
        Just(json!({ "type": "custom_tool_call", "name": "x" })),
        Just(json!({ "type": "web_search_call" })),
    ];
    let kind = prop_oneof![
        Just("created"),
        Just("output_item.added"),
        Just("output_item.done"),
        Just("output_text.delta"),
        Just("refusal.done"),
        Just("function_call_arguments.delta"),
        Just("custom_tool_call_input.delta"),
        Just("content_part.done"),
        Just("completed"),
        Just("failed"),
    ];
    let delta = prop_oneof![Just(json!("x")), Just(json!(null)), Just(json!(1))];
    let event = (kind, item, delta, 0..3_u64).prop_map(|(kind, item, delta, number)| {
        let members = json!({ "item": item, "part": item, "delta": delta, "refusal": delta });
        about(number, kind, members).to_string()
    });
    prop_oneof![8 => event, 1 => ".*"]
}
