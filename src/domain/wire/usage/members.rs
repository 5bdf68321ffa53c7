//! The members of a JSON object, each as it is written: for objects that a lexer has been through already.

use std::borrow::Cow;

/// The members for which there is room at once.
const MEMBERS_USUAL: usize = 12;

/// A key, without its escapes, and the JSON text of its value.
pub(super) type Member<'a> = (Cow<'a, str>, &'a str);

/// The members in the order of the text. `None` if it is no object. Of what is no JSON it may make anything.
pub(super) fn members(object: &[u8]) -> Option<Vec<Member<'_>>> {
    let mut rest = std::str::from_utf8(object)
        .ok()?
        .trim_matches(is_space)
        .strip_prefix('{')?;
    let mut members = Vec::with_capacity(MEMBERS_USUAL);
    loop {
        rest = rest.trim_start_matches(is_space);
        if let Some(behind) = rest.strip_prefix('}') {
            return behind.is_empty().then_some(members);
        }
        let (key, behind) = rest.split_at_checked(string_end(rest.as_bytes())?)?;
        let behind = behind.trim_start_matches(is_space).strip_prefix(':')?;
        let behind = behind.trim_start_matches(is_space);
        let (value, behind) = behind.split_at_checked(value_end(behind.as_bytes())?)?;
        members.push((unescaped(key)?, value));
        rest = behind.trim_start_matches(is_space);
        rest = match rest.strip_prefix(',') {
            Some(next) if !next.trim_start_matches(is_space).starts_with('}') => next,
            None if rest.starts_with('}') => rest,
            Some(_) | None => return None,
        };
    }
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn unescaped(key: &str) -> Option<Cow<'_, str>> {
    let inside = key.strip_prefix('"')?.strip_suffix('"')?;
    match memchr::memchr(b'\\', inside.as_bytes()) {
        None => Some(Cow::Borrowed(inside)),
        Some(_) => serde_json::from_str(key).ok().map(Cow::Owned),
    }
}

/// The length of the string that stands in front, with its quotes.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = text.first().filter(|first| **first == b'"').map(|_| 1)?;
    loop {
        let found = at + text.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        if text.get(found) == Some(&b'"') {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

/// The length of the value that stands in front.
fn value_end(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'"' => string_end(text),
        b'{' | b'[' => container_end(text),
        _ => {
            let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
            text.iter().position(is_end).filter(|length| *length > 0)
        }
    }
}

fn container_end(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => {
                at += string_end(text.get(at..)?)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
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
            let read = members(json.as_bytes()).unwrap().into_iter();
            let read: Map<String, Value> =
                read.map(|(key, value)| (key.into_owned(), serde_json::from_str(value).unwrap())).collect();
            prop_assert_eq!(read, object);
        }

        #[test]
        fn what_is_no_object_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "[{}\\[\\]\",:\\\\ a1]{0,30}") {
            let _ = members(&bytes);
            let _ = members(text.as_bytes());
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
            assert_eq!(members(json.as_bytes()), None, "{json}");
        }
        assert_eq!(members(b" { } "), Some(Vec::new()));
    }
}
