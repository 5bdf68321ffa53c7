//! A key as its operator and its owner see it.

use maud::{Markup, html};
use serde_json::Value;

use super::{rotation, view};
use crate::{domain::money::NanoUsd, edges::clock};

/// Whether it works, as a pill.
pub(super) fn state(key: &Value) -> Markup {
    html! {
        @if view::text(key, "state") == "revoked" { span class="pill u" { "Revoked" } }
        @else if has_expired(key) { span class="pill n" { "Expired" } }
        @else if is_used_up(key) { span class="pill d" { "Used up" } }
        @else { span class="pill o" { "Active" } }
    }
}

/// Whether its time is over.
pub(super) fn has_expired(key: &Value) -> bool {
    let end = view::text(key, "expires_at").parse::<jiff::Timestamp>();
    end.is_ok_and(|end| end.as_second() <= clock::unix_seconds())
}

/// Whether nothing of its quota is left.
pub(super) fn is_used_up(key: &Value) -> bool {
    let amount = |field: &str| key.get(field).and_then(Value::as_i64);
    matches!((amount("quota_nano_usd"), amount("spent_nano_usd")), (Some(quota), Some(spent)) if spent >= quota)
}

/// What is known of it, its text apart.
pub(super) fn facts(key: &Value) -> Markup {
    let models = view::list(key, "models");
    html! {
        p class="state" { (state(key)) " " code { (view::text(key, "id")) } ", ends in " code { (view::text(key, "hint")) } }
        dl class="figures" {
            div class="card" { dt { "Quota" } dd { (view::usd(key, "quota_usd", "Unlimited")) } }
            div class="card" { dt { "Left of it" } dd { (left(key)) } }
            div class="card" { dt { "Held" } dd { (view::usd(key, "held_usd", "unknown")) } }
            div class="card" { dt { "Running" } dd { (view::number(key, "running", "unknown")) } }
        }
        (spent(key))
        div class="card" {
            dl class="facts" {
                dt { "Account" } dd { (view::name(view::text(key, "account"))) }
                dt { "Quota begins anew" } dd { (view::text(key, "reset")) @if !view::text(key, "resets_at").is_empty() { ", next at " (view::time(key, "resets_at", "")) " UTC" } }
                dt { "Expires" } dd { (view::time(key, "expires_at", "never")) }
                dt { "Models" } dd {
                    @if models.is_empty() { @if key.get("models").is_some_and(Value::is_array) { "none" } @else { "all" } }
                    @for (place, model) in models.iter().enumerate() { @if place > 0 { ", " } (view::name(model.as_str().unwrap_or_default())) }
                }
                dt { "Requests per minute" } dd { (view::number(key, "rpm", "no limit")) }
                dt { "Tokens per minute" } dd { (view::number(key, "tpm", "no limit")) }
                dt { "Requests at once" } dd { (view::number(key, "concurrency", "no limit")) }
                dt { "When it is used up" } dd { (when_used_up(key)) }
                dt { "Somebody is told at" } dd { (told_at(key)) }
                dt { "Created" } dd { (view::time(key, "created_at", "unknown")) }
                dt { "Last used" } dd { (view::time(key, "last_used", "never")) }
                @if let Some(former) = rotation::former(key) { dt { "Rotated" } dd { (rotation::works_on(former)) } }
                @if !view::text(key, "revoked_at").is_empty() { dt { "Revoked" } dd { (view::time(key, "revoked_at", "")) } }
            }
        }
    }
}

/// What becomes of an answer that runs then.
fn when_used_up(key: &Value) -> Markup {
    let factor = view::count(key, "finish_factor");
    html! {
        @match (view::text(key, "on_exhausted"), factor) {
            ("cut", _) => "an answer that runs is ended",
            (_, 0) => "an answer that runs ends by itself",
            (_, factor) => { "an answer that runs ends by itself, at the latest when it has cost " (factor) " times the quota" },
        }
    }
}

/// At which parts of the quota.
fn told_at(key: &Value) -> Markup {
    let parts = key.get("notify_percent").and_then(Value::as_array);
    html! {
        @match parts {
            None => span class="none" { "as set for all" },
            Some(parts) if parts.is_empty() => span class="none" { "nothing" },
            Some(parts) => { @for (place, part) in parts.iter().enumerate() { @if place > 0 { ", " } (part.to_string()) " %" } },
        }
    }
}

/// What is neither spent nor held of the quota.
fn left(key: &Value) -> Markup {
    let amount = |field: &str| key.get(field).and_then(Value::as_i64).map(NanoUsd::from_nanos);
    match (
        amount("quota_nano_usd"),
        amount("spent_nano_usd"),
        amount("held_nano_usd"),
    ) {
        (Some(quota), Some(spent), Some(held)) => {
            let left = quota.saturating_sub(spent).saturating_sub(held).max(NanoUsd::ZERO);
            view::dollars(&left.to_string())
        }
        (None, ..) => html! { span class="none" { "Unlimited" } },
        _ => html! { span class="none" { "unknown" } },
    }
}

/// What it has spent in each period. That in which its quota counts is marked.
fn spent(key: &Value) -> Markup {
    let periods = [
        ("day_usd", "Spent today", "daily"),
        ("week_usd", "Spent this week", "weekly"),
        ("month_usd", "Spent this month", "monthly"),
        ("all_usd", "Spent so far", "none"),
    ];
    let spent = key.get("spent").unwrap_or(&Value::Null);
    let counts = |reset: &str| view::text(key, "reset") == reset && !view::text(key, "quota_usd").is_empty();
    html! {
        dl class="figures" {
            @for (field, name, reset) in periods {
                div class="card" {
                    dt { (name) @if counts(reset) { " (of the quota)" } }
                    dd { (view::usd(spent, field, "unknown")) }
                }
            }
        }
    }
}
