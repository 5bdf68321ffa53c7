//! The form that rotates a key, and what is told of the text that still works beside the new one.

use maud::{Markup, html};

use super::{
    fields::Fields,
    forms::{Forms, SEED},
    session::Session,
    view,
};
use crate::{
    api::{
        error::AdminError,
        keys::{FormerText, Key, Overlap, RotateKey},
    },
    domain::keys::{key::KeyId, rotation::OVERLAP_DEFAULT_SECONDS},
};

/// For how long the old text works on, in seconds.
const OVERLAPS: [(u64, &str); 5] = [
    (OVERLAP_DEFAULT_SECONDS, "For a day"),
    (3600, "For an hour"),
    (7 * 24 * 3600, "For a week"),
    (30 * 24 * 3600, "For 30 days"),
    (0, "Not at all: it ends within a second"),
];

/// The form, and where an old text still works one that ends it.
pub(super) fn form<W>(forms: &Forms<'_, W>, rotate: &str, end: &str, key: &Key) -> Markup {
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
        (forms.seed(rotate))
        button class="danger" { "Rotate the key" }
    };
    html! {
        p { "The key gets a new text, shown once." }
        @if let Some(former) = &key.former {
            p { (works_on(former)) " Rotating again ends it at once." }
            (forms.button(end, "End the old text now", "danger"))
        }
        (forms.form(rotate, "fields", &fields))
    }
}

/// The question of the form.
///
/// # Errors
/// The time is none.
pub(super) fn question<W>(session: &Session<W>, id: KeyId, form: &Fields) -> Result<RotateKey, AdminError> {
    let seconds = form.given("overlap_seconds").map(str::parse::<Overlap>).transpose();
    Ok(RotateKey {
        id,
        overlap_seconds: seconds.map_err(|why| AdminError::of_field("overlap_seconds", why))?,
        seed: form.given(SEED).map(|seed| session.seed(seed)),
    })
}

/// Until when an old text works.
pub(super) fn works_on(former: &FormerText) -> Markup {
    html! {
        "The old text, which ends in " code { (former.hint) } ", works until " (view::at(former.until, "unknown")) " UTC."
    }
}
