//! The overview page: problems, money, and the last 24 hours.

use futures_util::future::OptionFuture;
use maud::{Markup, html};

use super::attention::AttentionSection;
use crate::{
    api::{
        error::AdminError,
        providers::ListProviders,
        usage::{Overview, ShowOverview, TopCosts, UsageSums, WeekCostLine},
    },
    console::{
        desk::{PageContext, below},
        frame::HtmlPage,
        usage_chart, view,
    },
    domain::{
        faults::stability::{StabilityCounters, StabilityWindow},
        money::NanoUsd,
    },
};

pub(super) async fn page(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let alerts = OptionFuture::from(context.source.alerts());
    let (all, providers, alerts) =
        tokio::join!(context.fetch(ShowOverview {}), context.fetch(ListProviders {}), alerts);
    let (all, providers) = (all?, providers?);
    let window = context.source.window();
    let attention = AttentionSection {
        troubles: context.source.troubles(),
        all: &all,
        providers: &providers.providers,
        window: window.as_ref(),
        alerts: alerts.as_deref(),
    };
    let content = html! {
        (attention.section())
        (money(&all))
        h2 { "Spent in the last 30 days" }
        (usage_chart::costs_chart(&all.spent, None, true))
        (top_costs(&all.dearest))
        (usage_figures("Today (UTC)", &all.today, all.paid_today_nano_usd))
        (usage_figures("This month", &all.month, all.paid_month_nano_usd))
        (traffic(window.as_ref()))
    };
    Ok(HtmlPage {
        title: "Overview".to_owned(),
        content,
    })
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
        @if !all.is_whole { p class="none" { "Only the first " (accounts) " accounts are included." } }
    }
}

/// The usage of some days, and what was paid in on them.
fn usage_figures(name: &str, sums: &UsageSums, paid_in: NanoUsd) -> Markup {
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
fn top_costs(dearest: &TopCosts) -> Markup {
    let parts = [
        ("Accounts", &dearest.accounts, "/accounts"),
        ("Keys", &dearest.keys, "/keys"),
        ("Models", &dearest.models, "/models"),
    ];
    let is_empty = parts.iter().all(|(_, lines, _)| lines.is_empty());
    html! {
        @if !is_empty {
            h2 { "Highest costs of the last 7 days" }
            p class="lead" { "With the change from the 7 days before." }
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
                            tbody { @for line in lines { (top_costs_row(line, page)) } }
                        }
                    }
                }
            }
        }
    }
}

fn top_costs_row(line: &WeekCostLine, page: &str) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(below(page, &line.name)) { (view::name(&line.name)) } }
            td class="figure" { (view::amount(line.cost_nano_usd)) }
            td class="figure" { (change_percent(line)) }
        }
    }
}

/// The change from the week before, in percent.
fn change_percent(line: &WeekCostLine) -> String {
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

fn traffic(window: Option<&StabilityWindow>) -> Markup {
    let mut total = StabilityCounters::default();
    for model in window.iter().flat_map(|window| &window.models) {
        total.add(&model.total);
    }
    let rate = (total.requests > 0).then(|| format!("{:.2} %", total.stats().success_rate));
    let first_token = (total.ttft_count > 0).then(|| format!("{:.0} ms", total.stats().avg_ttft_ms));
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
        @if let Some(window) = window { (usage_chart::requests_chart(window)) }
        p class="none" {
            "Model by model: " a href="/models" { "Models" } ". Day by day: " a href="/usage" { "Usage" }
            ". Counts the billed requests of all nodes."
        }
    }
}

fn figure(name: &str, value: &Markup) -> Markup {
    html! { div class="card" { dt { (name) } dd { (value) } } }
}
