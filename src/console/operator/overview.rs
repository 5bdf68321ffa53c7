//! What is the matter now: what needs attention, the money, the last 24 hours.

use maud::{Markup, html};
use serde_json::Value;

use crate::{
    api::{
        error::AdminError,
        usage::{Dearest, Overview, ShowOverview, UsageSums, WeekCost},
    },
    console::{
        desk::{Desk, below},
        frame::Page,
        usage_chart, view,
    },
    domain::{
        faults::stability::{Counters, Window},
        money::NanoUsd,
    },
};

pub(super) async fn page(desk: &Desk<'_>) -> Result<Page, AdminError> {
    let all = desk.look(ShowOverview {}).await?;
    let providers = desk.read("/v1/providers").await?;
    let window = desk.source.window();
    let content = html! {
        (attention(desk, &all, view::list(&providers, "providers")))
        (money(&all))
        h2 { "Spent in the last 30 days" }
        (usage_chart::of_costs(&all.spent, None, true))
        (dearest(&all.dearest))
        (used("Today (UTC)", &all.today, all.paid_today_nano_usd))
        (used("This month", &all.month, all.paid_month_nano_usd))
        (traffic(window.as_ref()))
    };
    Ok(Page {
        title: "Overview".to_owned(),
        content,
    })
}

/// What an operator should look at: troubles of this node, providers and accounts.
fn attention(desk: &Desk<'_>, all: &Overview, providers: &[Value]) -> Markup {
    let troubles = desk.source.troubles();
    let low = &all.low;
    let unnamed = all.low_count.saturating_sub(low.len() as u64);
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
                        @let (id, balance) = (&account.id, account.facts.balance_nano_usd);
                        li {
                            span class="pill d" { "Account" } " " a href=(below("/accounts", id)) { (view::name(id)) }
                            ": " (match balance.nanos() {
                                1.. => "the balance is low",
                                0 => "nothing is left of the balance",
                                _ => "the balance is overdrawn",
                            }) ", " (view::amount(balance))
                        }
                    }
                    @if unnamed > 0 { li { span class="pill d" { "Account" } " " (view::thousands(unnamed)) " others, too" } }
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

fn money(all: &Overview) -> Markup {
    let accounts = view::thousands(all.accounts as u64);
    html! {
        dl class="figures" {
            (figure("Paid in so far", &view::amount(all.paid_in_nano_usd)))
            (figure("Balance", &view::amount(all.balance_nano_usd)))
            (figure("Held for running requests", &view::amount(all.held_nano_usd)))
            (figure("Accounts", &html! { (accounts) @if all.suspended > 0 { small { " (" (all.suspended) " suspended)" } } }))
        }
        @if !all.is_whole { p class="none" { "Of the first " (accounts) " accounts." } }
    }
}

/// What some days add up to, and what was paid in on them.
fn used(name: &str, sums: &UsageSums, paid_in: NanoUsd) -> Markup {
    let [input, output] = [sums.usage.input_total(), sums.usage.output_total()].map(view::thousands);
    html! {
        h2 { (name) }
        dl class="figures" {
            (figure("Paid in", &view::amount(paid_in)))
            (figure("Spent", &view::amount(sums.cost_nano_usd)))
            (figure("Requests", &html! { (view::thousands(sums.requests)) }))
            (figure("Failed", &html! { (view::thousands(sums.errors)) }))
            (figure("Tokens in and out", &html! { (input) " / " (output) }))
        }
    }
}

/// The accounts, keys and models that cost most in the last seven days.
fn dearest(dearest: &Dearest) -> Markup {
    let parts = [
        ("Accounts", &dearest.accounts, "/accounts"),
        ("Keys", &dearest.keys, "/keys"),
        ("Models", &dearest.models, "/models"),
    ];
    let is_empty = parts.iter().all(|(_, lines, _)| lines.is_empty());
    html! {
        @if !is_empty {
            h2 { "What cost most in the last 7 days" }
            p class="lead" { "With the change to the 7 days before." }
        }
        div class="cards" {
            @for (heading, lines, page) in parts {
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

fn dearest_line(line: &WeekCost, page: &str) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(below(page, &line.name)) { (view::name(&line.name)) } }
            td class="figure" { (view::amount(line.cost_nano_usd)) }
            td class="figure" { (change(line)) }
        }
    }
}

/// By how much a cost differs from the one before, in percent.
fn change(line: &WeekCost) -> String {
    let [cost, before] = [line.cost_nano_usd, line.before_nano_usd].map(|cost| i128::from(cost.nanos()));
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
