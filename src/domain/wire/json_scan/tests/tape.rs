//! The tape against the bytes: wherever it ends, its readers see the same tokens.

use proptest::prelude::*;

use super::differential::json_object;
use super::{LIMITS, TAPE_ENTRIES_MAX, scan};
use crate::domain::wire::json_scan::{Kind, Protocol, Reader, Tape, Token, scan_onto};

fn tokens(text: &[u8], tape: &Tape) -> Vec<Token> {
    let mut reader = Reader::new(text, tape);
    let mut tokens = Vec::new();
    let mut depth = 0;
    loop {
        let token = reader.token().unwrap();
        tokens.push(token);
        match token.kind {
            Kind::Object | Kind::Array => depth += 1,
            Kind::End => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            reader.end().unwrap();
            return tokens;
        }
    }
}

#[test]
fn a_tape_has_every_token_with_its_place() {
    let text = r#" {"a": [1, "b\"c"],"d":{ } ,"e":null}"#;
    let tape = scan(text.as_bytes(), &LIMITS).unwrap().tape;
    let found: Vec<(Kind, &str)> = tokens(text.as_bytes(), &tape)
        .into_iter()
        .map(|token| (token.kind, text.get(token.start..token.end).unwrap()))
        .collect();
    let expected = [
        (Kind::Object, "{"),
        (Kind::Key, "\"a\""),
        (Kind::Array, "["),
        (Kind::Number, "1"),
        (Kind::String, r#""b\"c""#),
        (Kind::End, "]"),
        (Kind::Key, "\"d\""),
        (Kind::Object, "{"),
        (Kind::End, "}"),
        (Kind::Key, "\"e\""),
        (Kind::Null, "null"),
        (Kind::End, "}"),
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
    let mut reader = Reader::new(text, tape);
    let mut places = Vec::new();
    let mut depth = 0_usize;
    loop {
        let token = reader.token().unwrap();
        match token.kind {
            Kind::Key => {}
            Kind::End => depth -= 1,
            _ => {
                places.push(reader.clone().value(token).unwrap());
                depth += usize::from(matches!(token.kind, Kind::Object | Kind::Array));
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
}
