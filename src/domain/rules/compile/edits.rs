//! Checks and compiles the header and query edits of a provider file, and the conditions of its body edits.

use http::{HeaderName, HeaderValue};
use toml::Spanned;

use crate::domain::{
    keys::CREDENTIAL_HEADERS,
    rules::{
        body::JsonNumber,
        compile::{json_text, path_members},
        condition::{Condition, FieldBase, FieldTest, HeaderTest, ModelPattern, RawCondition, Scalar, ValueTest},
        head::{HeadEdit, HeadEdits, HeadOp, QueryEdit, QueryEdits, QueryOp, RawHeaders, RawQuery},
    },
    strict_toml::Faults,
};

/// The maximum number of header edits in one file; also the maximum number of query edits.
const EDITS_MAX: usize = 64;

/// The headers of the connection and of the message framing (RFC 9110 section 7.6.1). weir sets them, so edits cannot.
const FRAMING: [&str; 14] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The query parameters in which clients send their API keys.
const CREDENTIAL_PARAMETERS: [&str; 1] = ["key"];

pub(super) fn is_framing(name: &HeaderName) -> bool {
    FRAMING.contains(&name.as_str())
}

pub(super) fn head_edits(raw: &RawHeaders, auth: Option<&HeaderName>, faults: &mut Faults<'_>) -> HeadEdits {
    let count = raw.remove.len() + raw.rename.len() + raw.set.len() + raw.default.len();
    if count > EDITS_MAX {
        faults.add_for_file(format!("[headers] has {count} edits, at most {EDITS_MAX} are allowed"));
    }
    let mut edits = Vec::with_capacity(count);
    let mut add = |place: &Spanned<String>, op: Option<HeadOp>, faults: &Faults<'_>| {
        let line = faults.line(place);
        edits.extend(op.map(|op| HeadEdit { line, op }));
    };
    for given in &raw.remove {
        let name = header_name(given.get_ref(), given, auth, faults);
        add(given, name.map(HeadOp::Remove), faults);
    }
    for (from, given) in &raw.rename {
        let names = header_name(from, given, auth, faults).zip(header_name(given.get_ref(), given, auth, faults));
        add(given, names.map(|(from, to)| HeadOp::Rename(from, to)), faults);
    }
    for (text, given) in &raw.set {
        let header = header(text, given, auth, faults);
        add(given, header.map(|(name, value)| HeadOp::Set(name, value)), faults);
    }
    for (text, given) in &raw.default {
        let header = header(text, given, auth, faults);
        add(given, header.map(|(name, value)| HeadOp::Default(name, value)), faults);
    }
    HeadEdits(edits)
}

fn header(
    text: &str,
    given: &Spanned<String>,
    auth: Option<&HeaderName>,
    faults: &mut Faults<'_>,
) -> Option<(HeaderName, HeaderValue)> {
    let name = header_name(text, given, auth, faults)?;
    let Ok(value) = HeaderValue::from_str(given.get_ref()) else {
        faults.add_at(
            given,
            text,
            format!("key `{text}`: expected the value of an HTTP header"),
        );
        return None;
    };
    Some((name, value))
}

fn header_name(
    text: &str,
    place: &Spanned<String>,
    auth: Option<&HeaderName>,
    faults: &mut Faults<'_>,
) -> Option<HeaderName> {
    let fault = match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) if is_framing(&name) => "is set by weir itself and cannot be edited",
        Ok(name) if CREDENTIAL_HEADERS.contains(&name.as_str()) || auth == Some(&name) => {
            "carries a credential: weir never forwards a client's credential, and that of the provider belongs in [auth]"
        }
        Ok(name) => return Some(name),
        Err(_) => {
            faults.add_at(place, "headers", "key `headers`: expected the name of an HTTP header");
            return None;
        }
    };
    let message = format!("key `headers`: `{}` {fault}", text.to_ascii_lowercase());
    faults.add_at(place, text, message);
    None
}

pub(super) fn query_edits(raw: &RawQuery, faults: &mut Faults<'_>) -> QueryEdits {
    let count = raw.remove.len() + raw.set.len() + raw.default.len();
    if count > EDITS_MAX {
        faults.add_for_file(format!("[query] has {count} edits, at most {EDITS_MAX} are allowed"));
    }
    let removed = raw.remove.iter().map(|given| (given.get_ref(), given, QueryOp::Remove));
    let set = raw
        .set
        .iter()
        .map(|(name, given)| (name, given, QueryOp::Set(given.get_ref().clone())));
    let default = raw
        .default
        .iter()
        .map(|(name, given)| (name, given, QueryOp::Default(given.get_ref().clone())));
    let mut edits = Vec::with_capacity(count);
    for (name, given, op) in removed.chain(set).chain(default) {
        if name.is_empty() {
            faults.add_at(given, "query", "key `query`: the name of a parameter is empty");
        } else if CREDENTIAL_PARAMETERS.contains(&name.as_str()) {
            let message = format!(
                "key `query`: `{name}` carries a credential: weir never forwards a client's credential, and that of the provider belongs in [auth]"
            );
            faults.add_at(given, "query", message);
        } else {
            let (line, name) = (faults.line(given), name.clone());
            edits.push(QueryEdit { line, name, op });
        }
    }
    QueryEdits(edits)
}

/// The maximum number of conditions of one edit.
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
        ("starts_with", raw.starts_with.is_some()),
        ("present", raw.present.is_some()),
    ];
    if let Some(translated) = raw.translated {
        let others = [
            ("model", raw.model.is_some()),
            ("header", raw.header.is_some()),
            ("field", raw.field.is_some()),
            ("root_field", raw.root_field.is_some()),
        ];
        check_none_of("translated", &[&others[..], &for_header[..], &for_field[..]])?;
        return Ok(Condition::Translated(translated));
    }
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
            "key `when`: a condition tests exactly one of `model`, `translated`, `header`, `field` and `root_field`; several \
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
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "key `when.header`: expected the name of an HTTP header")?;
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
    let test = match (&raw.equals, &raw.one_of, &raw.starts_with, raw.present) {
        (Some(value), None, None, None) => ValueTest::In(vec![scalar(value)?]),
        (None, Some(values), None, None) if !values.is_empty() => {
            ValueTest::In(values.iter().map(scalar).collect::<Result<_, _>>()?)
        }
        (None, None, Some(beginning), None) if !beginning.is_empty() => ValueTest::StartsWith(beginning.clone()),
        (None, None, None, Some(wanted)) => ValueTest::Present(wanted),
        _ => {
            return Err(
                "key `when`: a field needs one of `equals = ..`, `in = [..]`, `starts_with = ..` and `present = ..`"
                    .to_owned(),
            );
        }
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
