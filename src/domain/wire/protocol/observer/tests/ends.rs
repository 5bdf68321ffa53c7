//! Where an answer ends: with nothing that comes before its end.

use std::collections::BTreeMap;

use super::*;

const TEXT: &str = r#""content":{"parts":[{"text":"weirs"}]}"#;
const CODE: &str = r#""content":{"parts":[{"codeExecutionResult":{"outcome":"OUTCOME_OK"}}]}"#;
const EMPTY: &str = r#""content":{"parts":[{"text":""}],"role":"model"}"#;
const STOP: &str = r#""finishReason":"STOP""#;

/// A chunk with one candidate, which has these members.
fn one(members: &[&str]) -> String {
    format!("{{\"candidates\":[{{{}}}]}}", members.join(","))
}

fn sse(chunks: &[String]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect()
}

/// Whether a stream of these chunks is complete, however it is divided; and the reason that it has told then.
fn ended(chunks: &[String]) -> (bool, Option<String>) {
    let stream = sse(chunks);
    let ends = [1, 7, 60, usize::MAX].map(|size| {
        let observed = observe(Protocol::Gemini, AnswerFraming::Sse, stream.as_bytes(), size).observed();
        (observed.complete, observed.finish_reason.map(String::from))
    });
    assert!(ends.iter().all(|end| *end == ends[0]), "{chunks:?}: {ends:?}");
    let array = format!("[{}]", chunks.join(","));
    let of_array = observe(Protocol::Gemini, AnswerFraming::JsonArray, array.as_bytes(), 9).observed();
    assert_eq!(of_array.complete, ends[0].0, "{array}");
    ends[0].clone()
}

#[test]
fn a_reason_ends_a_gemini_answer_only_if_no_content_comes_behind_it() {
    let stopped = (true, Some("STOP".to_owned()));
    let open = (false, None);
    let number = |number: u8| format!("\"index\":{number}");
    let (first, second) = (number(0), number(1));
    for (chunks, wanted) in [
        (vec![one(&[TEXT, STOP])], &stopped),
        (vec![one(&[TEXT]), one(&[EMPTY, STOP])], &stopped),
        (vec![one(&[TEXT]), one(&[STOP])], &stopped),
        (vec![one(&[STOP])], &stopped),
        // A tool of the provider has ended, and the model goes on.
        (vec![one(&[CODE, STOP]), one(&[TEXT])], &open),
        (vec![one(&[CODE, STOP]), one(&[TEXT]), one(&[TEXT, STOP])], &stopped),
        // An empty one in front.
        (vec![one(&[EMPTY, STOP]), one(&[TEXT]), one(&[TEXT])], &open),
        (vec![one(&[STOP]), one(&[TEXT]), one(&[TEXT])], &open),
        // What follows without content takes nothing back.
        (vec![one(&[TEXT, STOP]), one(&[EMPTY])], &stopped),
        (vec![one(&[TEXT, STOP]), r#"{"usageMetadata":{}}"#.to_owned()], &stopped),
        // Two candidates, of which one is done.
        (vec![one(&[&first, TEXT, STOP]), one(&[&second, TEXT])], &open),
        (vec![one(&[TEXT, STOP]), one(&[&second, TEXT])], &open),
        (
            vec![one(&[TEXT, STOP]), one(&[&second, TEXT]), one(&[STOP, TEXT, &second])],
            &stopped,
        ),
        // Both in one chunk, the first one's number left out.
        (
            vec![format!(r#"{{"candidates":[{{{TEXT},{STOP}}},{{{TEXT}}}]}}"#)],
            &open,
        ),
        (
            vec![format!(r#"{{"candidates":[{{{TEXT},{STOP}}},{{{STOP}}}]}}"#)],
            &stopped,
        ),
    ] {
        assert_eq!(ended(&chunks), *wanted, "{chunks:?}");
    }
    for none in [
        r#""finishReason":"""#,
        r#""finishReason":"FINISH_REASON_UNSPECIFIED""#,
        r#""finishReason":null"#,
        r#""finishReason":0"#,
    ] {
        assert_eq!(ended(&[one(&[TEXT, none]), one(&[TEXT, none])]), open, "{none}");
    }
}

#[test]
fn a_refused_prompt_ends_a_gemini_answer_unless_content_comes() {
    let blocked = |reason: &str| format!(r#"{{"promptFeedback":{{"blockReason":{reason}}}}}"#);
    let safety = (true, Some("SAFETY".to_owned()));
    assert_eq!(ended(&[blocked("\"SAFETY\"")]), safety);
    assert_eq!(ended(&[one(&[TEXT]), blocked("\"SAFETY\"")]), safety);
    assert_eq!(ended(&[blocked("\"SAFETY\""), one(&[TEXT])]), (false, None));
    for none in ["\"\"", "null", "\"BLOCK_REASON_UNSPECIFIED\""] {
        assert_eq!(ended(&[blocked(none)]), (false, None), "{none}");
    }
}

#[test]
fn candidates_beyond_those_that_are_told_apart_do_no_harm() {
    let many = |members: &str, count: usize| format!("{{\"candidates\":[{}]}}", vec![members; count].join(","));
    let whole = format!("{{{TEXT},{STOP}}}");
    for count in [63, 64, 65, 5_000] {
        assert!(ended(&[many(&whole, count)]).0, "{count}");
        assert!(
            !ended(&[many(&whole, count), many(&format!("{{{TEXT}}}"), count)]).0,
            "{count}"
        );
    }
}

#[test]
fn a_usage_is_the_last_word_only_with_the_end() {
    use crate::domain::wire::usage::UsageSource::{Partial, Reported};
    let used = |chunk: String| {
        chunk.replacen(
            '{',
            r#"{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2},"#,
            1,
        )
    };
    for (chunks, source) in [
        (vec![used(one(&[CODE, STOP])), one(&[TEXT])], Partial),
        (vec![used(one(&[CODE, STOP])), one(&[TEXT]), one(&[STOP])], Partial),
        (
            vec![used(one(&[CODE, STOP])), one(&[TEXT]), used(one(&[STOP]))],
            Reported,
        ),
        (vec![used(one(&[TEXT, STOP])), one(&[r#""index":1"#, TEXT])], Partial),
    ] {
        let stream = sse(&chunks);
        for size in [1, 50, usize::MAX] {
            let observed = observe(Protocol::Gemini, AnswerFraming::Sse, stream.as_bytes(), size).observed();
            assert_eq!(observed.usage_source, Some(source), "{chunks:?}");
        }
    }
}

/// An event as it is sent, and its data.
#[derive(Clone, Debug)]
struct Event {
    before: &'static str,
    data: Value,
    behind: &'static str,
}

fn gemini_event() -> impl Strategy<Value = Event> {
    let content = prop::sample::select(vec![
        None,
        Some(serde_json::json!([{"text": ""}])),
        Some(serde_json::json!([{"text": "weirs and rivers"}])),
        Some(serde_json::json!([{"text": "a\"b"}])),
        Some(serde_json::json!([{"text": "weirs", "thought": true}])),
        Some(serde_json::json!([{"codeExecutionResult": {"outcome": "OUTCOME_OK"}}])),
        Some(serde_json::json!([{"text": ""}, {"functionCall": {"name": "f", "args": {"finishReason": "STOP"}}}])),
    ]);
    let reason = prop::sample::select(vec![
        Value::Null,
        Value::Null,
        Value::Null,
        Value::from(""),
        Value::from("FINISH_REASON_UNSPECIFIED"),
        Value::from("STOP"),
        Value::from("MAX_TOKENS"),
    ]);
    let candidate = (content, reason, prop::option::of(0_u8..3)).prop_map(|(parts, reason, index)| {
        let mut candidate = serde_json::Map::new();
        if let Some(parts) = parts {
            candidate.insert("content".to_owned(), serde_json::json!({ "parts": parts }));
        }
        if !reason.is_null() {
            candidate.insert("finishReason".to_owned(), reason);
        }
        if let Some(index) = index {
            candidate.insert("index".to_owned(), index.into());
        }
        Value::Object(candidate)
    });
    let candidates = prop_oneof![
        6 => prop::collection::vec(candidate.clone(), 1..2),
        1 => prop::collection::vec(candidate, 0..4)
    ];
    let block = prop_oneof![20 => Just(Value::Null), 1 => Just(Value::from("SAFETY")), 1 => Just(Value::from(""))];
    let usage = prop::option::of((0_u64..900, 0_u64..900));
    let endings = prop::sample::select(vec!["\r\n\r\n", "\n\n"]);
    (candidates, block, usage, endings).prop_map(|(candidates, block, usage, behind)| {
        let mut data = serde_json::json!({ "modelVersion": "m" });
        if !candidates.is_empty() {
            data["candidates"] = candidates.into();
        }
        if !block.is_null() {
            data["promptFeedback"] = serde_json::json!({ "blockReason": block });
        }
        if let Some((prompt, text)) = usage {
            data["usageMetadata"] = serde_json::json!({"promptTokenCount": prompt, "candidatesTokenCount": text});
        }
        Event {
            before: "data: ",
            data,
            behind,
        }
    })
}

fn typed_event(data: Vec<Value>) -> impl Strategy<Value = Event> {
    let endings = prop::sample::select(vec!["\n\n", "\r\n\r\n"]);
    (prop::sample::select(data), endings).prop_map(|(data, behind)| Event {
        before: "event: x\ndata: ",
        data,
        behind,
    })
}

fn messages_event() -> impl Strategy<Value = Event> {
    let delta = serde_json::json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "weirs"}});
    typed_event(vec![
        delta.clone(),
        delta,
        serde_json::json!({"type": "ping"}),
        serde_json::json!({"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 5}}}),
        serde_json::json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
        serde_json::json!({"type": "message_stop"}),
    ])
}

fn responses_event() -> impl Strategy<Value = Event> {
    let delta = serde_json::json!({"type": "response.output_text.delta", "sequence_number": 3, "delta": "weirs"});
    let ended =
        |kind: &str| serde_json::json!({"type": kind, "response": {"usage": {"input_tokens": 3, "output_tokens": 9}}});
    typed_event(vec![
        delta.clone(),
        delta,
        serde_json::json!({"type": "response.output_text.done", "text": "weirs"}),
        serde_json::json!({"type": "response.output_item.done", "item": {"type": "code_interpreter_call", "status": "completed"}}),
        ended("response.completed"),
        ended("response.incomplete"),
    ])
}

/// Whether these events end an answer, by the words of the protocol.
fn have_ended(protocol: Protocol, events: &[Event]) -> bool {
    let has = |kinds: &[&str]| {
        events
            .iter()
            .any(|event| kinds.iter().any(|kind| event.data["type"] == *kind))
    };
    match protocol {
        Protocol::Messages => has(&["message_stop"]),
        Protocol::Responses => has(&["response.completed", "response.incomplete"]),
        Protocol::Gemini => gemini_has_ended(events),
    }
}

fn gemini_has_ended(events: &[Event]) -> bool {
    let mut candidates: BTreeMap<u64, bool> = BTreeMap::new();
    let mut refused = false;
    for event in events {
        for (place, candidate) in event.data["candidates"].as_array().into_iter().flatten().enumerate() {
            let index = candidate["index"].as_u64().unwrap_or(place as u64);
            let reason = candidate["finishReason"].as_str().unwrap_or_default();
            let parts = candidate["content"]["parts"].as_array();
            let is_content = |part: &Value| part["text"] != "" && part.as_object().is_some_and(|part| !part.is_empty());
            let has_content = parts.is_some_and(|parts| parts.iter().any(is_content));
            let is_over = candidates.entry(index).or_default();
            if !matches!(reason, "" | "FINISH_REASON_UNSPECIFIED") {
                *is_over = true;
            } else if has_content {
                (*is_over, refused) = (false, false);
            }
        }
        refused |= event.data["promptFeedback"]["blockReason"] == "SAFETY";
    }
    refused || !candidates.is_empty() && candidates.values().all(|is_over| *is_over)
}

/// A stream that is cut behind so many bytes is complete if what came whole of it has ended, in whatever pieces it comes.
fn assert_ends_as_said(protocol: Protocol, events: &[Event], cut: usize, size: usize) -> Result<(), TestCaseError> {
    let (mut stream, mut ends) = (String::new(), Vec::new());
    for event in events {
        stream.push_str(event.before);
        stream.push_str(&event.data.to_string());
        ends.push(stream.len());
        stream.push_str(event.behind);
    }
    let cut = cut % (stream.len() + 1);
    let whole = ends.iter().filter(|end| **end <= cut).count();
    let wanted = have_ended(protocol, &events[..whole]);
    for size in [1, size, stream.len().max(1)] {
        let observer = observe(protocol, AnswerFraming::Sse, &stream.as_bytes()[..cut], size);
        prop_assert_eq!(observer.is_complete(), wanted, "{} of {}", cut, stream);
        let told = observer.observed().finish_reason.is_some();
        prop_assert!(protocol != Protocol::Gemini || told == wanted);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_stream_is_complete_where_its_protocol_says_so_whatever_its_pieces_and_its_cut(
        gemini in prop::collection::vec(gemini_event(), 0..12),
        messages in prop::collection::vec(messages_event(), 0..8),
        responses in prop::collection::vec(responses_event(), 0..8),
        cut: usize,
        size in 1_usize..400,
    ) {
        assert_ends_as_said(Protocol::Gemini, &gemini, cut, size)?;
        assert_ends_as_said(Protocol::Messages, &messages, cut, size)?;
        assert_ends_as_said(Protocol::Responses, &responses, cut, size)?;
    }

    #[test]
    fn the_same_chunks_again_and_again_end_where_they_say_so(
        events in prop::collection::vec(gemini_event(), 1..4),
        cut: usize,
        size in 1_usize..2000,
    ) {
        let events: Vec<Event> = std::iter::repeat_n(events, 8).flatten().collect();
        assert_ends_as_said(Protocol::Gemini, &events, cut, size)?;
    }
}
