//! A key as its operator and its owner see it.

use maud::{Markup, html};

use super::{rotation, view};
use crate::{
    api::{
        keys::{Key, KeyStanding},
        values::{Percents, Usd},
    },
    domain::{
        ledger::{OnExhausted, Reset},
        money::NanoUsd,
    },
    edges::clock,
};

/// Whether it works, as a pill.
pub(super) fn state(key: &Key) -> Markup {
    html! {
        @if key.state == KeyStanding::Revoked { span class="pill u" { "Revoked" } }
        @else if has_expired(key) { span class="pill n" { "Expired" } }
        @else if is_used_up(key) { span class="pill d" { "Used up" } }
        @else { span class="pill o" { "Active" } }
    }
}

/// Whether its time is over.
pub(super) fn has_expired(key: &Key) -> bool {
    key.expires_at.is_some_and(|end| end.seconds() <= clock::unix_seconds())
}

/// Whether nothing of its quota is left.
pub(super) fn is_used_up(key: &Key) -> bool {
    matches!((key.quota_nano_usd, key.spent_nano_usd), (Some(quota), Some(spent)) if spent >= quota)
}

/// What is known of it, its text apart.
pub(super) fn facts(key: &Key) -> Markup {
    html! {
        p class="state" { (state(key)) " " code { (key.id) } ", ends in " code { (key.hint) } }
        dl class="figures" {
            div class="card" { dt { "Quota" } dd { (view::money(key.quota_usd, "Unlimited")) } }
            div class="card" { dt { "Left of it" } dd { (left(key)) } }
            div class="card" { dt { "Held" } dd { (view::money(key.held_usd, "unknown")) } }
            div class="card" { dt { "Running" } dd { (view::figure(key.running, "unknown")) } }
        }
        (spent(key))
        div class="card" {
            dl class="facts" {
                dt { "Account" } dd { (view::name(&key.account)) }
                dt { "Quota begins anew" } dd { (key.reset.as_str()) @if key.resets_at.is_some() { ", next at " (view::at(key.resets_at, "")) " UTC" } }
                dt { "Expires" } dd { (view::at(key.expires_at, "never")) }
                dt { "Models" } dd {
                    @match &key.models {
                        None => "all",
                        Some(models) if models.is_empty() => "none",
                        Some(models) => { @for (place, model) in models.iter().enumerate() { @if place > 0 { ", " } (view::name(model)) } },
                    }
                }
                dt { "Requests per minute" } dd { (view::figure(key.rpm, "no limit")) }
                dt { "Tokens per minute" } dd { (view::figure(key.tpm, "no limit")) }
                dt { "Requests at once" } dd { (view::figure(key.concurrency, "no limit")) }
                dt { "When it is used up" } dd { (when_used_up(key)) }
                dt { "Somebody is told at" } dd { (told_at(key)) }
                dt { "Created" } dd { (view::at(key.created_at, "unknown")) }
                dt { "Last used" } dd { (view::at(key.last_used, "never")) }
                @if let Some(former) = &key.former { dt { "Rotated" } dd { (rotation::works_on(former)) } }
                @if key.revoked_at.is_some() { dt { "Revoked" } dd { (view::at(key.revoked_at, "")) } }
            }
        }
    }
}

/// What becomes of an answer that runs then.
fn when_used_up(key: &Key) -> Markup {
    html! {
        @match (key.on_exhausted, key.finish_factor) {
            (OnExhausted::Cut, _) => "an answer that runs is ended",
            (OnExhausted::Finish, None) => "an answer that runs ends by itself",
            (OnExhausted::Finish, Some(factor)) => { "an answer that runs ends by itself, at the latest when it has cost " (factor) " times the quota" },
        }
    }
}

/// At which parts of the quota.
fn told_at(key: &Key) -> Markup {
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
fn left(key: &Key) -> Markup {
    match (key.quota_nano_usd, key.spent_nano_usd, key.held_nano_usd) {
        (Some(quota), Some(spent), Some(held)) => {
            let left = quota.saturating_sub(spent).saturating_sub(held).max(NanoUsd::ZERO);
            view::money(Some(Usd(left)), "")
        }
        (None, ..) => html! { span class="none" { "Unlimited" } },
        _ => html! { span class="none" { "unknown" } },
    }
}

/// What it has spent in each period. That in which its quota counts is marked.
fn spent(key: &Key) -> Markup {
    let spent = key.spent.as_ref();
    let periods = [
        (spent.map(|spent| spent.day_usd), "Spent today", Reset::Daily),
        (spent.map(|spent| spent.week_usd), "Spent this week", Reset::Weekly),
        (spent.map(|spent| spent.month_usd), "Spent this month", Reset::Monthly),
        (spent.map(|spent| spent.all_usd), "Spent so far", Reset::None),
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
