//! The refusal when an edit refuses a request.

use super::EditError;
use crate::domain::{
    rules::body::{BodyEdit, Refused, path_text},
    wire::json_scan::{is_string, unescaped},
};

/// Characters of a client's value that are repeated.
const VALUE_CHARS_MAX: usize = 64;

/// Refuses the request if the value is one of those that are refused. `indexes` are those of the elements it lies in.
pub(super) fn refusal(
    edit: &BodyEdit,
    which: &Refused,
    message: &str,
    value: &[u8],
    indexes: &[usize],
) -> Result<(), EditError> {
    let is_refused = match which {
        Refused::Any => true,
        Refused::Outside(bounds) => bounds.exceeded_by(value).is_some(),
        Refused::Listed(values) => values.iter().any(|text| is_string(value, text)),
    };
    if !is_refused {
        return Ok(());
    }
    let path = |path| path_text(path, &mut indexes.iter().copied().map(Some));
    Err(EditError::Refused {
        line: edit.line,
        message: filled(
            message,
            &[
                ("{value}", shown(value)),
                ("{path}", path(&edit.path)),
                ("{holder}", path(edit.holder())),
            ],
        ),
    })
}

/// Puts the values in, each once read: a client's text is not searched for placeholders.
fn filled(message: &str, values: &[(&str, String)]) -> String {
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

/// A value of the client's, short and without control characters.
fn shown(value: &[u8]) -> String {
    // Far more than is shown can stand in an escaped string; what is longer is shown as it is written.
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
