//! The console's overview page, with problems, money and the last 24 hours, and the page of usage.

use futures_util::future::OptionFuture;
use maud::{Markup, html};

use crate::{
    api::{
        error::AdminError,
        node::ListProviders,
        usage::{Overview, ShowOverview, ShowUsage, TopCosts, UsagePage, UsageSums, WeekCostLine},
    },
    console::{
        PageContext, below,
        layout::{self, HtmlPage},
        operator::attention::AttentionSection,
        request::{read_question, to_query},
        usage_table,
    },
    domain::{
        faults::stability::{StabilityCounters, StabilityWindow},
        ledger::reports::SplitBy,
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
        (usage_table::costs_chart(&all.spent, None, true))
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
    let accounts = layout::thousands(all.accounts as u64);
    html! {
        dl class="figures" {
            (figure("Paid in so far", &layout::amount(all.paid_in_nano_usd)))
            (figure("Balance", &layout::amount(all.balance_nano_usd)))
            (figure("Held for running requests", &layout::amount(all.held_nano_usd)))
            (figure("Accounts", &html! { (accounts) @if all.suspended > 0 { small { " (" (all.suspended) " suspended)" } } }))
        }
        @if !all.is_whole { p class="none" { "Only the first " (accounts) " accounts are included." } }
    }
}

/// Renders the usage of some days, and what was paid in on these days.
fn usage_figures(name: &str, sums: &UsageSums, paid_in: NanoUsd) -> Markup {
    let [input, output] = [sums.usage.input_total(), sums.usage.output_total()].map(layout::thousands);
    html! {
        h2 { (name) }
        dl class="figures" {
            (figure("Paid in", &layout::amount(paid_in)))
            (figure("Spent", &layout::amount(sums.cost_nano_usd)))
            (figure("Requests", &html! { (layout::thousands(sums.requests)) }))
            (figure("Failed", &html! { (layout::thousands(sums.errors)) }))
            (figure("Tokens in and out", &html! { (input) " / " (output) }))
        }
    }
}

/// Renders the accounts, keys and models with the highest costs in the last seven days.
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
            th scope="row" { a href=(below(page, &line.name)) { (layout::name(&line.name)) } }
            td class="figure" { (layout::amount(line.cost_nano_usd)) }
            td class="figure" { (change_percent(line)) }
        }
    }
}

/// Returns the change of a cost from the week before, in percent.
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
            (figure("Requests", &html! { (layout::thousands(total.requests)) }))
            (figure("Failed", &html! { (layout::thousands(total.requests.saturating_sub(total.successes))) }))
            (figure("Success rate", &measured(rate)))
            (figure("Mean first token", &measured(first_token)))
        }
        @if let Some(window) = window { (usage_table::requests_chart(window)) }
        p class="none" {
            "Model by model: " a href="/models" { "Models" } ". Day by day: " a href="/usage" { "Usage" }
            ". Counts the billed requests of all nodes."
        }
    }
}

fn figure(name: &str, value: &Markup) -> Markup {
    html! { div class="card" { dt { (name) } dd { (value) } } }
}

/// The ways in which the usage can be split, with their names. The first is the default.
const SPLITS: [(&str, &str); 4] = [("day", "Day"), ("model", "Model"), ("key", "Key"), ("tag", "Tag")];

pub(super) async fn usage_page(context: &PageContext<'_>) -> Result<HtmlPage, AdminError> {
    let wanted = |name| context.query.text(name);
    let filter = ["account", "key", "model", "tag", "from", "until", "by"].map(|name| (name, wanted(name)));
    let found = match find_usage(context, &filter).await {
        Ok(found) => found,
        // If a filter is invalid, the error is displayed below the filters.
        Err(refused) => html! { p class="card refused" role="alert" { (refused) } },
    };
    Ok(HtmlPage {
        title: "Usage".to_owned(),
        content: html! { (filters(&filter)) (found) },
    })
}

async fn find_usage(context: &PageContext<'_>, filter: &[(&str, &str)]) -> Result<Markup, AdminError> {
    let after = context.query.text("after");
    let asked = ShowUsage {
        most: Some(usage_table::LINES_MAX),
        ..read_question(&[filter, &[("after", after)]].concat())?
    };
    Ok(usage_content(&*context.fetch(asked).await?, filter, !after.is_empty()))
}

fn usage_content(usage: &UsagePage, filter: &[(&str, &str)], is_further: bool) -> Markup {
    let name = |name: &str| match usage.by {
        SplitBy::Key => html! { a href=(below("/keys", name)) { (name) } },
        _ => layout::name(name),
    };
    html! {
        @if usage.next.is_some() || is_further {
            p class="lead" { "Only some of the accounts: there are too many for one page." }
        }
        (usage_table::usage_chart(usage, false))
        @if usage.total.requests == 0 {
            p class="card" { "Nothing was used from " (usage.costs.from) " to " (usage.costs.until) "." }
        } @else { (usage_table::usage_table(usage, name)) }
        @if let Some(next) = &usage.next {
            p class="pages" { a href={ "/usage" (to_query(&[filter, &[("after", next)]].concat())) } { "Further accounts" } }
        }
    }
}

fn filters(filter: &[(&str, &str)]) -> Markup {
    let labels = [
        ("Account", "text"),
        ("Key id", "text"),
        ("Model", "text"),
        ("Tag", "text"),
        ("From (UTC)", "date"),
        ("Until, exclusive", "date"),
    ];
    let by = filter.last().map_or("", |(_, by)| *by);
    html! {
        form method="get" action="/usage" class="filter" role="search" {
            @for ((name, value), (label, kind)) in filter.iter().zip(labels) {
                label { span { (label) } input type=(kind) name=(name) value=(value); }
            }
            label {
                span { "By" }
                select name="by" { @for (value, label) in SPLITS { option value=(value) selected[by == value] { (label) } } }
            }
            button { "Show" }
        }
    }
}
