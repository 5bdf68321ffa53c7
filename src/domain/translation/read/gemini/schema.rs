//! Converts Google's form of a schema to a JSON schema. Everything that both forms have in common is copied unchanged.

use std::{borrow::Cow, cell::Cell, fmt};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::domain::translation::json_out::{push_array, push_object};

/// Returns the JSON schema that is equivalent to a schema in Google's form, or in a mixture of both forms; `None` if the text is
/// not a schema.
pub(super) fn json_schema(text: &str) -> Option<Cow<'_, str>> {
    let is_changed = Cell::new(false);
    let schema = GoogleSchemaSeed {
        has_names: false,
        is_changed: &is_changed,
    };
    let converted = schema.deserialize(&mut serde_json::Deserializer::from_str(text)).ok()?;
    Some(match is_changed.get() {
        true => Cow::Owned(converted),
        false => Cow::Borrowed(text),
    })
}

/// A JSON string; serde copies it only if it has escapes.
#[derive(Deserialize)]
struct SchemaString<'a>(#[serde(borrow)] Cow<'a, str>);

/// A seed that converts one value within a schema to JSON text.
#[derive(Clone, Copy)]
struct GoogleSchemaSeed<'c> {
    /// Whether the members' names are names of properties or definitions, not keywords.
    has_names: bool,
    /// Whether anything has been converted so far.
    is_changed: &'c Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for GoogleSchemaSeed<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for GoogleSchemaSeed<'_> {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a schema")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<String, E> {
        Ok(flag.to_string())
    }

    fn visit_unit<E: Error>(self) -> Result<String, E> {
        Ok("null".to_owned())
    }

    /// Converts a list of schemas.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<String, A::Error> {
        let schema = self.nested(false);
        let mut text = String::new();
        push_array(&mut text, |array| {
            while let Some(element) = list.next_element_seed(schema)? {
                array.raw(&element);
            }
            Ok::<(), A::Error>(())
        })?;
        Ok(text)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut members = GoogleSchemaMembers::default();
        while let Some(SchemaString(name)) = map.next_key::<SchemaString<'de>>()? {
            if self.has_names {
                let schema = map.next_value_seed(self.nested(false))?;
                members.add(name, Cow::Owned(schema));
            } else {
                self.read_keyword(name, &mut map, &mut members)?;
            }
        }
        if !self.has_names && members.unquote_numbers() {
            self.is_changed.set(true);
        }
        members.admit_null();
        let mut text = String::new();
        push_object(&mut text, |object| {
            for (name, value) in &members.list {
                object.member(name, value);
            }
        });
        Ok(text)
    }
}

impl GoogleSchemaSeed<'_> {
    fn nested(self, has_names: bool) -> Self {
        Self { has_names, ..self }
    }

    fn read_keyword<'de, A: MapAccess<'de>>(
        self,
        name: Cow<'de, str>,
        map: &mut A,
        members: &mut GoogleSchemaMembers<'de>,
    ) -> Result<(), A::Error> {
        let name = match standard_keyword(&name) {
            Some(standard) => self.changed(Cow::Borrowed(standard)),
            None => name,
        };
        let value: Cow<'de, str> = match &*name {
            "items" | "prefixItems" | "additionalProperties" | "anyOf" | "oneOf" | "allOf" | "not" => {
                Cow::Owned(map.next_value_seed(self.nested(false))?)
            }
            "properties" | "patternProperties" | "$defs" | "definitions" => {
                Cow::Owned(map.next_value_seed(self.nested(true))?)
            }
            "propertyOrdering" => {
                map.next_value::<IgnoredAny>()?;
                self.is_changed.set(true);
                return Ok(());
            }
            _ => Cow::Borrowed(map.next_value::<&'de RawValue>()?.get()),
        };
        match (&*name, &*value) {
            ("default" | "const", _) => members.add(name, value),
            // In Google's JSON, null means that the value is missing.
            (_, "null") => self.is_changed.set(true),
            ("nullable", flag) => {
                members.is_nullable = flag == "true";
                self.is_changed.set(true);
            }
            ("type", _) if value.eq_ignore_ascii_case("\"type_unspecified\"") => self.is_changed.set(true),
            // The list of values in `enum` makes this format redundant.
            ("format", "\"enum\"") => self.is_changed.set(true),
            ("example", _) => members.add("examples".into(), self.changed(format!("[{value}]").into())),
            ("type", _) if value.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                members.add(name, self.changed(value.to_ascii_lowercase().into()));
            }
            ("$ref", _) if value.starts_with("\"#/defs/") => {
                members.add(name, self.changed(value.replacen("#/defs/", "#/$defs/", 1).into()));
            }
            ("minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties", _) => {
                // Google's JSON contains 64-bit numbers as strings.
                match quoted_number(&value).map(str::to_owned) {
                    Some(number) => members.add(name, self.changed(number.into())),
                    None => members.add(name, value),
                }
            }
            _ => members.add(name, value),
        }
        Ok(())
    }

    /// Records that a value was converted, and returns the value.
    fn changed<'v>(self, value: Cow<'v, str>) -> Cow<'v, str> {
        self.is_changed.set(true);
        value
    }
}

/// The members of a schema in order, as JSON text.
#[derive(Default)]
struct GoogleSchemaMembers<'a> {
    list: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    is_nullable: bool,
}

impl<'a> GoogleSchemaMembers<'a> {
    fn add(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        self.list.push((name, value));
    }

    fn value(&mut self, name: &str) -> Option<&mut Cow<'a, str>> {
        let mut members = self.list.iter_mut();
        members.find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// Converts the allowed values of a number from strings to numbers, because Google's lists of values contain only strings.
    /// Returns whether any were converted.
    fn unquote_numbers(&mut self) -> bool {
        let is_numeric = self
            .value("type")
            .is_some_and(|types| types.contains("\"integer\"") || types.contains("\"number\""));
        let Some(values) = self.value("enum").filter(|_| is_numeric) else {
            return false;
        };
        let elements: Vec<&RawValue> = serde_json::from_str(values).unwrap_or_default();
        let numbers: Option<Vec<&str>> = elements.iter().map(|element| quoted_number(element.get())).collect();
        let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) else {
            return false;
        };
        let numbers = format!("[{}]", numbers.join(","));
        *values = Cow::Owned(numbers);
        true
    }

    /// Makes a nullable schema accept null, and leaves other schemas unchanged. Adds null to the schema's list of values. If the
    /// schema has types, also adds null to them; otherwise also adds null to its list of alternatives. Does not add a list that
    /// the schema lacks.
    fn admit_null(&mut self) {
        if !self.is_nullable {
            return;
        }
        let has_type = match self.value("type") {
            Some(types) => {
                let list = match types.starts_with('[') {
                    true => types.to_string(),
                    false => format!("[{types}]"),
                };
                *types = Cow::Owned(with_element(&list, "\"null\""));
                true
            }
            None => false,
        };
        if let Some(values) = self.value("enum") {
            *values = Cow::Owned(with_element(values, "null"));
        }
        if let Some(alternatives) = self.value("anyOf")
            && !has_type
        {
            *alternatives = Cow::Owned(with_element(alternatives, r#"{"type":"null"}"#));
        }
    }
}

/// Returns the array with `element` added at the end, or unchanged if it already contains `element`.
fn with_element(list: &str, element: &str) -> String {
    let inner = list.strip_prefix('[').and_then(|list| list.strip_suffix(']'));
    let inner = inner.unwrap_or_default().trim();
    if inner.is_empty() {
        return format!("[{element}]");
    }
    let elements: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    match elements.iter().any(|earlier| earlier.get() == element) {
        true => list.to_owned(),
        false => format!("[{inner},{element}]"),
    }
}

/// Returns the number in a JSON string; `None` if the string is not a number.
fn quoted_number(text: &str) -> Option<&str> {
    let number = text.strip_prefix('"')?.strip_suffix('"')?;
    serde_json::from_str::<serde_json::Number>(number).ok()?;
    Some(number)
}

/// Returns the JSON schema keyword for one of Google's keywords; `None` if the spelling is the same.
fn standard_keyword(name: &str) -> Option<&'static str> {
    Some(match name {
        "additional_properties" => "additionalProperties",
        "any_of" => "anyOf",
        "one_of" => "oneOf",
        "min_items" => "minItems",
        "max_items" => "maxItems",
        "min_length" => "minLength",
        "max_length" => "maxLength",
        "min_properties" => "minProperties",
        "max_properties" => "maxProperties",
        "unique_items" => "uniqueItems",
        "property_ordering" => "propertyOrdering",
        "defs" => "$defs",
        "ref" => "$ref",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_schema_stays_as_it_came() {
        for text in [
            r#"{ "type": "object", "properties": {"nullable": {"type": "string", "format": "date"}}, "required": ["a"] }"#,
            r##"{"$ref":"#/$defs/A","$defs":{"A":{"type":["string","null"],"enum":["X", null],"maxLength":1.0}}}"##,
            r#"{"anyOf":[{"type":"string"},true],"additionalProperties":false,"const":{"type":"X"},"examples":[1]}"#,
            "{}",
        ] {
            assert!(
                matches!(json_schema(text), Some(Cow::Borrowed(same)) if same == text),
                "{text}"
            );
        }
    }

    #[test]
    fn google_s_form_becomes_a_json_schema() {
        for (text, expected) in [
            (
                r#"{"type":"OBJECT","properties":{"type":{"type":"STRING","description":"STRING"}},"property_ordering":["type"]}"#,
                r#"{"type":"object","properties":{"type":{"type":"string","description":"STRING"}}}"#,
            ),
            (
                r#"{"type":"ARRAY","items":{"type":"INTEGER","format":"int32"},"min_items":"1","maxItems": 3}"#,
                r#"{"type":"array","items":{"type":"integer","format":"int32"},"minItems":1,"maxItems":3}"#,
            ),
            (
                r#"{"type":"STRING","format":"enum","enum":["A","B"],"nullable":true}"#,
                r#"{"type":["string","null"],"enum":["A","B",null]}"#,
            ),
            (
                r#"{"any_of":[{"type":"STRING"},{"type":"TYPE_UNSPECIFIED"}],"nullable":true}"#,
                r#"{"anyOf":[{"type":"string"},{},{"type":"null"}]}"#,
            ),
            (
                r#"{"type":["STRING", "NULL"],"nullable":true,"example":"a"}"#,
                r#"{"type":["string", "null"],"examples":["a"]}"#,
            ),
            (
                r#"{"type":"string","nullable":false,"items":null,"title":null}"#,
                r#"{"type":"string"}"#,
            ),
            (
                r#"{"type":"INTEGER","format":"enum","enum":["101", "-2"],"default":null}"#,
                r#"{"type":"integer","enum":[101,-2],"default":null}"#,
            ),
            (
                r##"{"ref":"#/defs/ref","defs":{"ref":{"type":"OBJECT","additional_properties":{"type":"NUMBER"}}}}"##,
                r##"{"$ref":"#/$defs/ref","$defs":{"ref":{"type":"object","additionalProperties":{"type":"number"}}}}"##,
            ),
        ] {
            assert_eq!(json_schema(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for text in [
            "1",
            "\"x\"",
            r#"{"items":1}"#,
            r#"{"properties":{"a":"string"}}"#,
            &"[".repeat(500),
        ] {
            assert_eq!(json_schema(text), None, "{text}");
        }
    }
}
