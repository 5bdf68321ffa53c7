//! The scan and serde_json accept the same bodies, but for the rules that are weir's own.

use proptest::prelude::*;
use serde_json::Value;

use super::{JsonFault, LIMITS, Scan, ScanError, scan};

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\n  "), 1 => Just("\r\n\t")]
}

fn string_literal() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[^\"\\\\\\x00-\\x1f]{0,12}",
        1 => "[a-zA-Z0-9+/]{0,200}",
        1 => prop::sample::select(vec!["\\\"", "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t"]).prop_map(str::to_owned),
        1 => "\\\\u[0-9a-cA-C][0-9a-fA-F]{3}",
        1 => "\\\\u[dD][89abAB][0-9a-f]{2}\\\\u[dD][c-fC-F][0-9A-F]{2}",
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn key_literal() -> impl Strategy<Value = String> {
    let known = vec![
        "\"model\"",
        "\"stream\"",
        "\"max_tokens\"",
        "\"max_output_tokens\"",
        "\"contents\"",
        "\"generationConfig\"",
        "\"generation_config\"",
        "\"maxOutputTokens\"",
        "\"\\u006dodel\"",
        "\"str\\u0065am\"",
    ];
    prop_oneof![1 => prop::sample::select(known).prop_map(str::to_owned), 2 => string_literal()]
}

fn value_literal() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,4})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        prop::sample::select(vec!["true", "false", "null"]).prop_map(str::to_owned),
        string_literal(),
        // Half a surrogate pair.
        "\"[a-z]{0,3}\\\\u[dD][89a-fA-F][0-9a-f]{2}[a-z]{0,3}\"",
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec((space(), inner.clone(), space()), 0..5).prop_map(|items| {
                let items: Vec<String> = items.iter().map(|(a, item, b)| format!("{a}{item}{b}")).collect();
                format!("[{}]", items.join(","))
            }),
            prop::collection::vec(member(inner), 0..5).prop_map(|members| object_of(&members)),
        ]
    })
}

fn member(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (space(), key_literal(), space(), space(), value, space())
        .prop_map(|(a, key, b, c, value, d)| format!("{a}{key}{b}:{c}{value}{d}"))
}

fn object_of(members: &[String]) -> String {
    format!("{{{}}}", members.join(","))
}

/// The text of an object of any shape, duplicates and known keys in it.
pub(super) fn json_object() -> impl Strategy<Value = String> {
    prop::collection::vec(member(value_literal()), 0..6).prop_map(|members| object_of(&members))
}

/// Holds one body against serde_json.
fn agree(body: &[u8]) -> Result<(), TestCaseError> {
    let theirs = serde_json::from_slice::<Value>(body);
    let ours = scan(body, &LIMITS);
    match (&theirs, &ours) {
        (Ok(value), Ok(scan)) => same_facts(value, scan)?,
        // weir's own rules; each is seen at once, so that the rest of the body may be anything.
        (_, Err(ScanError::ModelTwice { .. } | ScanError::ModelNotString { .. } | ScanError::StreamTwice { .. })) => {}
        (
            _,
            Err(ScanError::Malformed {
                fault: JsonFault::LoneSurrogate,
                ..
            }),
        ) => prop_assert!(theirs.is_err()),
        (Ok(value), Err(ScanError::NotObject)) => prop_assert!(!value.is_object()),
        (Ok(_), Err(error)) => prop_assert!(false, "only weir refuses: {}", error),
        // RFC 8259 sets no range for numbers, serde_json does; its recursion limit is its own too.
        (Err(error), Ok(_)) => {
            // A tree cannot hold half a surrogate pair.
            let text = error.to_string();
            let is_half = ["lone leading surrogate", "unexpected end of hex escape"]
                .iter()
                .any(|half| text.contains(half));
            prop_assert!(
                text.contains("out of range") || text.contains("recursion") || is_half,
                "only serde_json refuses: {}",
                text
            );
        }
        (Err(_), Err(_)) => {}
    }
    Ok(())
}

/// The facts as a tree gives them. A tree keeps the last of duplicate keys, so output_max is compared elsewhere.
fn same_facts(value: &Value, scan: &Scan) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        scan.model.as_ref().map(|model| model.text.as_str()),
        value.get("model").and_then(Value::as_str)
    );
    prop_assert_eq!(scan.stream, value.get("stream").and_then(Value::as_bool));
    prop_assert_eq!(scan.has_contents, value.get("contents").is_some());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_bytes_are_judged_alike(body in prop::collection::vec(any::<u8>(), 0..64)) {
        agree(&body)?;
    }

    #[test]
    fn text_that_is_nearly_json_is_judged_alike(body in "\\{?[\\[\\]{}\",:\\\\ \n\tu0deEtrfalsn19.+-]{0,24}\\}?") {
        agree(body.as_bytes())?;
    }

    #[test]
    fn generated_objects_are_judged_alike(body in json_object()) {
        agree(body.as_bytes())?;
    }

    #[test]
    fn generated_values_are_judged_alike(body in value_literal()) {
        agree(body.as_bytes())?;
    }

    #[test]
    fn mutated_objects_are_judged_alike(
        body in json_object(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), mutation()), 1..4),
    ) {
        let mut body = body.into_bytes();
        for (index, change) in changes {
            let at = index.index(body.len() + 1);
            match change {
                Mutation::Insert(byte) => body.insert(at, byte),
                Mutation::Cut => body.truncate(at),
                Mutation::Replace(byte) if at < body.len() => body[at] = byte,
                Mutation::Remove if at < body.len() => drop(body.remove(at)),
                Mutation::Replace(_) | Mutation::Remove => {}
            }
        }
        agree(&body)?;
    }

    #[test]
    fn the_model_is_found_wherever_it_stands(
        before in prop::collection::vec(other_member(), 0..4),
        after in prop::collection::vec(other_member(), 0..4),
        name in string_literal(),
        output_max in any::<u64>(),
        gap in space(),
    ) {
        let mut members = before;
        members.push(format!("\"model\"{gap}:{gap}{name}{gap}"));
        members.push(format!("{gap}\"max_tokens\":{gap}{output_max}"));
        members.extend(after);
        let body = object_of(&members);
        let scan = scan(body.as_bytes(), &LIMITS).unwrap();
        let model = scan.model.unwrap();
        prop_assert_eq!(body.get(model.value), Some(name.as_str()));
        prop_assert_eq!(model.text, serde_json::from_str::<String>(&name).unwrap());
        prop_assert_eq!(scan.output_max, Some(output_max));
    }
}

/// A member with a key that weir does not read; its value may hold any.
fn other_member() -> impl Strategy<Value = String> {
    ("[a-z]{1,4}", value_literal()).prop_map(|(key, value)| format!("\"{key}\":{value}"))
}

#[derive(Debug, Clone)]
enum Mutation {
    Insert(u8),
    Replace(u8),
    Remove,
    Cut,
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = || {
        prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\"\\{}[],:0123456789eE+-.tfnu \x1f".to_vec())
        ]
    };
    prop_oneof![
        4 => byte().prop_map(Mutation::Insert),
        4 => byte().prop_map(Mutation::Replace),
        3 => Just(Mutation::Remove),
        1 => Just(Mutation::Cut),
    ]
}
