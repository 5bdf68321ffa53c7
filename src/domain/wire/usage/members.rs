//! The members of a JSON object, each as it is written: for objects that a lexer has been through already.

use std::borrow::Cow;

use crate::domain::wire::plain_run::plain_run;

/// The members for which there is room at once.
const MEMBERS_USUAL: usize = 12;

/// A key, without its escapes, and the JSON text of its value.
pub(super) type Member<'a> = (Cow<'a, str>, &'a str);

/// The members in the order of the text. `None` if it is no object. Of what is no JSON it may make anything.
pub(super) fn members(object: &[u8]) -> Option<Vec<Member<'_>>> {
    let text = std::str::from_utf8(object).ok()?;
    let mut at = behind(object, 0, b'{')?;
    let mut members = Vec::with_capacity(MEMBERS_USUAL);
    if let Some(end) = behind(object, at, b'}') {
        return (skip_space(object, end) == object.len()).then_some(members);
    }
    loop {
        let key = skip_space(object, at);
        let key_end = string_end(object, key)?;
        let value = skip_space(object, behind(object, key_end, b':')?);
        let value_end = value_end(object, value)?;
        members.push((unescaped(text.get(key..key_end)?)?, text.get(value..value_end)?));
        match behind(object, value_end, b',') {
            Some(next) => at = next,
            None => {
                let end = behind(object, value_end, b'}')?;
                return (skip_space(object, end) == object.len()).then_some(members);
            }
        }
    }
}

/// Where the next byte is that is no white space.
fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\t' | b'\r' | b'\n') = text.get(at) {
        at += 1;
    }
    at
}

/// The place behind this byte, if it is the next one that is no white space.
fn behind(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    let at = skip_space(text, at);
    (text.get(at) == Some(&byte)).then_some(at + 1)
}

fn unescaped(key: &str) -> Option<Cow<'_, str>> {
    let inside = key.strip_prefix('"')?.strip_suffix('"')?;
    match memchr::memchr(b'\\', inside.as_bytes()) {
        None => Some(Cow::Borrowed(inside)),
        Some(_) => serde_json::from_str(key).ok().map(Cow::Owned),
    }
}

/// The end of the string that begins at a place.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = text.get(start).filter(|first| **first == b'"').map(|_| start + 1)?;
    loop {
        at += plain_run(text.get(at..)?);
        match text.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// The end of the value that begins at a place.
fn value_end(text: &[u8], start: usize) -> Option<usize> {
    match text.get(start)? {
        b'"' => string_end(text, start),
        b'{' | b'[' => container_end(text, start),
        _ => {
            let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n');
            let length = text.get(start..)?.iter().position(is_end)?;
            (length > 0).then_some(start + length)
        }
    }
}

fn container_end(text: &[u8], start: usize) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => {
                at = string_end(text, at)?;
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
