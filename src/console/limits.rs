//! The fields of limits that keys and accounts share.

use maud::{Markup, html};

use super::{
    fields::Fields,
    forms::{Field, Forms, changed, is_changed},
};
use crate::{
    api::{
        error::AdminError,
        keys::Key,
        values::{Factor, Limit, Nullable, Percents},
    },
    domain::ledger::{FinishFactor, OnExhausted},
};

const RATES: [(&str, &str); 3] = [
    ("rpm", "Requests per minute"),
    ("tpm", "Tokens per minute"),
    ("concurrency", "Requests at once"),
];

/// What an answer that runs does then; the first where a key says nothing.
const EXHAUSTED: [(OnExhausted, &str); 2] = [(OnExhausted::Finish, "Ends by itself"), (OnExhausted::Cut, "Is ended")];

/// A number as it is entered; empty without one.
fn entered(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// The inputs of how fast something may go: requests, tokens, concurrency.
pub(super) fn rates<W>(forms: &Forms<'_, W>, action: &str, limits: [Option<u64>; 3]) -> Markup {
    html! {
        @for ((name, label), limit) in RATES.into_iter().zip(limits) {
            @let value = entered(limit);
            (forms.input(action, &Field { kind: "number", ..Field::text(name, label, &value, "No limit") }))
        }
    }
}

/// Those that were changed.
///
/// # Errors
/// One that is entered is no limit.
pub(super) fn changed_rates(form: &Fields) -> Result<[Nullable<Limit>; 3], AdminError> {
    let [rpm, tpm, concurrency] = RATES.map(|(name, _)| changed(form, name));
    Ok([rpm?, tpm?, concurrency?])
}

/// The inputs of what becomes of an answer that runs when nothing is left.
pub(super) fn exhausted<W>(forms: &Forms<'_, W>, action: &str, key: Option<&Key>) -> Markup {
    let now = key.map_or("", |key| key.on_exhausted.as_str());
    let chosen = forms.entered(action, "on_exhausted").unwrap_or(now);
    // A new key has the factor that it gets without a word.
    let factor = entered(key.map_or_else(|| FinishFactor::default().get(), |key| key.finish_factor));
    html! {
        label {
            span { "When it is used up, an answer that runs" (forms.now(action, "on_exhausted", now)) }
            select name="on_exhausted" {
                @for (choice, name) in EXHAUSTED { option value=(choice.as_str()) selected[choice.as_str() == chosen] { (name) } }
            }
            input type="hidden" name="was.on_exhausted" value=(now);
        }
        (forms.input(action, &Field { kind: "number", ..Field::text("finish_factor", "Ends at so many times the quota", &factor, "No bound") }))
    }
}

/// Those of them that were changed.
///
/// # Errors
/// One that is entered is none.
pub(super) fn changed_exhausted(form: &Fields) -> Result<(Option<OnExhausted>, Nullable<Factor>), AdminError> {
    let choice = form.text("on_exhausted").parse().ok();
    // A form of a new key says what it would have been anyway.
    let is_usual = form.text("was.on_exhausted").is_empty() && choice == Some(OnExhausted::default());
    let choice = choice.filter(|_| is_changed(form, "on_exhausted") && !is_usual);
    Ok((choice, changed(form, "finish_factor")?))
}

/// The input of when somebody is told. `default` is what holds without.
pub(super) fn notify<W>(forms: &Forms<'_, W>, action: &str, chosen: Option<Percents>, default: &str) -> Markup {
    let value = chosen.map(Percents::in_words).unwrap_or_default();
    forms.input(
        action,
        &Field::text("notify_percent", "Tell at, % of the quota, or none", &value, default),
    )
}
