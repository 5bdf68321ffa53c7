//! Tests of `fields`.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

#[test]
fn anything_but_a_number_from_zero_to_the_largest_count_is_absent() {
    let count = |json: &str| read_count(json.as_bytes());
    assert_eq!(count("12"), Some(12));
    assert_eq!(count("-0"), Some(0));
    assert_eq!(count("2.9"), Some(2));
    assert_eq!(count("007"), Some(7));
    assert_eq!(count("999999999999999"), Some(999_999_999_999_999));
    assert_eq!(count("1000000000000000"), Some(1_000_000_000_000_000));
    assert_eq!(count("9007199254740992"), Some(COUNT_MAX));
    assert_eq!(count("9007199254740992.0"), Some(COUNT_MAX));
    for other in [
        "\"12\"",
        "null",
        "true",
        "[]",
        "{}",
        "",
        "inf",
        "-",
        "nan",
        "-5",
        "-0.1",
        "-1e999",
        "1e308",
        "1e999",
        "9007199254740993",
        "18446744073709551615",
        "99999999999999999999999999",
    ] {
        assert_eq!(count(other), None, "{other}");
    }
}

#[test]
fn one_bad_value_spoils_no_other() {
    let json = br#"{"a":1e999,"b":"x","c":7,"d":{"e":3},"f":[{"g":1},2,[{"g":2}],{"g":4 } ]}"#;
    let [a, b, c, d, f, z] = ReportField::from_json(json)
        .object(&["a", "b", "c", "d", "f", "z"])
        .unwrap();
    assert_eq!([a, b, c, z].map(ReportField::count), [None, None, Some(7), None]);
    assert_eq!(d.fields(&["e"]).map(ReportField::count), [Some(3)]);
    assert_eq!(
        c.fields(&["e"]).map(ReportField::count),
        [None],
        "no object has no fields"
    );
    let counts: Vec<_> = f.objects(&["g"]).map(|[g]| g.count()).collect();
    assert_eq!(counts, [Some(1), Some(4)]);
    assert_eq!(
        d.objects(&["e"]).count() + z.objects(&["e"]).count(),
        0,
        "no array has no objects"
    );
    assert_eq!((b.text().as_deref(), c.text()), (Some("x"), None));
    assert!(z.is_absent() && !b.is_absent());
}

#[test]
fn of_a_repeated_key_the_last_value_counts_however_the_key_is_written() {
    let json = br#"{"a":1,"b":2,"\u0061":3,"b":null,"\u0062c":4}"#;
    let [a, b] = ReportField::from_json(json).object(&["a", "b"]).unwrap();
    assert_eq!((a.count(), b.count()), (Some(3), None));
    assert!(b.is_absent());
}

#[test]
fn what_is_no_object_has_no_fields() {
    for json in [
        "",
        "1",
        "[]",
        "null",
        "\"{}\"",
        "{",
        "{}x",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1}{",
        "{\"\\ud800\":1}",
        "{a:1}",
    ] {
        assert!(
            ReportField::from_json(json.as_bytes()).object(&["a"]).is_none(),
            "{json}"
        );
    }
    assert!(ReportField::from_json(b"{\"a\":\"\xff\"}").object(&["a"]).is_none());
    let [a] = ReportField::from_json(b" { } ").object(&["a"]).unwrap();
    assert!(a.is_absent());
}

#[test]
fn a_name_is_short_and_plain() {
    let json = format!(
        r#"{{"a":"flex","b":"","c":"a b","d":7,"e":null,"f":"{}","g":"\u0007","i":"fl\u0065x"}}"#,
        "x".repeat(65)
    );
    let fields = ReportField::from_json(json.as_bytes()).fields(&["a", "i", "b", "c", "d", "e", "f", "g", "h"]);
    let names = fields.map(ReportField::name);
    assert_eq!([names[0].as_deref(), names[1].as_deref()], [Some("flex"); 2]);
    assert!(names[2..].iter().all(Option::is_none), "{names:?}");
}

const NAMES: [&str; 5] = ["a", "b", "input_tokens", "", "\u{1f980}"];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
        any::<String>().prop_map(Value::from),
        "[\\\\\"{}\\[\\],: a]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let members = prop::collection::vec((key(), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|members| Value::from(Map::from_iter(members)))
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(&NAMES[..]).prop_map(str::to_owned),
        "[a-z_]{0,12}",
        any::<String>()
    ]
}

/// A text as JSON, with each character escaped or not.
fn written(text: &str, escaped: bool) -> String {
    if !escaped {
        return serde_json::to_string(text).unwrap();
    }
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

fn read(field: ReportField<'_>) -> Option<Value> {
    (!field.json().is_empty()).then(|| serde_json::from_slice(field.json()).unwrap())
}

proptest! {
    /// Members that come twice and keys that are written with escapes are among them.
    #[test]
    fn fields_are_those_that_a_parser_finds(
        members in prop::collection::vec((key(), value(), any::<bool>()), 0..7),
        space in prop::sample::select(vec!["", " ", "\r\n\t"]),
    ) {
        let all: Map<String, Value> = members.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
        let members = members.iter().map(|(key, value, escaped)| {
            format!("{space}{}{space}:{space}{value}{space}", written(key, *escaped))
        });
        let json = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        let fields = ReportField::from_json(json.as_bytes()).object(&NAMES).unwrap();
        for (name, field) in NAMES.iter().zip(fields) {
            let wanted = all.get(*name);
            let found = read(field);
            prop_assert_eq!(found.as_ref(), wanted);
            let text = field.text();
            prop_assert_eq!(text.as_deref(), wanted.and_then(Value::as_str));
            let objects: Vec<[Option<Value>; NAMES.len()]> = field.objects(&NAMES).map(|object| object.map(read)).collect();
            let wanted = wanted.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
            let wanted: Vec<_> = wanted.map(|object| NAMES.map(|name| object.get(name).cloned())).collect();
            prop_assert_eq!(objects, wanted);
        }
    }

    #[test]
    fn what_is_no_json_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "[{}\\[\\]\",:\\\\ a1]{0,30}") {
        for json in [bytes.as_slice(), text.as_bytes()] {
            let field = ReportField::from_json(json);
            let _ = (field.object(&NAMES), field.objects(&NAMES).count(), field.count(), field.text());
        }
    }
}
