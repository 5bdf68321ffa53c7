//! The content of the overview page: a summary, then a row for each model.

use maud::{Markup, html};

use super::measure;
use crate::domain::faults::stability::{Health, ModelWindow, StabilityWindow};
use crate::stability::public::page;
use crate::stability::public::page::measure::{legend, strip};
use crate::stability::public::page::{address, model};

/// The groups of rows in the overview, by label. Models with problems are first, the worst at the top. Then come models that
/// work, sorted by name, so that a model keeps its place while its rate varies within good values. Models without enough data are
/// last.
const GROUPS: [(&str, &[Health]); 4] = [
    ("Unstable", &[Health::Unstable]),
    ("Degraded", &[Health::Degraded]),
    ("Operational and healthy", &[Health::Operational, Health::Healthy]),
    ("Not enough data", &[Health::NotEnoughData]),
];

/// Returns the content of the `body` element.
pub(super) fn content(window: &StabilityWindow, updated: &Markup) -> Markup {
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

/// The summary: one sentence, and the number of models with each label.
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
        section class={ "glance " (page::class(mood)) } aria-label="Summary" {
            p class="verdict" { (sentence) }
            ul {
                @for health in page::ALL {
                    @let models = count(health);
                    @if models > 0 {
                        li class=(page::class(health)) { b { (models) } " " (health.as_str()) }
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
            td { (page::pill(health)) }
            td { (page::confidence(total)) }
            @for measure in measure::ALL { td { (measure.markup(total)) } }
            td { (strip(model)) }
        }
    }
}

fn link(model: &ModelWindow) -> Markup {
    html! { a href=(address("/status/", &model.name)) { bdi { (model.name) } } }
}

/// The list of models without requests.
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
            summary { (page::pill(Health::NoData)) " No requests in the last 24 hours: " (silent.len()) " of " (window.models.len()) " models" }
            ul class="silent" {
                @for model in silent { li { (link(model)) } }
            }
        }
    }
}
