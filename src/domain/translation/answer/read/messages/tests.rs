//! Tests of the reader of Messages.

use proptest::prelude::*;

use super::*;
use crate::domain::translation::answer::Citation;

/// Reads the data of events.
fn try_stream(events: &[&str]) -> Result<Vec<AnswerEvent<'static>>, AnswerFault> {
    let mut reader = MessagesAnswerReader::default();
    let mut read = Vec::new();
    for event in events {
        reader.on_event("", event, &mut |event| {
            read.push(event.into_owned());
            Ok(())
        })?;
    }
    Ok(read)
}

fn stream(events: &[&str]) -> Vec<AnswerEvent<'static>> {
    try_stream(events).unwrap()
}

fn body(body: &str) -> Result<Vec<AnswerEvent<'static>>, AnswerFault> {
    let mut read = Vec::new();
    MessagesAnswerReader::default().on_body(body, &mut |event| {
        read.push(event.into_owned());
        Ok(())
    })?;
    Ok(read)
}

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":1}}}"#;
const END: &str = r#"{"type":"message_stop"}"#;
const END_TURN: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}}"#;
const TOOL_USE: &str = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
const BLOCK_END: &str = r#"{"type":"content_block_stop","index":0}"#;

/// The start of block 0.
fn block(block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#)
}

/// More of block 0.
fn delta(delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#)
}

fn text(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Text(text.into())
}

fn thought(text: &'static str) -> AnswerEvent<'static> {
    AnswerEvent::Thought(text.into())
}

fn thinking(text: &'static str, signature: &'static str) -> AnswerEvent<'static> {
    let (text, signature) = (text.into(), signature.into());
    AnswerEvent::Reasoning(ReasoningState::Thinking { text, signature })
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

#[test]
fn text_passes_and_the_stop_comes_with_the_last_event() {
    let events: [&str; 9] = [
        START,
        r#"{"type":"ping"}"#,
        &block(r#"{"type":"text","text":""}"#),
        &delta(r#"{"type":"text_delta","text":"Hel"}"#),
        &delta(r#"{"type":"text_delta","text":"lo"}"#),
        BLOCK_END,
        END_TURN,
        r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":2}}"#,
        r#"{"type":"new_kind","delta":1,"content_block":"x"}"#,
    ];
    let expected = [
        AnswerEvent::Begin,
        text("Hel"),
        text("lo"),
        AnswerEvent::Stop(StopCause::End),
    ];
    assert_eq!(stream(&events), expected[..3]);
    assert_eq!(stream(&[&events[..], &[END, END_TURN, END][..]].concat()), expected);
}

#[test]
fn thinking_is_kept_with_its_signature_until_the_block_ends() {
    let events = stream(&[
        START,
        &block(r#"{"type":"thinking","thinking":"","signature":""}"#),
        &delta(r#"{"type":"thinking_delta","thinking":"Be"}"#),
        &delta(r#"{"type":"thinking_delta","thinking":"cause"}"#),
        &delta(r#"{"type":"signature_delta","signature":"c2ln"}"#),
        BLOCK_END,
        &block(r#"{"type":"redacted_thinking","data":"b3BhcXVl"}"#),
        BLOCK_END,
        // Text that is not shown.
        &block(r#"{"type":"thinking","thinking":"","signature":"bm9uZQ"}"#),
        BLOCK_END,
        // A host without signatures.
        &block(r#"{"type":"thinking","thinking":"More"}"#),
        BLOCK_END,
        &block(r#"{"type":"thinking","thinking":""}"#),
        BLOCK_END,
    ]);
    assert_eq!(
        events,
        [
            AnswerEvent::Begin,
            thought("Be"),
            thought("cause"),
            thinking("Because", "c2ln"),
            AnswerEvent::Reasoning(ReasoningState::Redacted {
                data: "b3BhcXVl".into()
            }),
            thinking("", "bm9uZQ"),
            thought("More"),
            thinking("More", ""),
        ]
    );
}

#[test]
fn thinking_that_is_too_long_is_shown_without_its_state() {
    let more = delta(&format!(
        r#"{{"type":"thinking_delta","thinking":"{}"}}"#,
        "x".repeat(EVENT_BYTES_MAX / 2 + 1)
    ));
    let events = stream(&[
        &block(r#"{"type":"thinking","thinking":""}"#),
        &more,
        &more,
        &delta(r#"{"type":"signature_delta","signature":"c2ln"}"#),
        BLOCK_END,
    ]);
    assert_eq!(events.len(), 4);
    assert_eq!(events.last(), Some(&AnswerEvent::Lost("reasoning_state")));
}

#[test]
fn calls_pass_in_pieces_and_end_with_their_block() {
    let events = stream(&[
        START,
        &block(r#"{"type":"tool_use","id":"toolu_1","name":"read","input":{}}"#),
        &delta(r#"{"type":"input_json_delta","partial_json":""}"#),
        &delta(r#"{"type":"input_json_delta","partial_json":"{\"p\""}"#),
        &delta(r#"{"type":"input_json_delta","partial_json":": 1}"}"#),
        BLOCK_END,
        // Without arguments.
        &block(r#"{"type":"tool_use","id":"toolu_2","name":"now","input":{}}"#),
        BLOCK_END,
        // Arguments in the beginning.
        &block(r#"{"type":"tool_use","id":"toolu_3","name":"read","input":{"p": 1.0}}"#),
        BLOCK_END,
        TOOL_USE,
        END,
    ]);
    assert_eq!(
        events,
        [
            AnswerEvent::Begin,
            call(0, "toolu_1", "read"),
            arguments(0, r#"{"p""#),
            arguments(0, ": 1}"),
            call_end(0),
            call(1, "toolu_2", "now"),
            call_end(1),
            call(2, "toolu_3", "read"),
            arguments(2, r#"{"p": 1.0}"#),
            call_end(2),
            AnswerEvent::Stop(StopCause::Calls),
        ]
    );
}

/// The input of a call in a body is always an object, even if the answer was cut within it.
#[test]
fn a_call_at_the_end_of_a_body_that_was_cut_is_cut_off() {
    let answer = |content: &str, reason: &str| {
        let mut events = body(&format!(r#"{{"content":[{content}],"stop_reason":"{reason}"}}"#)).unwrap();
        events.retain(|event| matches!(event, AnswerEvent::CallCut { .. }));
        events
    };
    let one = r#"{"type":"tool_use","id":"a","name":"read","input":{}}"#;
    let two = r#"{"type":"tool_use","id":"b","name":"write","input":{"path":"x"}}"#;
    let text = r#"{"type":"text","text":"x"}"#;
    for reason in ["max_tokens", "model_context_window_exceeded", "refusal"] {
        assert_eq!(
            answer(one, reason),
            [AnswerEvent::CallCut { call_index: 0 }],
            "{reason}"
        );
        let both = answer(&format!("{one},{two}"), reason);
        assert_eq!(both, [AnswerEvent::CallCut { call_index: 1 }], "{reason}");
        assert!(answer(&format!("{one},{text}"), reason).is_empty(), "{reason}");
    }
    for reason in ["tool_use", "end_turn"] {
        assert!(answer(one, reason).is_empty(), "{reason}");
    }
}

#[test]
fn blocks_of_server_tools_are_reported_and_sources_named() {
    let events = stream(&[
        START,
        &block(r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#),
        &delta(r#"{"type":"input_json_delta","partial_json":"{\"query\":1}"}"#),
        BLOCK_END,
        &block(
            r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result"}]}"#,
        ),
        BLOCK_END,
        &block(r#"{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}"#),
        BLOCK_END,
        &block(r#"{"type":"compaction","content":"x"}"#),
        &delta(r#"{"type":"compaction_delta","content":"x"}"#),
        BLOCK_END,
        &block(r#"{"type":"container_upload","file_id":"x"}"#),
        &block(r#"{"type":"text","text":"","citations":[]}"#),
        &delta(
            r#"{"type":"citations_delta","citation":{"type":"web_search_result_location","cited_text":"quote","url":"https://a","title":"A","encrypted_index":"x"}}"#,
        ),
        &delta(
            r#"{"type":"citations_delta","citation":{"type":"page_location","cited_text":"quote","document_title":"A"}}"#,
        ),
        &delta(r#"{"type":"text_delta","text":"Text"}"#),
    ]);
    assert_eq!(
        events,
        [
            AnswerEvent::Begin,
            AnswerEvent::Lost("server_tool"),
            AnswerEvent::Lost("server_tool"),
            AnswerEvent::Lost("compaction"),
            AnswerEvent::Lost("content_delta"),
            AnswerEvent::Lost("container_upload"),
            AnswerEvent::Cited(Citation {
                url: "https://a".into(),
                title: Some("A".into()),
                quote: Some("quote".into()),
            }),
            AnswerEvent::Lost("citation"),
            text("Text"),
        ]
    );
}

#[test]
fn every_reason_has_its_cause() {
    let plain = r#"[{"type":"text","text":"x"}]"#;
    let with_call = r#"[{"type":"tool_use","id":"a","name":"read","input":{}}]"#;
    for (content, reason, cause) in [
        (plain, "\"end_turn\"", StopCause::End),
        (plain, "\"pause_turn\"", StopCause::End),
        (plain, "\"new_reason\"", StopCause::End),
        (plain, "\"tool_use\"", StopCause::End),
        (plain, "null", StopCause::End),
        (plain, "\"stop_sequence\"", StopCause::Sequence),
        (plain, "\"max_tokens\"", StopCause::MaxTokens),
        (plain, "\"model_context_window_exceeded\"", StopCause::ContextFull),
        (plain, "\"refusal\"", StopCause::Refused),
        (plain, "\"sensitive\"", StopCause::Filtered),
        (with_call, "\"tool_use\"", StopCause::Calls),
        (with_call, "\"end_turn\"", StopCause::Calls),
        (with_call, "\"max_tokens\"", StopCause::MaxTokens),
    ] {
        let events = body(&format!(
            r#"{{"type":"message","content":{content},"stop_reason":{reason}}}"#
        ))
        .unwrap();
        assert_eq!(events.last(), Some(&AnswerEvent::Stop(cause)), "{content} {reason}");
        let delta = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":{reason}}}}}"#);
        let events = stream(&[START, &block(content.trim_matches(['[', ']'])), BLOCK_END, &delta, END]);
        assert_eq!(events.last(), Some(&AnswerEvent::Stop(cause)), "{content} {reason}");
    }
    let broken = stream(&[
        START,
        r#"{"type":"message_delta","delta":{"stop_reason":"network_error"}}"#,
        END,
    ]);
    assert!(
        matches!(broken.last(), Some(AnswerEvent::Failed { status: 502, .. })),
        "{broken:?}"
    );
}

#[test]
fn the_explanation_of_a_refusal_is_its_text() {
    let details = r#"{"stop_reason":"refusal","stop_details":{"type":"refusal","category":null,"explanation":"No."}}"#;
    let delta = format!(r#"{{"type":"message_delta","delta":{details}}}"#);
    let expected = [
        AnswerEvent::Begin,
        AnswerEvent::Refusal("No.".into()),
        AnswerEvent::Stop(StopCause::Refused),
    ];
    assert_eq!(stream(&[START, &delta, END]), expected);
    let answer = details.replacen('{', r#"{"content":[],"#, 1);
    assert_eq!(body(&answer).unwrap(), expected);
}

#[test]
fn a_body_is_read_like_a_stream() {
    let events = body(
        r#"{"type":"message","content":[
            {"type":"thinking","thinking":"Why","signature":"c2ln"},
            {"type":"text","text":"Text","citations":[{"url":"https://a"},{"cited_text":"x"}]},
            {"type":"tool_use","id":"toolu_1","name":"read","input":{"p": 1e2}}],
            "stop_reason":"tool_use","stop_details":null,"usage":{}}"#,
    );
    assert_eq!(
        events.unwrap(),
        [
            AnswerEvent::Begin,
            thought("Why"),
            thinking("Why", "c2ln"),
            text("Text"),
            AnswerEvent::Cited(Citation {
                url: "https://a".into(),
                title: None,
                quote: None,
            }),
            AnswerEvent::Lost("citation"),
            call(0, "toolu_1", "read"),
            arguments(0, r#"{"p": 1e2}"#),
            call_end(0),
            AnswerEvent::Stop(StopCause::Calls),
        ]
    );
}

#[test]
fn an_error_ends_the_answer_with_its_status() {
    for (error, status, message) in [
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#,
            529,
            "busy",
        ),
        (
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#,
            429,
            "slow",
        ),
        (r#"{"error":{"code":"503","message":"away"}}"#, 503, "away"),
        (
            r#"{"type":"error","error":{"type":"new_error","message":"x"}}"#,
            502,
            "x",
        ),
    ] {
        let message = message.into();
        let failed = AnswerEvent::Failed { status, message };
        assert_eq!(stream(&[error, END]), std::slice::from_ref(&failed), "{error}");
        assert_eq!(body(error), Ok(vec![failed]), "{error}");
    }
}

#[test]
fn the_type_may_stand_only_before_the_data() {
    let mut reader = MessagesAnswerReader::default();
    let mut read = Vec::new();
    for (name, data) in [("message_start", "{}"), ("message_stop", "{}")] {
        let mut emit = |event: AnswerEvent<'_>| {
            read.push(event.into_owned());
            Ok(())
        };
        reader.on_event(name, data, &mut emit).unwrap();
    }
    assert_eq!(read, [AnswerEvent::Begin, AnswerEvent::Stop(StopCause::End)]);
}

#[test]
fn an_answer_that_begins_once_more_is_a_fault_if_the_client_has_content_already() {
    let restarted: [&str; 4] = [START, START, &block(r#"{"type":"text","text":"x"}"#), START];
    assert_eq!(stream(&restarted[..3]), [AnswerEvent::Begin, text("x")]);
    assert_eq!(try_stream(&restarted), Err(AnswerFault::Unreadable));
}

#[test]
fn what_is_no_answer_is_a_fault() {
    for no_answer in ["", "{}", "[1]", "\"x\"", "{", r#"{"content":5}"#, r#"{"content":[{}]}"#] {
        assert_eq!(body(no_answer), Err(AnswerFault::Unreadable), "{no_answer}");
    }
    assert_eq!(try_stream(&["x"]), Err(AnswerFault::Unreadable));
    let opened: Vec<String> = (0..=OPEN_BLOCKS_MAX)
        .map(|index| format!(r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"text"}}}}"#))
        .collect();
    let opened: Vec<&str> = opened.iter().map(String::as_str).collect();
    assert_eq!(try_stream(&opened), Err(AnswerFault::Unreadable));
    assert_eq!(stream(&opened[1..]), [AnswerEvent::Begin]);
}

proptest! {
    #[test]
    fn no_event_is_too_strange(events in prop::collection::vec(strange_event(), 0..10)) {
        let mut reader = MessagesAnswerReader::default();
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
}

/// Events in any order, with members of any kind, and texts that are none.
fn strange_event() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null"),
        Just("1"),
        Just("\"x\""),
        Just(r#"{"type":"thinking","thinking":"x","signature":"x"}"#),
        Just(r#"{"type":"tool_use","id":"x","name":"x","input":{}}"#),
        Just(r#"{"type":"text_delta","text":"x"}"#),
        Just(r#"{"type":"input_json_delta","partial_json":"{"}"#),
        Just(r#"{"type":"signature_delta"}"#),
        Just(r#"{"stop_reason":"end_turn"}"#),
    ];
    let kind = prop_oneof![
        Just("message_start"),
        Just("content_block_start"),
        Just("content_block_delta"),
        Just("content_block_stop"),
        Just("message_delta"),
        Just("message_stop"),
        Just("error"),
    ];
    let event = (kind, 0..3_u64, value.clone(), value).prop_map(|(kind, index, block, delta)| {
        format!(r#"{{"type":"{kind}","index":{index},"content_block":{block},"delta":{delta}}}"#)
    });
    prop_oneof![8 => event, 1 => ".*"]
}
