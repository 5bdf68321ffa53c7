//! The members of a JSON object, each as it is written: for objects that a lexer has been through already.

use std::borrow::Cow;

use crate::domain::wire::json_skip::{skip_space, skip_value, split_key};

/// The members for which there is room at once.
const MEMBERS_USUAL: usize = 12;

/// A key, without its escapes, and the JSON text of its value.
pub(super) type Member<'a> = (Cow<'a, str>, &'a str);

/// The members in the order of the text. `None` if it is no object. Of what is no JSON it may make anything.
pub(super) fn members(text: &str) -> Option<Vec<Member<'_>>> {
    let object = text.as_bytes();
    let has_escapes = memchr::memchr(b'\\', object).is_some();
    // So many bytes, of which so many are left with what follows.
    let taken = |left: usize, bytes: usize| {
        let start = text.len() - left;
        text.get(start..start + bytes)
    };
    let [b'{', inside @ ..] = skip_space(object) else {
        return None;
    };
    let mut rest = skip_space(inside);
    let mut members = Vec::with_capacity(MEMBERS_USUAL);
    if let [b'}', end @ ..] = rest {
        return skip_space(end).is_empty().then_some(members);
    }
    loop {
        let (key, value) = split_key(rest)?;
        let behind = skip_value(value, 0)?;
        let key = taken(rest.len() - 1, key.len())?;
        let key = if has_escapes {
            unescaped(key)?
        } else {
            Cow::Borrowed(key)
        };
        members.push((key, taken(value.len(), value.len() - behind.len())?));
        match skip_space(behind) {
            [b',', next @ ..] => rest = skip_space(next),
            [b'}', end @ ..] => return skip_space(end).is_empty().then_some(members),
            _ => return None,
        }
    }
}

/// A key without its escapes.
fn unescaped(key: &str) -> Option<Cow<'_, str>> {
    match key.contains('\\') {
        false => Some(Cow::Borrowed(key)),
        true => serde_json::from_str(&format!("\"{key}\"")).ok().map(Cow::Owned),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

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
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                object_of(inner).prop_map(Value::from)
            ]
        })
    }

    fn object_of(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
        let key = prop_oneof!["[a-z_]{0,12}", any::<String>()];
        prop::collection::vec((key, inner), 0..5).prop_map(Map::from_iter)
    }

    proptest! {
        #[test]
        fn an_object_has_the_members_that_it_was_written_with(object in object_of(value()), pretty in any::<bool>()) {
            let json = match pretty {
                true => serde_json::to_string_pretty(&object).unwrap(),
                false => serde_json::to_string(&object).unwrap(),
            };
            let read = members(&json).unwrap().into_iter();
            let read: Map<String, Value> =
                read.map(|(key, value)| (key.into_owned(), serde_json::from_str(value).unwrap())).collect();
            prop_assert_eq!(read, object);
        }

        #[test]
        fn what_is_no_object_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "[{}\\[\\]\",:\\\\ a1]{0,30}") {
            let _ = members(&String::from_utf8_lossy(&bytes));
            let _ = members(&text);
        }
    }

    #[test]
    fn other_json_has_none() {
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
            "{a:1}",
        ] {
            assert_eq!(members(json), None, "{json}");
        }
        assert_eq!(members(" { } "), Some(Vec::new()));
    }
}
