//! Where an uploaded value ends, however it is split.

use proptest::prelude::*;

use super::super::{JsonEnd, JsonEndProgress};
use super::differential::json_object;
use super::{LIMITS, scan};

/// Pushes the pieces of `body` cut at `cuts`; gives the end as an offset in the body.
fn end_of(body: &[u8], cuts: &[usize]) -> Option<usize> {
    let mut end = JsonEnd::new();
    let mut bounds: Vec<usize> = cuts
        .iter()
        .map(|cut| cut % (body.len() + 1))
        .chain([0, body.len()])
        .collect();
    bounds.sort_unstable();
    let mut found = None;
    for (start, stop) in bounds.iter().zip(bounds.iter().skip(1)) {
        match (end.push(&body[*start..*stop]), found) {
            (JsonEndProgress::More, None) => {}
            (JsonEndProgress::CompleteAt(at), None) => found = Some(start + at),
            (JsonEndProgress::CompleteAt(0), Some(_)) => {}
            (other, Some(_)) => panic!("{other:?} after completion"),
        }
    }
    found
}

#[test]
fn the_end_is_one_past_the_last_bracket() {
    for (body, end) in [
        ("{}", Some(2)),
        (" \n[1,[2]] x", Some(9)),
        (r#"{"a":"}\"}","b":[{}]}{"#, Some(21)),
        (r#"{"a\\":1}"#, Some(9)),
        (r#"{"a\":1}"#, None),
        ("{\"a\":[1}", None),
        ("", None),
        ("  ", None),
        ("\"{}\"", None),
        ("1 {}", None),
        ("\u{feff}{}", None),
    ] {
        let every_byte: Vec<usize> = (0..body.len()).collect();
        assert_eq!(end_of(body.as_bytes(), &[]), end, "{body}");
        assert_eq!(end_of(body.as_bytes(), &every_byte), end, "{body}");
    }
}

#[test]
fn a_complete_value_stays_complete() {
    let mut end = JsonEnd::new();
    assert_eq!(end.push(b"{}{"), JsonEndProgress::CompleteAt(2));
    assert_eq!(end.push(b"{"), JsonEndProgress::CompleteAt(0));
    assert_eq!(end.push(b""), JsonEndProgress::CompleteAt(0));
}

proptest! {
    #[test]
    fn any_split_ends_where_one_push_does(
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "[ a\"\\\\{}\\[\\]]{0,60}".prop_map(String::into_bytes),
            json_object().prop_map(String::into_bytes),
        ],
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(end_of(&body, &cuts), end_of(&body, &[]));
    }

    #[test]
    fn the_end_agrees_with_the_scan(object in json_object(), before in "[ \n]{0,3}", after in "[ \r\t]{0,3}") {
        let body = format!("{before}{object}{after}");
        // About one object in six is refused, as having `model` twice: that many would end a long run as rejected.
        if scan(body.as_bytes(), &LIMITS).is_ok() {
            prop_assert_eq!(end_of(body.as_bytes(), &[]), Some(before.len() + object.len()));
        }
    }
}
