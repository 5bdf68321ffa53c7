//! The overview's first section: what needs attention on this node, at providers and accounts, and the alerts of Prometheus.

use maud::{Markup, html};

use crate::{
    api::{accounts::Account, providers::ProviderView, usage::Overview},
    console::{
        alerts::{Alert, AlertState},
        desk::below,
        view,
    },
    domain::faults::stability::{Health, ModelWindow, Window},
    stability::public::look::label,
};

/// The most alerts of Prometheus that are listed.
const ALERTS_MAX: usize = 50;

/// What the section is made of.
pub(super) struct Attention<'a> {
    /// Sentences about this node.
    pub(super) troubles: Vec<String>,
    /// The admin API's overview.
    pub(super) all: &'a Overview,
    /// The admin API's providers.
    pub(super) providers: &'a [ProviderView],
    /// The public record.
    pub(super) window: Option<&'a Window>,
    /// The alerts of Prometheus, or why they are not known; `None` without its address.
    pub(super) alerts: Option<&'a Result<Vec<Alert>, String>>,
}

impl Attention<'_> {
    /// A line for each matter, the gravest kind first, or that there is none.
    pub(super) fn section(&self) -> Markup {
        let unwell: Vec<(&str, String)> = self.providers.iter().filter_map(unwell).collect();
        let models = self.window.iter().flat_map(|window| &window.models);
        let failing: Vec<Markup> = models.filter_map(failing).collect();
        let low = low(self.all);
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
                            li { span class="pill d" { "Provider" } " " a href="/providers" { (view::name(name)) } ": " (why) }
                        }
                        @for line in failing.iter().chain(&low) { (line) }
                        @if let Some(alerts) = self.alerts { (listed(alerts)) }
                    }
                }
                @if self.alerts.is_none() {
                    p class="none" {
                        "This is what the node knows of itself. Conditions on rates, and those of other nodes, need Prometheus: "
                        code { "[console] prometheus_url" } " (docs/console.md)."
                    }
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

/// A model that the public record of this hour calls degraded or worse.
fn failing(model: &ModelWindow) -> Option<Markup> {
    let (_, counters) = model.hours.last()?;
    let health = counters.health();
    if !matches!(health, Health::Degraded | Health::Unstable) {
        return None;
    }
    let figures = counters.figures();
    Some(html! {
        li {
            (label::pill(health)) " " a href=(below("/models", &model.name)) { (view::name(&model.name)) } ": "
            (format!("{:.2}", figures.success_rate)) " % of this hour's requests succeeded"
            @if counters.ttft_count > 0 { ", with a mean first token of " (format!("{:.0}", figures.avg_ttft_ms)) " ms" }
        }
    })
}

/// The accounts whose balance is low, and how many others there are.
fn low(all: &Overview) -> Vec<Markup> {
    let unnamed = all.low_count.saturating_sub(all.low.len() as u64);
    let account = |account: &Account| {
        let (id, balance) = (&account.id, account.facts.balance_nano_usd);
        html! {
            li {
                span class="pill d" { "Account" } " " a href=(below("/accounts", id)) { (view::name(id)) }
                ": " (match balance.nanos() {
                    1.. => "the balance is low",
                    0 => "nothing is left of the balance",
                    _ => "the balance is overdrawn",
                }) ", " (view::amount(balance))
            }
        }
    };
    let others = html! { li { span class="pill d" { "Account" } " " (view::thousands(unnamed)) " others, too" } };
    all.low
        .iter()
        .map(account)
        .chain((unnamed > 0).then_some(others))
        .collect()
}

/// The alerts of Prometheus, or that they are not known.
fn listed(alerts: &Result<Vec<Alert>, String>) -> Markup {
    let alerts = match alerts {
        Ok(alerts) => alerts,
        Err(why) => return html! { li { span class="pill d" { "Prometheus" } " its alerts are not known: " (why) } },
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
                " " @if !summary.is_empty() { (view::name(summary)) ": " } (view::name(&alert.labels.alertname))
                " since " time datetime=(alert.since) { (alert.since.strftime("%Y-%m-%d %H:%M:%S")) }
            }
        }
        @if unnamed > 0 { li { span class="pill d" { "Prometheus" } " " (unnamed) " other alerts, too" } }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::{
        api::usage::{CostsByDay, Dearest, UsageSums},
        domain::{
            faults::stability::{Counters, Hour},
            ledger::{daily_costs::DailyCosts, daily_sums::Sums},
            money::NanoUsd,
        },
    };

    fn section(window: Option<&Window>, alerts: Option<&Result<Vec<Alert>, String>>) -> String {
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
            spent: CostsByDay::of(&DailyCosts::new(0..=0), 1),
            dearest: Dearest {
                accounts: Vec::new(),
                keys: Vec::new(),
                models: Vec::new(),
            },
            low_count: 0,
            low: Vec::new(),
        };
        let attention = Attention {
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
            !away.contains("Nothing now.") && away.contains("not known: no answer within 2 s"),
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
            !all.contains("other alerts") && all.contains("<bdi>Alert0</bdi> since <time"),
            "{all}"
        );
        let words = "<bdi>&lt;b&gt;too hot&lt;/b&gt;</bdi>: <bdi>Alert1</bdi> since \
             <time datetime=\"2026-11-27T03:18:58.5Z\">2026-11-27 03:18:58</time>";
        assert!(all.contains(words), "{all}");
        assert!(section(None, Some(&alerts(ALERTS_MAX + 3))).contains("3 other alerts, too"));
    }

    #[test]
    fn models_are_named_whose_requests_fail_in_this_hour() {
        let counted = |requests, successes| Counters {
            requests,
            successes,
            ttft_ms: 4_000,
            ttft_count: 2,
            ..Counters::default()
        };
        let now = Hour::from_number(500_000);
        let hour = |models: &[(&str, Counters)]| {
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
        let text = section(Some(&Window::new(now, [], &buckets)), None);
        assert_eq!(text.matches("<li>").count(), 2, "{text}");
        let bad = "Unstable</span> <a href=\"/models/bad\"><bdi>bad</bdi></a>: 90.00 % of this hour's requests succeeded, \
             with a mean first token of 2000 ms";
        assert!(text.contains(bad), "{text}");
        assert!(text.contains("Degraded</span> <a href=\"/models/tired\">"), "{text}");
    }
}
