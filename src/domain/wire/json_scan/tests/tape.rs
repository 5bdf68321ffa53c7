//! The tape against the bytes: wherever it ends, its readers see the same tokens.

use proptest::prelude::*;

use super::differential::json_object;
use super::{LIMITS, ScanProgress, Scanner, TAPE_ENTRIES_MAX, scan};
use crate::domain::wire::json_scan::{JsonToken, JsonTokenKind, Protocol, Tape, TapeReader, scan_onto};

fn tokens(text: &[u8], tape: &Tape) -> Vec<JsonToken> {
    let mut reader = TapeReader::new(text, tape);
    let mut tokens = Vec::new();
    let mut depth = 0;
    loop {
        let token = reader.next_token().unwrap();
        tokens.push(token);
        match token.kind {
            JsonTokenKind::Object | JsonTokenKind::Array => depth += 1,
            JsonTokenKind::End => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            reader.expect_end().unwrap();
            return tokens;
        }
    }
}

#[test]
fn a_tape_has_every_token_with_its_place() {
    let text = r#" {"a": [1, "b\"c"],"d":{ } ,"e":null}"#;
    let tape = scan(text.as_bytes(), &LIMITS).unwrap().tape;
    let found: Vec<(JsonTokenKind, &str)> = tokens(text.as_bytes(), &tape)
        .into_iter()
        .map(|token| (token.kind, text.get(token.start..token.end).unwrap()))
        .collect();
    let expected = [
        (JsonTokenKind::Object, "{"),
        (JsonTokenKind::Key, "\"a\""),
        (JsonTokenKind::Array, "["),
        (JsonTokenKind::Number, "1"),
        (JsonTokenKind::String, r#""b\"c""#),
        (JsonTokenKind::End, "]"),
        (JsonTokenKind::Key, "\"d\""),
        (JsonTokenKind::Object, "{"),
        (JsonTokenKind::End, "}"),
        (JsonTokenKind::Key, "\"e\""),
        (JsonTokenKind::Null, "null"),
        (JsonTokenKind::End, "}"),
    ];
    assert_eq!(found, expected);
    assert_eq!(tape.size().0, expected.len());
}

#[test]
fn a_tape_is_no_longer_than_its_limit() {
    let body = |elements: usize| format!("{{\"a\":[{}0],\"stop\":[3]}}", "0,".repeat(elements - 1));
    // Beside the elements: the object, two keys, two arrays, their ends and the one element of `stop`.
    let others = 9;
    let fitting = TAPE_ENTRIES_MAX - others;
    for (elements, expected) in [
        (fitting - 1, TAPE_ENTRIES_MAX - 1),
        (fitting, TAPE_ENTRIES_MAX),
        (fitting + 1, TAPE_ENTRIES_MAX),
        (4 * fitting, TAPE_ENTRIES_MAX),
    ] {
        let body = body(elements);
        let tape = scan(body.as_bytes(), &LIMITS).unwrap().tape;
        let (found, bytes) = tape.size();
        assert_eq!(found, expected, "{elements}");
        assert!(bytes <= 768 << 10, "{bytes}");
        assert_eq!(tokens(body.as_bytes(), &tape).len(), elements + others);
    }
}

#[test]
fn a_string_of_any_length_is_one_token_and_room_that_is_not_used_is_given_back() {
    for repeated in [1, 1_000, 100_000] {
        let picture = format!("{{\"a\":\"{}\"}}", "iVBORw0K".repeat(repeated));
        let mut tape = scan(picture.as_bytes(), &LIMITS).unwrap().tape;
        assert_eq!(tape.size(), (4, 4 * 12), "{repeated}");
        let before = tokens(picture.as_bytes(), &tape);
        tape.clear();
        assert_eq!(tape.size(), (0, 0));
        assert_eq!(tokens(picture.as_bytes(), &tape), before, "the text is still there");
    }
}

/// Every value's place, by skipping it.
fn places(text: &[u8], tape: &Tape) -> Vec<std::ops::Range<usize>> {
    let mut reader = TapeReader::new(text, tape);
    let mut places = Vec::new();
    let mut depth = 0_usize;
    loop {
        let token = reader.next_token().unwrap();
        match token.kind {
            JsonTokenKind::Key => {}
            JsonTokenKind::End => depth -= 1,
            _ => {
                places.push(reader.clone().skip_value(token).unwrap());
                depth += usize::from(matches!(token.kind, JsonTokenKind::Object | JsonTokenKind::Array));
            }
        }
        if depth == 0 {
            return places;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn wherever_a_tape_ends_its_readers_see_the_same(body in json_object(), entries_max in 0_usize..40) {
        let body = body.as_bytes();
        let Ok(scan) = scan(body, &LIMITS) else { return Ok(()) };
        let short = scan_onto(body, Protocol::Messages, &LIMITS, entries_max).unwrap();
        prop_assert!(short.tape.size().0 <= entries_max);
        prop_assert_eq!(tokens(body, &short.tape), tokens(body, &scan.tape));
        prop_assert_eq!(places(body, &short.tape), places(body, &scan.tape));
        prop_assert_eq!(places(body, &Tape::default()), places(body, &scan.tape));
    }

    #[test]
    fn a_scan_in_steps_of_any_size_has_the_result_of_one_step(
        body in prop_oneof![json_object(), "\\{?[\\[\\]{}\",:1a ]{0,24}\\}?"],
        tokens_max in 1_usize..9,
    ) {
        let body = body.as_bytes();
        let mut progress = Scanner::new(body, Protocol::Messages, &LIMITS).and_then(|begun| begun.advance(body, 0));
        let in_steps = loop {
            match progress {
                Ok(ScanProgress::Suspended(scanner)) => progress = scanner.advance(body, tokens_max),
                Ok(ScanProgress::Complete(scan)) => break Ok(*scan),
                Err(error) => break Err(error),
            }
        };
        prop_assert_eq!(in_steps, scan(body, &LIMITS));
    }
}
