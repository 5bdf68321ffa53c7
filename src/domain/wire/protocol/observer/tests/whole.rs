//! A body in one piece: it is read in another way than one in several, with the same result.

use super::*;

fn bodies() -> Vec<(Protocol, Vec<u8>)> {
    let is_body = |name: &String| name.ends_with(".json") && kind_of(name).1 == AnswerFraming::Json;
    let bodies = names().into_iter().filter(is_body);
    bodies.map(|name| (kind_of(&name).0, stream(&name))).collect()
}

/// Everything that an observer reports.
fn reading(observer: &Observer) -> (AnswerReport, CreatedState, CharClasses, [bool; 4], u16) {
    let known = [
        observer.is_complete(),
        observer.first_content_seen(),
        observer.has_begun(),
        observer.is_framing_known(),
    ];
    let made = observer.created_state().into_owned();
    (
        observer.observed(),
        made,
        observer.classes().clone(),
        known,
        observer.state_name_count(),
    )
}

#[test]
fn a_body_in_one_piece_is_read_as_in_any_two() {
    for (protocol, body) in bodies() {
        let whole = observe(protocol, AnswerFraming::Json, &body, usize::MAX);
        assert!(whole.is_complete());
        assert_eq!(whole.answer_id(), whole.observed().answer_id);
        for cut in 1..body.len() {
            let mut observer = observe(protocol, AnswerFraming::Json, &body[..cut], usize::MAX);
            let early = reading(&observer);
            assert_eq!(
                early,
                reading(&observe(protocol, AnswerFraming::Json, &body[..cut], 1)),
                "{cut}"
            );
            observer.push(&body[cut..]);
            assert_eq!(reading(&observer), reading(&whole), "{cut}");
            assert_eq!(observer.boundaries().error_from, whole.boundaries().error_from, "{cut}");
        }
    }
}

#[test]
fn a_piece_that_ends_like_a_body_may_be_none() {
    let start = br#"{"model":"one","content":[{"type":"text","text":"Hi"}]"#;
    let rest = br#","stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}"#;
    let mut observer = observe(Protocol::Messages, AnswerFraming::Json, start, usize::MAX);
    assert!(!observer.is_complete());
    assert_eq!(observer.observed().model.as_deref(), Some("one"));
    observer.push(rest);
    let body = [&start[..], rest].concat();
    assert_eq!(
        reading(&observer),
        reading(&observe(Protocol::Messages, AnswerFraming::Json, &body, usize::MAX))
    );
    let usage = observer.observed().usage.unwrap();
    assert_eq!((usage.input_uncached, usage.output_text), (3, 2));
    let mut once = CharClasses::default();
    once.push(b"Hi");
    assert_eq!(observer.classes(), &once, "the text is counted once");
}

#[test]
fn what_follows_a_whole_body_is_ignored() {
    for (protocol, body) in bodies() {
        let whole = reading(&observe(protocol, AnswerFraming::Json, &body, usize::MAX));
        for tail in ["\n", " \r\n ", r#"{"model":"other"}"#, "]", "}"] {
            let mut observer = observe(protocol, AnswerFraming::Json, &body, usize::MAX);
            observer.push(tail.as_bytes());
            assert_eq!(reading(&observer), whole, "behind it: {tail:?}");
            let joined = [&body, tail.as_bytes()].concat();
            let joined = observe(protocol, AnswerFraming::Json, &joined, usize::MAX);
            assert_eq!(reading(&joined), whole, "with it: {tail:?}");
        }
    }
}

#[test]
fn an_error_in_one_piece_stays_one() {
    let body = br#" {"type":"error","error":{"type":"overloaded_error"}}"#;
    let mut observer = observe(Protocol::Messages, AnswerFraming::Json, body, usize::MAX);
    for _ in 0..2 {
        assert_eq!(observer.boundaries().error_from, Some(0));
        observer.push(b"\n");
        assert!(observer.observed().in_band_error.is_some());
    }
}

#[test]
fn a_body_in_one_piece_needs_no_buffers() {
    let text = "x".repeat(300_000);
    for (protocol, body) in [
        (
            Protocol::Messages,
            format!(
                r#"{{"content":[{{"type":"text","text":"{text}"}}],"usage":{{"input_tokens":3,"output_tokens":2}}}}"#
            ),
        ),
        (
            Protocol::Responses,
            format!(
                r#"{{"output":[{{"content":[{{"text":"{text}"}}]}}],"usage":{{"input_tokens":3,"output_tokens":2}}}}"#
            ),
        ),
    ] {
        let whole = observe(protocol, AnswerFraming::Json, body.as_bytes(), usize::MAX);
        assert_eq!((whole.is_complete(), whole.heap_bytes()), (true, 0));
        let pieces = observe(protocol, AnswerFraming::Json, body.as_bytes(), 1000);
        assert!(pieces.heap_bytes() > 0);
        assert_eq!(reading(&whole), reading(&pieces));
    }
}
