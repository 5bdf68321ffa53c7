//! Tests of `json_pick`.

mod array;

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;

use super::PickSegment::{Each, Key as K};
use super::*;

static SET: LazyLock<PathSet> = LazyLock::new(|| PathSet::new(PATHS));
const PATHS: &[PickPath] = &[
    PickPath::new(&[K("type")], PickRule::Scalar),
    PickPath::new(&[K("a"), K("b")], PickRule::Tree),
    PickPath::new(&[K("list"), Each, K("name")], PickRule::Scalar),
    PickPath::new(&[K("list"), Each], PickRule::Count),
    PickPath::new(
        &[K("list"), Each, K("kind")],
        PickRule::Mark {
            words: &[("x", 1), ("y", 2)],
            other: 4,
        },
    ),
    PickPath::new(&[K("text")], PickRule::Presence),
    PickPath::new(&[K("a")], PickRule::Presence),
    PickPath::new(&[K("error")], PickRule::Scalar),
    PickPath::new(&[K("error"), K("type")], PickRule::Scalar),
    PickPath::new(
        &[K("list"), Each, K("at"), K("state")],
        PickRule::Mark {
            words: &[("bad", 8)],
            other: 0,
        },
    ),
    PickPath::new(&[K("list"), Each], PickRule::CountMarked { all: 1, none: 8 }),
    PickPath::new(&[K("list"), Each], PickRule::CountMarked { all: 4, none: 0 }),
];

fn picked(json: &[u8]) -> Picker {
    let mut picker = Picker::new(&SET);
    picker.push(json);
    picker
}

#[test]
fn values_are_picked_at_their_paths_only() {
    let picker = picked(
        br#" {"x":{"type":"no"},"type":"y\u00e9s","a":{"c":[{"b":1}],"b":{"n":[1,{"b":"}"}]}},
        "list":[{"name":"one","kind":"x"},{"name":"two","kind":"y"},3,{"kind":"x"}],"text":"t"} "#,
    );
    assert_eq!(picker.text(0).as_deref(), Some("y\u{e9}s"));
    assert_eq!(picker.raw(1), Some(br#"{"n":[1,{"b":"}"}]}"#.as_slice()));
    assert!(picker.has_text(2, "two"));
    assert_eq!((picker.count(3), picker.count(10), picker.count(11)), (4, 2, 0));
    assert!(picker.is_present(5) && picker.is_present(6));
    assert!(picker.is_done() && !picker.is_inert());
}

#[test]
fn objects_are_listed_with_their_marks_and_numbers() {
    static LISTED: LazyLock<PathSet> = LazyLock::new(|| {
        let present = |bits, none| PickRule::MarkPresence { bits, none };
        PathSet::new(&[
            PickPath::new(&[K("list"), Each], PickRule::ListMarked),
            PickPath::new(&[K("list"), Each, K("at")], PickRule::MarkNumber),
            PickPath::new(&[K("list"), Each, K("why")], present(1, &["\"no\"", "0"])),
            PickPath::new(&[K("list"), Each, K("in"), Each, K("x")], present(2, &[])),
        ])
    });
    let json = br#"{"list":[{"at":7,"why":"yes"},{"why":"no","in":[{"x":{"y":1}},{"x":{}},{"x":""}]},{"at":"1","why":0},{"at":256,"in":[{"x":"t"}],
        "why":"y"},{"why":"","in":[{"x":null},{"y":1}]},3,{"at":255}]}"#;
    let marks = |bits, number| ObjectMarks { bits, number };
    let wanted = [
        marks(1, Some(7)),
        marks(2, None),
        marks(0, None),
        marks(3, None),
        marks(0, None),
        marks(0, Some(255)),
    ];
    for size in [1, 2, 5, 40, json.len()] {
        let mut picker = Picker::new(&LISTED);
        for chunk in json.chunks(size) {
            picker.push(chunk);
        }
        assert_eq!(picker.each_marks(0).collect::<Vec<_>>(), wanted, "in pieces of {size}");
        picker.reset();
        assert_eq!(picker.each_marks(0).count(), 0);
        picker.push(format!("{{\"list\":[{}{{}}]}}", "{},".repeat(5_000)).as_bytes());
        assert_eq!(
            picker.each_marks(0).count(),
            path::LIST_BYTES_MAX / 3,
            "no more than there is room for"
        );
    }
}

#[test]
fn objects_are_counted_by_what_their_members_say_together() {
    let long = "z".repeat(SCALAR_BYTES_MAX);
    let json = format!(
        r#"{{"list":[{{"kind":"x","at":{{"state":"good"}}}},{{"at":{{"state":"bad"}},"kind":"x"}},{{"kind":"y"}},{{}},
        {{"kind":7}},{{"kind":null}},{{"kind":"{long}"}},{{"kind":"other"}},{{"x":{{"kind":"x"}}}},{{"at":{{"kind":"x"}},"kind":"x"}},"x",["x"]],
        "kind":"x"}}"#
    );
    for size in [1, 2, 3, 7, 50, json.len()] {
        let mut picker = Picker::new(&SET);
        json.as_bytes().chunks(size).for_each(|chunk| {
            picker.push(chunk);
        });
        assert!(picker.is_done());
        assert_eq!((picker.count(10), picker.count(11)), (2, 2), "in pieces of {size}");
        picker.reset();
        picker.push(br#"{"list":[{"kind":"x"}]}"#);
        assert_eq!((picker.count(10), picker.count(11)), (1, 0));
    }
    // An object that has not ended is not counted yet.
    assert_eq!(picked(br#"{"list":[{"kind":"x""#).count(10), 0);
}

#[test]
fn a_scalar_path_lets_a_container_through() {
    assert!(picked(br#"{"error":"text"}"#).has_text(7, "text"));
    let nested = picked(br#"{"error":{"type":"t"}}"#);
    assert_eq!((nested.raw(7), nested.text(8).as_deref()), (None, Some("t")));
}

#[test]
fn what_says_nothing_is_not_present() {
    for (json, present) in [
        (r#"{"text":""}"#, false),
        (r#"{"text":null}"#, false),
        (r#"{"text":false}"#, false),
        (r#"{"text":"abcdefgh"}"#, true),
        (r#"{"text":0}"#, false),
        (r#"{"text":-0.0}"#, false),
        (r#"{"text":10}"#, true),
        (r#"{"text":{}}"#, false),
        (r#"{"text": [ ] }"#, false),
        (r#"{"text":{"":null}}"#, true),
        (r#"{"text":[0]}"#, true),
        (r#"{"text":[[]]}"#, true),
        (r#"{"text":{},"other":[{"text":"t"}]}"#, false),
        (r#"{"other":1}"#, false),
    ] {
        assert_eq!(picked(json.as_bytes()).is_present(5), present, "{json}");
    }
    assert_eq!(picked(br#"{"type":null}"#).text(0), None);
    assert_eq!(picked(br#"{"type":401}"#).text(0).as_deref(), Some("401"));
}

#[test]
fn what_is_too_long_is_dropped() {
    let long = "x".repeat(TREE_BYTES_MAX);
    let picker = picked(format!(r#"{{"type":"{long}","a":{{"b":["{long}"]}},"list":[{{"name":"ok"}}]}}"#).as_bytes());
    assert_eq!((picker.raw(0), picker.raw(1)), (None, None));
    assert!(picker.has_text(2, "ok"));
    assert!(picker.is_done());
}

#[test]
fn a_reset_forgets() {
    let mut picker = picked(br#"{"type":"one","list":[1"#);
    picker.reset();
    picker.push(br#"{"list":[]}"#);
    assert_eq!((picker.text(0), picker.count(3), picker.is_done()), (None, 0, true));
}

#[test]
fn what_is_not_json_is_inert_until_a_reset() {
    let deep = "[".repeat(10_000);
    for bad in [
        "[DONE]",
        "{]",
        "{\"a\" 1}",
        "nul!",
        "{\"a\":1,}",
        "}",
        deep.as_str(),
        "\"\\x",
        "\"\\u00g",
    ] {
        let mut picker = picked(bad.as_bytes());
        assert!(picker.is_inert(), "{bad}");
        assert_eq!(picker.completion(), None);
        assert_eq!(picker.push(b"{}"), 2, "all of it is taken");
        picker.reset();
        picker.push(b"{\"type\":1}");
        assert!(picker.is_done() && picker.is_present(0));
    }
}

#[test]
fn a_value_ends_where_it_ends() {
    let mut picker = Picker::new(&SET);
    assert_eq!(picker.push(b" {\"a\":[]} ,{}"), 9);
    assert_eq!(picker.push(b"more"), 0);
    picker.reset();
    assert_eq!(picker.push(b"12,"), 2);
    assert!(picker.is_done());
}

#[test]
fn heap_stays_bounded_whatever_is_pushed() {
    let mut picker = Picker::new(&SET);
    let block = "y".repeat(1 << 16);
    picker.push(br#"{"a":{"b":{"#);
    for round in 0..64 {
        picker.push(format!(r#""{round}":"{block}","#).as_bytes());
    }
    picker.push(br#""type":1}},"text":""#);
    for _ in 0..64 {
        picker.push(block.as_bytes());
    }
    assert!(
        picker.heap_bytes() < (PATHS.len() + 2) * TREE_BYTES_MAX,
        "{}",
        picker.heap_bytes()
    );
}

/// JSON values with the things that make cutting hard: escapes, surrogate pairs, all kinds of numbers, nesting.
pub(in crate::domain) fn json_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        Just(r#""\ud83e\udd80 \u00e9 \\ \" \/ \n \ud7ff\ue000\udbff\udfff""#.to_owned()),
        "[a-z \u{e9}\u{20ac}\u{800}\u{10000}\u{10ffff}]{0,6}".prop_map(|text| format!("\"{text}\"")),
    ];
    let key = prop_oneof![
        Just("type"),
        Just("a"),
        Just("b"),
        Just("list"),
        Just("na\\u006de"),
        Just("\u{1f980}"),
        Just("")
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {}]", items.join(" ,\r\n"))),
            prop::collection::vec((key.clone(), inner), 0..4).prop_map(|items| {
                let items: Vec<String> = items
                    .iter()
                    .map(|(key, value)| format!("\"{key}\" :{value} "))
                    .collect();
                format!("{{{}}}", items.join(", "))
            }),
        ]
    })
}

fn state(picker: &Picker) -> Vec<(Option<Vec<u8>>, bool, u64)> {
    (0..PATHS.len())
        .map(|at| {
            (
                picker.raw(at).map(<[u8]>::to_vec),
                picker.is_present(at),
                picker.count(at),
            )
        })
        .collect()
}

proptest! {
    #[test]
    fn any_split_picks_the_same(value in json_value(), size in 1_usize..9) {
        let whole = picked(value.as_bytes());
        let mut split = Picker::new(&SET);
        for chunk in value.as_bytes().chunks(size) {
            split.push(chunk);
        }
        prop_assert!(!whole.is_inert());
        prop_assert_eq!(state(&whole), state(&split));
        prop_assert_eq!(whole.is_done(), split.is_done());
    }

    #[test]
    fn any_cut_can_be_completed(value in json_value(), size in 1_usize..9) {
        let bytes = value.as_bytes();
        for cut in 0..=bytes.len() {
            let mut picker = Picker::new(&SET);
            for chunk in bytes[..cut].chunks(size) {
                picker.push(chunk);
            }
            let whole = [&bytes[..cut], &picker.completion().unwrap()].concat();
            let parsed: Result<Value, _> = serde_json::from_slice(&whole);
            prop_assert!(parsed.is_ok(), "{}: {:?}", String::from_utf8_lossy(&whole), parsed);
        }
    }

    #[test]
    fn picks_agree_with_a_parser(value in json_value()) {
        let json = format!(r#"{{"q":{value},"a":{{"z":[{value}],"b":{value}}},"type":"t"}}"#);
        let picker = picked(json.as_bytes());
        let parsed: Value = serde_json::from_str(&json).unwrap();
        let raw: Option<Value> = picker.raw(1).map(|raw| serde_json::from_slice(raw).unwrap());
        match &parsed["a"]["b"] {
            tree @ (Value::Object(_) | Value::Array(_)) => prop_assert_eq!(raw.as_ref(), Some(tree)),
            scalar => prop_assert_eq!(raw.as_ref(), Some(scalar)),
        }
        prop_assert!(picker.has_text(0, "t"));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), size in 1_usize..40) {
        let mut picker = Picker::new(&SET);
        for chunk in bytes.chunks(size) {
            picker.push(chunk);
            let _ = picker.completion();
        }
    }

    #[test]
    fn arbitrary_json_like_bytes_never_panic(text in r#"[{}\[\]",:\\u0-9a-fntrlse. -]{0,200}"#, size in 1_usize..40) {
        let mut picker = Picker::new(&SET);
        for chunk in text.as_bytes().chunks(size) {
            picker.push(chunk);
            let _ = picker.completion();
        }
    }
}
