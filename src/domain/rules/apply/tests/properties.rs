//! Edits of the text against the same edits of a parsed value, on generated bodies and rules.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;
use crate::domain::rules::{
    body::{BodyOp, BodyPathStep, JsonNumber, NumberBound, NumberRange, RefusedValues},
    condition::{Condition, FieldBase, FieldTest, Scalar, ValueTest},
};
use crate::domain::wire::json_scan::{TAPE_ENTRIES_MAX, scan_onto};

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

fn path() -> impl Strategy<Value = Vec<BodyPathStep>> {
    let step = (name(), prop::sample::select(vec![0, 0, 0, 1, 1, 2]));
    prop::collection::vec(step, 1..4).prop_map(|steps| {
        let segments = |(name, each)| {
            std::iter::once(BodyPathStep::Member(name)).chain(std::iter::repeat_n(BodyPathStep::Each, each))
        };
        steps.into_iter().flat_map(segments).collect()
    })
}

fn bounds() -> impl Strategy<Value = NumberRange> {
    let bound = || prop::option::of((-20i64..20).prop_map(|number| number.to_string()));
    (bound(), bound()).prop_map(|(min, max)| NumberRange {
        min: min.map(bound_of),
        max: max.map(bound_of),
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    let scalar = prop_oneof![
        name().prop_map(Scalar::Text),
        (-20i64..20).prop_map(|number| Scalar::Number(JsonNumber::Integer(i128::from(number)))),
        any::<bool>().prop_map(Scalar::Truth),
    ];
    let test = prop_oneof![
        any::<bool>().prop_map(ValueTest::Present),
        prop::collection::vec(scalar, 1..8).prop_map(ValueTest::In),
        prop::sample::select(vec!["a", "b", "é", "é\"\n", "{", "]}"])
            .prop_map(|beginning| ValueTest::StartsWith(beginning.to_owned())),
    ];
    let base = prop::sample::select(vec![FieldBase::Holder, FieldBase::Root]);
    (base, prop::collection::vec(name(), 1..3), test)
        .prop_map(|(base, path, test)| Condition::Field(FieldTest { base, path, test }))
}

fn edit() -> impl Strategy<Value = BodyEdit> {
    let refused = prop_oneof![
        Just(RefusedValues::Any),
        bounds().prop_map(RefusedValues::Outside),
        prop::collection::vec(name(), 1..3).prop_map(RefusedValues::Listed),
    ];
    let op = prop_oneof![
        3 => value().prop_map(|value| BodyOp::Set { value }),
        5 => Just(BodyOp::Remove),
        3 => name().prop_map(|to| BodyOp::Rename { to }),
        3 => bounds().prop_map(|range| BodyOp::Clamp { range }),
        3 => prop::collection::btree_map(name(), name(), 1..3).prop_map(|values| BodyOp::Map {
            values: values.into_iter().map(|(from, to)| (from, json_string(&to))).collect()
        }),
        1 => refused.prop_map(|which| BodyOp::Refuse { which, message: "{value} {path}".to_owned() }),
    ];
    (path(), op, prop::collection::vec(condition(), 0..2)).prop_map(|(mut path, op, when)| {
        while matches!(op, BodyOp::Rename { .. }) && path.last() == Some(&BodyPathStep::Each) {
            path.pop();
        }
        BodyEdit {
            line: 1,
            path,
            protocols: None,
            when,
            op,
        }
    })
}

fn bound_of(text: String) -> NumberBound {
    NumberBound {
        value: JsonNumber::read(&text).unwrap(),
        text,
    }
}

/// The edit as anyone would write it on a parsed value; false means refused.
fn reference(edit: &BodyEdit, body: &mut Value) -> bool {
    let root = body.clone();
    reference_at(edit, &root, body, &edit.path)
}

fn reference_at(edit: &BodyEdit, root: &Value, here: &mut Value, path: &[BodyPathStep]) -> bool {
    match (path, here) {
        ([BodyPathStep::Member(name)], Value::Object(holder)) => {
            if !holds(edit, root, &Value::Object(holder.clone())) {
                return true;
            }
            match &edit.op {
                BodyOp::Set { value } => drop(holder.insert(name.clone(), serde_json::from_str(value).unwrap())),
                BodyOp::Remove => drop(holder.shift_remove(name)),
                BodyOp::Rename { to } => rename(holder, name, to),
                _ => return holder.get_mut(name).is_none_or(|value| changed(edit, value)),
            }
            true
        }
        ([BodyPathStep::Each], Value::Array(items)) => {
            if edit.op == BodyOp::Remove {
                items.retain(|item| !holds(edit, root, item));
                return true;
            }
            let mut held = items.iter_mut().filter(|item| holds(edit, root, item));
            held.all(|item| changed(edit, item))
        }
        ([BodyPathStep::Member(name), rest @ ..], here) if !rest.is_empty() => here
            .get_mut(name)
            .is_none_or(|value| reference_at(edit, root, value, rest)),
        ([BodyPathStep::Each, rest @ ..], Value::Array(items)) if !rest.is_empty() => {
            items.iter_mut().all(|item| reference_at(edit, root, item, rest))
        }
        _ => true,
    }
}

fn holds(edit: &BodyEdit, root: &Value, holder: &Value) -> bool {
    edit.field_tests().all(|test| {
        let base = if test.base == FieldBase::Root { root } else { holder };
        let value = test
            .path
            .iter()
            .try_fold(base, |value, name| value.as_object()?.get(name));
        match &test.test {
            ValueTest::Present(wanted) => value.is_some() == *wanted,
            ValueTest::In(scalars) => scalars.iter().any(|scalar| match scalar {
                Scalar::Text(text) => value == Some(&Value::from(text.as_str())),
                Scalar::Truth(truth) => value == Some(&Value::from(*truth)),
                Scalar::Number(JsonNumber::Integer(number)) => value.and_then(Value::as_f64) == Some(*number as f64),
                Scalar::Number(JsonNumber::Float(_)) => false,
            }),
            ValueTest::StartsWith(beginning) => value
                .and_then(Value::as_str)
                .is_some_and(|text| text.starts_with(beginning)),
        }
    })
}

/// Edits a value in its place; false means refused.
fn changed(edit: &BodyEdit, value: &mut Value) -> bool {
    match &edit.op {
        BodyOp::Set { value: new } => *value = serde_json::from_str(new).unwrap(),
        BodyOp::Clamp { range } => {
            if let Some(bound) = exceeded(range, value) {
                *value = serde_json::from_str(&bound.text).unwrap();
            }
        }
        BodyOp::Map { values } => {
            if let Some((_, to)) = values.iter().find(|(from, _)| value == from.as_str()) {
                *value = serde_json::from_str(to).unwrap();
            }
        }
        BodyOp::Refuse { which, .. } => {
            return match which {
                RefusedValues::Any => false,
                RefusedValues::Outside(range) => exceeded(range, value).is_none(),
                RefusedValues::Listed(values) => !values.iter().any(|text| value == text.as_str()),
            };
        }
        BodyOp::Remove | BodyOp::Rename { .. } => {}
    }
    true
}

fn exceeded<'r>(range: &'r NumberRange, value: &Value) -> Option<&'r NumberBound> {
    let number = value.as_number()?.as_f64().unwrap();
    let float = |bound: &NumberBound| bound.text.parse::<f64>().unwrap();
    match (&range.min, &range.max) {
        (Some(min), _) if number < float(min) => Some(min),
        (_, Some(max)) if number > float(max) => Some(max),
        _ => None,
    }
}

fn rename(parent: &mut Map<String, Value>, from: &str, to: &str) {
    if !parent.contains_key(to)
        && let Some(value) = parent.remove(from)
    {
        parent.insert(to.to_owned(), value);
    }
}

/// The edited text, whether the places come from its bytes, from a whole tape, or from one that ends on the way.
fn run(edits: Vec<BodyEdit>, text: &[u8]) -> Result<Option<Vec<u8>>, EditError> {
    let headers = HeaderMap::new();
    let facts = facts(&headers, "", "");
    let rules = BodyRules::new(edits.into_iter().map(Arc::new));
    let from_bytes = edit_body(&rules, &facts, text, &Scan::default());
    for entries_max in [TAPE_ENTRIES_MAX, text.len() / 8, 3] {
        if let Ok(scan) = scan_onto(text, Protocol::Messages, &LIMITS, entries_max) {
            assert_eq!(edit_body(&rules, &facts, text, &scan), from_bytes, "{entries_max}");
        }
    }
    from_bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_text_parses_to_the_edited_value(body in object(value()), edits in prop::collection::vec(edit(), 0..6)) {
        let mut expected: Value = serde_json::from_str(&body.text).unwrap();
        let is_refused = !edits.iter().all(|edit| reference(edit, &mut expected));
        let edited = run(edits, body.text.as_bytes());
        if let Err(error) = &edited {
            let is_refusal = matches!(error, EditError::Refused { .. });
            prop_assert!(is_refusal);
        }
        prop_assert_eq!(edited.is_err(), is_refused);
        if let Ok(edited) = edited {
            let edited = edited.as_deref().unwrap_or(body.text.as_bytes());
            let found: Value = serde_json::from_slice(edited).unwrap_or_else(|error| {
                panic!("{error}: {}", String::from_utf8_lossy(edited))
            });
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn members_that_no_edit_names_stay_byte_for_byte(
        body in object(value()),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        let named = |name: &str| edits.iter().any(|edit| {
            let renamed = matches!(&edit.op, BodyOp::Rename { to } if edit.path.len() == 1 && to == name);
            edit.path[0] == BodyPathStep::Member(name.to_owned()) || renamed
        });
        let untouched: Vec<String> =
            body.members.iter().filter(|(name, _)| !named(name)).map(|(_, text)| text.clone()).collect();
        let Ok(edited) = run(edits, body.text.as_bytes()) else { return Ok(()) };
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
