//! Tests of the reader of Gemini.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Reads the data of events, and the stream's end.
fn try_stream(chunks: &[Value]) -> Result<Vec<AnswerEvent<'static>>, AnswerFault> {
    let mut reader = GeminiAnswerReader::default();
    let mut events = Vec::new();
    let mut emit = |event: AnswerEvent<'_>| {
        events.push(event.into_owned());
        Ok(())
    };
    for chunk in chunks {
        reader.on_event(&chunk.to_string(), &mut emit)?;
    }
    reader.on_end(&mut emit)?;
    Ok(events)
}

/// What the events say behind the beginning.
fn stream(chunks: &[Value]) -> Vec<AnswerEvent<'static>> {
    let mut events = try_stream(chunks).unwrap();
    assert_eq!(events.remove(0), AnswerEvent::Begin);
    events
}

/// A chunk with this part.
fn part(part: &Value) -> Value {
    json!({ "candidates": [{ "content": { "role": "model", "parts": [part] }, "index": 0 }], "usageMetadata": {} })
}

/// A chunk that ends the answer.
fn finish(reason: &str) -> Value {
    json!({ "candidates": [{ "content": { "parts": [{ "text": "" }] }, "finishReason": reason }], "modelVersion": "x" })
}

fn text(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Text(text.into())
}

fn signature(signature: &'static str) -> AnswerEvent<'static> {
    let signature = signature.into();
    AnswerEvent::Reasoning(ReasoningState::Signature { signature })
}

/// The events of a complete call.
fn call(call_index: u32, id: &'static str, name: &'static str, json: &'static str) -> Vec<AnswerEvent<'static>> {
    let (id, name, json) = (id.into(), name.into(), json.into());
    vec![
        AnswerEvent::Call { call_index, id, name },
        AnswerEvent::Arguments { call_index, json },
        AnswerEvent::CallEnd { call_index },
    ]
}

fn stop(cause: StopCause) -> AnswerEvent<'static> {
    AnswerEvent::Stop(cause)
}

#[test]
fn text_and_thoughts_are_told_apart_by_the_mark_alone() {
    let events = stream(&[
        part(&json!({ "text": "Because", "thought": true })),
        part(&json!({ "text": "Hel" })),
        part(&json!({ "text": "lo", "thoughtSignature": "c2ln" })),
        part(&json!({ "text": "", "thoughtSignature": "bGFzdA==" })),
        finish("STOP"),
        json!({ "usageMetadata": { "promptTokenCount": 1 } }),
    ]);
    assert_eq!(
        events,
        [
            AnswerEvent::Thought("Because".into()),
            text("Hel"),
            text("lo"),
            AnswerEvent::Lost("thought_signature"),
            AnswerEvent::Lost("thought_signature"),
            stop(StopCause::End),
        ]
    );
}

#[test]
fn a_call_is_complete_at_once_and_its_signature_stands_before_it() {
    let events = stream(&[
        part(&json!({ "text": "Look", "thoughtSignature": "dGV4dA" })),
        part(&json!({ "functionCall": { "name": "read", "args": { "p": 1.50, "a": [] } } })),
        part(&json!({ "functionCall": { "id": "id_1", "name": "read", "args": {} }, "thoughtSignature": "Y2FsbA" })),
        part(&json!({ "functionCall": { "name": "now" } })),
        finish("STOP"),
    ]);
    let expected = [
        vec![text("Look"), signature("dGV4dA")],
        call(0, "", "read", r#"{"p":1.5,"a":[]}"#),
        vec![signature("Y2FsbA")],
        call(1, "id_1", "read", "{}"),
        call(2, "", "now", "{}"),
        vec![stop(StopCause::Calls)],
    ];
    assert_eq!(events, expected.concat());
    // A call has a signature of its own.
    let events = stream(&[
        part(&json!({ "text": "", "thoughtSignature": "dGV4dA" })),
        part(&json!({ "functionCall": { "name": "now" }, "thoughtSignature": "Y2FsbA" })),
    ]);
    assert_eq!(
        events[..2],
        [AnswerEvent::Lost("thought_signature"), signature("Y2FsbA")]
    );
    // The arguments are the provider's bytes.
    let mut events = Vec::new();
    let body = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"a","args":{ "p" : 1e2 }}}]},"finishReason":"STOP"}]}"#;
    let mut emit = |event: AnswerEvent<'_>| {
        events.push(event.into_owned());
        Ok(())
    };
    GeminiAnswerReader::default().on_event(body, &mut emit).unwrap();
    assert_eq!(events[1..4], call(0, "", "a", r#"{ "p" : 1e2 }"#));
    assert_eq!(events[4..], [stop(StopCause::Calls)]);
}

#[test]
fn pieces_of_calls_are_joined() {
    let piece = |path: &str, value: Value, goes_on: bool| {
        let mut argument = value;
        argument["jsonPath"] = path.into();
        if goes_on {
            argument["willContinue"] = true.into();
        }
        part(&json!({ "functionCall": { "partialArgs": [argument], "willContinue": true } }))
    };
    let text_piece = |path: &str, text: &str, goes_on: bool| piece(path, json!({ "stringValue": text }), goes_on);
    let last = part(&json!({ "functionCall": {} }));
    let first = json!({ "functionCall": { "name": "read", "willContinue": true }, "thoughtSignature": "c2ln" });
    let events = stream(&[
        part(&first),
        text_piece("$.place", "San ", true),
        text_piece("$.place", "Jos\u{e9} \"x\"", true),
        text_piece("$.place", "", false),
        part(&json!({ "functionCall": { "willContinue": true } })),
        text_piece("$.list[0].name", "a", false),
        piece("$.list[0].count", json!({ "numberValue": 2 }), false),
        text_piece("$.list[1].name", "b", false),
        piece("$.is_new", json!({ "boolValue": true }), false),
        piece("$.none", json!({ "nullValue": null }), false),
        last.clone(),
        part(&json!({ "functionCall": { "name": "list", "willContinue": true } })),
        text_piece("$.p", "x", false),
        last,
        finish("STOP"),
    ]);
    let json = r#"{"place":"San José \"x\"","list":[{"name":"a","count":2},{"name":"b"}],"is_new":true,"none":null}"#;
    let expected = [
        vec![signature("c2ln")],
        call(0, "", "read", json),
        call(1, "", "list", r#"{"p":"x"}"#),
        vec![stop(StopCause::Calls)],
    ];
    assert_eq!(events, expected.concat());
    // Without its last piece, a call is complete only if the model has said everything.
    let open = [part(&first), text_piece("$.p", "x", false)];
    let whole = stream(&[&open[..], &[finish("STOP")][..]].concat());
    let expected = [
        vec![signature("c2ln")],
        call(0, "", "read", r#"{"p":"x"}"#),
        vec![stop(StopCause::Calls)],
    ];
    assert_eq!(whole, expected.concat());
    let cut = stream(&[&open[..], &[finish("MAX_TOKENS")][..]].concat());
    assert_eq!(cut, [AnswerEvent::Lost("call"), stop(StopCause::MaxTokens)]);
    assert_eq!(stream(&open), [AnswerEvent::Lost("call")]);
}

#[test]
fn pieces_of_calls_are_limited() {
    let piece = |path: &str, text: &str| {
        let argument = json!({ "jsonPath": path, "stringValue": text });
        part(&json!({ "functionCall": { "name": "read", "partialArgs": [argument], "willContinue": true } }))
    };
    let half = piece("$.p", &"x".repeat(EVENT_BYTES_MAX / 2));
    assert_eq!(try_stream(&[half.clone(), half]), Err(AnswerFault::CallsTooLarge));
    for (first, second) in [("$.p[65]", "$"), ("$.p.a", "$.p[0]"), ("$.p", "$.p.a"), ("$..a[", "$")] {
        let chunks = [piece(first, "x"), piece(second, "x"), piece("$.p.b", "x")];
        assert_eq!(try_stream(&chunks), Err(AnswerFault::Unreadable), "{first}");
    }
    let many: Vec<Value> = (0..700).map(|number| piece(&format!("$.a{number}[63]"), "x")).collect();
    assert_eq!(try_stream(&many), Err(AnswerFault::CallsTooLarge));
}

#[test]
fn every_reason_has_its_cause() {
    for (reason, cause) in [
        ("STOP", StopCause::End),
        ("MAX_TOKENS", StopCause::MaxTokens),
        ("CONTINUATION", StopCause::MaxTokens),
        ("PROHIBITED_CONTENT", StopCause::Refused),
        ("SAFETY", StopCause::Filtered),
        ("RECITATION", StopCause::Filtered),
        ("LANGUAGE", StopCause::Filtered),
        ("BLOCKLIST", StopCause::Filtered),
        ("SPII", StopCause::Filtered),
        ("ESCALATION", StopCause::Filtered),
        ("MODEL_ARMOR", StopCause::Filtered),
        ("PUP_LIMITED_DISABLED", StopCause::Filtered),
        ("IMAGE_SAFETY", StopCause::Filtered),
        ("IMAGE_PROHIBITED_CONTENT", StopCause::Filtered),
        ("IMAGE_RECITATION", StopCause::Filtered),
        ("IMAGE_OTHER", StopCause::Filtered),
        ("NO_IMAGE", StopCause::Malformed),
        ("MALFORMED_FUNCTION_CALL", StopCause::Malformed),
        ("UNEXPECTED_TOOL_CALL", StopCause::Malformed),
        ("TOO_MANY_TOOL_CALLS", StopCause::Malformed),
        ("MISSING_THOUGHT_SIGNATURE", StopCause::Malformed),
        ("MALFORMED_RESPONSE", StopCause::Malformed),
        ("OTHER", StopCause::Malformed),
        ("NEW_REASON", StopCause::Malformed),
    ] {
        assert_eq!(
            stream(&[part(&json!({ "text": "x" })), finish(reason)])[1..],
            [stop(cause)],
            "{reason}"
        );
    }
    for none in ["", "FINISH_REASON_UNSPECIFIED"] {
        assert!(stream(&[finish(none)]).is_empty(), "{none}");
    }
    assert!(stream(&[json!({ "candidates": [{ "finishReason": 0 }] })]).is_empty());
}

#[test]
fn a_prompt_that_is_blocked_is_an_answer_without_content() {
    let blocked = json!({ "promptFeedback": { "blockReason": "SAFETY", "safetyRatings": [] }, "usageMetadata": {} });
    assert_eq!(stream(&[blocked]), [stop(StopCause::Filtered)]);
    let not_blocked = json!({ "promptFeedback": { "blockReason": "BLOCK_REASON_UNSPECIFIED" } });
    assert!(stream(&[not_blocked]).is_empty());
}

#[test]
fn an_error_ends_the_answer_with_its_status() {
    for (error, status, message) in [
        (
            json!({ "code": 503, "message": "away", "status": "UNAVAILABLE" }),
            503,
            "away",
        ),
        (
            json!({ "message": "slow", "status": "RESOURCE_EXHAUSTED" }),
            429,
            "slow",
        ),
        (json!({}), 502, "the provider reported an error"),
    ] {
        let message = message.into();
        let failed = AnswerEvent::Failed { status, message };
        let events = try_stream(&[json!({ "error": error }), finish("STOP")]);
        assert_eq!(events, Ok(vec![failed]), "{error}");
    }
}

#[test]
fn sources_are_named_once() {
    let grounded = |chunks: Value| json!({ "candidates": [{ "groundingMetadata": { "groundingChunks": chunks } }] });
    let web = |uri: &str| json!({ "web": { "uri": uri, "title": "T" } });
    let cited = |url: &'static str| {
        AnswerEvent::Cited(Citation {
            url: url.into(),
            title: Some("T".into()),
            quote: None,
        })
    };
    let events = stream(&[
        grounded(json!([web("https://a")])),
        grounded(json!([web("https://a"), web("https://b"), { "image": {} }])),
        grounded(Value::Null),
    ]);
    assert_eq!(
        events,
        [cited("https://a"), cited("https://b"), AnswerEvent::Lost("citation")]
    );
}

#[test]
fn other_content_is_reported() {
    for (member, lost) in [
        ("inlineData", "inline_data"),
        ("fileData", "file_data"),
        ("executableCode", "executable_code"),
        ("codeExecutionResult", "code_execution_result"),
        ("toolCall", "server_tool"),
        ("toolResponse", "server_tool"),
    ] {
        assert_eq!(stream(&[part(&json!({ member: {} }))]), [AnswerEvent::Lost(lost)]);
    }
    let second = json!({ "candidates": [{ "index": 1, "content": { "parts": [{ "text": "x" }] } }] });
    assert_eq!(stream(&[second]), [AnswerEvent::Lost("candidate")]);
    let nameless = part(&json!({ "functionCall": { "args": { "p": 1 } } }));
    assert_eq!(stream(&[nameless]), [AnswerEvent::Lost("call_without_name")]);
}

#[test]
fn content_behind_the_end_and_what_is_no_answer_is_a_fault() {
    for late in [json!({ "text": "more" }), json!({ "functionCall": { "name": "read" } })] {
        let read = try_stream(&[finish("STOP"), part(&late)]);
        assert_eq!(read, Err(AnswerFault::Unreadable), "{late}");
    }
    assert_eq!(stream(&[finish("STOP"), finish("STOP")]), [stop(StopCause::End)]);
    for no_answer in ["", "[1]", "\"x\"", "{", r#"{"candidates":5}"#] {
        let read = GeminiAnswerReader::default().on_event(no_answer, &mut |_| Ok(()));
        assert_eq!(read, Err(AnswerFault::Unreadable), "{no_answer}");
    }
}

proptest! {
    #[test]
    fn no_chunk_is_too_strange(chunks in prop::collection::vec(strange_chunk(), 0..8)) {
        let mut reader = GeminiAnswerReader::default();
        let (mut begins, mut stops) = (0, 0);
        let mut emit = |event: AnswerEvent<'_>| {
            begins += usize::from(event == AnswerEvent::Begin);
            stops += usize::from(matches!(event, AnswerEvent::Stop(_) | AnswerEvent::Failed { .. }));
            Ok(())
        };
        for chunk in &chunks {
            let _ = reader.on_event(chunk, &mut emit);
        }
        let _ = reader.on_end(&mut emit);
        prop_assert!(begins <= 1 && stops <= 1, "{begins} {stops}");
    }

    /// A text in pieces of any length, at places of any kind.
    #[test]
    fn joined_arguments_are_json(pieces in prop::collection::vec(("\\$([.][a-c]|\\[[0-3]\\]){1,4}", ".{0,3}"), 1..6)) {
        let argument = |(path, text): &(String, String)| json!({ "jsonPath": path, "stringValue": text });
        let partial: Vec<Value> = pieces.iter().map(argument).collect();
        let call = part(&json!({ "functionCall": { "name": "read", "partialArgs": partial } }));
        // Places that contradict each other are a fault.
        let events = try_stream(&[call]).unwrap_or_default();
        if let Some(AnswerEvent::Arguments { json, .. }) = events.get(2) {
            let read: Value = serde_json::from_str(json).unwrap();
            prop_assert!(read.is_object(), "{}", read);
        }
    }
}

/// Chunks with members of any kind, and texts that are none.
fn strange_chunk() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just(json!(null)),
        Just(json!({})),
        Just(json!({ "text": "x", "thought": true, "thoughtSignature": "x" })),
        Just(json!({ "text": 5 })),
        Just(json!({ "functionCall": { "name": "x", "willContinue": true } })),
        Just(json!({ "functionCall": { "args": [] } })),
        Just(json!({ "functionCall": { "partialArgs": [{ "jsonPath": "$.a" }] } })),
        Just(json!({ "inlineData": {} })),
    ];
    let reason = prop_oneof![Just(json!(null)), Just(json!("STOP")), Just(json!("")), Just(json!(1))];
    let chunk = (prop::collection::vec(part, 0..3), reason).prop_map(|(parts, reason)| {
        json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": reason }] }).to_string()
    });
    prop_oneof![6 => chunk, 1 => ".*", 1 => Just(r#"{"error":{}}"#.to_owned())]
}
