//! Header and body edits of a provider file, checked.

use http::{HeaderName, HeaderValue};
use toml::Spanned;

use super::{HeadEdits, faults::Faults};
use crate::domain::{
    credential::CREDENTIAL_HEADERS,
    rules::{
        apply::json_string,
        body::{BODY_EDITS_MAX, BodyEdit, BodyOp, BodyRules, Bound, Number, PATH_MEMBERS_MAX, Segment},
        raw::{RawBodyEdit, RawBodyOp, RawHeaders},
    },
};

/// The most header edits of one file.
const HEADER_EDITS_MAX: usize = 64;

/// Headers of the connection and of the message's framing (RFC 9110 section 7.6.1): weir sets them itself.
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

/// Members that weir reads itself: an edit would make it act on something else than the provider.
const OWN_MEMBERS: [&str; 2] = ["model", "stream"];

pub(super) fn is_framing(name: &HeaderName) -> bool {
    FRAMING.contains(&name.as_str())
}

pub(super) fn head(raw: &RawHeaders, auth: Option<&HeaderName>, faults: &mut Faults<'_>) -> HeadEdits {
    let count = raw.remove.len() + raw.rename.len() + raw.set.len() + raw.default.len();
    if count > HEADER_EDITS_MAX {
        faults.whole(format!(
            "[headers] has {count} edits, at most {HEADER_EDITS_MAX} are allowed"
        ));
    }
    let name = |text: &str, place: &Spanned<String>, faults: &mut Faults<'_>| {
        let fault = match HeaderName::from_bytes(text.as_bytes()) {
            Ok(name) if is_framing(&name) => "is set by weir itself and cannot be edited",
            Ok(name) if CREDENTIAL_HEADERS.contains(&name.as_str()) || auth == Some(&name) => {
                "carries a credential: clients' are never forwarded, the provider's belongs into [auth]"
            }
            Ok(name) => return Some(name),
            Err(_) => {
                faults.at(place, "headers", "key `headers`: not the name of a header");
                return None;
            }
        };
        faults.at(
            place,
            text,
            format!("key `headers`: `{}` {fault}", text.to_ascii_lowercase()),
        );
        None
    };
    let mut edits = HeadEdits::default();
    for text in &raw.remove {
        edits.remove.extend(name(text.get_ref(), text, faults));
    }
    for (from, to) in &raw.rename {
        let names = (name(from, to, faults), name(to.get_ref(), to, faults));
        if let (Some(from), Some(to)) = names {
            edits.rename.push((from, to));
        }
    }
    for (given, compiled) in [(&raw.set, &mut edits.set), (&raw.default, &mut edits.default)] {
        for (text, value) in given {
            let name = name(text, value, faults);
            match (name, HeaderValue::from_str(value.get_ref())) {
                (Some(name), Ok(value)) => compiled.push((name, value)),
                (Some(_), Err(_)) => faults.at(value, text, format!("key `{text}`: not the value of a header")),
                (None, _) => {}
            }
        }
    }
    edits
}

pub(super) fn body(raw: &[RawBodyEdit], faults: &mut Faults<'_>) -> BodyRules {
    if raw.len() > BODY_EDITS_MAX {
        faults.whole(format!(
            "{} [[body]] edits, at most {BODY_EDITS_MAX} are allowed",
            raw.len()
        ));
    }
    BodyRules::new(raw.iter().filter_map(|edit| body_edit(edit, faults)).collect())
}

fn body_edit(raw: &RawBodyEdit, faults: &mut Faults<'_>) -> Option<BodyEdit> {
    let path = path(&raw.path, faults);
    let op = match op(raw) {
        Ok(op) => op,
        Err(message) => {
            faults.at(&raw.op, "op", message);
            return None;
        }
    };
    let path = path?;
    if let (BodyOp::Rename { to }, [_]) = (&op, path.as_slice())
        && OWN_MEMBERS.contains(&to.as_str())
    {
        faults.at(&raw.path, "to", own_member(to));
        return None;
    }
    if raw.protocols.as_ref().is_some_and(Vec::is_empty) {
        faults.at(
            &raw.op,
            "protocols",
            "key `protocols`: an empty list means never, leave the key out for all",
        );
    }
    Some(BodyEdit {
        path,
        protocols: raw.protocols.clone(),
        op,
    })
}

fn path(raw: &Spanned<String>, faults: &mut Faults<'_>) -> Option<Vec<Segment>> {
    let members: Vec<&str> = raw.get_ref().split('.').collect();
    if members.len() > PATH_MEMBERS_MAX
        || members
            .iter()
            .any(|member| member.is_empty() || member.contains(['[', ']']))
    {
        let message = format!("key `path`: expected 1 to {PATH_MEMBERS_MAX} member names joined by dots, no arrays");
        faults.at(raw, "path", message);
        return None;
    }
    if let Some(own) = members.first().filter(|first| OWN_MEMBERS.contains(first)) {
        faults.at(raw, "path", own_member(own));
        return None;
    }
    Some(
        members
            .into_iter()
            .map(|member| Segment::Member(member.to_owned()))
            .collect(),
    )
}

fn own_member(name: &str) -> String {
    format!("`{name}` cannot be edited: weir acts on it itself (a model is renamed by its `upstream_name`)")
}

fn op(raw: &RawBodyEdit) -> Result<BodyOp, String> {
    let op = *raw.op.get_ref();
    let given = [
        ("value", raw.value.is_some(), op == RawBodyOp::Set),
        ("to", raw.to.is_some(), op == RawBodyOp::Rename),
        ("min", raw.min.is_some(), op == RawBodyOp::Clamp),
        ("max", raw.max.is_some(), op == RawBodyOp::Clamp),
        ("values", raw.values.is_some(), op == RawBodyOp::Map),
    ];
    if let Some((key, ..)) = given.iter().find(|(_, is_given, belongs)| *is_given && !belongs) {
        return Err(format!("key `{key}` does not belong to this op"));
    }
    match op {
        RawBodyOp::Set => {
            let value = raw.value.as_ref().ok_or("key `value` is missing: what `set` sets")?;
            Ok(BodyOp::Set {
                value: json_text(value)?,
            })
        }
        RawBodyOp::Remove => Ok(BodyOp::Remove),
        RawBodyOp::Rename => match raw.to.as_deref() {
            None | Some("") => Err("key `to` is missing: the new name of the member".to_owned()),
            Some(to) => Ok(BodyOp::Rename { to: to.to_owned() }),
        },
        RawBodyOp::Clamp => {
            let min = raw.min.as_ref().map(bound).transpose()?;
            let max = raw.max.as_ref().map(bound).transpose()?;
            match (&min, &max) {
                (None, None) => return Err("keys `min` and `max` are missing: `clamp` needs one of them".to_owned()),
                (Some(min), Some(max)) if max.value.is_below(min.value) => {
                    return Err("key `min` is greater than `max`".to_owned());
                }
                (Some(_), _) | (None, Some(_)) => {}
            }
            Ok(BodyOp::Clamp { min, max })
        }
        RawBodyOp::Map => {
            let values = raw.values.as_ref().filter(|values| !values.is_empty());
            let values = values.ok_or("key `values` is missing: which strings become which")?;
            Ok(BodyOp::Map {
                values: values
                    .iter()
                    .map(|(from, to)| (from.clone(), json_string(to)))
                    .collect(),
            })
        }
    }
}

fn bound(value: &toml::Value) -> Result<Bound, String> {
    let text = match value {
        toml::Value::Integer(_) | toml::Value::Float(_) => json_text(value)?,
        _ => return Err("keys `min` and `max` are numbers".to_owned()),
    };
    let value = Number::read(&text).ok_or("keys `min` and `max` are numbers")?;
    Ok(Bound { text, value })
}

fn json_text(value: &toml::Value) -> Result<String, String> {
    let unfit = || "dates, and numbers that are not finite, have no form in JSON".to_owned();
    match value {
        toml::Value::String(text) => Ok(json_string(text)),
        toml::Value::Integer(integer) => Ok(integer.to_string()),
        toml::Value::Float(float) => serde_json::Number::from_f64(*float)
            .map(|number| number.to_string())
            .ok_or_else(unfit),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        toml::Value::Datetime(_) => Err(unfit()),
        toml::Value::Array(items) => {
            let items: Result<Vec<String>, String> = items.iter().map(json_text).collect();
            Ok(format!("[{}]", items?.join(",")))
        }
        toml::Value::Table(table) => {
            let member = |(name, value): (&String, &toml::Value)| {
                Ok::<String, String>(format!("{}:{}", json_string(name), json_text(value)?))
            };
            let members: Result<Vec<String>, String> = table.iter().map(member).collect();
            Ok(format!("{{{}}}", members?.join(",")))
        }
    }
}
