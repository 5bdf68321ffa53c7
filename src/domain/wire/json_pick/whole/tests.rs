//! Tests of `whole`: it picks what pieces of any size pick.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::PickSegment::{Each, Key as K};
use super::super::path::LIST_BYTES_MAX;
use super::super::tests::json_value;
use super::super::{ObjectMarks, PathSet, PickPath, PickRule, Picker, Picks, SCALAR_BYTES_MAX, TREE_BYTES_MAX};
use crate::domain::wire::usage::fields::ReportField;

/// Every kind of take, at nested places, and several at one.
static SET: LazyLock<PathSet> = LazyLock::new(|| PathSet::new(PATHS));
const PATHS: &[PickPath] = &[
    PickPath::new(&[K("type")], PickRule::Scalar),
    PickPath::new(&[K("type")], PickRule::Presence),
    PickPath::new(&[K("a")], PickRule::Tree),
    PickPath::new(&[K("b"), K("a")], PickRule::Tree),
    PickPath::new(&[K("b"), K("b")], PickRule::Text),
    PickPath::new(&[K("b"), K("b"), K("type")], PickRule::Text),
    PickPath::new(&[K("b"), K("b"), K("a")], PickRule::Scalar),
    PickPath::new(&[K("b")], PickRule::Presence),
    PickPath::new(&[K("list"), Each], PickRule::Count),
    PickPath::new(&[K("list"), Each], PickRule::ListMarked),
    PickPath::new(&[K("list"), Each], PickRule::CountMarked { all: 1, none: 2 }),
    PickPath::new(&[K("list"), Each], PickRule::Presence),
    PickPath::new(
        &[K("list"), Each, K("type")],
        PickRule::Mark {
            words: &[("x", 1), ("y", 2)],
            other: 4,
        },
    ),
    PickPath::new(&[K("list"), Each, K("type")], PickRule::List),
    PickPath::new(&[K("list"), Each, K("type")], PickRule::CountBeginning(&["a", "x"])),
    PickPath::new(&[K("list"), Each, K("a")], PickRule::MarkNumber),
    PickPath::new(
        &[K("list"), Each, K("b")],
        PickRule::MarkPresence {
            bits: 1,
            none: &["\"x\"", "7"],
        },
    ),
    PickPath::new(&[K("list"), Each, K("list"), Each, K("type")], PickRule::Text),
    PickPath::new(&[Each, K("type")], PickRule::List),
    PickPath::new(&[Each, Each], PickRule::Count),
    PickPath::new(&[Each], PickRule::Text),
    PickPath::new(&[K("other")], PickRule::Fields(&NAMES)),
    PickPath::new(&[K("list"), Each, K("other")], PickRule::Fields(&NAMES)),
];
const NAMES: [&str; 3] = ["type", "list", "a"];

/// The fields of an object that was kept, as they are written.
type Fields = Option<[Vec<u8>; NAMES.len()]>;

/// Of each path what was kept, its fields, whether something was there, how many, and its lists; and whether nothing else was there.
type Read = (
    Vec<(Option<Vec<u8>>, Fields, bool, u64, Vec<String>, Vec<ObjectMarks>)>,
    Vec<bool>,
);

fn read(picks: &Picks<'_>) -> Read {
    let of_path = |at| {
        let texts = picks.each_text(at).map(std::borrow::Cow::into_owned).collect();
        (
            picks.raw(at).map(<[u8]>::to_vec),
            picks
                .fields(at, &NAMES)
                .map(|fields| fields.map(|field| field.json().to_vec())),
            picks.is_present(at),
            picks.count(at),
            texts,
            picks.each_marks(at).collect(),
        )
    };
    let all: Vec<usize> = (0..PATHS.len()).collect();
    let all_but = |at: usize| [&all[..at], &all[at + 1..]].concat();
    let alone = all.iter().map(|at| picks.has_only(&all_but(*at))).collect();
    (all.iter().copied().map(of_path).collect(), alone)
}

/// Reads `bytes` whole and in pieces, and compares. Returns whether they begin with a whole object or array.
fn agree(bytes: &[u8], size: usize) -> bool {
    let mut pieces = Picker::new(&SET);
    let used: usize = bytes.chunks(size).map(|piece| pieces.push(piece)).sum();
    let is_container = matches!(bytes.trim_ascii_start().first(), Some(b'{' | b'['));
    let mut whole = Picker::new(&SET);
    let Some(picks) = whole.pick_whole(bytes) else {
        assert!(!(pieces.is_done() && is_container), "it is whole");
        // Nothing has changed: pieces are read as if it had not been tried.
        assert_eq!(
            whole.text_counter().classes(),
            Picker::new(&SET).text_counter().classes()
        );
        bytes.chunks(size).for_each(|piece| {
            whole.push(piece);
        });
        assert_eq!(read(&whole), read(&pieces));
        return false;
    };
    assert!(
        pieces.is_done() && is_container && used <= bytes.len(),
        "it is not whole"
    );
    assert_eq!(read(&picks), read(&pieces));
    assert_eq!(whole.text_counter().classes(), pieces.text_counter().classes());
    true
}

#[test]
fn what_is_whole_is_borrowed() {
    let json = br#" {"type":"one","b":{"a":{"x":[1]}},"list":[{"type":"x","b":1},{"type":"y"}],"type":"two"} {}"#;
    let mut picker = Picker::new(&SET);
    let picks = picker.pick_whole(json).unwrap();
    let kept = picks.raw(3).unwrap();
    assert_eq!(kept, br#"{"x":[1]}"#);
    assert!(json.as_ptr_range().contains(&kept.as_ptr()));
    assert_eq!(picks.text(0).as_deref(), Some("two"), "the last one wins");
    assert_eq!((picks.count(8), picks.count(10), picks.count(14)), (2, 1, 1));
    assert!(agree(json, 7));
}

#[test]
fn fields_are_those_of_the_object_that_is_kept() {
    for (json, wanted) in [
        (r#"{"other": { } }"#, Some(["", "", ""])),
        (
            r#"{"other":{"a":[ 1],"type":{"a":2},"a":3}}"#,
            Some([r#"{"a":2}"#, "", "3"]),
        ),
        (r#"{"other":{"typ\u0065":1,"x":{"a":1}}}"#, Some(["1", "", ""])),
        (r#"{"other":{"a":1},"other":{"type":2}}"#, Some(["2", "", ""])),
        (
            r#"{"other":{"a":1},"list":[{"other":{"type":2}}]}"#,
            Some(["", "", "1"]),
        ),
        (r#"{"other":{"a":1},"other":7}"#, None),
        (r#"{"other":{"a":1},"other":[{"a":1}]}"#, None),
        (r#"{"other":{"a":1,"\ud800":2}}"#, None),
    ] {
        let mut picker = Picker::new(&SET);
        let picks = picker.pick_whole(json.as_bytes()).unwrap();
        let fields = picks.fields(PATHS.len() - 2, &NAMES);
        assert_eq!(
            fields.map(|fields| fields.map(ReportField::json)),
            wanted.map(|wanted| wanted.map(str::as_bytes)),
            "{json}"
        );
        assert!(agree(json.as_bytes(), 3));
    }
    let mut bytes = br#"{"other":{"a":"?"}}"#.to_vec();
    bytes[15] = 0xff;
    let mut picker = Picker::new(&SET);
    assert!(
        picker
            .pick_whole(&bytes)
            .unwrap()
            .fields(PATHS.len() - 2, &NAMES)
            .is_none(),
        "it is no text"
    );
    assert!(agree(&bytes, 3));
}

#[test]
fn limits_hold_for_what_is_whole() {
    for (length, fits) in [(SCALAR_BYTES_MAX - 2, true), (SCALAR_BYTES_MAX - 1, false)] {
        let json = format!(r#"{{"type":"{}"}}"#, "x".repeat(length));
        assert!(agree(json.as_bytes(), 50));
        let mut picker = Picker::new(&SET);
        assert_eq!(
            picker.pick_whole(json.as_bytes()).unwrap().raw(0).is_some(),
            fits,
            "{length}"
        );
    }
    for (length, fits) in [(TREE_BYTES_MAX - 4, true), (TREE_BYTES_MAX - 3, false)] {
        let json = format!(r#"{{"a":["{}"]}}"#, "x".repeat(length));
        assert!(agree(json.as_bytes(), 1000));
        let mut picker = Picker::new(&SET);
        assert_eq!(
            picker.pick_whole(json.as_bytes()).unwrap().raw(2).is_some(),
            fits,
            "{length}"
        );
    }
    let many = format!(r#"{{"list":[{}{{}}]}}"#, r#"{"type":"x"},"#.repeat(LIST_BYTES_MAX / 3));
    assert!(agree(many.as_bytes(), 4096));
}

#[test]
fn depth_is_limited_as_in_pieces() {
    for (depth, is_whole) in [(512, true), (513, false)] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{\"b\":", "}"), ("{\"list\":[", "]}")] {
            let levels = depth / open.matches(['[', '{']).count();
            let odd = if levels * open.matches(['[', '{']).count() < depth {
                "[]"
            } else {
                "0"
            };
            let json = [open.repeat(levels), odd.to_owned(), close.repeat(levels)].concat();
            assert_eq!(agree(json.as_bytes(), 100), is_whole, "{open} {depth}");
        }
    }
}

#[test]
fn what_is_not_whole_changes_nothing() {
    for json in [
        "",
        " ",
        "1",
        "\"a\"",
        "{",
        "[",
        "{]",
        "[}",
        r#"{"b":{"b":"heard"}"#,
        r#"{"b":{"b":"heard"},}"#,
        r#"{"type":"one",}"#,
        r#"{"type":"one" "a":1}"#,
        r#"{"type":"\x"}"#,
        r#"{"x":[{"y":"\u00g0"}]}"#,
        r#"{"x":[1,]}"#,
        r#"{"x":truE}"#,
        r#"{"a":{"b":}}"#,
        r#"{"other":{"type":1,}}"#,
        r#"{"other":{"type":1"#,
    ] {
        for size in 1..4 {
            assert!(!agree(json.as_bytes(), size), "{json}");
        }
    }
    for json in [
        "{} x",
        "[]]",
        r#"{"type":1}{"type":2"#,
        r#"{"x":01e+-.}"#,
        "{\"x\":\"\n\\ud800\"}",
        r#"{"other":{"\ud800":1}}"#,
    ] {
        for size in 1..4 {
            assert!(agree(json.as_bytes(), size), "{json}: as lenient as in pieces");
        }
    }
}

/// An object of the set's keys, some of them twice, with values of any kind.
fn object() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("type"),
        Just("a"),
        Just("b"),
        Just("list"),
        Just("typ\\u0065"),
        Just("other")
    ];
    let word = prop_oneof![
        Just(r#""x""#.to_owned()),
        Just(r#""y""#.to_owned()),
        Just("7".to_owned()),
        Just(format!("\"{}\"", "long".repeat(70))),
        Just(format!("-{}.{}e+999", "9".repeat(40), "1".repeat(40))),
    ];
    let value = prop_oneof![word, json_value()];
    value.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| format!("[{}]", items.join(", "))),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|items| {
                let items: Vec<String> = items.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", items.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_picks_as_in_pieces(json in object(), size in 1_usize..20) {
        let is_container = json.trim_start().starts_with(['{', '[']);
        prop_assert_eq!(agree(json.as_bytes(), size), is_container);
    }

    #[test]
    fn any_damage_is_taken_as_in_pieces(
        json in object(),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\ut019-e \n".to_vec())],
        cut in any::<bool>(),
        size in 1_usize..20,
    ) {
        let mut bytes = json.into_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        agree(&bytes, size);
    }

    #[test]
    fn any_bytes_are_taken_as_in_pieces(text in r#"[\[{][{}\[\]",:\\u0-9a-bstypelinrf. -]{0,80}"#, size in 1_usize..20) {
        agree(text.as_bytes(), size);
    }
}
