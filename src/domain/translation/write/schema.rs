//! Adapts JSON schemas to providers. Gemini accepts JSON schemas, but refuses most members next to `$ref`, so these members are
//! removed. Also determines whether a provider can enforce the schema of an answer.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::translation::{
    json_out::{push_array, push_object},
    members::raw_members,
};

/// The member that refers to another schema.
const REFERENCE: &str = "$ref";
/// The members that remain next to a reference. Definitions remain because references point to them.
const BESIDE_REFERENCE: [&str; 4] = ["description", "default", "$defs", "definitions"];
/// The members whose value is an object with a schema under each name.
const NAMED_SCHEMAS: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
];
/// The members whose value is a schema or a list of schemas.
const INNER_SCHEMAS: [&str; 15] = [
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
];
/// The members that leave the properties of an object open, or that providers do not enforce.
const OPEN_SCHEMAS: [&str; 9] = [
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "dependentSchemas",
    "dependencies",
    "allOf",
    "oneOf",
    "not",
    "if",
];
/// The members that state the kind of value that a schema describes. Providers do not enforce a schema that has none of them.
const KINDS: [&str; 3] = ["type", "anyOf", REFERENCE];
/// The maximum depth to which schemas are read. Deeper schemas remain unchanged.
const DEPTH_MAX: usize = 64;

/// The role of a JSON value within a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaPlace {
    /// A schema or a list of schemas.
    Schema,
    /// An object with a schema under each name.
    Named,
}

impl SchemaPlace {
    /// Returns the role of the member `name` of an object that has the role `self`; `None` if the member contains no schemas, for
    /// example a default value.
    fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Named => Some(Self::Schema),
            Self::Schema if NAMED_SCHEMAS.contains(&name) => Some(Self::Named),
            Self::Schema if INNER_SCHEMAS.contains(&name) => Some(Self::Schema),
            Self::Schema => None,
        }
    }
}

/// Returns the schema with references in the form that Gemini accepts; `None` if the schema can be copied unchanged.
pub(super) fn gemini_schema(schema: &str) -> Option<String> {
    let value: &RawValue = serde_json::from_str(schema).ok()?;
    changed_value(value, SchemaPlace::Schema, 0)
}

/// Returns the changed value; `None` if it can be copied unchanged.
fn changed_value(value: &RawValue, place: SchemaPlace, depth: usize) -> Option<String> {
    let text = value.get();
    if depth > DEPTH_MAX || !text.contains(REFERENCE) {
        return None;
    }
    match place {
        SchemaPlace::Schema if text.starts_with('[') => changed_list(text, depth),
        SchemaPlace::Schema | SchemaPlace::Named => changed_object(text, place, depth),
    }
}

fn changed_list(text: &str, depth: usize) -> Option<String> {
    let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let mut is_changed = false;
    let mut out = String::with_capacity(text.len());
    push_array(&mut out, |array| {
        for element in elements {
            let changed = changed_value(element, SchemaPlace::Schema, depth + 1);
            is_changed |= changed.is_some();
            array.raw(changed.as_deref().unwrap_or(element.get()));
        }
    });
    is_changed.then_some(out)
}

/// Returns the changed object; `None` if it can be copied unchanged, or if the value is not an object.
fn changed_object(text: &str, place: SchemaPlace, depth: usize) -> Option<String> {
    let members = raw_members(text)?;
    // A property can also have this name.
    let is_reference = place == SchemaPlace::Schema
        && members
            .iter()
            .any(|(name, value)| name == REFERENCE && value.get().starts_with('"'));
    let mut is_changed = false;
    let mut out = String::with_capacity(text.len());
    push_object(&mut out, |object| {
        for (name, value) in &members {
            if is_reference && name != REFERENCE && !BESIDE_REFERENCE.contains(&name.as_ref()) {
                is_changed = true;
                continue;
            }
            let changed = place
                .member(name)
                .and_then(|inner| changed_value(value, inner, depth + 1));
            is_changed |= changed.is_some();
            object.member(name, changed.as_deref().unwrap_or(value.get()));
        }
    });
    is_changed.then_some(out)
}

/// Whether every schema within a schema states the kind of its value, and every object allows only its listed properties and
/// requires all of them. Responses and `chat/completions` require this of a schema that they enforce.
pub(super) fn is_closed_schema(schema: &str) -> bool {
    let value: Option<&RawValue> = serde_json::from_str(schema).ok();
    value.is_some_and(|value| is_closed(value, SchemaPlace::Schema, 0))
}

fn is_closed(value: &RawValue, place: SchemaPlace, depth: usize) -> bool {
    let text = value.get();
    if depth > DEPTH_MAX {
        return false;
    }
    if text.starts_with('[') {
        let elements: Option<Vec<&RawValue>> = serde_json::from_str(text).ok();
        let is_inner_closed = |element: &&RawValue| is_closed(element, SchemaPlace::Schema, depth + 1);
        return elements.is_some_and(|elements| elements.iter().all(is_inner_closed));
    }
    let Some(members) = raw_members(text) else {
        // A schema can be true or false.
        return false;
    };
    let is_inner_closed = |(name, value): &(Cow<'_, str>, &RawValue)| {
        let inner = place.member(name);
        let is_end = place == SchemaPlace::Schema && name == "additionalProperties";
        is_end || inner.is_none_or(|inner| is_closed(value, inner, depth + 1))
    };
    (place == SchemaPlace::Named || is_closed_object(&members)) && members.iter().all(is_inner_closed)
}

/// Whether a schema with these members states the kind of its value and, if the value is an object, allows only the listed
/// properties and requires all of them.
fn is_closed_object(members: &[(Cow<'_, str>, &RawValue)]) -> bool {
    let member = |name: &str| {
        members
            .iter()
            .find(|(member, _)| member == name)
            .map(|(_, value)| value.get())
    };
    let has_kind = KINDS.iter().any(|name| member(name).is_some());
    if !has_kind || OPEN_SCHEMAS.iter().any(|name| member(name).is_some()) {
        return false;
    }
    let is_object = member("properties").is_some() || member("type").is_some_and(|kind| kind.contains("\"object\""));
    if !is_object {
        return true;
    }
    let properties = raw_members(member("properties").unwrap_or("{}")).unwrap_or_default();
    let required: Vec<String> = serde_json::from_str(member("required").unwrap_or("[]")).unwrap_or_default();
    let is_required = |(name, _): &(Cow<'_, str>, &RawValue)| required.iter().any(|required| required == name);
    member("additionalProperties") == Some("false") && properties.iter().all(is_required)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn changed(schema: &str) -> Option<Value> {
        gemini_schema(schema).map(|text| serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn beside_a_reference_only_description_and_default_stay() {
        let schema = r##"{"type": "object", "properties": {
            "a": {"title": "A", "$ref": "#/$defs/N", "description": "d", "type": "object", "default": {"x": 1.50}},
            "b": {"type": "number", "maximum": 1.50}}, "required": ["a"], "$defs": {"N": {"type": "object", "x": 1}}}"##;
        let text = gemini_schema(schema).unwrap();
        assert!(
            text.contains(r##""a":{"$ref":"#/$defs/N","description":"d","default":{"x": 1.50}}"##),
            "{text}"
        );
        assert!(text.contains(r#""b":{"type": "number", "maximum": 1.50}"#), "{text}");
        let mut expected: Value = serde_json::from_str(schema).unwrap();
        expected["properties"]["a"] = json!({"$ref": "#/$defs/N", "description": "d", "default": {"x": 1.50}});
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }

    #[test]
    fn a_schema_that_gemini_takes_is_not_changed() {
        for schema in [
            r#"{"type":"object","properties":{}}"#,
            "true",
            r##"{"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}], "$defs": {"N": {}}}"##,
            r##"{"items": {"$ref": "#", "description": "again", "default": null}}"##,
            // Properties and values that only resemble references.
            r#"{"properties": {"$ref": {"type": "string", "title": "t"}}}"#,
            r##"{"properties": {"$ref": {"$ref": "#/$defs/N"}, "x": {}}, "$defs": {"N": {}}}"##,
            r##"{"default": {"$ref": "#", "type": "x"}, "const": {"$ref": "#", "type": "x"}}"##,
            r##"{"enum": [{"$ref": "#", "type": "x"}], "examples": [{"$ref": "#", "type": "x"}]}"##,
            r#"{"$ref": {"no": "text"}, "type": "object"}"#,
            r##"{"$ref": "#/$defs/N", "$defs": {"N": {}}}"##,
        ] {
            assert_eq!(gemini_schema(schema), None, "{schema}");
        }
    }

    #[test]
    fn references_are_found_in_every_place_of_a_schema() {
        let wide = json!({"$ref": "#/$defs/N", "type": "string"});
        let narrow = json!({"$ref": "#/$defs/N"});
        for name in NAMED_SCHEMAS {
            let schema = json!({ name: {"inner": {"items": wide}} }).to_string();
            assert_eq!(
                changed(&schema),
                Some(json!({ name: {"inner": {"items": narrow}} })),
                "{name}"
            );
        }
        for name in INNER_SCHEMAS {
            assert_eq!(
                changed(&json!({ name: wide }).to_string()),
                Some(json!({ name: narrow })),
                "{name}"
            );
            let list = json!({ name: [{"type": "null"}, wide] }).to_string();
            assert_eq!(
                changed(&list),
                Some(json!({ name: [{"type": "null"}, narrow] })),
                "{name}"
            );
        }
        let root = json!({"$ref": "#/$defs/N", "title": "t", "$defs": {"N": wide}, "definitions": {}});
        let expected = json!({"$ref": "#/$defs/N", "$defs": {"N": narrow}, "definitions": {}});
        assert_eq!(changed(&root.to_string()), Some(expected));
    }

    #[test]
    fn a_schema_is_closed_if_all_its_objects_are() {
        let point =
            r#"{"type":"object","properties":{"x":{"type":"number"}},"required":["x"],"additionalProperties":false}"#;
        let with = |name: &str, inner: &str| {
            let properties = format!(r#"{{"type":"object","properties":{{"a":{{"type":"array","{name}":{inner}}}}}"#);
            format!(r#"{properties},"required":["a"],"additionalProperties":false}}"#)
        };
        for closed in [
            point.to_owned(),
            r#"{"type":"string"}"#.to_owned(),
            r#"{"type": ["object", "null"], "additionalProperties": false}"#.to_owned(),
            with("items", point),
            with("anyOf", &format!(r#"[{point},{{"type":"null"}}]"#)),
            with("default", r#"{"type":"object","properties":{"x":{}}}"#),
            format!(r##"{{"$ref":"#/$defs/p","$defs":{{"p":{point}}}}}"##),
        ] {
            assert!(is_closed_schema(&closed), "{closed}");
        }
        let open = point.replace("false", "true");
        for other in [
            open.clone(),
            point.replace(r#","additionalProperties":false"#, ""),
            point.replace(r#""required":["x"]"#, r#""required":[]"#),
            r#"{"type":"object"}"#.to_owned(),
            with("items", &open),
            with("anyOf", &format!("[{open}]")),
            with("allOf", &format!("[{point}]")),
            format!(r##"{{"$ref":"#/$defs/p","$defs":{{"p":{open}}}}}"##),
            "{}".to_owned(),
            point.replace(r#"{"type":"number"}"#, r#"{"enum":[1]}"#),
            "true".to_owned(),
            "{".to_owned(),
            format!(
                "{}{point}{}",
                r#"{"type":"array","items":"#.repeat(DEPTH_MAX + 1),
                "}".repeat(DEPTH_MAX + 1)
            ),
        ] {
            assert!(!is_closed_schema(&other), "{other}");
        }
    }

    #[test]
    fn a_very_deep_schema_stays_as_it_is() {
        let nested = |depth: usize| {
            format!(
                "{}{}{}",
                r#"{"not":"#.repeat(depth),
                r##"{"$ref":"#","x":1}"##,
                "}".repeat(depth)
            )
        };
        assert_eq!(
            gemini_schema(&nested(DEPTH_MAX)),
            Some(nested(DEPTH_MAX).replace(r#","x":1"#, ""))
        );
        assert_eq!(gemini_schema(&nested(DEPTH_MAX + 1)), None);
    }

    proptest! {
        #[test]
        fn a_changed_schema_needs_no_second_change(
            names in proptest::collection::vec(("(items|anyOf|properties|\\$ref|default|x)", any::<bool>()), 1..6),
        ) {
            let mut schema = json!({"$ref": "#", "type": "string"});
            for (name, has_reference) in &names {
                schema = match *has_reference {
                    true => json!({ name: schema, "$ref": "#" }),
                    false => json!({ name: schema }),
                };
            }
            if let Some(text) = gemini_schema(&schema.to_string()) {
                prop_assert_eq!(gemini_schema(&text), None, "{}", text);
            }
        }
    }
}
