//! The refusal when an edit refuses a request.

use super::EditError;
use crate::domain::{
    rules::body::{BodyEdit, RefusedValues, path_text},
    wire::json_scan::{is_string, unescaped},
};

/// Maximum number of characters of a client's value that a message repeats.
const VALUE_CHARS_MAX: usize = 64;

/// Refuses the request if `which` includes the value. `indexes` are the array indexes on its path.
pub(super) fn refuse_matching(
    edit: &BodyEdit,
    which: &RefusedValues,
    message: &str,
    value: &[u8],
    indexes: &[usize],
) -> Result<(), EditError> {
    let is_refused = match which {
        RefusedValues::Any => true,
        RefusedValues::Outside(bounds) => bounds.exceeded_by(value).is_some(),
        RefusedValues::Listed(values) => values.iter().any(|text| is_string(value, text)),
    };
    if !is_refused {
        return Ok(());
    }
    let path = |path| path_text(path, &mut indexes.iter().copied().map(Some));
    Err(EditError::Refused {
        line: edit.line,
        message: fill_placeholders(
            message,
            &[
                ("{value}", shown(value)),
                ("{path}", path(&edit.path)),
                ("{holder}", path(edit.holder())),
            ],
        ),
    })
}

/// Replaces the placeholders in one pass, so that placeholders in a client's text are not replaced.
fn fill_placeholders(message: &str, values: &[(&str, String)]) -> String {
    let mut text = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let brace = rest.get(before.len()..).unwrap_or_default();
        match values.iter().find(|(name, _)| brace.starts_with(name)) {
            Some((name, value)) => {
                text.push_str(value);
                rest = brace.get(name.len()..).unwrap_or_default();
            }
            None => {
                text.push('{');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

/// A client's value, shortened and without control characters.
fn shown(value: &[u8]) -> String {
    // An escaped character takes up to 12 bytes. A longer value is shown as it is written, without unescaping.
    let short = (value.len() <= VALUE_CHARS_MAX * 12)
        .then(|| unescaped(value))
        .flatten();
    let text = short.unwrap_or_else(|| String::from_utf8_lossy(value.get(..VALUE_CHARS_MAX * 4 + 1).unwrap_or(value)));
    let mut chars = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut shown: String = chars.by_ref().take(VALUE_CHARS_MAX).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}
