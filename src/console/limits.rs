//! The fields of limits that keys and accounts share.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::{
    fields::Fields,
    forms::{Field, Forms, is_changed},
    view,
};
use crate::side::admin::local::Refused;

const RATES: [(&str, &str); 3] = [
    ("rpm", "Requests per minute"),
    ("tpm", "Tokens per minute"),
    ("concurrency", "Requests at once"),
];

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
pub(super) fn changed_rates(form: &Fields, body: &mut Map<String, Value>) -> Result<(), Refused> {
    for (name, label) in RATES {
        if !is_changed(form, name) {
            continue;
        }
        let number = form.given(name).map(str::parse::<u64>).transpose();
        let number = number.map_err(|_| Refused {
            status: StatusCode::BAD_REQUEST,
            message: format!("{label}: a whole number, or nothing for no limit"),
        })?;
        body.insert(name.to_owned(), json!(number));
    }
    Ok(())
}
