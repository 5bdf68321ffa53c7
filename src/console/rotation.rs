//! The form that rotates a key, and the notice about an old text that still works.

use maud::{Markup, html};

use super::{
    fields::FormFields,
    forms::{Forms, SEED},
    session::BrowserSession,
    view,
};
use crate::{
    api::{
        error::AdminError,
        keys::{FormerTextView, KeyDetails, OverlapSeconds, RotateKey},
    },
    domain::keys::{key::KeyId, rotation::OVERLAP_DEFAULT_SECONDS},
};

/// The choices for how long the old text keeps working, in seconds.
const OVERLAPS: [(u64, &str); 5] = [
    (OVERLAP_DEFAULT_SECONDS, "For a day"),
    (3600, "For an hour"),
    (7 * 24 * 3600, "For a week"),
    (30 * 24 * 3600, "For 30 days"),
    (0, "Not at all: it stops working within a second"),
];

/// The form; while an old text still works, also a form that ends it.
pub(super) fn rotation_form<W>(forms: &Forms<'_, W>, rotate: &str, end: &str, key: &KeyDetails) -> Markup {
    let chosen = forms.entered_value(rotate, "overlap_seconds");
    let chosen = chosen
        .and_then(|text| text.parse().ok())
        .unwrap_or(OVERLAP_DEFAULT_SECONDS);
    let fields = html! {
        label {
            span { "The old text keeps working" }
            select name="overlap_seconds" {
                @for (seconds, name) in OVERLAPS { option value=(seconds) selected[seconds == chosen] { (name) } }
            }
        }
        (forms.seed(rotate))
        button class="danger" { "Rotate the key" }
    };
    html! {
        p { "The key gets a new text, shown once." }
        @if let Some(former) = &key.former {
            p { (former_text_notice(former)) " Rotating again ends it at once." }
            (forms.button(end, "End the old text now", "danger"))
        }
        (forms.form(rotate, "fields", &fields))
    }
}

/// The form as a question of the admin API.
///
/// # Errors
/// The overlap is not valid.
pub(super) fn read_rotation<W>(
    session: &BrowserSession<W>,
    id: KeyId,
    form: &FormFields,
) -> Result<RotateKey, AdminError> {
    let seconds = form
        .non_empty("overlap_seconds")
        .map(str::parse::<OverlapSeconds>)
        .transpose();
    Ok(RotateKey {
        id,
        overlap_seconds: seconds.map_err(|why| AdminError::of_field("overlap_seconds", why))?,
        seed: form.non_empty(SEED).map(|seed| session.seed(seed)),
    })
}

/// How long an old text still works.
pub(super) fn former_text_notice(former: &FormerTextView) -> Markup {
    html! {
        "The old text, which ends in " code { (former.hint) } ", works until " (view::timestamp(former.until, "unknown")) " UTC."
    }
}
