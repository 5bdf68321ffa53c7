//! Tests of the reader of `chat/completions`.

use proptest::prelude::*;

use super::*;
use crate::domain::translation::answer::{Citation, WAITING_BYTES_MAX, call_order::CallOrder};

const ALL_MEMBERS: [ChatReasoning; 4] = [
    ChatReasoning::ReasoningContent,
    ChatReasoning::Reasoning,
    ChatReasoning::Content,
    ChatReasoning::Hidden,
];

fn reader(reasoning: ChatReasoning) -> ChatAnswerReader {
    ChatAnswerReader::new(&ChatTraits {
        reasoning,
        ..ChatTraits::default()
    })
}

/// Reads the data of events, and the stream's end.
fn try_stream(chunks: &[String]) -> Result<Vec<AnswerEvent<'static>>, AnswerFault> {
    let mut reader = reader(ChatReasoning::default());
    let mut events = Vec::new();
    let mut emit = |event: AnswerEvent<'_>| {
        events.push(event.into_owned());
        Ok(())
    };
    for chunk in chunks {
        reader.on_event(chunk, &mut emit)?;
    }
    reader.on_end(&mut emit)?;
    Ok(events)
}

fn stream(chunks: &[String]) -> Vec<AnswerEvent<'static>> {
    try_stream(chunks).unwrap()
}

fn body(reasoning: ChatReasoning, body: &str) -> Result<Vec<AnswerEvent<'static>>, AnswerFault> {
    let mut events = Vec::new();
    reader(reasoning).on_body(body, &mut |event| {
        events.push(event.into_owned());
        Ok(())
    })?;
    Ok(events)
}

/// A chunk with this delta.
fn delta(delta: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null}}"#)
}

/// A chunk that ends the answer.
fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"content":""}},"finish_reason":"{reason}"}}]}}"#)
}

/// A body with this message.
fn message(message: &str, reason: &str) -> String {
    format!(r#"{{"id":"1","choices":[{{"index":0,"message":{message},"finish_reason":{reason}}}],"usage":{{}}}}"#)
}

fn done() -> String {
    "[DONE]".to_owned()
}

fn usage() -> String {
    r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#.to_owned()
}

fn text(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Text(text.into())
}

fn thought(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Thought(text.into())
}

fn state(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Reasoning(ReasoningState::Text { text: text.into() })
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

#[test]
fn text_begins_with_the_first_chunk_and_stops_with_the_first_reason() {
    let events = stream(&[
        r#"{"choices":[],"prompt_filter_results":[]}"#.to_owned(),
        delta(r#"{"role":"assistant","content":""}"#),
        delta(r#"{"content":"Hel"}"#),
        delta(r#"{"content":"lo","refusal":null,"tool_calls":null}"#),
        finish("stop"),
        finish("stop"),
        usage(),
        done(),
    ]);
    assert_eq!(
        events,
        [AnswerEvent::Begin, text("Hel"), text("lo"), stop(StopCause::End)]
    );
}

#[test]
fn reasoning_is_collected_and_stands_before_what_follows() {
    for member in ["reasoning_content", "reasoning"] {
        let events = stream(&[
            delta(&format!(r#"{{"content":null,"{member}":"Think"}}"#)),
            delta(&format!(r#"{{"content":"","{member}":"ing"}}"#)),
            delta(&format!(r#"{{"content":"Text","{member}":null}}"#)),
            delta(&format!(r#"{{"content":"","{member}":"More"}}"#)),
            finish("length"),
        ]);
        assert_eq!(
            events,
            [
                AnswerEvent::Begin,
                thought("Think"),
                thought("ing"),
                state("Thinking"),
                text("Text"),
                thought("More"),
                state("More"),
                stop(StopCause::MaxTokens),
            ]
        );
    }
}

#[test]
fn reasoning_in_several_members_counts_once_by_the_hosts_own() {
    let both = message(
        r#"{"content":"Text","reasoning":"short","reasoning_content":"long"}"#,
        r#""stop""#,
    );
    for (reasoning, expected) in [
        (ChatReasoning::Reasoning, "short"),
        (ChatReasoning::ReasoningContent, "long"),
        (ChatReasoning::Content, "long"),
        (ChatReasoning::Hidden, "long"),
    ] {
        let events = body(reasoning, &both).unwrap();
        let expected = [
            AnswerEvent::Begin,
            thought(expected),
            state(expected),
            text("Text"),
            stop(StopCause::End),
        ];
        assert_eq!(events, expected);
    }
}

#[test]
fn parts_of_the_content_are_read_in_order() {
    let content = r#"{"content":[
        {"type":"thinking","thinking":[{"type":"text","text":"Be"},{"type":"text","text":"cause"}],"closed":true},
        {"type":"text","text":"Text"},
        {"type":"reference","reference_ids":[1]},
        {"type":"thinking","thinking":"again"},
        {"type":"image_url","image_url":{"url":"x"}}],
        "reasoning":"Because"}"#;
    for reasoning in ALL_MEMBERS {
        let events = body(reasoning, &message(content, r#""stop""#)).unwrap();
        assert_eq!(
            events,
            [
                AnswerEvent::Begin,
                thought("Because"),
                state("Because"),
                text("Text"),
                AnswerEvent::Lost("citation"),
                thought("again"),
                AnswerEvent::Lost("image"),
                state("again"),
                stop(StopCause::End),
            ]
        );
    }
}

#[test]
fn details_of_reasoning_are_read_where_no_other_member_has_it() {
    let events = stream(&[
        delta(
            r#"{"reasoning":"A","reasoning_details":[{"type":"reasoning.text","text":"A"},{"type":"reasoning.encrypted","data":"x"}]}"#,
        ),
        delta(r#"{"reasoning":null,"reasoning_details":[{"type":"reasoning.summary","summary":"B"}]}"#),
        delta(r#"{"reasoning_details":[]}"#),
        finish("stop"),
    ]);
    assert_eq!(
        events,
        [
            AnswerEvent::Begin,
            thought("A"),
            AnswerEvent::Lost("reasoning_details"),
            thought("B"),
            state("AB"),
            stop(StopCause::End),
        ]
    );
}

#[test]
fn calls_are_put_together_by_their_numbers() {
    let events = stream(&[
        delta(r#"{"reasoning_content":"Why"}"#),
        delta(
            r#"{"content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"read","arguments":""}}]}"#,
        ),
        delta(r#"{"content":"","tool_calls":[{"index":0,"id":"","function":{"name":"","arguments":"{\"p\""}}]}"#),
        delta(r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"list","arguments":"{}"}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"arguments":""}}]}"#),
        finish("tool_calls"),
    ]);
    assert_eq!(
        events,
        [
            AnswerEvent::Begin,
            thought("Why"),
            state("Why"),
            call(0, "a", "read"),
            arguments(0, r#"{"p""#),
            call(1, "b", "list"),
            arguments(1, "{}"),
            arguments(0, ":1}"),
            call_end(0),
            call_end(1),
            stop(StopCause::Calls),
        ]
    );
}

#[test]
fn a_name_may_come_in_pieces_late_or_again() {
    let pieces = |pieces: [&str; 4]| {
        let chunk = |piece: &str| delta(&format!(r#"{{"tool_calls":[{piece}]}}"#));
        let mut chunks: Vec<String> = pieces.iter().map(|piece| chunk(piece)).collect();
        chunks.push(finish("tool_calls"));
        let events = stream(&chunks);
        let json: String = events
            .iter()
            .filter_map(|event| match event {
                AnswerEvent::Arguments { json, .. } => Some(json.as_ref()),
                _ => None,
            })
            .collect();
        (events[1].clone(), json)
    };
    let expected = (call(0, "a", "get_weather"), r#"{"p":1}"#.to_owned());
    for form in [
        // In pieces.
        [
            r#"{"index":0,"id":"a","function":{"name":"get_"}}"#,
            r#"{"index":0,"function":{"name":"weather"}}"#,
            r#"{"index":0,"function":{"arguments":"{\"p\":"}}"#,
            r#"{"index":0,"function":{"arguments":"1}"}}"#,
        ],
        // In every piece.
        [
            r#"{"index":0,"id":"a","function":{"name":"get_weather","arguments":""}}"#,
            r#"{"index":0,"id":"a","function":{"name":"get_weather","arguments":"{\"p\":"}}"#,
            r#"{"index":0,"id":"a","function":{"name":"get_weather","arguments":"1}"}}"#,
            r#"{"index":0,"id":"a","function":{"name":"get_weather","arguments":""}}"#,
        ],
        // Behind the arguments.
        [
            r#"{"index":0,"id":"a"}"#,
            r#"{"index":0,"function":{"arguments":"{\"p\":"}}"#,
            r#"{"index":0,"function":{"arguments":"1}"}}"#,
            r#"{"index":0,"function":{"name":"get_weather"}}"#,
        ],
        // Without numbers.
        [
            r#"{"id":"a","function":{"name":"get_weather"}}"#,
            r#"{"function":{"arguments":"{\"p\":"}}"#,
            r#"{"id":"a","function":{"arguments":"1}"}}"#,
            r#"{"function":{"arguments":" "}}"#,
        ],
    ] {
        assert_eq!(pieces(form), expected, "{form:?}");
    }
}

#[test]
fn calls_with_one_number_and_calls_without_ids_are_told_apart() {
    let names = |chunks: &[String]| {
        let events = stream(chunks);
        let called = events.iter().filter_map(|event| match event {
            AnswerEvent::Call { call_index, name, .. } => Some((*call_index, name.to_string())),
            _ => None,
        });
        called.collect::<Vec<_>>()
    };
    let expected = vec![(0, "read".to_owned()), (1, "read".to_owned())];
    let same_number = [
        delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{\"p\":1}"}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"read","arguments":"{\"p\":2}"}}]}"#),
        finish("stop"),
    ];
    assert_eq!(names(&same_number), expected);
    let without_ids = [
        delta(
            r#"{"tool_calls":[{"id":"","function":{"name":"read","arguments":"{\"p\":1}"}},{"id":"","function":{"name":"read","arguments":"{\"p\":2}"}}]}"#,
        ),
        finish("stop"),
    ];
    assert_eq!(names(&without_ids), expected);
    // An id that changes with each chunk does not begin a call.
    let changing_ids = [
        delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":""}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"id":"b","function":{"arguments":"{\"p\":1}"}}]}"#),
        delta(r#"{"tool_calls":[{"index":0,"id":"c","function":{"arguments":""}}]}"#),
        finish("tool_calls"),
    ];
    assert_eq!(names(&changing_ids), expected[..1]);
}

#[test]
fn old_calls_and_arguments_that_are_no_text_are_read() {
    let expected = |id: &'static str| {
        [
            AnswerEvent::Begin,
            call(0, id, "read"),
            arguments(0, r#"{"p": 1}"#),
            call_end(0),
            stop(StopCause::Calls),
        ]
    };
    let old = message(
        r#"{"function_call":{"name":"read","arguments":"{\"p\": 1}"}}"#,
        r#""function_call""#,
    );
    assert_eq!(body(ChatReasoning::default(), &old).unwrap(), expected(""));
    let objects = message(
        r#"{"tool_calls":[{"id":"a","function":{"name":"read","arguments":{"p": 1}}}],"function_call":{"name":"read"}}"#,
        r#""stop""#,
    );
    assert_eq!(body(ChatReasoning::default(), &objects).unwrap(), expected("a"));
}

#[test]
fn a_call_without_arguments_has_an_empty_object_unless_the_answer_was_cut() {
    let chunk = delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"now","arguments":""}}]}"#);
    assert_eq!(
        stream(&[chunk.clone(), finish("tool_calls")])[1..],
        [
            call(0, "a", "now"),
            arguments(0, "{}"),
            call_end(0),
            stop(StopCause::Calls)
        ]
    );
    assert_eq!(
        stream(&[chunk, finish("length")])[1..],
        [call(0, "a", "now"), stop(StopCause::MaxTokens)]
    );
}

#[test]
fn a_call_without_a_name_is_reported() {
    let chunk = delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]}"#);
    assert_eq!(
        stream(&[chunk, finish("tool_calls")])[1..],
        [AnswerEvent::Lost("call_without_name"), stop(StopCause::Malformed)]
    );
}

#[test]
fn calls_that_wait_for_a_name_are_limited() {
    let long = "x".repeat(WAITING_BYTES_MAX);
    let chunk = delta(&format!(
        r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{long}"}}}}]}}"#
    ));
    assert_eq!(try_stream(&[chunk]), Err(AnswerFault::CallsTooLarge));
}

#[test]
fn reasoning_that_is_too_long_is_shown_without_its_state() {
    let half = "x".repeat(EVENT_BYTES_MAX / 2 + 1);
    let chunk = delta(&format!(r#"{{"reasoning":"{half}"}}"#));
    let events = stream(&[chunk.clone(), chunk, delta(r#"{"content":"Text"}"#), finish("stop")]);
    assert_eq!(
        events[3..],
        [AnswerEvent::Lost("reasoning_state"), text("Text"), stop(StopCause::End)]
    );
}

#[test]
fn every_reason_has_its_cause() {
    let with_call = r#"{"content":"x","tool_calls":[{"id":"a","function":{"name":"read","arguments":"{}"}}]}"#;
    let with_refusal = r#"{"content":null,"refusal":"No."}"#;
    let plain = r#"{"content":"x"}"#;
    for (content, reason, cause) in [
        (plain, "stop", StopCause::End),
        (plain, "eos", StopCause::End),
        (plain, "tool_calls", StopCause::End),
        (plain, "length", StopCause::MaxTokens),
        (plain, "model_length", StopCause::MaxTokens),
        (plain, "model_context_window_exceeded", StopCause::ContextFull),
        (plain, "content_filter", StopCause::Filtered),
        (plain, "content_filter: SAFETY", StopCause::Filtered),
        (plain, "sensitive", StopCause::Filtered),
        (
            plain,
            "function_call_filter: MALFORMED_FUNCTION_CALL",
            StopCause::Malformed,
        ),
        (with_call, "tool_calls", StopCause::Calls),
        (with_call, "function_call", StopCause::Calls),
        (with_call, "stop", StopCause::Calls),
        (with_call, "length", StopCause::MaxTokens),
        (with_refusal, "stop", StopCause::Refused),
    ] {
        let events = body(ChatReasoning::default(), &message(content, &format!("{reason:?}"))).unwrap();
        assert_eq!(events.last(), Some(&stop(cause)), "{content} {reason}");
    }
    for (reason, expected) in [
        ("error", 502),
        ("network_error", 502),
        ("insufficient_system_resource", 503),
    ] {
        let events = stream(&[finish(reason)]);
        assert!(
            matches!(events.last(), Some(AnswerEvent::Failed { status, .. }) if *status == expected),
            "{events:?}"
        );
    }
}

#[test]
fn an_end_without_a_reason_is_one_only_if_nothing_is_missing() {
    let cut = delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{\"p\":"}}]}"#);
    let more = delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}"#);
    let plain = delta(r#"{"content":"x"}"#);
    let last = |chunks: &[String]| stream(chunks).pop();
    assert_eq!(last(&[cut.clone(), more.clone()]), Some(stop(StopCause::Calls)));
    assert_eq!(last(&[cut.clone(), more, done()]), Some(stop(StopCause::Calls)));
    assert_eq!(last(&[cut.clone(), done()]), Some(arguments(0, r#"{"p":"#)));
    assert_eq!(last(&[cut]), Some(arguments(0, r#"{"p":"#)));
    assert_eq!(last(&[plain.clone(), done()]), Some(stop(StopCause::End)));
    assert_eq!(last(&[plain]), Some(text("x")));
    assert_eq!(last(&[done()]), None);
    assert_eq!(last(&[]), None);
    // A name alone may lack its arguments; in a body nothing can follow.
    let named = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":""}}]}"#;
    assert_eq!(last(&[delta(named)]), Some(AnswerEvent::Begin));
    assert_eq!(last(&[delta(named), done()]), Some(AnswerEvent::Begin));
    let events = body(ChatReasoning::default(), &message(named, "null")).unwrap();
    assert_eq!(events.last(), Some(&stop(StopCause::Calls)));
    let events = body(ChatReasoning::default(), &message(r#"{"content":"x"}"#, "null")).unwrap();
    assert_eq!(events, [AnswerEvent::Begin, text("x"), stop(StopCause::End)]);
}

#[test]
fn an_error_ends_the_answer_with_its_status() {
    let failed = |status, message: &'static str| {
        let message = message.into();
        AnswerEvent::Failed { status, message }
    };
    for (chunk, expected) in [
        (
            r#"{"error":{"code":429,"message":"slow down"}}"#,
            failed(429, "slow down"),
        ),
        (
            r#"{"error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"long"},"choices":[]}"#,
            failed(400, "prompt is too long: long"),
        ),
        (
            r#"{"error":{"type":"server_error","message":"down"}}"#,
            failed(500, "down"),
        ),
        (r#"{"error":"broken"}"#, failed(502, "broken")),
        (
            r#"{"error":"above the context size"}"#,
            failed(400, "above the context size"),
        ),
        (
            r#"{"choices":[{"index":0,"error":{"code":503,"message":"away"},"finish_reason":"error"}]}"#,
            failed(503, "away"),
        ),
    ] {
        assert_eq!(
            stream(&[chunk.to_owned(), done()]),
            std::slice::from_ref(&expected),
            "{chunk}"
        );
        assert_eq!(body(ChatReasoning::default(), chunk), Ok(vec![expected]), "{chunk}");
    }
    // The answer was complete already.
    let late =
        r#"{"error":{"code":400,"message":"Token limit reached"},"choices":[{"index":0,"delta":{"content":""}}]}"#;
    assert_eq!(
        stream(&[finish("length"), late.to_owned()]),
        [AnswerEvent::Begin, stop(StopCause::MaxTokens)]
    );
}

#[test]
fn sources_and_what_no_client_can_get_are_told() {
    let content = r#"{"content":"x","annotations":[
        {"type":"url_citation","url_citation":{"url":"https://a","title":"A","content":"quote","start_index":0}},
        {"type":"file","file":{}}],"audio":{"id":"1"},"images":[{"type":"image_url"}]}"#;
    assert_eq!(
        body(ChatReasoning::default(), &message(content, r#""stop""#)).unwrap()[1..],
        [
            text("x"),
            AnswerEvent::Cited(Citation {
                url: "https://a".into(),
                title: Some("A".into()),
                quote: Some("quote".into()),
            }),
            AnswerEvent::Lost("citation"),
            AnswerEvent::Lost("audio"),
            AnswerEvent::Lost("image"),
            stop(StopCause::End),
        ]
    );
    let second = r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"x"}}]}"#;
    assert_eq!(
        stream(&[second.to_owned()])[1..],
        [AnswerEvent::Lost("choice"), text("x")]
    );
}

#[test]
fn content_behind_the_reason_for_the_end_is_taken() {
    let plain = delta(r#"{"content":"x"}"#);
    let late_call = r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}}]}"#;
    for (late, expected, cause) in [
        (r#"{"content":"more"}"#, vec![text("more")], StopCause::End),
        (
            r#"{"reasoning":"why"}"#,
            vec![thought("why"), state("why")],
            StopCause::End,
        ),
        (
            r#"{"refusal":"no"}"#,
            vec![AnswerEvent::Refusal("no".into())],
            StopCause::Refused,
        ),
        (
            late_call,
            vec![call(0, "a", "read"), arguments(0, "{}"), call_end(0)],
            StopCause::Calls,
        ),
    ] {
        for end in [vec![], vec![usage(), done()]] {
            let chunks = [vec![plain.clone(), finish("stop"), delta(late)], end].concat();
            let events = stream(&chunks);
            assert_eq!(events[2..events.len() - 1], expected, "{late}");
            assert_eq!(events.last(), Some(&stop(cause)), "{late}");
        }
    }
    // Only a reason behind that content is another one.
    let more = delta(r#"{"content":"more"}"#);
    for (chunks, cause) in [
        (vec![finish("stop"), finish("length")], StopCause::End),
        (
            vec![finish("stop"), more.clone(), finish("length")],
            StopCause::MaxTokens,
        ),
        (vec![finish("length"), more, usage()], StopCause::MaxTokens),
    ] {
        assert_eq!(stream(&chunks).last(), Some(&stop(cause)), "{chunks:?}");
    }
}

#[test]
fn what_only_repeats_the_end_is_no_content() {
    let repeated = r#"{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}"#;
    for late in [
        delta(r#"{"content":"\n","tool_calls":[]}"#),
        delta(r#"{"role":"assistant","content":""}"#),
        delta("{}"),
        finish("stop"),
        usage(),
        repeated.to_owned(),
    ] {
        let events = stream(&[delta(r#"{"content":"x"}"#), finish("stop"), late.clone(), done()]);
        assert_eq!(events, [AnswerEvent::Begin, text("x"), stop(StopCause::End)], "{late}");
    }
    // Nothing counts behind the end mark.
    let events = stream(&[finish("stop"), done(), delta(r#"{"content":"x"}"#)]);
    assert_eq!(events, [AnswerEvent::Begin, stop(StopCause::End)]);
}

#[test]
fn what_is_no_answer_is_a_fault() {
    for no_answer in [
        "",
        "{}",
        "[]",
        "\"x\"",
        "{",
        r#"{"choices":[]}"#,
        r#"{"choices":[{"message":{"content":5}}]}"#,
    ] {
        let read = body(ChatReasoning::default(), no_answer);
        assert_eq!(read, Err(AnswerFault::Unreadable), "{no_answer}");
    }
}

proptest! {
    /// Any texts, as chunks.
    #[test]
    fn no_chunk_is_too_strange(chunks in prop::collection::vec(strange_chunk(), 0..8)) {
        let mut reader = reader(ChatReasoning::default());
        let mut order = CallOrder::default();
        let (mut begins, mut stops) = (0, 0);
        let mut ignore = |_: AnswerEvent<'_>| Ok(());
        let mut emit = |event: AnswerEvent<'_>| {
            begins += usize::from(event == AnswerEvent::Begin);
            stops += usize::from(matches!(event, AnswerEvent::Stop(_) | AnswerEvent::Failed { .. }));
            order.push(event, &mut ignore)
        };
        for chunk in &chunks {
            let _ = reader.on_event(chunk, &mut emit);
        }
        let _ = reader.on_end(&mut emit);
        prop_assert!(begins <= 1 && stops <= 1, "{begins} {stops}");
    }

    /// The arguments of a call, in any pieces.
    #[test]
    fn pieces_of_arguments_are_all_passed_on(texts in prop::collection::vec("[a-z\\\\\"{}\\[\\]]{0,6}", 1..6)) {
        let json = serde_json::json!({ "texts": texts }).to_string();
        let pieces = json.as_bytes().chunks(5).map(|piece| String::from_utf8(piece.to_vec()).unwrap());
        let head = delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"read"}}]}"#);
        let chunk = |piece: String| {
            let piece = serde_json::json!([{ "index": 0, "function": { "arguments": piece } }]);
            delta(&format!(r#"{{"tool_calls":{piece}}}"#))
        };
        let chunks: Vec<String> = std::iter::once(head).chain(pieces.map(chunk)).chain([done()]).collect();
        let events = stream(&chunks);
        let passed: String = events.iter().filter_map(|event| match event {
            AnswerEvent::Arguments { json, .. } => Some(json.as_ref()),
            _ => None,
        }).collect();
        prop_assert_eq!(passed, json);
        prop_assert_eq!(events.last(), Some(&stop(StopCause::Calls)));
    }
}

/// Chunks with members of any kind in any combination, and texts that are none.
fn strange_chunk() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null"),
        Just("1"),
        Just("\"x\""),
        Just("\"\\ud800\""),
        Just("[]"),
        Just("{}"),
        Just(r#"[{"type":"text","text":"x"}]"#),
        Just(r#"[{"index":0,"id":"a","function":{"name":"n","arguments":"{}"}}]"#),
        Just(r#"{"name":"n","arguments":"{"}"#),
    ];
    let member = prop_oneof![
        Just("content"),
        Just("reasoning"),
        Just("reasoning_details"),
        Just("refusal"),
        Just("tool_calls"),
        Just("function_call"),
        Just("annotations"),
    ];
    let delta = prop::collection::btree_map(member, value, 0..4);
    let reason = prop_oneof![Just("null"), Just("\"stop\""), Just("\"length\""), Just("\"\"")];
    let chunk = (delta, reason).prop_map(|(members, reason)| {
        let members: Vec<String> = members
            .iter()
            .map(|(name, value)| format!("{name:?}:{value}"))
            .collect();
        let members = members.join(",");
        format!(r#"{{"choices":[{{"delta":{{{members}}},"finish_reason":{reason}}}]}}"#)
    });
    prop_oneof![6 => chunk, 1 => ".*", 1 => Just(done()), 1 => Just(usage())]
}
