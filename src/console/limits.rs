//! The form fields of limits that keys and accounts share.

use maud::{Markup, html};

use super::{
    fields::FormFields,
    forms::{Forms, InputField, changed_value, is_changed},
};
use crate::{
    api::{
        error::AdminError,
        keys::KeyDetails,
        values::{FactorInput, LimitInput, Nullable, Percents},
    },
    domain::ledger::{FinishFactor, OnExhausted},
};

const RATES: [(&str, &str); 3] = [
    ("rpm", "Requests per minute"),
    ("tpm", "Tokens per minute"),
    ("concurrency", "Requests at once"),
];

/// What happens to a running answer when the quota is used up; the first is the default.
const EXHAUSTED: [(OnExhausted, &str); 2] = [(OnExhausted::Finish, "Finishes"), (OnExhausted::Cut, "Is cut off")];

/// A number as text; empty for `None`.
fn number_text(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// The inputs for the limits of requests, tokens and concurrency.
pub(super) fn rate_inputs<W>(forms: &Forms<'_, W>, action: &str, limits: [Option<u64>; 3]) -> Markup {
    html! {
        @for ((name, label), limit) in RATES.into_iter().zip(limits) {
            @let value = number_text(limit);
            (forms.input(action, &InputField { kind: "number", ..InputField::text(name, label, &value, "No limit") }))
        }
    }
}

/// The changed limits of requests, tokens and concurrency.
///
/// # Errors
/// A value is not a valid limit.
pub(super) fn changed_rates(form: &FormFields) -> Result<[Nullable<LimitInput>; 3], AdminError> {
    let [rpm, tpm, concurrency] = RATES.map(|(name, _)| changed_value(form, name));
    Ok([rpm?, tpm?, concurrency?])
}

/// The inputs for what happens to a running answer when the quota is used up.
pub(super) fn exhaustion_inputs<W>(forms: &Forms<'_, W>, action: &str, key: Option<&KeyDetails>) -> Markup {
    let now = key.map_or("", |key| key.on_exhausted.as_str());
    let chosen = forms.entered_value(action, "on_exhausted").unwrap_or(now);
    // For a new key: the default factor.
    let factor = number_text(key.map_or_else(|| FinishFactor::default().get(), |key| key.finish_factor));
    html! {
        label {
            span { "When it is used up, a running answer" (forms.current_value(action, "on_exhausted", now)) }
            select name="on_exhausted" {
                @for (choice, name) in EXHAUSTED { option value=(choice.as_str()) selected[choice.as_str() == chosen] { (name) } }
            }
            input type="hidden" name="was.on_exhausted" value=(now);
        }
        (forms.input(action, &InputField { kind: "number", ..InputField::text("finish_factor", "Cut off at this multiple of the quota", &factor, "No bound") }))
    }
}

/// The changed values of these inputs.
///
/// # Errors
/// The factor is not valid.
pub(super) fn changed_exhaustion(
    form: &FormFields,
) -> Result<(Option<OnExhausted>, Nullable<FactorInput>), AdminError> {
    let choice = form.text("on_exhausted").parse().ok();
    // The form of a new key sends the default: that is not a change.
    let is_usual = form.text("was.on_exhausted").is_empty() && choice == Some(OnExhausted::default());
    let choice = choice.filter(|_| is_changed(form, "on_exhausted") && !is_usual);
    Ok((choice, changed_value(form, "finish_factor")?))
}

/// The input for the parts of the quota at which notices are sent. `default` describes what applies without a value.
pub(super) fn notice_input<W>(forms: &Forms<'_, W>, action: &str, chosen: Option<Percents>, default: &str) -> Markup {
    let value = chosen.map(Percents::to_text).unwrap_or_default();
    forms.input(
        action,
        &InputField::text("notify_percent", "Notices at % of the quota, or none", &value, default),
    )
}
