//! Edits of the text against the same edits of a parsed value, on generated bodies and rules.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;
use crate::domain::rules::body::{BodyEdit, BodyOp, Bound, Number, Segment};

/// A body, its value and its text: names from a small alphabet so that edits meet, spelled in several ways.
#[derive(Clone, Debug)]
struct Body {
    text: String,
    /// The members of the top level, as written.
    members: Vec<(String, String)>,
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d", "é\"\n"]).prop_map(str::to_owned)
}

fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", " ", "\n\t", " \r\n "])
}

/// A name as a JSON string, plain or with every character escaped.
fn spelled(name: &str, escaped: bool) -> String {
    if escaped {
        let units: String = name.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        return format!("\"{units}\"");
    }
    json_string(name)
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "null",
            "true",
            "-0",
            "0.10",
            "1E+2",
            "7",
            "-3.5",
            "12345678901234567890",
            "[]",
            "{}"
        ])
        .prop_map(str::to_owned),
        (name(), any::<bool>()).prop_map(|(text, escaped)| spelled(&text, escaped)),
        (-20i64..20).prop_map(|number| number.to_string()),
        "[a-z{}\\[\\],:]{0,6}".prop_map(|text| json_string(&text)),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            object(inner.clone()).prop_map(|body| body.text),
            prop::collection::vec((space(), inner), 0..3).prop_map(|items| {
                let items: Vec<String> = items
                    .into_iter()
                    .map(|(space, item)| format!("{space}{item}"))
                    .collect();
                format!("[{}]", items.join(","))
            }),
        ]
    })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = Body> {
    let member = (any::<bool>(), value, [space(), space(), space(), space()]);
    prop::collection::btree_map(name(), member, 0..5).prop_map(|members| {
        let mut texts = Vec::new();
        let mut named = Vec::new();
        for (name, (escaped, value, [before, colon, after, end])) in members {
            let core = format!("{}{colon}:{after}{value}", spelled(&name, escaped));
            texts.push(format!("{before}{core}{end}"));
            named.push((name, core));
        }
        let inner = if texts.is_empty() {
            " ".to_owned()
        } else {
            texts.join(",")
        };
        Body {
            text: format!("{{{inner}}}"),
            members: named,
        }
    })
}

fn edit() -> impl Strategy<Value = BodyEdit> {
    let bound = || prop::option::of((-20i64..20).prop_map(|number| number.to_string()));
    let op = prop_oneof![
        value().prop_map(|value| BodyOp::Set { value }),
        Just(BodyOp::Remove),
        name().prop_map(|to| BodyOp::Rename { to }),
        (bound(), bound()).prop_map(|(min, max)| BodyOp::Clamp {
            min: min.map(bound_of),
            max: max.map(bound_of)
        }),
        prop::collection::btree_map(name(), name(), 1..3).prop_map(|values| BodyOp::Map {
            values: values.into_iter().map(|(from, to)| (from, json_string(&to))).collect()
        }),
    ];
    (prop::collection::vec(name(), 1..4), op).prop_map(|(path, op)| BodyEdit {
        path: path.into_iter().map(Segment::Member).collect(),
        protocols: None,
        op,
    })
}

fn bound_of(text: String) -> Bound {
    Bound {
        value: Number::read(&text).unwrap(),
        text,
    }
}

/// The edit as anyone would write it on a parsed value.
fn reference(edit: &BodyEdit, body: &mut Value) {
    let names: Vec<&str> = edit.path.iter().map(|Segment::Member(name)| name.as_str()).collect();
    let (last, parents) = names.split_last().unwrap();
    let parent = parents.iter().try_fold(body, |value, name| value.get_mut(*name));
    let Some(Value::Object(parent)) = parent else { return };
    match &edit.op {
        BodyOp::Set { value } => drop(parent.insert((*last).to_owned(), serde_json::from_str(value).unwrap())),
        BodyOp::Remove => drop(parent.remove(*last)),
        BodyOp::Rename { to } => rename(parent, last, to),
        BodyOp::Clamp { min, max } => {
            let Some(Value::Number(number)) = parent.get_mut(*last) else {
                return;
            };
            let float = |number: &serde_json::Number| number.as_f64().unwrap();
            let number_of = |bound: &Bound| serde_json::from_str::<serde_json::Number>(&bound.text).unwrap();
            match (min.as_ref().map(number_of), max.as_ref().map(number_of)) {
                (Some(min), _) if float(number) < float(&min) => *number = min,
                (_, Some(max)) if float(number) > float(&max) => *number = max,
                _ => {}
            }
        }
        BodyOp::Map { values } => {
            let Some(value) = parent.get_mut(*last) else { return };
            if let Some((_, to)) = values.iter().find(|(from, _)| value == from.as_str()) {
                *value = serde_json::from_str(to).unwrap();
            }
        }
    }
}

fn rename(parent: &mut Map<String, Value>, from: &str, to: &str) {
    if !parent.contains_key(to)
        && let Some(value) = parent.remove(from)
    {
        parent.insert(to.to_owned(), value);
    }
}

fn run(edits: Vec<BodyEdit>, text: &[u8]) -> Result<Option<Vec<u8>>, EditError> {
    edit_body(&BodyRules::new(edits), Operation::Messages, "", text, &Scan::default())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_text_parses_to_the_edited_value(body in object(value()), edits in prop::collection::vec(edit(), 0..6)) {
        let mut expected: Value = serde_json::from_str(&body.text).unwrap();
        for edit in &edits {
            reference(edit, &mut expected);
        }
        let edited = run(edits, body.text.as_bytes()).unwrap();
        let edited = edited.as_deref().unwrap_or(body.text.as_bytes());
        let found: Value = serde_json::from_slice(edited).unwrap_or_else(|error| {
            panic!("{error}: {}", String::from_utf8_lossy(edited))
        });
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn members_that_no_edit_names_stay_byte_for_byte(
        body in object(value()),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        let named = |name: &str| edits.iter().any(|edit| {
            let Segment::Member(first) = &edit.path[0];
            let renamed = matches!(&edit.op, BodyOp::Rename { to } if edit.path.len() == 1 && to == name);
            first == name || renamed
        });
        let untouched: Vec<String> =
            body.members.iter().filter(|(name, _)| !named(name)).map(|(_, text)| text.clone()).collect();
        let edited = run(edits, body.text.as_bytes()).unwrap();
        let edited = edited.map_or(body.text, |bytes| String::from_utf8(bytes).unwrap());
        let mut rest = edited.as_str();
        for text in untouched {
            let found = rest.split_once(text.as_str());
            prop_assert!(found.is_some(), "{} is not in {}", text, rest);
            rest = found.unwrap().1;
        }
    }

    #[test]
    fn any_bytes_are_edited_or_refused(
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[{}\\[\\]\",:abcd\\\\ 0-9u]{0,60}".prop_map(String::into_bytes),
            ("\\{\"a\":[{}\\[\\]\",:abcd\\\\ 0-9u]{0,60}").prop_map(String::into_bytes),
        ],
        edits in prop::collection::vec(edit(), 0..6),
    ) {
        let _ = run(edits, &text);
    }
}
