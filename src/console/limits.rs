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

/// The inputs of how fast something may go.
pub(super) fn rates<W>(forms: &Forms<'_, W>, action: &str, of: &Value) -> Markup {
    html! {
        @for (name, label) in RATES {
            @let value = view::plain(of, name);
            (forms.input(action, &Field { kind: "number", ..Field::text(name, label, &value, "No limit") }))
        }
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
