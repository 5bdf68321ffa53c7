//! JSON schemas for Gemini, which takes them as they are but for references: beside `$ref` it refuses most members.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::domain::translation::json_out::{push_array, push_object};

/// The name of the member that refers to another schema.
const REFERENCE: &str = "$ref";
/// The members that stay beside a reference. Definitions are no part of the node: references point at them.
const BESIDE_REFERENCE: [&str; 4] = ["description", "default", "$defs", "definitions"];
/// The members whose value has a schema under each name.
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
/// The depth to which schemas are read; what is deeper stays as it is.
const DEPTH_MAX: usize = 64;

/// What a JSON value is to its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SchemaPlace {
    /// A schema or a list of schemas.
    Schema,
    /// An object with a schema under each name.
    Named,
}

impl SchemaPlace {
    /// What a member of an object at this place is; `None` if it has no schemas, for example a default value.
    fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Named => Some(Self::Schema),
            Self::Schema if NAMED_SCHEMAS.contains(&name) => Some(Self::Named),
            Self::Schema if INNER_SCHEMAS.contains(&name) => Some(Self::Schema),
            Self::Schema => None,
        }
    }
}

/// The schema with references that Gemini takes; `None` if it has no others, so that it can be copied as it is.
pub(super) fn gemini_schema(schema: &str) -> Option<String> {
    let value: &RawValue = serde_json::from_str(schema).ok()?;
    changed_value(value, SchemaPlace::Schema, 0)
}

/// The value as it has to be; `None` if it is so already.
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

/// The changed object; `None` for a value that is no object, too.
fn changed_object(text: &str, place: SchemaPlace, depth: usize) -> Option<String> {
    let SchemaMembers(members) = serde_json::from_str(text).ok()?;
    // A property can have this name as well.
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
            object.raw(name, changed.as_deref().unwrap_or(value.get()));
        }
    });
    is_changed.then_some(out)
}

/// The members of an object of a schema in their order, as JSON text.
struct SchemaMembers<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// The name of a member of a schema; serde copies it only if it has escapes.
#[derive(Deserialize)]
struct SchemaMemberName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for SchemaMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SchemaMembersVisitor;
        impl<'de> Visitor<'de> for SchemaMembersVisitor {
            type Value = SchemaMembers<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
                while let Some((SchemaMemberName(name), value)) =
                    map.next_entry::<SchemaMemberName<'de>, &'de RawValue>()?
                {
                    members.push((name, value));
                }
                Ok(SchemaMembers(members))
            }
        }
        deserializer.deserialize_map(SchemaMembersVisitor)
    }
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
            // Properties and values that only look like references.
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
