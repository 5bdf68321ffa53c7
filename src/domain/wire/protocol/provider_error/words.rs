//! The content of error bodies without a member for a message: plain text, the `detail` of FastAPI, and the data of an event.

use serde_json::Value;

/// The maximum number of reports of a FastAPI validation that are read.
const REPORTS_MAX: usize = 16;
/// The maximum number of steps of a report's location that are read.
const STEPS_MAX: usize = 16;
/// Texts that show markup, as does `<` at the beginning.
const MARKUP: [&str; 5] = ["<html", "<!doctype", "<head", "<body", "<title"];

/// The text of a body that is not JSON, without white space at its ends; `None` for markup, for truncated JSON, and for bytes
/// that are not text.
pub(super) fn plain_text(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?.trim_start_matches('\u{feff}').trim();
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let lower = text.to_ascii_lowercase();
    let is_markup = lower.starts_with('<') || MARKUP.iter().any(|mark| lower.contains(mark));
    let is_text = !text.is_empty() && !text.starts_with(['{', '[']) && !text.contains(is_control);
    (is_text && !is_markup).then_some(text)
}

/// The data of a body that is an event, as when the client requested a stream.
pub(super) fn event_data(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?.trim_start();
    let is_event = ["data:", "event:"].iter().any(|field| text.starts_with(field));
    let data = text.lines().find_map(|line| line.strip_prefix("data:"))?;
    serde_json::from_str(data).ok().filter(|_| is_event)
}

/// The message of a `detail`: a text; the reports of a validation, each as `location: message`; or an object with a message.
pub(super) fn detail_message(detail: &Value) -> Option<String> {
    match detail {
        Value::String(text) => Some(text.clone()),
        Value::Array(reports) => {
            let said: Vec<String> = reports
                .iter()
                .take(REPORTS_MAX)
                .filter_map(validation_message)
                .collect();
            (!said.is_empty()).then(|| said.join("; "))
        }
        Value::Object(_) => validation_message(detail),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Turns `{"loc":["body","messages",0],"msg":"Field required"}` into `body.messages.0: Field required`.
fn validation_message(report: &Value) -> Option<String> {
    let said = ["msg", "message", "error"]
        .iter()
        .find_map(|key| report.get(*key)?.as_str());
    let said = said.or_else(|| report.as_str()).filter(|said| !said.is_empty())?;
    let steps = report
        .get("loc")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let place: Vec<String> = steps.iter().take(STEPS_MAX).filter_map(word_from_value).collect();
    Some(match place.is_empty() {
        true => said.to_owned(),
        false => format!("{}: {said}", place.join(".")),
    })
}

/// A string, or a number as text.
pub(super) fn word_from_value(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
