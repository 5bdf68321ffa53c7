//! `when` of a body edit, checked.

use http::HeaderName;

use super::{body_path::path_members, values::json_text};
use crate::domain::{
    keys::credential::CREDENTIAL_HEADERS,
    rules::{
        body::JsonNumber,
        condition::{Condition, FieldBase, FieldTest, HeaderTest, ModelPattern, Scalar, ValueTest},
        raw::RawCondition,
    },
};

/// Maximum number of conditions of one edit.
const CONDITIONS_MAX: usize = 8;

pub(super) fn conditions(raw: &[RawCondition]) -> Result<Vec<Condition>, String> {
    if raw.len() > CONDITIONS_MAX {
        return Err(format!("key `when`: at most {CONDITIONS_MAX} conditions are allowed"));
    }
    raw.iter().map(condition).collect()
}

fn condition(raw: &RawCondition) -> Result<Condition, String> {
    let for_header = [("value", raw.value.is_some()), ("contains", raw.contains.is_some())];
    let for_field = [
        ("equals", raw.equals.is_some()),
        ("in", raw.one_of.is_some()),
        ("present", raw.present.is_some()),
    ];
    match (&raw.model, &raw.header, &raw.field, &raw.root_field) {
        (Some(model), None, None, None) => {
            check_none_of("model", &[&for_header[..], &for_field[..]])?;
            if model.is_empty() {
                return Err("key `when.model` is empty: name a model, with `*` for any characters".to_owned());
            }
            Ok(Condition::Model(ModelPattern(model.clone())))
        }
        (None, Some(name), None, None) => {
            check_none_of("header", &[&for_field[..]])?;
            header_condition(name, raw)
        }
        (None, None, Some(path), None) => {
            check_none_of("field", &[&for_header[..]])?;
            field_condition(FieldBase::Holder, path, raw)
        }
        (None, None, None, Some(path)) => {
            check_none_of("root_field", &[&for_header[..]])?;
            field_condition(FieldBase::Root, path, raw)
        }
        _ => Err(
            "key `when`: a condition tests exactly one of `model`, `header`, `field` and `root_field`; several \
             conditions are a list of tables"
                .to_owned(),
        ),
    }
}

fn check_none_of(subject: &str, groups: &[&[(&str, bool)]]) -> Result<(), String> {
    match groups.iter().copied().flatten().find(|(_, is_given)| *is_given) {
        Some((key, _)) => Err(format!(
            "key `when.{key}` does not belong to a condition on `{subject}`"
        )),
        None => Ok(()),
    }
}

fn header_condition(name: &str, raw: &RawCondition) -> Result<Condition, String> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "key `when.header`: not the name of a header")?;
    if CREDENTIAL_HEADERS.contains(&name.as_str()) {
        return Err(format!(
            "key `when.header`: `{name}` carries a credential, which rules cannot see"
        ));
    }
    let test = match (&raw.value, &raw.contains) {
        (None, None) => HeaderTest::Present,
        (Some(value), None) => HeaderTest::Equals(value.clone()),
        (None, Some(part)) if !part.is_empty() => HeaderTest::Contains(part.clone()),
        _ => return Err("key `when`: give either `value` or `contains` for a header".to_owned()),
    };
    Ok(Condition::Header { name, test })
}

fn field_condition(base: FieldBase, path: &str, raw: &RawCondition) -> Result<Condition, String> {
    let path =
        path_members(path).ok_or("key `when`: a field is one or more member names joined by dots, without `[]`")?;
    let test = match (&raw.equals, &raw.one_of, raw.present) {
        (Some(value), None, None) => ValueTest::In(vec![scalar(value)?]),
        (None, Some(values), None) if !values.is_empty() => {
            ValueTest::In(values.iter().map(scalar).collect::<Result<_, _>>()?)
        }
        (None, None, Some(wanted)) => ValueTest::Present(wanted),
        _ => return Err("key `when`: a field needs one of `equals = ..`, `in = [..]` and `present = ..`".to_owned()),
    };
    Ok(Condition::Field(FieldTest { base, path, test }))
}

fn scalar(value: &toml::Value) -> Result<Scalar, String> {
    match value {
        toml::Value::String(text) => Ok(Scalar::Text(text.clone())),
        toml::Value::Boolean(truth) => Ok(Scalar::Truth(*truth)),
        toml::Value::Integer(_) | toml::Value::Float(_) => {
            let number = JsonNumber::read(&json_text(value)?).ok_or("key `when`: not a JSON number")?;
            Ok(Scalar::Number(number))
        }
        _ => Err("key `when`: a field is compared with strings, numbers, true or false".to_owned()),
    }
}
