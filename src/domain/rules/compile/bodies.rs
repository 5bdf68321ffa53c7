//! Checks and compiles the body edits of a provider file.

use std::sync::Arc;

use toml::Spanned;

use crate::domain::rules::compile::{self, edits, path_steps};
use crate::domain::{
    rules::{
        apply::json_string,
        body::{BODY_EDITS_MAX, BodyEdit, BodyOp, BodyPathStep, BodyRules, PATH_STEPS_MAX, RefusedValues},
        raw::{RawBodyEdit, RawBodyOp},
    },
    strict_toml::Faults,
};

/// Members of a request's body that edits cannot change, because weir itself reads them. An edit would make weir and the provider
/// act on different values.
const OWN_MEMBERS: [&str; 2] = ["model", "stream"];
/// The maximum length of a refusal's message, in bytes.
const MESSAGE_BYTES_MAX: usize = 500;

/// The direction in which the edited bodies are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToProvider,
    ToClient,
}

pub(super) fn body(raw: &[Spanned<RawBodyEdit>], faults: &mut Faults<'_>) -> BodyRules {
    rules("body", raw, Direction::ToProvider, faults)
}

pub(super) fn response(raw: &[Spanned<RawBodyEdit>], faults: &mut Faults<'_>) -> BodyRules {
    rules("response", raw, Direction::ToClient, faults)
}

fn rules(table: &str, raw: &[Spanned<RawBodyEdit>], direction: Direction, faults: &mut Faults<'_>) -> BodyRules {
    if raw.len() > BODY_EDITS_MAX {
        faults.add_for_file(format!(
            "the file has {} [[{table}]] edits, at most {BODY_EDITS_MAX} are allowed",
            raw.len()
        ));
    }
    BodyRules::new(raw.iter().filter_map(|raw| edit(raw, direction, faults)).map(Arc::new))
}

fn edit(raw: &Spanned<RawBodyEdit>, direction: Direction, faults: &mut Faults<'_>) -> Option<BodyEdit> {
    let line = faults.line(raw);
    let raw = raw.get_ref();
    let path = path(&raw.path, direction, faults);
    let op = op(raw, direction);
    let when = edits::conditions(&raw.when.0);
    for (key, message) in [("op", op.as_ref().err()), ("when", when.as_ref().err())] {
        if let Some(message) = message {
            faults.add_at(&raw.op, key, message);
        }
    }
    if raw.protocols.as_ref().is_some_and(Vec::is_empty) {
        let message = "key `protocols`: an empty list would match no protocol, leave the key out for all";
        faults.add_at(&raw.op, "protocols", message);
    }
    let (path, op, when) = (path?, op.ok()?, when.ok()?);
    match (&op, path.as_slice()) {
        (BodyOp::Rename { .. }, [.., BodyPathStep::Each]) => {
            faults.add_at(
                &raw.path,
                "path",
                "key `path`: an element of an array has no name to change",
            );
            return None;
        }
        (BodyOp::Rename { to }, [_]) if direction == Direction::ToProvider && OWN_MEMBERS.contains(&to.as_str()) => {
            faults.add_at(&raw.path, "to", own_member(to));
            return None;
        }
        _ => {}
    }
    Some(BodyEdit {
        line,
        path,
        protocols: raw.protocols.clone(),
        when,
        op,
    })
}

fn path(raw: &Spanned<String>, direction: Direction, faults: &mut Faults<'_>) -> Option<Vec<BodyPathStep>> {
    let Some(path) = path_steps(raw.get_ref()) else {
        let message = format!(
            "key `path`: expected member names joined by dots, with `[]` after a name that means each element of an array, \
             at most {PATH_STEPS_MAX} names and `[]` in total"
        );
        faults.add_at(raw, "path", message);
        return None;
    };
    if let (Direction::ToProvider, Some(BodyPathStep::Member(first))) = (direction, path.first())
        && OWN_MEMBERS.contains(&first.as_str())
    {
        faults.add_at(raw, "path", own_member(first));
        return None;
    }
    Some(path)
}

fn own_member(name: &str) -> String {
    format!("`{name}` cannot be edited, because weir itself acts on it (to rename a model, set its `upstream_name`)")
}

fn op(raw: &RawBodyEdit, direction: Direction) -> Result<BodyOp, String> {
    let op = *raw.op.get_ref();
    let bounds = [RawBodyOp::Clamp, RawBodyOp::Refuse];
    let given = [
        ("value", raw.value.is_some(), op == RawBodyOp::Set),
        ("to", raw.to.is_some(), op == RawBodyOp::Rename),
        ("min", raw.min.is_some(), bounds.contains(&op)),
        ("max", raw.max.is_some(), bounds.contains(&op)),
        (
            "values",
            raw.values.is_some(),
            [RawBodyOp::Map, RawBodyOp::Refuse].contains(&op),
        ),
        ("message", raw.message.is_some(), op == RawBodyOp::Refuse),
    ];
    if let Some((key, ..)) = given.iter().find(|(_, is_given, belongs)| *is_given && !belongs) {
        return Err(format!("key `{key}` does not belong to this op"));
    }
    match op {
        RawBodyOp::Set => {
            let value = raw
                .value
                .as_ref()
                .ok_or("key `value` is missing: give the value to set")?;
            Ok(BodyOp::Set {
                value: compile::json_text(value)?,
            })
        }
        RawBodyOp::Remove => Ok(BodyOp::Remove),
        RawBodyOp::Rename => match raw.to.as_deref() {
            None | Some("") => Err("key `to` is missing: give the new name of the member".to_owned()),
            Some(to) => Ok(BodyOp::Rename { to: to.to_owned() }),
        },
        RawBodyOp::Clamp => Ok(BodyOp::Clamp {
            range: compile::bounds(raw.min.as_ref(), raw.max.as_ref())?,
        }),
        RawBodyOp::Map => map(raw.values.as_ref()),
        RawBodyOp::Refuse if direction == Direction::ToClient => {
            Err("key `op`: an answer cannot be refused, only a request (in [[body]])".to_owned())
        }
        RawBodyOp::Refuse => refuse(raw),
    }
}

fn map(values: Option<&toml::Value>) -> Result<BodyOp, String> {
    let missing = "key `values` is missing: give a table of strings and their replacements";
    let values = values.and_then(toml::Value::as_table).ok_or(missing)?;
    if values.is_empty() {
        return Err(missing.to_owned());
    }
    let pair = |(from, to): (&String, &toml::Value)| {
        let to = to.as_str().ok_or("key `values`: replacements must be strings")?;
        Ok::<_, String>((from.clone(), json_string(to)))
    };
    Ok(BodyOp::Map {
        values: values.iter().map(pair).collect::<Result<_, _>>()?,
    })
}

fn refuse(raw: &RawBodyEdit) -> Result<BodyOp, String> {
    let message = raw.message.clone().unwrap_or_default();
    if message.is_empty() || message.len() > MESSAGE_BYTES_MAX {
        return Err(format!(
            "key `message`: give the message to the client, 1 to {MESSAGE_BYTES_MAX} bytes; `{{value}}`, `{{path}}` and \
             `{{holder}}` stand for the value, its path, and the path of the object or element that contains it"
        ));
    }
    let which = match (&raw.values, &raw.min, &raw.max) {
        (None, None, None) => RefusedValues::Any,
        (None, min, max) => RefusedValues::Outside(compile::bounds(min.as_ref(), max.as_ref())?),
        (Some(list), None, None) => {
            let strings = list.as_array().filter(|list| !list.is_empty());
            let strings: Option<Vec<String>> =
                strings.and_then(|list| list.iter().map(|text| text.as_str().map(str::to_owned)).collect());
            RefusedValues::Listed(strings.ok_or("key `values`: `refuse` takes a list of strings")?)
        }
        (Some(_), _, _) => return Err("key `values`: give either `values` or `min` and `max`".to_owned()),
    };
    Ok(BodyOp::Refuse { which, message })
}
