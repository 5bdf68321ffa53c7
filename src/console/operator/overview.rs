//! The console's overview page and usage page. The overview page displays problems, money and the traffic of the last 24 hours.

use futures_util::future::OptionFuture;
use maud::{Markup, html};

use crate::{
    api::{
        AdminError,
        accounts::AccountDetails,
        node::{ListProviders, ProviderView},
        usage::{Overview, ShowOverview, ShowUsage, TopCosts, UsagePage, UsageSums, WeekCostLine},
    },
    console::{
        Alert, AlertState, PageContext, below,
        layout::{self, HtmlPage},
        request::{read_question, to_query},
        usage_table,
    },
    domain::{
        faults::stability::{Health, ModelWindow, StabilityCounters, StabilityWindow},
        ledger::reports::SplitBy,
        money::NanoUsd,
    },
    stability::public::page,
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

/// Renders the usage of some days, and the amount that was paid in on these days.
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

/// Returns the change of a cost in comparison with the week before, in percent.
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
            (figure("Mean time to first token", &measured(first_token)))
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

/// The ways in which the usage can be split. Each way has its value in the query and its name for display. The first way is the
/// default.
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
            p class="lead" { "Only some of the accounts are included: there are too many for one page." }
        }
        (usage_table::usage_chart(usage, false))
        @if usage.total.requests == 0 {
            p class="card" { "There is no usage from " (usage.costs.from) " to " (usage.costs.until) "." }
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

/// The maximum number of alerts of Prometheus that are listed.
const ALERTS_MAX: usize = 50;

/// The data from which the first section of the overview page is rendered: problems of this node, of providers and of accounts,
/// and the alerts of Prometheus.
pub(super) struct AttentionSection<'a> {
    /// Problems of this node, each as a sentence.
    pub(super) troubles: Vec<String>,
    /// The overview of all accounts.
    pub(super) all: &'a Overview,
    /// All providers.
    pub(super) providers: &'a [ProviderView],
    /// The public record of the models' performance. `None` until the record has been read from the store.
    pub(super) window: Option<&'a StabilityWindow>,
    /// The alerts of Prometheus, or why they are not known. `None` if the URL of Prometheus is not configured.
    pub(super) alerts: Option<&'a Result<Vec<Alert>, String>>,
}

impl AttentionSection<'_> {
    /// Renders a line for each problem, the most severe kind first, or a line that says that there is no problem.
    pub(super) fn section(&self) -> Markup {
        let unwell: Vec<(&str, String)> = self.providers.iter().filter_map(provider_problems).collect();
        let models = self.window.iter().flat_map(|window| &window.models);
        let failing: Vec<Markup> = models.filter_map(failing_model).collect();
        let low = low_balances(self.all);
        let is_quiet = self
            .alerts
            .is_none_or(|alerts| matches!(alerts, Ok(none) if none.is_empty()));
        let is_well = self.troubles.is_empty() && unwell.is_empty() && failing.is_empty() && low.is_empty() && is_quiet;
        html! {
            section class="card" aria-labelledby="attention" {
                h2 id="attention" { "Needs attention" }
                @if is_well {
                    p class="none" { "Nothing now." }
                } @else {
                    ul class="plain" {
                        @for trouble in &self.troubles { li { span class="pill u" { "This node" } " " (trouble) } }
                        @for (name, why) in &unwell {
                            li { span class="pill d" { "Provider" } " " a href="/providers" { (layout::name(name)) } ": " (why) }
                        }
                        @for line in failing.iter().chain(&low) { (line) }
                        @if let Some(alerts) = self.alerts { (alert_lines(alerts)) }
                    }
                }
                @if self.alerts.is_none() {
                    p class="none" {
                        "Only problems that this node knows itself are listed. Alerts on rates, and on other nodes, need Prometheus: "
                        code { "[console] prometheus_url" } " (docs/console.md)."
                    }
                }
            }
        }
    }
}

/// Describes a provider's current problems. `None` if it has no problem or is not configured.
fn provider_problems(provider: &ProviderView) -> Option<(&str, String)> {
    let mut faults = Vec::new();
    if !provider.configured {
        return None;
    }
    if !provider.enabled {
        faults.push("switched off".to_owned());
    }
    let credentials = provider.credentials.iter();
    let resting = credentials.filter(|one| one.cooldown_seconds > 0).count();
    if resting > 0 {
        faults.push(format!("{resting} of its credentials are cooling down"));
    }
    match provider.backends_ejected {
        0 => {}
        ejected => faults.push(format!("{ejected} of its addresses are skipped after failures")),
    }
    match provider.open_circuits.len() {
        0 => {}
        models => faults.push(format!("skipped for {models} models after failures")),
    }
    (!faults.is_empty()).then(|| (provider.name.as_str(), faults.join(", ")))
}

/// Renders a line for a model that is degraded or unstable in the current hour, according to the public record. `None` for any
/// other model.
fn failing_model(model: &ModelWindow) -> Option<Markup> {
    let (_, counters) = model.hours.last()?;
    let health = counters.health();
    if !matches!(health, Health::Degraded | Health::Unstable) {
        return None;
    }
    let figures = counters.stats();
    Some(html! {
        li {
            (page::pill(health)) " " a href=(below("/models", &model.name)) { (layout::name(&model.name)) } ": "
            (format!("{:.2}", figures.success_rate)) " % of this hour's requests succeeded"
            @if counters.ttft_count > 0 { ", with a mean time to first token of " (format!("{:.0}", figures.avg_ttft_ms)) " ms" }
        }
    })
}

/// Renders the accounts with a low balance, and the number of further such accounts that are not listed.
fn low_balances(all: &Overview) -> Vec<Markup> {
    let unnamed = all.low_count.saturating_sub(all.low.len() as u64);
    let account = |account: &AccountDetails| {
        let (id, balance) = (&account.id, account.facts.balance_nano_usd);
        html! {
            li {
                span class="pill d" { "Account" } " " a href=(below("/accounts", id)) { (layout::name(id)) }
                ": " (match balance.nanos() {
                    1.. => "the balance is low",
                    0 => "nothing is left of the balance",
                    _ => "the balance is overdrawn",
                }) ", " (layout::amount(balance))
            }
        }
    };
    let others = html! { li { span class="pill d" { "Account" } " " (layout::thousands(unnamed)) " more" } };
    all.low
        .iter()
        .map(account)
        .chain((unnamed > 0).then_some(others))
        .collect()
}

/// Renders the alerts of Prometheus, or the reason why they are not known.
fn alert_lines(alerts: &Result<Vec<Alert>, String>) -> Markup {
    let alerts = match alerts {
        Ok(alerts) => alerts,
        Err(why) => return html! { li { span class="pill d" { "Prometheus" } " its alerts are unknown: " (why) } },
    };
    let unnamed = alerts.len().saturating_sub(ALERTS_MAX);
    html! {
        @for alert in alerts.iter().take(ALERTS_MAX) {
            li {
                @match alert.state {
                    AlertState::Firing => span class="pill u" { "Firing" },
                    AlertState::Pending | AlertState::Inactive => span class="pill d" { "Pending" },
                }
                @let summary = &alert.annotations.summary;
                " " @if !summary.is_empty() { (layout::name(summary)) ": " } (layout::name(&alert.labels.alertname))
                " since " time datetime=(alert.since) { (alert.since.strftime("%Y-%m-%d %H:%M:%S")) }
            }
        }
        @if unnamed > 0 { li { span class="pill d" { "Prometheus" } " " (unnamed) " more alerts" } }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{
        api::usage::CostsByDay,
        domain::{
            faults::stability::Hour,
            ledger::{daily_sums::Sums, reports::DailyCosts},
        },
    };

    fn section(window: Option<&StabilityWindow>, alerts: Option<&Result<Vec<Alert>, String>>) -> String {
        let none = UsageSums::from(&Sums::default());
        let all = Overview {
            accounts: 0,
            is_whole: true,
            suspended: 0,
            paid_in_nano_usd: NanoUsd::ZERO,
            paid_today_nano_usd: NanoUsd::ZERO,
            paid_month_nano_usd: NanoUsd::ZERO,
            balance_nano_usd: NanoUsd::ZERO,
            held_nano_usd: NanoUsd::ZERO,
            spent_nano_usd: NanoUsd::ZERO,
            today: none.clone(),
            month: none,
            spent: CostsByDay::from_costs(&DailyCosts::new(0..=0), 1),
            dearest: TopCosts {
                accounts: Vec::new(),
                keys: Vec::new(),
                models: Vec::new(),
            },
            low_count: 0,
            low: Vec::new(),
        };
        let attention = AttentionSection {
            troubles: Vec::new(),
            all: &all,
            providers: &[],
            window,
            alerts,
        };
        attention.section().into_string()
    }

    fn alert(number: usize, state: &str) -> Alert {
        let alert = json!({
            "labels": { "alertname": format!("Alert{number}") }, "state": state, "activeAt": "2026-11-27T03:18:58.5Z",
            "annotations": { "summary": if number == 0 { "" } else { "<b>too hot</b>" } },
        });
        serde_json::from_value(alert).unwrap()
    }

    #[test]
    fn alerts_are_listed_up_to_a_limit_or_are_said_not_to_be_known() {
        let needed = "[console] prometheus_url";
        let without = section(None, None);
        assert!(
            without.contains("Nothing now.") && without.contains(needed),
            "{without}"
        );
        let quiet = section(None, Some(&Ok(Vec::new())));
        assert!(quiet.contains("Nothing now.") && !quiet.contains(needed), "{quiet}");
        let away = section(None, Some(&Err("no answer within 2 s".to_owned())));
        assert!(
            !away.contains("Nothing now.") && away.contains("unknown: no answer within 2 s"),
            "{away}"
        );
        let alerts = |count: usize| {
            Ok((0..count)
                .map(|number| alert(number, if number < 2 { "firing" } else { "pending" }))
                .collect())
        };
        let all = section(None, Some(&alerts(ALERTS_MAX)));
        assert_eq!(
            (all.matches("Firing").count(), all.matches("Pending").count()),
            (2, ALERTS_MAX - 2)
        );
        assert!(
            !all.contains("more alerts") && all.contains("<bdi>Alert0</bdi> since <time"),
            "{all}"
        );
        let words = "<bdi>&lt;b&gt;too hot&lt;/b&gt;</bdi>: <bdi>Alert1</bdi> since \
             <time datetime=\"2026-11-27T03:18:58.5Z\">2026-11-27 03:18:58</time>";
        assert!(all.contains(words), "{all}");
        assert!(section(None, Some(&alerts(ALERTS_MAX + 3))).contains("3 more alerts"));
    }

    #[test]
    fn models_are_named_whose_requests_fail_in_this_hour() {
        let counted = |requests, successes| StabilityCounters {
            requests,
            successes,
            ttft_ms: 4_000,
            ttft_count: 2,
            ..StabilityCounters::default()
        };
        let now = Hour::from_number(500_000);
        let hour = |models: &[(&str, StabilityCounters)]| {
            models
                .iter()
                .map(|(name, counters)| ((*name).to_owned(), *counters))
                .collect()
        };
        let this = hour(&[
            ("bad", counted(20, 18)),
            ("few", counted(9, 0)),
            ("good", counted(1000, 990)),
            ("tired", counted(100, 98)),
        ]);
        let before = hour(&[("good", counted(100, 0))]);
        let buckets = BTreeMap::from([(now, this), (now.plus(-1), before)]);
        let text = section(Some(&StabilityWindow::new(now, [], &buckets)), None);
        assert_eq!(text.matches("<li>").count(), 2, "{text}");
        let bad = "Unstable</span> <a href=\"/models/bad\"><bdi>bad</bdi></a>: 90.00 % of this hour's requests succeeded, \
             with a mean time to first token of 2000 ms";
        assert!(text.contains(bad), "{text}");
        assert!(text.contains("Degraded</span> <a href=\"/models/tired\">"), "{text}");
    }
}
