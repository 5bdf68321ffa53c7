//! What is the matter now: what needs attention, the money, the last 24 hours.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    api::{
        error::AdminError,
        providers::{ListProviders, ProviderView},
    },
    console::{
        desk::{Desk, below},
        frame::Page,
        rows, usage_chart, view,
    },
    domain::faults::stability::{Counters, Window},
};

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let all = desk.read("/v1/overview").await?;
    let listed = desk.look(ListProviders {}).await?;
    let window = desk.source.window();
    let content = html! {
        (attention(desk, &all, &listed.providers))
        (money(&all))
        h2 { "Spent in the last 30 days" }
        (usage_chart::spent(all.get("spent").unwrap_or(&Value::Null), true))
        (dearest(all.get("dearest").unwrap_or(&Value::Null)))
        (used("Today (UTC)", all.get("today").unwrap_or(&Value::Null), &view::nanos(&all, "paid_today_nano_usd")))
        (used("This month", all.get("month").unwrap_or(&Value::Null), &view::nanos(&all, "paid_month_nano_usd")))
        (traffic(window.as_ref()))
    };
    Ok(Page {
        title: "Overview".to_owned(),
        content,
    })
}

/// What an operator should look at: troubles of this node, providers and accounts.
fn attention(desk: &Desk<'_>, all: &Value, providers: &[ProviderView]) -> Markup {
    let troubles = desk.source.troubles();
    let low = view::list(all, "low");
    let unnamed = view::count(all, "low_count").saturating_sub(low.iter().fold(0, |count, _| count + 1));
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
                    @for account in low {
                        @let id = view::text(account, "id");
                        li {
                            span class="pill d" { "Account" } " " a href=(below("/accounts", id)) { (view::name(id)) }
                            ": " (match view::signum(account, "balance_nano_usd") {
                                1 => "the balance is low",
                                0 => "nothing is left of the balance",
                                _ => "the balance is overdrawn",
                            }) ", " (view::usd(account, "balance_usd", ""))
                        }
                    }
                    @if unnamed > 0 { li { span class="pill d" { "Account" } " " (view::thousands(unnamed)) " others, too" } }
                }
            }
        }
    }
}

/// What of a provider that is configured does not work now.
fn unwell(provider: &ProviderView) -> Option<(&str, String)> {
    let mut faults = Vec::new();
    if !provider.configured {
        return None;
    }
    if !provider.enabled {
        faults.push("switched off".to_owned());
    }
    let credentials = provider.credentials.iter();
    let resting = credentials.filter(|one| one.rests_seconds > 0).count();
    if resting > 0 {
        faults.push(format!("{resting} of its credentials rest"));
    }
    match provider.places_ejected {
        0 => {}
        ejected => faults.push(format!("{ejected} of its addresses left out after failures")),
    }
    match provider.passed_over.len() {
        0 => {}
        models => faults.push(format!("passed over for {models} models")),
    }
    (!faults.is_empty()).then(|| (provider.name.as_str(), faults.join(", ")))
}

fn money(all: &Value) -> Markup {
    let suspended = view::count(all, "suspended");
    html! {
        dl class="figures" {
            (figure("Paid in so far", &view::nanos(all, "paid_in_nano_usd")))
            (figure("Balance", &view::nanos(all, "balance_nano_usd")))
            (figure("Held for running requests", &view::nanos(all, "held_nano_usd")))
            (figure("Accounts", &html! { (view::number(all, "accounts", "0")) @if suspended > 0 { small { " (" (suspended) " suspended)" } } }))
        }
        @if !view::is(all, "is_whole") {
            p class="none" { "Of the first " (view::number(all, "accounts", "0")) " accounts." }
        }
    }
}

/// What some days add up to, and what was paid in on them.
fn used(name: &str, sums: &Value, paid_in: &Markup) -> Markup {
    html! {
        h2 { (name) }
        dl class="figures" {
            (figure("Paid in", paid_in))
            (figure("Spent", &rows::cost(sums)))
            (figure("Requests", &view::number(sums, "requests", "0")))
            (figure("Failed", &view::number(sums, "errors", "0")))
            (figure("Tokens in and out", &html! { (view::thousands(rows::input(sums))) " / " (view::thousands(rows::output(sums))) }))
        }
    }
}

/// The accounts, keys and models that cost most in the last seven days.
fn dearest(dearest: &Value) -> Markup {
    let parts = [
        ("Accounts", "accounts", "/accounts"),
        ("Keys", "keys", "/keys"),
        ("Models", "models", "/models"),
    ];
    let is_empty = parts.iter().all(|(_, part, _)| view::list(dearest, part).is_empty());
    html! {
        @if !is_empty {
            h2 { "What cost most in the last 7 days" }
            p class="lead" { "With the change to the 7 days before." }
        }
        div class="cards" {
            @for (heading, part, page) in parts {
                @let lines = view::list(dearest, part);
                @if !lines.is_empty() {
                    section class="card" {
                        h2 { (heading) }
                        table class="list" {
                            thead { tr {
                                th scope="col" { "Name" } th scope="col" class="figure" { "Cost" }
                                th scope="col" class="figure" { "Change" }
                            } }
                            tbody { @for line in lines { (dearest_line(line, page)) } }
                        }
                    }
                }
            }
        }
    }
}

fn dearest_line(line: &Value, page: &str) -> Markup {
    let name = view::text(line, "name");
    html! {
        tr {
            th scope="row" { a href=(below(page, name)) { (view::name(name)) } }
            td class="figure" { (view::nanos(line, "cost_nano_usd")) }
            td class="figure" { (change(line)) }
        }
    }
}

/// By how much a cost differs from the one before, in percent.
fn change(line: &Value) -> String {
    let nanos = |field: &str| line.get(field).and_then(Value::as_i64).unwrap_or(0);
    let (cost, before) = (i128::from(nanos("cost_nano_usd")), i128::from(nanos("before_nano_usd")));
    if before <= 0 {
        return "new".to_owned();
    }
    match (cost - before) * 100 / before {
        more @ 1.. => format!("+{more} %"),
        0 => "\u{b1}0 %".to_owned(),
        less => format!("\u{2212}{} %", less.abs()),
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
        @if let Some(window) = window { (usage_chart::requests(window)) }
        p class="none" {
            "Model by model: " a href="/models" { "Models" } ". Day by day: " a href="/usage" { "Usage" }
            ". From billed requests of all nodes."
        }
    }
}

fn figure(name: &str, value: &Markup) -> Markup {
    html! { div class="card" { dt { (name) } dd { (value) } } }
}
