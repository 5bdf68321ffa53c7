//! Tests of `ArrayFramer`.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;

use crate::domain::wire::json_pick::tests::json_value;
use crate::domain::wire::json_pick::*;

static SET: LazyLock<PathSet> = LazyLock::new(|| PathSet::new(PATHS));
const PATHS: &[PickPath] = &[PickPath::new(&[PickSegment::Key("type")], PickRule::Scalar)];
const LAST: &[u8] = br#"{"error":{"code":503}}"#;

struct Reading {
    framer: ArrayFramer,
    picker: Picker,
    types: Vec<Option<String>>,
}

fn read(bytes: &[u8], size: usize) -> Reading {
    let mut reading = Reading {
        framer: ArrayFramer::new(),
        picker: Picker::new(&SET),
        types: Vec::new(),
    };
    for chunk in bytes.chunks(size) {
        let types = &mut reading.types;
        reading.framer.push(chunk, &mut reading.picker, |element, _| {
            types.push(element.text(0).map(std::borrow::Cow::into_owned));
        });
    }
    reading
}

fn tail(bytes: &[u8]) -> Option<String> {
    let reading = read(bytes, usize::MAX);
    reading
        .framer
        .failure_tail(&reading.picker, LAST)
        .map(|tail| String::from_utf8(tail).unwrap())
}

#[test]
fn elements_are_told_one_by_one() {
    let reading = read(b" [{\"type\":\"a\"}\n,\r\n{\"type\":\"b\"},3 ,{} ]\n", usize::MAX);
    assert_eq!(reading.types, [Some("a".to_owned()), Some("b".to_owned()), None, None]);
    assert!(reading.framer.is_closed());
    assert!(read(b"[]", 1).framer.is_closed());
}

#[test]
fn a_bare_object_is_one_element() {
    let reading = read(b"{\"type\":\"a\"}", 3);
    assert_eq!(reading.types, [Some("a".to_owned())]);
    assert!(reading.framer.is_closed());
}

#[test]
fn the_tail_fits_to_where_the_array_is() {
    let last = std::str::from_utf8(LAST).unwrap();
    assert_eq!(tail(b""), Some(format!("[{last}]")));
    assert_eq!(tail(b" [ "), Some(format!("{last}]")));
    assert_eq!(tail(b"[{}"), Some(format!(",{last}]")));
    assert_eq!(tail(b"[{},"), Some(format!("{last}]")));
    assert_eq!(tail(b"[{\"a\":[\"b\\"), Some(format!("n\"]}},{last}]")));
    assert_eq!(tail(b"[{\"a"), Some(format!("\":null}},{last}]")));
    for finished in [b"[{}]".as_slice(), b"[]", b"{\"a\":1", b"{}", b"[} ", b"[{]", b"<html>"] {
        assert_eq!(tail(finished), None);
    }
}

proptest! {
    #[test]
    fn any_cut_with_its_tail_is_an_array_that_ends_with_the_error(items in prop::collection::vec(json_value(), 0..4), size in 1_usize..9) {
        let whole = format!(" [{}\r\n] ", items.join("\n,\r\n"));
        let end = whole.rfind(']').unwrap();
        for cut in 0..=end {
            let bytes = &whole.as_bytes()[..cut];
            let reading = read(bytes, size);
            let tail = reading.framer.failure_tail(&reading.picker, LAST).unwrap();
            let json = [bytes, &tail].concat();
            let parsed: Result<Vec<Value>, _> = serde_json::from_slice(&json);
            prop_assert!(parsed.is_ok(), "{}: {:?}", String::from_utf8_lossy(&json), parsed);
            let code = parsed.unwrap().pop().unwrap()["error"]["code"].as_u64();
            prop_assert_eq!(code, Some(503));
        }
        prop_assert_eq!(read(whole.as_bytes(), size).types.len(), items.len());
    }

    #[test]
    fn arbitrary_bytes_never_panic(text in r#"[\[\]{}",:\\ a1-]{0,80}"#, size in 1_usize..9) {
        let reading = read(text.as_bytes(), size);
        let _ = reading.framer.failure_tail(&reading.picker, LAST);
    }
}
