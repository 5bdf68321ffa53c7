//! The form that rotates a key, and what is told of the text that still works beside the new one.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::{fields::Fields, forms::Forms, view};
use crate::domain::keys::rotation::OVERLAP_DEFAULT_SECONDS;

/// For how long the old text works on, in seconds.
const OVERLAPS: [(u64, &str); 5] = [
    (OVERLAP_DEFAULT_SECONDS, "For a day"),
    (3600, "For an hour"),
    (7 * 24 * 3600, "For a week"),
    (30 * 24 * 3600, "For 30 days"),
    (0, "Not at all: it ends within a second"),
];

/// The form, and where an old text still works one that ends it.
pub(super) fn form<W>(forms: &Forms<'_, W>, rotate: &str, end: &str, key: &Value) -> Markup {
    let chosen = forms.entered(rotate, "overlap_seconds");
    let chosen = chosen
        .and_then(|text| text.parse().ok())
        .unwrap_or(OVERLAP_DEFAULT_SECONDS);
    let fields = html! {
        label {
            span { "The old text works on" }
            select name="overlap_seconds" {
                @for (seconds, name) in OVERLAPS { option value=(seconds) selected[seconds == chosen] { (name) } }
            }
        }
        button class="danger" { "Rotate the key" }
    };
    html! {
        p { "The key gets a new text, shown once." }
        @if let Some(former) = former(key) {
            p { (works_on(former)) " Rotating again ends it at once." }
            (forms.button(end, "End the old text now", "danger"))
        }
        (forms.form(rotate, "fields", &fields))
    }
}

/// What the form asks the admin API for.
pub(super) fn body(form: &Fields) -> Value {
    match form.given("overlap_seconds") {
        // What is no number is refused by the API, as everywhere.
        Some(text) => {
            json!({ "overlap_seconds": text.parse::<u64>().map_or_else(|_| json!(text), |seconds| json!(seconds)) })
        }
        None => json!({}),
    }
}

/// The text of a key before its present one, while it works.
pub(super) fn former(key: &Value) -> Option<&Value> {
    key.get("former").filter(|former| former.is_object())
}

/// Until when an old text works.
pub(super) fn works_on(former: &Value) -> Markup {
    html! {
        "The old text, which ends in " code { (view::text(former, "hint")) } ", works until " (view::time(former, "until", "unknown")) " UTC."
    }
}
