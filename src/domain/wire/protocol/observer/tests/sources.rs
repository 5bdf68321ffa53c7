//! Whether reported figures are the last word, and what changes their price.

use super::*;
use crate::domain::wire::usage::{PriceModifiers, UsageSource};

const REPORTED: Option<UsageSource> = Some(UsageSource::Reported);
const PARTIAL: Option<UsageSource> = Some(UsageSource::Partial);

fn stream_of(protocol: Protocol, events: &[&str]) -> AnswerReport {
    let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    observe(protocol, AnswerFraming::Sse, text.as_bytes(), 7).observed()
}

fn body_of(protocol: Protocol, json: &str) -> AnswerReport {
    observe(protocol, AnswerFraming::Json, json.as_bytes(), 7).observed()
}

const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":1,"service_tier":"priority","speed":"fast","inference_geo":"us"}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

#[test]
fn messages_have_their_last_word_with_the_last_delta() {
    let end =
        |usage: &str| format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#);
    let midway = r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":3}}"#;
    let error = r#"{"type":"error","error":{"type":"overloaded_error"}}"#;
    let none = r#"{"type":"message_start","message":{}}"#;
    let nothing = r#"{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}"#;
    let (whole, zero) = (end(r#"{"output_tokens":9}"#), end(r#"{"output_tokens":0}"#));
    let (absurd, empty) = (end(r#"{"output_tokens":"9"}"#), end("{}"));
    for (events, source, output) in [
        (vec![START], PARTIAL, 1),
        (vec![START, midway], PARTIAL, 3),
        (vec![START, midway, error], PARTIAL, 3),
        (vec![START, midway, STOP], REPORTED, 3),
        (vec![START, &whole], REPORTED, 9),
        (vec![START, &whole, STOP], REPORTED, 9),
        (vec![START, &zero, STOP], PARTIAL, 1),
        (vec![nothing, &zero, STOP], REPORTED, 0),
        (vec![START, &absurd, STOP], PARTIAL, 1),
        (vec![START, &empty, STOP], PARTIAL, 1),
        (vec![START, STOP], PARTIAL, 1),
        (vec![none, &whole, STOP], PARTIAL, 9),
        (vec![none, STOP], None, 0),
    ] {
        let observed = stream_of(Protocol::Messages, &events);
        let found = observed.usage.unwrap_or_default().output_total();
        assert_eq!((observed.usage_source, found), (source, output), "{events:?}");
    }
}

#[test]
fn responses_have_their_last_word_with_the_last_event() {
    let event = |kind: &str, usage: &str| format!(r#"{{"type":"{kind}","response":{{"usage":{usage}}}}}"#);
    let (some, half) = (r#"{"input_tokens":5,"output_tokens":0}"#, r#"{"input_tokens":5}"#);
    for (events, source) in [
        (vec![event("response.created", "null")], None),
        (vec![event("response.in_progress", some)], PARTIAL),
        (vec![event("response.completed", some)], REPORTED),
        (vec![event("response.failed", some)], REPORTED),
        (vec![event("response.incomplete", half)], PARTIAL),
        (vec![event("response.failed", "null")], None),
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        assert_eq!(
            stream_of(Protocol::Responses, &events).usage_source,
            source,
            "{events:?}"
        );
    }
}

#[test]
fn gemini_has_its_last_word_with_the_reason_to_finish() {
    let chunk = |usage: &str, more: &str| {
        format!(r#"{{"candidates":[{{{more}"content":{{"parts":[{{"text":"x"}}]}}}}]{usage}}}"#)
    };
    let usage = r#","usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2}"#;
    let thoughts = r#","usageMetadata":{"promptTokenCount":4,"thoughtsTokenCount":2}"#;
    let prompt = r#","usageMetadata":{"promptTokenCount":4}"#;
    let absurd = r#","usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":"2"}"#;
    let stop = r#""finishReason":"STOP","#;
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}"#.to_owned();
    let error = r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#.to_owned();
    let trailing = r#"{"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":2}}"#.to_owned();
    for (chunks, source) in [
        (vec![chunk(usage, "")], PARTIAL),
        (vec![chunk(usage, ""), chunk("", stop)], PARTIAL),
        (vec![chunk(usage, ""), chunk(usage, stop)], REPORTED),
        (vec![chunk(usage, ""), error], PARTIAL),
        (vec![chunk("", stop), trailing], REPORTED),
        (vec![chunk(thoughts, stop)], REPORTED),
        (vec![chunk(prompt, stop)], PARTIAL),
        (vec![chunk(absurd, stop)], PARTIAL),
        (vec![blocked], REPORTED),
        (vec![chunk("", stop)], None),
    ] {
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        assert_eq!(stream_of(Protocol::Gemini, &chunks).usage_source, source, "{chunks:?}");
    }
}

#[test]
fn a_body_in_one_piece_has_its_last_word() {
    for (protocol, json, source) in [
        (
            Protocol::Messages,
            r#"{"usage":{"input_tokens":0,"output_tokens":0}}"#,
            REPORTED,
        ),
        (Protocol::Messages, r#"{"usage":{"input_tokens":5}}"#, PARTIAL),
        (
            Protocol::Responses,
            r#"{"usage":{"input_tokens":5,"output_tokens":0}}"#,
            REPORTED,
        ),
        (Protocol::Responses, r#"{"usage":null}"#, None),
        (
            Protocol::Gemini,
            r#"{"usageMetadata":{"promptTokenCount":4}}"#,
            REPORTED,
        ),
        (Protocol::Gemini, r#"{"usageMetadata":{"promptTokenCount":4}"#, PARTIAL),
        (Protocol::Gemini, r#"{"usageMetadata":{}}"#, PARTIAL),
    ] {
        assert_eq!(body_of(protocol, json).usage_source, source, "{json}");
    }
}

#[test]
fn what_changes_the_price_is_told_as_returned() {
    let of = |tier: Option<&str>| PriceModifiers {
        service_tier: tier.map(str::to_owned).map(SmolStr::from),
        ..PriceModifiers::default()
    };
    let all = PriceModifiers {
        service_tier: Some("priority".into()),
        speed: Some("fast".into()),
        geo: Some("us".into()),
    };
    assert_eq!(stream_of(Protocol::Messages, &[START, STOP]).modifiers, all);
    // A later frame that names one of them changes that one only.
    let delta = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2,"speed":"standard","service_tier":null}}"#;
    let changed = PriceModifiers {
        speed: Some("standard".into()),
        ..all
    };
    assert_eq!(stream_of(Protocol::Messages, &[START, delta]).modifiers, changed);
    let asked = r#"{"type":"response.created","response":{"service_tier":"auto"}}"#;
    let returned = r#"{"type":"response.completed","response":{"service_tier":"flex"}}"#;
    assert_eq!(
        stream_of(Protocol::Responses, &[asked, returned]).modifiers,
        of(Some("flex"))
    );
    assert_eq!(
        body_of(Protocol::Responses, r#"{"service_tier":"priority","error":null}"#).modifiers,
        of(Some("priority"))
    );
    for (usage, tier) in [
        (r#"{"trafficType":"ON_DEMAND_PRIORITY"}"#, Some("ON_DEMAND_PRIORITY")),
        (r#"{"trafficType":"ON_DEMAND","serviceTier":"flex"}"#, Some("flex")),
        (r#"{"serviceTier":7}"#, None),
    ] {
        let json = format!(r#"{{"usageMetadata":{usage}}}"#);
        assert_eq!(body_of(Protocol::Gemini, &json).modifiers, of(tier), "{usage}");
    }
}

#[test]
fn what_is_no_name_of_a_tier_is_not_kept() {
    for bad in ["", "a b", "\\u0000", &"x".repeat(65), &"x".repeat(100_000)] {
        let messages = format!(r#"{{"usage":{{"input_tokens":1,"output_tokens":1,"service_tier":"{bad}"}}}}"#);
        let responses = format!(r#"{{"service_tier":"{bad}"}}"#);
        let gemini = format!(r#"{{"usageMetadata":{{"promptTokenCount":1,"serviceTier":"{bad}"}}}}"#);
        for (protocol, json) in [
            (Protocol::Messages, messages),
            (Protocol::Responses, responses),
            (Protocol::Gemini, gemini),
        ] {
            assert_eq!(body_of(protocol, &json).modifiers, PriceModifiers::default());
        }
    }
}

#[test]
fn no_protocol_has_more_paths_than_a_set_looks_for() {
    for protocol in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
        let paths = AnswerDialect::new(protocol.into()).paths().count();
        assert!(
            paths < crate::domain::wire::json_pick::PATHS_MAX,
            "{protocol:?}: {paths}"
        );
    }
}
