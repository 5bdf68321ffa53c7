//! The words of an error body that has no member for a message: plain text, the `detail` of FastAPI, and the data of an event.

use serde_json::Value;

/// Reports of a FastAPI validation that are repeated.
const REPORTS_MAX: usize = 16;
/// Steps of a report's place that are repeated.
const STEPS_MAX: usize = 16;
/// What a text with markup has in it. One that begins with `<` is taken for markup too.
const MARKUP: [&str; 5] = ["<html", "<!doctype", "<head", "<body", "<title"];

/// The text of a body that is not JSON, without white space at its ends; `None` for markup, for JSON that was cut, and for what is
/// no text.
pub(super) fn of_text(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?.trim_start_matches('\u{feff}').trim();
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let lower = text.to_ascii_lowercase();
    let is_markup = lower.starts_with('<') || MARKUP.iter().any(|mark| lower.contains(mark));
    let is_text = !text.is_empty() && !text.starts_with(['{', '[']) && !text.contains(is_control);
    (is_text && !is_markup).then_some(text)
}

/// The data of the event that a body is, where its client asked for a stream.
pub(super) fn of_event(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?.trim_start();
    let is_event = ["data:", "event:"].iter().any(|field| text.starts_with(field));
    let data = text.lines().find_map(|line| line.strip_prefix("data:"))?;
    serde_json::from_str(data).ok().filter(|_| is_event)
}

/// What a `detail` says: a text; the reports of a validation, each as `place: message`; or an object with a message.
pub(super) fn of_detail(detail: &Value) -> Option<String> {
    match detail {
        Value::String(text) => Some(text.clone()),
        Value::Array(reports) => {
            let said: Vec<String> = reports.iter().take(REPORTS_MAX).filter_map(of_report).collect();
            (!said.is_empty()).then(|| said.join("; "))
        }
        Value::Object(_) => of_report(detail),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// `{"loc":["body","messages",0],"msg":"Field required"}` is `body.messages.0: Field required`.
fn of_report(report: &Value) -> Option<String> {
    let said = ["msg", "message", "error"]
        .iter()
        .find_map(|key| report.get(*key)?.as_str());
    let said = said.or_else(|| report.as_str()).filter(|said| !said.is_empty())?;
    let steps = report
        .get("loc")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let place: Vec<String> = steps.iter().take(STEPS_MAX).filter_map(word).collect();
    Some(match place.is_empty() {
        true => said.to_owned(),
        false => format!("{}: {said}", place.join(".")),
    })
}

/// A string, or a number as text.
pub(super) fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
