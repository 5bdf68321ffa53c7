//! What is the matter now: what needs attention, the money, the last 24 hours.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    console::{
        desk::{Desk, below},
        frame::Page,
        view,
    },
    domain::{
        faults::stability::{Counters, Window},
        money::NanoUsd,
    },
    side::admin::local::Refused,
};

/// The most accounts that are added up here.
const ACCOUNTS_MAX: usize = 1000;

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, Refused> {
    let accounts = desk.read(&format!("/v1/accounts?limit={ACCOUNTS_MAX}")).await?;
    let providers = desk.read("/v1/providers").await?;
    let window = desk.source.window();
    let content = html! {
        (attention(desk, view::list(&accounts, "accounts"), view::list(&providers, "providers")))
        (money(&accounts))
        (traffic(window.as_ref()))
    };
    Ok(Page {
        title: "Overview".to_owned(),
        content,
    })
}

/// What an operator should look at: troubles of this node, providers and accounts.
fn attention(desk: &Desk<'_>, accounts: &[Value], providers: &[Value]) -> Markup {
    let troubles = desk.source.troubles();
    let low = accounts.iter().filter(|account| view::is(account, "balance_is_low"));
    let low: Vec<&Value> = low.collect();
    let unwell: Vec<(&str, String)> = providers.iter().filter_map(unwell).collect();
    html! {
        section class="card" aria-labelledby="attention" {
            h2 id="attention" { "Needs attention" }
            @if troubles.is_empty() && low.is_empty() && unwell.is_empty() {
                p class="none" { "Nothing now." }
            } @else {
                ul class="plain" {
                    @for trouble in &troubles { li { span class="pill u" { "This node" } " " (trouble) } }
                    @for (name, why) in &unwell {
                        li { span class="pill d" { "Provider" } " " a href="/providers" { (view::name(name)) } ": " (why) }
                    }
                    @for account in &low {
                        @let id = view::text(account, "id");
                        li {
                            span class="pill d" { "Account" } " " a href=(below("/accounts", id)) { (view::name(id)) }
                            ": the balance is low, " (view::usd(account, "balance_usd", ""))
                        }
                    }
                }
            }
        }
    }
}

/// What of a provider that is configured does not work now.
fn unwell(provider: &Value) -> Option<(&str, String)> {
    let mut faults = Vec::new();
    if !view::is(provider, "configured") {
        return None;
    }
    if !view::is(provider, "enabled") {
        faults.push("switched off".to_owned());
    }
    let credentials = view::list(provider, "credentials").iter();
    let resting = credentials.filter(|one| view::count(one, "rests_seconds") > 0).count();
    if resting > 0 {
        faults.push(format!("{resting} of its credentials rest"));
    }
    match view::count(provider, "places_ejected") {
        0 => {}
        ejected => faults.push(format!("{ejected} of its addresses left out after failures")),
    }
    match view::list(provider, "passed_over").len() {
        0 => {}
        models => faults.push(format!("passed over for {models} models")),
    }
    (!faults.is_empty()).then(|| (view::text(provider, "name"), faults.join(", ")))
}

fn money(accounts: &Value) -> Markup {
    let list = view::list(accounts, "accounts");
    let sum = |field: &str| {
        let amounts = list
            .iter()
            .filter_map(|account| account.get(field).and_then(Value::as_i64));
        let sum = amounts
            .map(NanoUsd::from_nanos)
            .fold(NanoUsd::ZERO, NanoUsd::saturating_add);
        view::dollars(&sum.to_string())
    };
    let suspended = list
        .iter()
        .filter(|account| view::text(account, "state") == "suspended")
        .count();
    html! {
        dl class="figures" {
            (figure("Balance", &sum("balance_nano_usd")))
            (figure("Held for running requests", &sum("held_nano_usd")))
            (figure("Spent so far", &sum("spent_nano_usd")))
            (figure("Accounts", &html! { (list.len()) @if suspended > 0 { small { " (" (suspended) " suspended)" } } }))
        }
        @if !view::text(accounts, "next").is_empty() {
            p class="none" { "Of the first " (list.len()) " accounts." }
        }
    }
}

fn traffic(window: Option<&Window>) -> Markup {
    let mut total = Counters::default();
    for model in window.iter().flat_map(|window| &window.models) {
        total.add(&model.total);
    }
    let rate = (total.requests > 0).then(|| format!("{:.2} %", total.figures().success_rate));
    let first_token = (total.ttft_count > 0).then(|| format!("{:.0} ms", total.figures().avg_ttft_ms));
    let measured = |text: Option<String>| match text {
        Some(text) => html! { (text) },
        None => html! { span class="none" { "\u{2014}" } },
    };
    html! {
        h2 { "The last 24 hours" }
        dl class="figures" {
            (figure("Requests", &html! { (view::thousands(total.requests)) }))
            (figure("Failed", &html! { (view::thousands(total.requests.saturating_sub(total.successes))) }))
            (figure("Success rate", &measured(rate)))
            (figure("Mean first token", &measured(first_token)))
        }
        p class="none" { "Model by model: " a href="/models" { "Models" } ". From billed requests of all nodes." }
    }
}

fn figure(name: &str, value: &Markup) -> Markup {
    html! { div class="card" { dt { (name) } dd { (value) } } }
}
