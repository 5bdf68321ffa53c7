//! Tests of the writer of Gemini answers.

use base64::engine::general_purpose::URL_SAFE;
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;
use crate::domain::translation::{
    answer::Citation,
    reasoning::{CarriedReasoning, ReasoningMaker},
    tool_names::{ClientTool, ToolKind, ToolNames},
};

/// The data of a stream's events. Each has exactly one line, also for clients that end lines at any of Unicode's line ends.
fn stream_chunks(stream: &str) -> Vec<Value> {
    let mut frames: Vec<&str> = stream.split("\r\n\r\n").collect();
    assert_eq!(frames.pop(), Some(""), "{stream}");
    let data = |frame: &str| -> Value {
        let ends = [
            '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}',
        ];
        assert!(!frame.contains(ends), "{frame}");
        serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap()
    };
    frames.into_iter().map(data).collect()
}

/// The answer that a client has after these chunks: neighbouring texts of one kind are one part. Checks each rule of the protocol
/// on the way: one candidate by the model, the same head in each chunk, and only in the last one the reason for the end and the
/// usage.
fn accumulated(chunks: &[Value]) -> Value {
    let mut parts: Vec<Value> = Vec::new();
    for (number, chunk) in chunks.iter().enumerate() {
        let is_last = number + 1 == chunks.len();
        assert_eq!(
            (&chunk["modelVersion"], &chunk["responseId"]),
            (&json!("big"), &json!("01")),
            "{chunk}"
        );
        let candidates = chunk["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 1, "{chunk}");
        assert_eq!(candidates[0]["index"], 0, "{chunk}");
        assert_eq!(candidates[0]["content"]["role"], "model", "{chunk}");
        assert_eq!(candidates[0]["finishReason"].is_string(), is_last, "{chunk}");
        assert_eq!(chunk["usageMetadata"].is_object(), is_last, "{chunk}");
        let added = candidates[0]["content"]["parts"].as_array().unwrap();
        assert!(!added.is_empty(), "{chunk}");
        for part in added {
            add_part(&mut parts, part, is_last);
        }
    }
    let mut answer = chunks.last().unwrap().clone();
    answer["candidates"][0]["content"]["parts"] = parts.into();
    answer
}

fn add_part(parts: &mut Vec<Value>, part: &Value, is_last: bool) {
    if *part == json!({"text": ""}) {
        assert!(is_last);
        if !parts.is_empty() {
            return;
        }
    }
    if part.get("functionCall").is_some() {
        assert!(part["functionCall"]["args"].is_object(), "{part}");
    } else if let Some(last) = parts.last_mut()
        && last.get("text").is_some()
        && last.get("thought") == part.get("thought")
        && part.get("thoughtSignature").is_none()
    {
        let joined = format!("{}{}", last["text"].as_str().unwrap(), part["text"].as_str().unwrap());
        last["text"] = joined.into();
        return;
    }
    parts.push(part.clone());
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
        output_text: 30,
        output_audio: 3,
        output_reasoning: 12,
        ..Usage::default()
    }
}

fn written(frame: AnswerFrame, events: &[AnswerEvent<'static>]) -> String {
    let mut writer = GeminiAnswerWriter::new(frame);
    let mut out = String::new();
    for event in events {
        writer.on_event(event.clone(), &mut out).unwrap();
    }
    writer.finish(&usage(), &mut out);
    writer.finish(&usage(), &mut out);
    writer.fail(500, "too late", &mut out);
    out
}

/// The answer that the client has, whatever form it has requested.
fn answer(shows_reasoning: bool, events: &[AnswerEvent<'static>]) -> Value {
    let text = |form: AnswerForm| written(frame(form, shows_reasoning), events);
    let body: Value = serde_json::from_str(&text(AnswerForm::Whole)).unwrap();
    let array: Vec<Value> = serde_json::from_str(&text(AnswerForm::Array)).unwrap();
    assert_eq!(stream_chunks(&text(AnswerForm::Stream)), array);
    assert_eq!(accumulated(&array), body);
    body
}

fn parts(shows_reasoning: bool, events: &[AnswerEvent<'static>]) -> Value {
    answer(shows_reasoning, events)["candidates"][0]["content"]["parts"].clone()
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

fn state(text: &'static str) -> ReasoningState<'static> {
    ReasoningState::Text { text: text.into() }
}

fn reasoning(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Reasoning(state(text))
}

fn signature(text: &'static str) -> String {
    STANDARD.encode(state(text).wrap(&maker(), "").unwrap())
}

#[test]
fn a_stream_has_the_chunks_of_the_protocol() {
    let events = [
        AnswerEvent::Begin,
        thought("why"),
        text("Hel\n"),
        text("lo"),
        call(0, "call_1", "get"),
        arguments(0, "{\"a\""),
        arguments(0, ": 1.0}"),
        AnswerEvent::Stop(StopCause::Calls),
    ];
    let chunk = |part: &str, end: &str, usage: &str| {
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":"model"}},{end}"index":0}}],{usage}"modelVersion":"big","responseId":"01"}}"#
        )
    };
    let usage = r#""usageMetadata":{"promptTokenCount":157,"candidatesTokenCount":33,"cachedContentTokenCount":42,"toolUsePromptTokenCount":1,"thoughtsTokenCount":12,"totalTokenCount":203},"#;
    let chunks = [
        chunk(r#"{"text":"why","thought":true}"#, "", ""),
        chunk(r#"{"text":"Hel\n"}"#, "", ""),
        chunk(r#"{"text":"lo"}"#, "", ""),
        chunk(
            r#"{"functionCall":{"id":"call_1","name":"get","args":{"a": 1.0}}}"#,
            "",
            "",
        ),
        chunk(r#"{"text":""}"#, r#""finishReason":"STOP","#, usage),
    ];
    let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect();
    assert_eq!(written(frame(AnswerForm::Stream, true), &events), stream);
    let array = format!("[{}]", chunks.join("\r\n,"));
    assert_eq!(written(frame(AnswerForm::Array, true), &events), array);
    let body = chunk(
        r#"{"text":"why","thought":true},{"text":"Hel\nlo"},{"functionCall":{"id":"call_1","name":"get","args":{"a": 1.0}}}"#,
        r#""finishReason":"STOP","#,
        usage,
    );
    assert_eq!(written(frame(AnswerForm::Whole, true), &events), body);
}

#[test]
fn the_counts_sum_to_the_total() {
    let counts = answer(true, &[text("x")])["usageMetadata"].clone();
    let count = |name: &str| counts[name].as_u64().unwrap();
    let input = count("promptTokenCount") + count("toolUsePromptTokenCount");
    let output = count("candidatesTokenCount") + count("thoughtsTokenCount");
    assert_eq!((input, output), (usage().input_total(), usage().output_total()));
    assert_eq!(count("totalTokenCount"), input + output);
}

#[test]
fn counts_of_zero_that_are_optional_are_left_out() {
    let mut out = String::new();
    push_object(&mut out, |counts| write_usage(counts, &Usage::default()));
    assert_eq!(
        out,
        r#"{"promptTokenCount":0,"candidatesTokenCount":0,"totalTokenCount":0}"#
    );
}

#[test]
fn thoughts_are_written_only_for_clients_that_want_them() {
    let events = [thought("why"), text("So")];
    assert_eq!(
        parts(true, &events),
        json!([{"text": "why", "thought": true}, {"text": "So"}])
    );
    assert_eq!(parts(false, &events), json!([{"text": "So"}]));
}

#[test]
fn a_state_signs_the_call_or_text_that_follows() {
    let events = [
        reasoning("1"),
        thought("why"),
        call(0, "c", "get"),
        arguments(0, "{}"),
        text("a"),
        text("b"),
    ];
    let get = json!({"functionCall": {"id": "c", "name": "get", "args": {}}, "thoughtSignature": signature("1")});
    assert_eq!(parts(false, &events), json!([get, {"text": "ab"}]));
    let events = [text("a"), reasoning("1"), text("b"), text("c"), call(0, "c", "get")];
    let get = json!({"functionCall": {"id": "c", "name": "get", "args": {}}});
    let signed = json!({"text": "bc", "thoughtSignature": signature("1")});
    assert_eq!(parts(false, &events), json!([{"text": "a"}, signed, get]));
}

#[test]
fn a_state_that_nothing_follows_signs_an_empty_text() {
    let signed = |text| json!({"text": "", "thoughtSignature": signature(text)});
    assert_eq!(
        parts(false, &[text("a"), reasoning("1")]),
        json!([{"text": "a"}, signed("1")])
    );
    let events = [reasoning("1"), reasoning("2"), AnswerEvent::Stop(StopCause::End)];
    assert_eq!(parts(false, &events), json!([signed("1"), signed("2")]));
}

#[test]
fn a_state_that_is_too_large_is_left_out() {
    let large = ReasoningState::Redacted {
        data: "x".repeat(1024 * 1024).into(),
    };
    let events = [AnswerEvent::Reasoning(large), text("a")];
    assert_eq!(parts(false, &events), json!([{"text": "a"}]));
    assert_eq!(losses(&events), ["reasoning_state"]);
}

/// The official clients decode and encode signatures, some with the alphabet for URLs.
#[test]
fn a_signature_is_base64_of_a_carrier_in_both_alphabets() {
    for state in [
        state("because \u{fb}\u{ff}??>>"),
        ReasoningState::Signature {
            signature: "+/+/==".into(),
        },
    ] {
        let carrier = state.wrap(&maker(), "").unwrap();
        assert_eq!(STANDARD.encode(&carrier), URL_SAFE.encode(&carrier));
        let events = [AnswerEvent::Reasoning(state.clone()), text("a")];
        let signature = parts(false, &events)[0]["thoughtSignature"]
            .as_str()
            .unwrap()
            .to_owned();
        let field = String::from_utf8(STANDARD.decode(signature).unwrap()).unwrap();
        assert_eq!(
            CarriedReasoning::unwrap(&field, "", &maker()),
            CarriedReasoning::Own(state)
        );
    }
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
        arguments(0, "of another call"),
        arguments(1, "{\"a\":1}"),
    ];
    let body: Value = serde_json::from_str(&written(frame, &events)).unwrap();
    assert_eq!(
        body["candidates"][0]["content"]["parts"],
        json!([
            {"functionCall": {"name": "invented", "args": {}}},
            {"functionCall": {"id": client_id("functions.get:0"), "name": "my.tool", "args": {"a": 1}}},
        ])
    );
}

#[test]
fn arguments_are_always_an_object_on_one_line() {
    let args =
        |json: &'static str| parts(true, &[call(0, "c", "get"), arguments(0, json)])[0]["functionCall"]["args"].clone();
    assert_eq!(args(""), json!({}));
    assert_eq!(args("{\r\n  \"a\": \"\u{2028}\\n\"\n}\n"), json!({"a": "\u{2028}\n"}));
    assert_eq!(args("null"), json!({"input": "null"}));
    assert_eq!(args("{\"a\":\n\"x"), json!({"input": "{\"a\":\n\"x"}));
}

/// What is lost of an answer.
fn losses(events: &[AnswerEvent<'static>]) -> Vec<&'static str> {
    let mut writer = GeminiAnswerWriter::new(frame(AnswerForm::Stream, true));
    let mut out = String::new();
    for event in events {
        writer.on_event(event.clone(), &mut out).unwrap();
    }
    writer.losses().kinds().to_vec()
}

#[test]
fn a_call_that_was_cut_off_is_left_out_and_reported() {
    for arguments_so_far in ["{\"a\":", "", "[1"] {
        let events = [
            text("a"),
            call(0, "c", "get"),
            arguments(0, "{}"),
            reasoning("1"),
            call(1, "d", "get"),
            arguments(1, arguments_so_far),
            AnswerEvent::CallCut { call_index: 1 },
            AnswerEvent::Stop(StopCause::MaxTokens),
        ];
        let answer = answer(true, &events);
        let get = json!({"functionCall": {"id": "c", "name": "get", "args": {}}});
        let signed = json!({"text": "", "thoughtSignature": signature("1")});
        let candidate = &answer["candidates"][0];
        assert_eq!(candidate["content"]["parts"], json!([{"text": "a"}, get, signed]));
        assert_eq!(candidate["finishReason"], "MAX_TOKENS");
        assert_eq!(losses(&events), ["call"]);
    }
}

#[test]
fn a_call_that_is_collected_is_limited() {
    let mut writer = GeminiAnswerWriter::new(frame(AnswerForm::Stream, true));
    let mut out = String::new();
    writer.on_event(call(0, "c", "get"), &mut out).unwrap();
    let piece = |json: String| AnswerEvent::Arguments {
        call_index: 0,
        json: json.into(),
    };
    writer.on_event(piece(" ".repeat(WAITING_BYTES_MAX)), &mut out).unwrap();
    assert_eq!(
        writer.on_event(piece("x".into()), &mut out),
        Err(AnswerFault::CallsTooLarge)
    );
}

#[test]
fn line_ends_of_some_clients_are_escaped() {
    let events = [text("a\u{2028}b\u{2029}c\u{85}d\u{b}\n")];
    assert_eq!(
        parts(true, &events),
        json!([{"text": "a\u{2028}b\u{2029}c\u{85}d\u{b}\n"}])
    );
}

#[test]
fn each_end_has_its_word() {
    let reason = |event: AnswerEvent<'static>, cause: StopCause| {
        let events = [event, AnswerEvent::Stop(cause), AnswerEvent::Stop(StopCause::End)];
        answer(true, &events)["candidates"][0]["finishReason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for (cause, after_text, after_refusal) in [
        (StopCause::End, "STOP", "SAFETY"),
        (StopCause::Sequence, "STOP", "SAFETY"),
        (StopCause::Calls, "STOP", "SAFETY"),
        (StopCause::MaxTokens, "MAX_TOKENS", "MAX_TOKENS"),
        (StopCause::ContextFull, "MAX_TOKENS", "MAX_TOKENS"),
        (StopCause::Refused, "SAFETY", "SAFETY"),
        (StopCause::Filtered, "SAFETY", "SAFETY"),
        (
            StopCause::Malformed,
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_FUNCTION_CALL",
        ),
    ] {
        assert_eq!(reason(text("x"), cause), after_text, "{cause:?}");
        assert_eq!(
            reason(AnswerEvent::Refusal("no".into()), cause),
            after_refusal,
            "{cause:?}"
        );
    }
}

#[test]
fn an_answer_without_content_has_an_empty_text() {
    assert_eq!(
        parts(true, &[AnswerEvent::Begin, text(""), thought("")]),
        json!([{"text": ""}])
    );
}

#[test]
fn a_source_is_left_out() {
    let cited = AnswerEvent::Cited(Citation {
        url: "http://a".into(),
        title: None,
        quote: None,
    });
    let events = [text("a"), cited.clone(), text("b"), cited, AnswerEvent::Lost("image")];
    assert_eq!(parts(true, &events), json!([{"text": "ab"}]));
    assert_eq!(losses(&events), ["citation", "image"]);
}

#[test]
fn a_failure_ends_a_stream_or_array_with_its_error() {
    let failed = |form: AnswerForm, events: &[AnswerEvent<'static>]| {
        let mut writer = GeminiAnswerWriter::new(frame(form, true));
        let mut out = String::new();
        for event in events {
            writer.on_event(event.clone(), &mut out).unwrap();
        }
        let failure = AnswerEvent::Failed {
            status: 503,
            message: "a \"b\"\u{2028}".into(),
        };
        writer.on_event(failure, &mut out).unwrap();
        writer.on_event(text("b"), &mut out).unwrap();
        writer.finish(&usage(), &mut out);
        out
    };
    let error = json!({"error": {"code": 503, "message": "a \"b\"\u{2028}", "status": "UNAVAILABLE"}});
    let events = [text("a"), call(0, "c", "get"), arguments(0, "{")];
    let chunks = stream_chunks(&failed(AnswerForm::Stream, &events));
    assert_eq!((chunks.len(), &chunks[1]), (2, &error));
    let elements: Vec<Value> = serde_json::from_str(&failed(AnswerForm::Array, &events)).unwrap();
    assert_eq!(elements, chunks);
    let elements: Vec<Value> = serde_json::from_str(&failed(AnswerForm::Array, &[])).unwrap();
    assert_eq!(elements, [error]);
}

#[test]
fn a_failure_of_an_object_is_a_fault() {
    let mut writer = GeminiAnswerWriter::new(frame(AnswerForm::Whole, true));
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
    let pieces = ["{", "\"a\":\n1", "}", "{\"b\":\"\u{85}\"}", "null", " ", ""];
    let causes = [
        StopCause::End,
        StopCause::Calls,
        StopCause::MaxTokens,
        StopCause::Malformed,
    ];
    prop_oneof![
        1 => Just(AnswerEvent::Begin),
        4 => ".{0,4}".prop_map(|text| AnswerEvent::Text(text.into())),
        4 => ".{0,4}".prop_map(|text| AnswerEvent::Thought(text.into())),
        1 => ".{0,4}".prop_map(|text| AnswerEvent::Refusal(text.into())),
        2 => ".{0,4}".prop_map(|text| AnswerEvent::Reasoning(ReasoningState::Text { text: text.into() })),
        3 => (0..3_u32, ".{0,4}", "[a-z]{1,3}").prop_map(|(call_index, id, name)| AnswerEvent::Call {
            call_index,
            id: id.into(),
            name: name.into(),
        }),
        8 => (0..3_u32, select(pieces.to_vec())).prop_map(|(call_index, piece)| arguments(call_index, piece)),
        1 => select(causes.to_vec()).prop_map(AnswerEvent::Stop),
    ]
}

proptest! {
    #[test]
    fn every_form_has_the_same_answer(
        events in prop::collection::vec(any_event(), 0..24),
        shows_reasoning: bool,
    ) {
        answer(shows_reasoning, &events);
    }

    #[test]
    fn a_stream_or_array_may_fail_anywhere(events in prop::collection::vec(any_event(), 0..24)) {
        let failed = |form: AnswerForm| {
            let mut writer = GeminiAnswerWriter::new(frame(form, true));
            let mut out = String::new();
            for event in &events {
                writer.on_event(event.clone(), &mut out).unwrap();
            }
            writer.fail(503, "gone", &mut out);
            out
        };
        let chunks = stream_chunks(&failed(AnswerForm::Stream));
        let elements: Vec<Value> = serde_json::from_str(&failed(AnswerForm::Array)).unwrap();
        prop_assert_eq!(&chunks, &elements);
        prop_assert!(chunks.iter().rev().skip(1).all(|chunk| chunk["error"].is_null()), "{:?}", chunks);
        prop_assert_eq!(&chunks[chunks.len() - 1]["error"]["status"], "UNAVAILABLE");
    }
}
