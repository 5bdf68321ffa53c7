//! Renders the parts that are the same on the operators' page about a key and on its owner's page: the facts about the key, and
//! forms.

use maud::{Markup, html};

use crate::{
    api::{
        AdminError,
        keys::{FormerTextView, KeyDetails, KeyStanding, KeyText, OverlapSeconds, RotateKey},
        node::ModelView,
        values::{FactorInput, LimitInput, Nullable, Percents, Usd},
    },
    console::{
        forms::{Forms, InputField, SEED, changed_value, is_changed},
        layout,
        request::FormFields,
        session::BrowserSession,
        snippet::{self, Examples},
    },
    domain::{
        keys::{KeyId, OVERLAP_DEFAULT_SECONDS},
        ledger::{FinishFactor, OnExhausted, QuotaReset},
        money::NanoUsd,
    },
    edges::clock,
};

/// Renders the state of a key as a label.
pub(super) fn state_label(key: &KeyDetails) -> Markup {
    html! {
        @if key.state == KeyStanding::Revoked { span class="pill u" { "Revoked" } }
        @else if has_expired(key) { span class="pill n" { "Expired" } }
        @else if is_used_up(key) { span class="pill d" { "Used up" } }
        @else { span class="pill o" { "Active" } }
    }
}

/// Returns whether a key has expired.
pub(super) fn has_expired(key: &KeyDetails) -> bool {
    key.expires_at.is_some_and(|end| end.seconds() <= clock::unix_seconds())
}

/// Returns whether a key's quota is used up.
pub(super) fn is_used_up(key: &KeyDetails) -> bool {
    matches!((key.quota_nano_usd, key.spent_nano_usd), (Some(quota), Some(spent)) if spent >= quota)
}

/// Renders all properties of a key except its secret.
pub(super) fn facts(key: &KeyDetails) -> Markup {
    html! {
        p class="state" { (state_label(key)) " " code { (key.id) } ", ends in " code { (key.hint) } }
        dl class="figures" {
            div class="card" { dt { "Quota" } dd { (layout::money(key.quota_usd, "Unlimited")) } }
            div class="card" { dt { "Remaining" } dd { (remaining_quota(key)) } }
            div class="card" { dt { "Held" } dd { (layout::money(key.held_usd, "unknown")) } }
            div class="card" { dt { "Running" } dd { (layout::count_or(key.running, "unknown")) } }
        }
        (spending(key))
        div class="card" {
            dl class="facts" {
                dt { "Account" } dd { (layout::name(&key.account)) }
                dt { "Quota resets" } dd { (if key.reset == QuotaReset::None { "never" } else { key.reset.as_str() }) @if key.resets_at.is_some() { ", next at " (layout::timestamp(key.resets_at, "")) " UTC" } }
                dt { "Expires" } dd { (layout::timestamp(key.expires_at, "never")) }
                dt { "Models" } dd {
                    @match &key.models {
                        None => "all",
                        Some(models) if models.is_empty() => "none",
                        Some(models) => { @for (place, model) in models.iter().enumerate() { @if place > 0 { ", " } (layout::name(model)) } },
                    }
                }
                dt { "Requests per minute" } dd { (layout::count_or(key.rpm, "no limit")) }
                dt { "Tokens per minute" } dd { (layout::count_or(key.tpm, "no limit")) }
                dt { "Requests at once" } dd { (layout::count_or(key.concurrency, "no limit")) }
                dt { "When quota or balance is used up" } dd { (when_used_up(key)) }
                dt { "Notices at" } dd { (notice_percentages(key)) }
                dt { "Created" } dd { (layout::timestamp(key.created_at, "unknown")) }
                dt { "Last used" } dd { (layout::timestamp(key.last_used, "never")) }
                @if let Some(former) = &key.former { dt { "Rotated" } dd { (former_text_notice(former)) } }
                @if key.revoked_at.is_some() { dt { "Revoked" } dd { (layout::timestamp(key.revoked_at, "")) } }
            }
        }
    }
}

/// Renders what happens to a running answer when the quota is used up.
fn when_used_up(key: &KeyDetails) -> Markup {
    let limit = if key.quota_usd.is_some() { "quota" } else { "balance" };
    html! {
        @match (key.on_exhausted, key.finish_factor) {
            (OnExhausted::Cut, _) => "a running answer is cut off",
            (OnExhausted::Finish, None) => "a running answer finishes",
            (OnExhausted::Finish, Some(factor)) => { "a running answer finishes, unless it costs more than " (factor) " times the " (limit) },
        }
    }
}

/// Renders the percentages of the quota at which notices are sent.
fn notice_percentages(key: &KeyDetails) -> Markup {
    let parts = key
        .notify_percent
        .map(|Percents(chosen)| chosen.percents().collect::<Vec<_>>());
    html! {
        @match &parts {
            None => span class="none" { "as set for the account" },
            Some(parts) if parts.is_empty() => span class="none" { "nothing" },
            Some(parts) => { @for (place, part) in parts.iter().enumerate() { @if place > 0 { ", " } (part) " %" } },
        }
    }
}

/// Renders the part of the quota that is neither spent nor held.
fn remaining_quota(key: &KeyDetails) -> Markup {
    match (key.quota_nano_usd, key.spent_nano_usd, key.held_nano_usd) {
        (Some(quota), Some(spent), Some(held)) => {
            let left = quota.saturating_sub(spent).saturating_sub(held).max(NanoUsd::ZERO);
            layout::money(Some(Usd(left)), "")
        }
        (None, ..) => html! { span class="none" { "Unlimited" } },
        _ => html! { span class="none" { "unknown" } },
    }
}

/// Renders the amount that a key has spent in each period, and marks the period of its quota.
fn spending(key: &KeyDetails) -> Markup {
    let spent = key.spent.as_ref();
    let periods = [
        (spent.map(|spent| spent.day_usd), "Spent today", QuotaReset::Daily),
        (spent.map(|spent| spent.week_usd), "Spent this week", QuotaReset::Weekly),
        (
            spent.map(|spent| spent.month_usd),
            "Spent this month",
            QuotaReset::Monthly,
        ),
        (spent.map(|spent| spent.all_usd), "Spent so far", QuotaReset::None),
    ];
    let counts = |reset| key.reset == reset && key.quota_usd.is_some();
    html! {
        dl class="figures" {
            @for (amount, name, reset) in periods {
                div class="card" {
                    dt { (name) @if counts(reset) { " (of the quota)" } }
                    dd { (layout::money(amount, "unknown")) }
                }
            }
        }
    }
}

/// Renders the secret of a new or rotated key, and how to use it with the served models.
pub(super) fn section(made: &KeyDetails, models: &[ModelView], gateway: &str) -> Markup {
    let text = made.key.as_ref().map_or("", KeyText::expose);
    html! {
        section class="card once" aria-labelledby="key" {
            h2 id="key" { (layout::name(&made.name)) }
            p { "Copy the secret now: it is shown only once, and weir keeps only its digest." }
            @if let Some(former) = &made.former { p { (former_text_notice(former)) } }
            pre tabindex="0" { code class="key" { (text) } }
        }
        (snippet::section(gateway, Some(text), &Examples::from_model_views(made.models.as_deref(), models)))
    }
}

/// The times for which the old secret of a rotated key can remain valid: each in seconds, with its name for display.
const OVERLAPS: [(u64, &str); 5] = [
    (OVERLAP_DEFAULT_SECONDS, "For a day"),
    (3600, "For an hour"),
    (7 * 24 * 3600, "For a week"),
    (30 * 24 * 3600, "For 30 days"),
    (0, "Not at all: it stops working within a second"),
];

/// Renders the form that rotates a key. While an old secret is still valid, also renders the form that invalidates this secret.
pub(super) fn rotation_form<W>(forms: &Forms<'_, W>, rotate: &str, end: &str, key: &KeyDetails) -> Markup {
    let chosen = forms.entered_value(rotate, "overlap_seconds");
    let chosen = chosen
        .and_then(|text| text.parse().ok())
        .unwrap_or(OVERLAP_DEFAULT_SECONDS);
    let fields = html! {
        label {
            span { "The old secret remains valid" }
            select name="overlap_seconds" {
                @for (seconds, name) in OVERLAPS { option value=(seconds) selected[seconds == chosen] { (name) } }
            }
        }
        (forms.seed(rotate))
        button class="danger" { "Rotate the key" }
    };
    html! {
        p { "The key gets a new secret, which is shown once." }
        @if let Some(former) = &key.former {
            p { (former_text_notice(former)) " Rotating the key again ends the old secret at once." }
            (forms.button(end, "End the old secret now", "danger"))
        }
        (forms.form(rotate, "fields", &fields))
    }
}

/// Converts the submitted form to the call of the admin API that rotates the key.
///
/// # Errors
/// The submitted overlap is not valid.
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

/// Renders a notice with the time until which the old secret of a rotated key is valid.
pub(super) fn former_text_notice(former: &FormerTextView) -> Markup {
    html! {
        "The old secret, which ends in " code { (former.hint) } ", works until " (layout::timestamp(former.until, "unknown")) " UTC."
    }
}

const RATES: [(&str, &str); 3] = [
    ("rpm", "Requests per minute"),
    ("tpm", "Tokens per minute"),
    ("concurrency", "Requests at once"),
];

/// The options for what happens to a running answer when the quota is used up. The first option is the default.
const EXHAUSTED: [(OnExhausted, &str); 2] = [(OnExhausted::Finish, "Finishes"), (OnExhausted::Cut, "Is cut off")];

/// Formats a number. `None` becomes an empty string.
fn number_text(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// Renders the input fields for the limits of requests, tokens and concurrency.
pub(super) fn rate_inputs<W>(forms: &Forms<'_, W>, action: &str, limits: [Option<u64>; 3]) -> Markup {
    html! {
        @for ((name, label), limit) in RATES.into_iter().zip(limits) {
            @let value = number_text(limit);
            (forms.input(action, &InputField { kind: "number", ..InputField::text(name, label, &value, "No limit") }))
        }
    }
}

/// Returns the submitted limits of requests, tokens and concurrency. A limit that was not changed is left out.
///
/// # Errors
/// A value is not a valid limit.
pub(super) fn changed_rates(form: &FormFields) -> Result<[Nullable<LimitInput>; 3], AdminError> {
    let [rpm, tpm, concurrency] = RATES.map(|(name, _)| changed_value(form, name));
    Ok([rpm?, tpm?, concurrency?])
}

/// Renders the input fields for what happens to a running answer when the quota is used up.
pub(super) fn exhaustion_inputs<W>(forms: &Forms<'_, W>, action: &str, key: Option<&KeyDetails>) -> Markup {
    let now = key.map_or("", |key| key.on_exhausted.as_str());
    let chosen = forms.entered_value(action, "on_exhausted").unwrap_or(now);
    // The form for a new key displays the default factor.
    let factor = number_text(key.map_or_else(|| FinishFactor::default().get(), |key| key.finish_factor));
    html! {
        label {
            span { "When the quota or balance is used up, a running answer" (forms.current_value(action, "on_exhausted", now)) }
            select name="on_exhausted" {
                @for (choice, name) in EXHAUSTED { option value=(choice.as_str()) selected[choice.as_str() == chosen] { (name) } }
            }
            input type="hidden" name="was.on_exhausted" value=(now);
        }
        (forms.input(action, &InputField { kind: "number", ..InputField::text("finish_factor", "Cut off at this multiple of the quota", &factor, "No bound") }))
    }
}

/// Returns the submitted values that were changed. The first value says what happens to a running answer when the quota is used
/// up. The second value is a factor: such an answer is cut off at this multiple of the quota.
///
/// # Errors
/// The factor is not valid.
pub(super) fn changed_exhaustion(
    form: &FormFields,
) -> Result<(Option<OnExhausted>, Nullable<FactorInput>), AdminError> {
    let choice = form.text("on_exhausted").parse().ok();
    // The form for a new key submits the default choice, which is not a change.
    let is_usual = form.text("was.on_exhausted").is_empty() && choice == Some(OnExhausted::default());
    let choice = choice.filter(|_| is_changed(form, "on_exhausted") && !is_usual);
    Ok((choice, changed_value(form, "finish_factor")?))
}

/// Renders the input field for the percentages of the quota at which notices are sent. `default` describes the percentages that
/// apply if the field is empty.
pub(super) fn notice_input<W>(forms: &Forms<'_, W>, action: &str, chosen: Option<Percents>, default: &str) -> Markup {
    let value = chosen.map(Percents::to_text).unwrap_or_default();
    forms.input(
        action,
        &InputField::text("notify_percent", "Notices at % of the quota, or none", &value, default),
    )
}
