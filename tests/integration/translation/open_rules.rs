//! The rules of Open Responses for an answer: the members that it has and their types, and the order of a stream's events. Written
//! from the specification and the schemas of github.com/openresponses/openresponses (Apache-2.0).

use serde_json::Value as Json;

/// What a member must be.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Whole,
    Number,
    Flag,
    List,
    Object,
    Null(&'static Kind),
    Any,
}

use Kind::{Any, Flag, List, Null, Number, Object, Text, Whole};

/// The members of a response object.
const RESPONSE: [(&str, Kind); 31] = [
    ("id", Text),
    ("object", Text),
    ("created_at", Whole),
    ("completed_at", Null(&Whole)),
    ("status", Text),
    ("incomplete_details", Null(&Object)),
    ("model", Text),
    ("previous_response_id", Null(&Text)),
    ("instructions", Null(&Text)),
    ("output", List),
    ("error", Null(&Object)),
    ("tools", List),
    ("tool_choice", Any),
    ("truncation", Text),
    ("parallel_tool_calls", Flag),
    ("text", Object),
    ("top_p", Number),
    ("presence_penalty", Number),
    ("frequency_penalty", Number),
    ("top_logprobs", Whole),
    ("temperature", Number),
    ("reasoning", Null(&Object)),
    ("usage", Null(&Object)),
    ("max_output_tokens", Null(&Whole)),
    ("max_tool_calls", Null(&Whole)),
    ("store", Flag),
    ("background", Flag),
    ("service_tier", Text),
    ("metadata", Any),
    ("safety_identifier", Null(&Text)),
    ("prompt_cache_key", Null(&Text)),
];
/// The members of a function that the client offers.
const TOOL: [(&str, Kind); 5] = [
    ("type", Text),
    ("name", Text),
    ("description", Null(&Text)),
    ("parameters", Null(&Object)),
    ("strict", Null(&Flag)),
];
const USAGE: [(&str, Kind); 5] = [
    ("input_tokens", Whole),
    ("output_tokens", Whole),
    ("total_tokens", Whole),
    ("input_tokens_details", Object),
    ("output_tokens_details", Object),
];
const MESSAGE: [(&str, Kind); 4] = [("id", Text), ("status", Text), ("role", Text), ("content", List)];
const FUNCTION_CALL: [(&str, Kind); 5] = [
    ("id", Text),
    ("status", Text),
    ("call_id", Text),
    ("name", Text),
    ("arguments", Text),
];
const REASONING: [(&str, Kind); 2] = [("id", Text), ("summary", List)];

fn is(value: &Json, kind: Kind) -> bool {
    match kind {
        Text => value.is_string(),
        Whole => value.is_u64(),
        Number => value.is_number(),
        Flag => value.is_boolean(),
        List => value.is_array(),
        Object => value.is_object(),
        Null(other) => value.is_null() || is(value, *other),
        Any => true,
    }
}

/// Checks that an object has these members.
#[track_caller]
fn check(object: &Json, members: &[(&str, Kind)]) {
    for (name, kind) in members {
        let value = object.get(name).unwrap_or_else(|| panic!("no {name} in {object}"));
        assert!(is(value, *kind), "{name} is not {kind:?} in {object}");
    }
}

#[track_caller]
fn check_word(object: &Json, name: &str, words: &[&str]) {
    let word = object[name].as_str().unwrap_or_default();
    assert!(words.contains(&word), "{name} is not one of {words:?} in {object}");
}

/// Checks a response object.
#[track_caller]
pub(super) fn check_response(response: &Json) {
    check(response, &RESPONSE);
    check_word(response, "object", &["response"]);
    check_word(
        response,
        "status",
        &["in_progress", "completed", "incomplete", "failed"],
    );
    check_word(response, "truncation", &["auto", "disabled"]);
    check_word(
        &response["text"]["format"],
        "type",
        &["text", "json_object", "json_schema"],
    );
    if response["reasoning"].is_object() {
        check(
            &response["reasoning"],
            &[("effort", Null(&Text)), ("summary", Null(&Text))],
        );
    }
    for tool in elements(&response["tools"]) {
        check(tool, &TOOL);
    }
    if response["tool_choice"].is_string() {
        check_word(response, "tool_choice", &["none", "auto", "required"]);
    } else {
        check_word(&response["tool_choice"], "type", &["function", "allowed_tools"]);
    }
    if response["usage"].is_object() {
        let usage = &response["usage"];
        check(usage, &USAGE);
        check(&usage["input_tokens_details"], &[("cached_tokens", Whole)]);
        check(&usage["output_tokens_details"], &[("reasoning_tokens", Whole)]);
    }
    let status = response["status"].as_str();
    assert_eq!(
        status == Some("incomplete"),
        response["incomplete_details"].is_object(),
        "{response}"
    );
    assert_eq!(status == Some("failed"), response["error"].is_object(), "{response}");
    if response["error"].is_object() {
        check(&response["error"], &[("code", Text), ("message", Text)]);
    }
    if response["incomplete_details"].is_object() {
        check(&response["incomplete_details"], &[("reason", Text)]);
    }
    check_output(response);
}

/// Checks the items. One that is incomplete is the last one, of an answer that is incomplete.
#[track_caller]
fn check_output(response: &Json) {
    let items = elements(&response["output"]);
    for (index, item) in items.iter().enumerate() {
        check_item(item);
        if item["status"] == "incomplete" {
            assert_eq!(response["status"], "incomplete", "{response}");
            assert_eq!(index + 1, items.len(), "{response}");
        }
    }
}

#[track_caller]
fn check_item(item: &Json) {
    match item["type"].as_str().unwrap_or_default() {
        "message" => {
            check(item, &MESSAGE);
            check_word(item, "role", &["assistant"]);
            elements(&item["content"]).iter().for_each(check_part);
        }
        "function_call" => check(item, &FUNCTION_CALL),
        "reasoning" => {
            check(item, &REASONING);
            elements(&item["summary"]).iter().for_each(check_part);
            return;
        }
        other => panic!("an item of type {other}: {item}"),
    }
    check_word(item, "status", &["in_progress", "completed", "incomplete"]);
}

#[track_caller]
fn check_part(part: &Json) {
    match part["type"].as_str().unwrap_or_default() {
        "output_text" => check(part, &[("text", Text), ("annotations", List)]),
        "summary_text" => check(part, &[("text", Text)]),
        "refusal" => check(part, &[("refusal", Text)]),
        other => panic!("a part of type {other}: {part}"),
    }
}

fn elements(list: &Json) -> &[Json] {
    list.as_array().map_or(&[][..], Vec::as_slice)
}

/// An item of a stream that has begun.
struct OpenItem {
    id: Json,
    kind: String,
    /// What the deltas of its open part, or of its arguments, say.
    said: String,
    /// The complete parts.
    parts: Vec<Json>,
    /// Whether a part, or the arguments, have begun and not ended.
    is_open: bool,
}

/// Checks the events of a stream; returns the response object of the last one.
#[track_caller]
pub(super) fn check_stream(events: &[Json]) -> Json {
    let (last, others) = events.split_last().expect("a stream has events");
    let mut items: Vec<Json> = Vec::new();
    let mut open: Option<OpenItem> = None;
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    for (number, event) in others.iter().enumerate() {
        let kind = event["type"].as_str().unwrap_or_default();
        match (number, kind) {
            (0, "response.created") | (1, "response.in_progress") => {
                check_response(&event["response"]);
                assert_eq!(event["response"]["status"], "in_progress", "{event}");
            }
            (0 | 1, _) => panic!("a stream that begins with {event}"),
            (_, "response.output_item.added") => {
                assert!(open.is_none(), "an item inside another: {event}");
                open = Some(added(event, items.len()));
            }
            (_, "response.output_item.done") => {
                let item = open.take().unwrap_or_else(|| panic!("the end of no item: {event}"));
                items.push(done(&item, event, items.len()));
            }
            (_, _) => {
                let item = open
                    .as_mut()
                    .unwrap_or_else(|| panic!("outside of every item: {event}"));
                assert_eq!(
                    (&event["item_id"], &event["output_index"]),
                    (&item.id, &items.len().into()),
                    "{event}"
                );
                on_part(item, kind, event);
            }
        }
    }
    let ends = ["response.completed", "response.incomplete", "response.failed"];
    check_word(last, "type", &ends);
    let response = &last["response"];
    check_response(response);
    let status = response["status"].as_str().unwrap_or_default();
    assert_eq!(last["type"], format!("response.{status}"), "{last}");
    let is_failed = status == "failed";
    assert!(open.is_none() || is_failed, "an item without an end before {last}");
    assert_eq!(elements(&response["output"]), items, "{last}");
    response.clone()
}

/// An item begins: without content, and as much of the rest as is known.
#[track_caller]
fn added(event: &Json, index: usize) -> OpenItem {
    let item = &event["item"];
    assert_eq!(event["output_index"], index, "{event}");
    check_item(item);
    let kind = item["type"].as_str().unwrap_or_default().to_owned();
    if kind == "reasoning" {
        assert_eq!(elements(&item["summary"]).len(), 0, "{event}");
    } else {
        assert_eq!(item["status"], "in_progress", "{event}");
        assert_eq!(elements(&item["content"]).len(), 0, "{event}");
    }
    OpenItem {
        id: item["id"].clone(),
        kind,
        said: String::new(),
        parts: Vec::new(),
        is_open: false,
    }
}

/// An item ends: with what its events have said, and in a state from which it does not change.
#[track_caller]
fn done(item: &OpenItem, event: &Json, index: usize) -> Json {
    let whole = &event["item"];
    assert!(!item.is_open, "an open part before {event}");
    assert_eq!(event["output_index"], index, "{event}");
    check_item(whole);
    assert_eq!(
        (&whole["id"], whole["type"].as_str()),
        (&item.id, Some(&*item.kind)),
        "{event}"
    );
    match &*item.kind {
        "function_call" => assert_eq!(whole["arguments"], *item.said, "{event}"),
        "reasoning" => assert_eq!(elements(&whole["summary"]), item.parts, "{event}"),
        _ => assert_eq!(elements(&whole["content"]), item.parts, "{event}"),
    }
    assert_ne!(whole["status"], "in_progress", "{event}");
    whole.clone()
}

/// A part begins, grows or ends; the arguments of a call need no beginning.
#[track_caller]
fn on_part(item: &mut OpenItem, kind: &str, event: &Json) {
    let place = match &*item.kind {
        "message" => Some("content_index"),
        "reasoning" => Some("summary_index"),
        _ => None,
    };
    if let Some(place) = place {
        assert_eq!(event[place], item.parts.len(), "{event}");
    }
    match kind {
        "response.content_part.added" | "response.reasoning_summary_part.added" => {
            assert!(!item.is_open, "a part inside another: {event}");
            check_part(&event["part"]);
            assert_eq!(words(&event["part"]), Some(""), "{event}");
            item.is_open = true;
            item.said.clear();
        }
        "response.content_part.done" | "response.reasoning_summary_part.done" => {
            assert!(item.is_open, "the end of no part: {event}");
            check_part(&event["part"]);
            assert_eq!(words(&event["part"]), Some(&*item.said), "{event}");
            item.is_open = false;
            item.parts.push(event["part"].clone());
        }
        "response.output_text.delta"
        | "response.refusal.delta"
        | "response.reasoning_summary_text.delta"
        | "response.function_call_arguments.delta" => {
            assert!(item.is_open || place.is_none(), "outside of every part: {event}");
            item.said
                .push_str(event["delta"].as_str().unwrap_or_else(|| panic!("{event}")));
        }
        "response.output_text.done"
        | "response.refusal.done"
        | "response.reasoning_summary_text.done"
        | "response.function_call_arguments.done" => assert_eq!(words(event), Some(&*item.said), "{event}"),
        "response.output_text.annotation.added" => assert!(event["annotation"].is_object(), "{event}"),
        other => panic!("an event of type {other}"),
    }
}

/// The words of a part, or of the event with all of it.
fn words(object: &Json) -> Option<&str> {
    ["text", "refusal", "arguments"]
        .into_iter()
        .find_map(|name| object[name].as_str())
}
