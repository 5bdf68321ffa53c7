//! The view of a key that operators and its owner see.

use maud::{Markup, html};

use super::{rotation, view};
use crate::{
    api::{
        keys::{KeyDetails, KeyStanding},
        values::{Percents, Usd},
    },
    domain::{
        ledger::{OnExhausted, QuotaReset},
        money::NanoUsd,
    },
    edges::clock,
};

/// The key's state, as a label.
pub(super) fn state_label(key: &KeyDetails) -> Markup {
    html! {
        @if key.state == KeyStanding::Revoked { span class="pill u" { "Revoked" } }
        @else if has_expired(key) { span class="pill n" { "Expired" } }
        @else if is_used_up(key) { span class="pill d" { "Used up" } }
        @else { span class="pill o" { "Active" } }
    }
}

/// Whether it has expired.
pub(super) fn has_expired(key: &KeyDetails) -> bool {
    key.expires_at.is_some_and(|end| end.seconds() <= clock::unix_seconds())
}

/// Whether nothing of its quota is left.
pub(super) fn is_used_up(key: &KeyDetails) -> bool {
    matches!((key.quota_nano_usd, key.spent_nano_usd), (Some(quota), Some(spent)) if spent >= quota)
}

/// Everything about the key but its text.
pub(super) fn facts(key: &KeyDetails) -> Markup {
    html! {
        p class="state" { (state_label(key)) " " code { (key.id) } ", ends in " code { (key.hint) } }
        dl class="figures" {
            div class="card" { dt { "Quota" } dd { (view::money(key.quota_usd, "Unlimited")) } }
            div class="card" { dt { "Remaining" } dd { (remaining_quota(key)) } }
            div class="card" { dt { "Held" } dd { (view::money(key.held_usd, "unknown")) } }
            div class="card" { dt { "Running" } dd { (view::count_or(key.running, "unknown")) } }
        }
        (spending(key))
        div class="card" {
            dl class="facts" {
                dt { "Account" } dd { (view::name(&key.account)) }
                dt { "Quota resets" } dd { (key.reset.as_str()) @if key.resets_at.is_some() { ", next at " (view::timestamp(key.resets_at, "")) " UTC" } }
                dt { "Expires" } dd { (view::timestamp(key.expires_at, "never")) }
                dt { "Models" } dd {
                    @match &key.models {
                        None => "all",
                        Some(models) if models.is_empty() => "none",
                        Some(models) => { @for (place, model) in models.iter().enumerate() { @if place > 0 { ", " } (view::name(model)) } },
                    }
                }
                dt { "Requests per minute" } dd { (view::count_or(key.rpm, "no limit")) }
                dt { "Tokens per minute" } dd { (view::count_or(key.tpm, "no limit")) }
                dt { "Requests at once" } dd { (view::count_or(key.concurrency, "no limit")) }
                dt { "When it is used up" } dd { (when_used_up(key)) }
                dt { "Notices at" } dd { (notice_percentages(key)) }
                dt { "Created" } dd { (view::timestamp(key.created_at, "unknown")) }
                dt { "Last used" } dd { (view::timestamp(key.last_used, "never")) }
                @if let Some(former) = &key.former { dt { "Rotated" } dd { (rotation::former_text_notice(former)) } }
                @if key.revoked_at.is_some() { dt { "Revoked" } dd { (view::timestamp(key.revoked_at, "")) } }
            }
        }
    }
}

/// What happens then to a running answer.
fn when_used_up(key: &KeyDetails) -> Markup {
    html! {
        @match (key.on_exhausted, key.finish_factor) {
            (OnExhausted::Cut, _) => "a running answer is cut off",
            (OnExhausted::Finish, None) => "a running answer finishes",
            (OnExhausted::Finish, Some(factor)) => { "a running answer finishes, unless it costs more than " (factor) " times the quota" },
        }
    }
}

/// The parts of the quota at which a notice is sent.
fn notice_percentages(key: &KeyDetails) -> Markup {
    let parts = key
        .notify_percent
        .map(|Percents(chosen)| chosen.percents().collect::<Vec<_>>());
    html! {
        @match &parts {
            None => span class="none" { "as set for all" },
            Some(parts) if parts.is_empty() => span class="none" { "nothing" },
            Some(parts) => { @for (place, part) in parts.iter().enumerate() { @if place > 0 { ", " } (part) " %" } },
        }
    }
}

/// What is neither spent nor held of the quota.
fn remaining_quota(key: &KeyDetails) -> Markup {
    match (key.quota_nano_usd, key.spent_nano_usd, key.held_nano_usd) {
        (Some(quota), Some(spent), Some(held)) => {
            let left = quota.saturating_sub(spent).saturating_sub(held).max(NanoUsd::ZERO);
            view::money(Some(Usd(left)), "")
        }
        (None, ..) => html! { span class="none" { "Unlimited" } },
        _ => html! { span class="none" { "unknown" } },
    }
}

/// What it has spent in each period. The period of its quota is marked.
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
                    dd { (view::money(amount, "unknown")) }
                }
            }
        }
    }
}
