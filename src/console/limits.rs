//! The fields of limits that keys and accounts share.

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::{
    fields::Fields,
    forms::{Field, Forms, is_changed},
    view,
};
use crate::{api::error::AdminError, domain::ledger::FinishFactor};

const RATES: [(&str, &str); 3] = [
    ("rpm", "Requests per minute"),
    ("tpm", "Tokens per minute"),
    ("concurrency", "Requests at once"),
];

/// What an answer that runs does then; [`FINISH`] where a key says nothing.
const EXHAUSTED: [(&str, &str); 2] = [(FINISH, "Ends by itself"), ("cut", "Is ended")];
const FINISH: &str = "finish";

/// The word for being told nothing.
const NOTHING: &str = "none";

/// The inputs of how fast something may go.
pub(super) fn rates<W>(forms: &Forms<'_, W>, action: &str, of: &Value) -> Markup {
    html! {
        @for (name, label) in RATES {
            @let value = view::plain(of, name);
            (forms.input(action, &Field { kind: "number", ..Field::text(name, label, &value, "No limit") }))
        }
    }
}

/// The inputs of what becomes of an answer that runs when nothing is left.
pub(super) fn exhausted<W>(forms: &Forms<'_, W>, action: &str, key: &Value) -> Markup {
    let now = view::text(key, "on_exhausted");
    let chosen = forms.entered(action, "on_exhausted").unwrap_or(now);
    // A new key has the factor that it gets without a word.
    let factor = match key.get("finish_factor") {
        None => FinishFactor::default().get().map(|factor| factor.to_string()),
        Some(factor) => factor.as_u64().map(|factor| factor.to_string()),
    };
    html! {
        label {
            span { "When it is used up, an answer that runs" (forms.now(action, "on_exhausted", now)) }
            select name="on_exhausted" {
                @for (value, name) in EXHAUSTED { option value=(value) selected[value == chosen] { (name) } }
            }
            input type="hidden" name="was.on_exhausted" value=(now);
        }
        @let factor = factor.unwrap_or_default();
        (forms.input(action, &Field { kind: "number", ..Field::text("finish_factor", "Ends at so many times the quota", &factor, "No bound") }))
    }
}

/// Puts what was changed of that into a body of the admin API.
///
/// # Errors
/// The factor is no number.
pub(super) fn changed_exhausted(form: &Fields, body: &mut Map<String, Value>) -> Result<(), AdminError> {
    // A form of a new key says what it would have been anyway.
    let is_usual = form.text("was.on_exhausted").is_empty() && form.text("on_exhausted") == FINISH;
    if is_changed(form, "on_exhausted") && !is_usual {
        body.insert("on_exhausted".to_owned(), json!(form.text("on_exhausted")));
    }
    changed_number(form, body, "finish_factor", "Ends at so many times the quota")
}

/// The input of when somebody is told. `default` is what holds without.
pub(super) fn notify<W>(forms: &Forms<'_, W>, action: &str, of: &Value, default: &str) -> Markup {
    let chosen = of.get("notify_percent").and_then(Value::as_array);
    let value = match chosen {
        None => String::new(),
        Some(list) if list.is_empty() => NOTHING.to_owned(),
        Some(list) => list.iter().map(Value::to_string).collect::<Vec<_>>().join(", "),
    };
    forms.input(
        action,
        &Field::text("notify_percent", "Tell at, % of the quota, or none", &value, default),
    )
}

/// Puts it into a body of the admin API, which knows the numbers, if it was changed.
pub(super) fn changed_notify(form: &Fields, body: &mut Map<String, Value>) {
    if is_changed(form, "notify_percent") {
        let number = |text: &str| text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
        let parts = |text: &str| {
            text.split([',', ' '])
                .filter(|part| !part.is_empty())
                .map(number)
                .collect::<Value>()
        };
        let chosen = match form.given("notify_percent") {
            None => Value::Null,
            Some(NOTHING) => json!([]),
            Some(text) => parts(text),
        };
        body.insert("notify_percent".to_owned(), chosen);
    }
}

/// Puts those that were changed into a body of the admin API.
///
/// # Errors
/// What is entered is no number.
pub(super) fn changed_rates(form: &Fields, body: &mut Map<String, Value>) -> Result<(), AdminError> {
    RATES
        .iter()
        .try_for_each(|(name, label)| changed_number(form, body, name, label))
}

fn changed_number(form: &Fields, body: &mut Map<String, Value>, name: &str, label: &str) -> Result<(), AdminError> {
    if is_changed(form, name) {
        let number = form.given(name).map(str::parse::<u64>).transpose();
        let number = number.map_err(|_| AdminError::of_field(label, "a whole number, or nothing for no limit"))?;
        body.insert(name.to_owned(), json!(number));
    }
    Ok(())
}
