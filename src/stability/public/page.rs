//! The status pages `/status` and `/status/{model}`: the stability record as HTML.
//!
//! A document is self-contained: it has no script and loads no other resource, and its content security policy forbids both.
//! Names come from the operator's configuration and can contain any characters; the template always escapes names. The pages
//! display only published figures: means, labels and confidence. They do not contain the number of requests, and no element has a
//! size from which that number could be derived.

mod chart;
mod measure;
mod model;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    domain::faults::stability::{Confidence, Health, ModelWindow, StabilityCounters, StabilityWindow},
    stability::public::page::measure::{legend, strip},
};

/// The `Content-Security-Policy` of every page. A test checks the hash of the style sheet. The only image is the icon, a `data:`
/// URL within the document.
pub const CSP: &str = "default-src 'none'; style-src 'sha256-wjHYlQhDmCh6DVaXIbIQPJ8V1tIv0A3XEZqDUy1RUH8='; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = concat!(include_str!("look/base.css"), include_str!("page/style.css"));

/// The interval at which a browser reloads an open overview, in seconds. A model's page is not reloaded, because a reload would
/// close opened sections.
const REFRESH_SECONDS: &str = "60";

/// Returns the overview of all models, as a complete HTML document. `updated_at` is the time at which the figures were read, in
/// seconds since the Unix epoch.
pub fn index(window: &StabilityWindow, updated_at: i64) -> String {
    let updated = updated(updated_at);
    status_document(
        "Model status",
        Some(REFRESH_SECONDS),
        &overview_content(window, &updated),
    )
}

/// Returns the page of one model, as a complete HTML document. `updated_at` is as in [`index`].
pub fn model(model: &ModelWindow, updated_at: i64) -> String {
    let updated = updated(updated_at);
    let title = format!("{} \u{b7} Model status", model.name);
    status_document(&title, None, &model::content(model, &updated))
}

fn status_document(title: &str, refresh: Option<&str>, content: &Markup) -> String {
    let head = html! {
        @if let Some(seconds) = refresh {
            meta http-equiv="refresh" content=(seconds);
        }
        style { (PreEscaped(STYLE)) }
    };
    document(title, &head, content).into_string()
}

/// Renders the time at which the figures were read, as text in a `time` element. `at` is in seconds since the Unix epoch.
fn updated(at: i64) -> Markup {
    match Timestamp::from_second(at) {
        Ok(at) => html! {
            "updated " time datetime=(at) { (at.strftime("%-d %B %Y, %H:%M:%S UTC")) }
        },
        Err(_) => html! { "updated at an unknown time" },
    }
}

/// The characters that are percent-encoded in a path segment: all except the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the path of a model's page or JSON document: `before`, followed by the encoded name.
fn address(before: &str, name: &str) -> String {
    format!("{before}{}", utf8_percent_encode(name, SEGMENT))
}

/// The icon of the pages: three rising bars, in a colour that is visible on light and dark browser tabs.
pub(crate) const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath \
     d='M3 15V9M8 15V5M13 15V1' stroke='%231f9d5c' stroke-width='4'/%3E%3C/svg%3E";

/// The width of one character of an axis label, in the chart's own units. The value suits the widest of the usual fonts.
const AXIS_CHARACTER: usize = 7;

/// Returns the `viewBox` of a chart with this size. `room` is the width that the drawing has reserved for the axis labels. The
/// box is widened if the longest label needs more room.
pub(crate) fn view_box(labels: impl IntoIterator<Item = String>, room: u32, (width, height): (u32, u32)) -> String {
    let widths = labels.into_iter().map(|label| label.chars().count() * AXIS_CHARACTER);
    let widest = widths.max().and_then(|width| u32::try_from(width).ok()).unwrap_or(0);
    let more = widest.saturating_sub(room);
    format!("{} 0 {} {height}", -i64::from(more), width.saturating_add(more))
}

/// Returns a complete HTML document. `head` contains the page's style.
pub(crate) fn document(title: &str, head: &Markup, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href=(ICON);
                (head)
            }
            body { (body) }
        }
    }
}

/// All health labels, in the order of legends and summaries.
pub(crate) const ALL: [Health; 6] = [
    Health::Operational,
    Health::Healthy,
    Health::Degraded,
    Health::Unstable,
    Health::NotEnoughData,
    Health::NoData,
];

/// Returns the CSS class with the colours of a health label. The class has one letter, because a page about many models contains
/// thousands of classes.
pub(crate) const fn class(health: Health) -> &'static str {
    match health {
        Health::Operational => "o",
        Health::Healthy => "h",
        Health::Degraded => "d",
        Health::Unstable => "u",
        Health::NotEnoughData => "l",
        Health::NoData => "n",
    }
}

/// Renders a health label as a pill: a dot and the label's name.
pub(crate) fn pill(health: Health) -> Markup {
    html! { span class={ "pill " (class(health)) } { (health.as_str()) } }
}

/// Returns the name of the level of confidence in a model's figures.
pub(crate) fn confidence(counters: &StabilityCounters) -> &'static str {
    match counters.stats().confidence {
        Confidence::High => "High",
        Confidence::Medium => "Medium",
        Confidence::Low => "Low",
    }
}

/// The groups of rows in the overview, by label. Models with problems are first, with the worst at the top. They are followed by
/// working models, sorted by name, so that a model does not move while its rate varies within good values. Models without enough
/// data are last.
const GROUPS: [(&str, &[Health]); 4] = [
    ("Unstable", &[Health::Unstable]),
    ("Degraded", &[Health::Degraded]),
    ("Operational and healthy", &[Health::Operational, Health::Healthy]),
    ("Not enough data", &[Health::NotEnoughData]),
];

/// Returns the content of the `body` element of the overview: a summary, then a row for each model.
fn overview_content(window: &StabilityWindow, updated: &Markup) -> Markup {
    html! {
        header {
            h1 { "Model status" }
            p class="lead" {
                "How the models behind this gateway did in the last 24 hours, from billed traffic, weighted by requests; "
                (updated) "."
            }
        }
        main {
            (summary(window))
            @if models_with(window, |health| health != Health::NoData).next().is_some() { (table(window)) }
            (silent(window))
            (model::section(model::SUMMARY))
        }
    }
}

/// Returns the models whose health label fulfils `wanted`, sorted by name.
fn models_with(window: &StabilityWindow, wanted: impl Fn(Health) -> bool) -> impl Iterator<Item = &ModelWindow> {
    let mut models: Vec<&ModelWindow> = window.models.iter().collect();
    models.sort_by(|one, other| one.name.cmp(&other.name));
    models.into_iter().filter(move |model| wanted(model.total.health()))
}

/// Renders the summary: one sentence, and the number of models with each label.
fn summary(window: &StabilityWindow) -> Markup {
    let count = |health: Health| models_with(window, |found| found == health).count();
    let well = count(Health::Operational) + count(Health::Healthy);
    let (degraded, unstable) = (count(Health::Degraded), count(Health::Unstable));
    let (mood, sentence) = match (well, degraded, unstable) {
        (0, 0, 0) => (Health::NoData, "Too little traffic for a verdict".to_owned()),
        (_, 0, 0) => (
            Health::Operational,
            "All measured models are operational or healthy".to_owned(),
        ),
        (_, 1, 0) => (Health::Degraded, "1 model is degraded".to_owned()),
        (_, _, 0) => (Health::Degraded, format!("{degraded} models are degraded")),
        (_, _, 1) => (Health::Unstable, "1 model is unstable".to_owned()),
        _ => (Health::Unstable, format!("{unstable} models are unstable")),
    };
    html! {
        section class={ "glance " (class(mood)) } aria-label="Summary" {
            p class="verdict" { (sentence) }
            ul {
                @for health in ALL {
                    @let models = count(health);
                    @if models > 0 {
                        li class=(class(health)) { b { (models) } " " (health.as_str()) }
                    }
                }
            }
        }
    }
}

fn table(window: &StabilityWindow) -> Markup {
    html! {
        table class="models" {
            caption class="unseen" { "The models with requests in the last 24 hours" }
            thead {
                tr {
                    th scope="col" { "Model" }
                    th scope="col" { "Health" }
                    th scope="col" { "Confidence" }
                    @for measure in measure::ALL {
                        th scope="col" class="figure" title=(measure.meaning) { (measure.name) }
                    }
                    th scope="col" class="hours" { span { "24 h ago" } span { "now" } }
                }
            }
            @for (name, labels) in GROUPS {
                @let rows: Vec<&ModelWindow> = models_with(window, |health| labels.contains(&health)).collect();
                @if !rows.is_empty() {
                    tbody {
                        tr class="group" { th scope="rowgroup" colspan="8" { (name) } }
                        @for model in rows { (row(model)) }
                    }
                }
            }
        }
        (legend())
    }
}

fn row(model: &ModelWindow) -> Markup {
    let total = &model.total;
    let health = total.health();
    html! {
        tr class=[(health == Health::NotEnoughData).then_some("unsure")] {
            th scope="row" { (link(model)) }
            td { (pill(health)) }
            td { (confidence(total)) }
            @for measure in measure::ALL { td { (measure.markup(total)) } }
            td { (strip(model)) }
        }
    }
}

fn link(model: &ModelWindow) -> Markup {
    html! { a href=(address("/status/", &model.name)) { bdi { (model.name) } } }
}

/// Renders the list of models without requests.
fn silent(window: &StabilityWindow) -> Markup {
    let silent: Vec<&ModelWindow> = models_with(window, |health| health == Health::NoData).collect();
    if window.models.is_empty() {
        return html! { p class="card" { "There are no models yet." } };
    }
    if silent.is_empty() {
        return html! {};
    }
    html! {
        details class="card" open[silent.len() == window.models.len()] {
            summary { (pill(Health::NoData)) " No requests in the last 24 hours: " (silent.len()) " of " (window.models.len()) " models" }
            ul class="silent" {
                @for model in silent { li { (link(model)) } }
            }
        }
    }
}

#[cfg(test)]
mod look_tests {
    use super::*;

    #[test]
    fn a_chart_is_as_wide_as_its_labels_need() {
        let wide = |labels: &[&str]| view_box(labels.iter().map(ToString::to_string), 52, (332, 150));
        assert_eq!(wide(&[]), "0 0 332 150");
        assert_eq!(wide(&["50.00 %", "100 %"]), "0 0 332 150");
        assert_eq!(wide(&["6000 tok/s", "3000 tok/s"]), "-18 0 350 150");
    }
}
