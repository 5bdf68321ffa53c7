//! The content of a model's page: the model's health label, its figures, and its hours.

use maud::{Markup, html};

use crate::{
    domain::faults::stability::{HIGH_CONFIDENCE_REQUESTS, Health, MEDIUM_CONFIDENCE_REQUESTS, ModelWindow},
    stability::public::page::{
        self, address,
        chart::chart,
        measure::{self, FIRST_TOKEN, LATENCY, SPEED, clock, legend, strip},
    },
};

/// The number of hours between two labels below the strip.
const TICK_HOURS: usize = 6;

/// Returns the content of the `body` element.
pub(super) fn content(model: &ModelWindow, updated: &Markup) -> Markup {
    let health = model.total.health();
    html! {
        header {
            nav { a href="/status" { "\u{2190} All models" } }
            h1 { bdi { (model.name) } }
            p class="state" {
                (page::pill(health)) " "
                @if health == Health::NoData { "No requests in the last 24 hours" } @else { "Confidence: " (page::confidence(&model.total)) }
            }
            p class="lead" { "The last 24 hours, from billed traffic, weighted by requests; " (updated) "." }
        }
        main {
            dl class="figures" {
                @for measure in measure::ALL {
                    div class="card" { dt { (measure.name) } dd { (measure.markup(&model.total)) } }
                }
            }
            section class="card hourly" aria-labelledby="hours" {
                h2 id="hours" { "Hour by hour (UTC)" }
                (strip(model))
                (ticks(model))
                (legend())
            }
            @if health != Health::NoData {
                div class="charts" {
                    @for measure in [LATENCY, FIRST_TOKEN, SPEED] { (chart(&measure, model)) }
                }
                (table(model))
            }
            (section(&address("/web/v1/model-stability/", &model.name)))
        }
    }
}

fn ticks(model: &ModelWindow) -> Markup {
    html! {
        div class="ticks" aria-hidden="true" {
            @for (hour, _) in model.hours.iter().step_by(TICK_HOURS) { span { (clock(*hour)) } }
            span { "now" }
        }
    }
}

/// Renders the hours as a table, with the newest hour first.
fn table(model: &ModelWindow) -> Markup {
    html! {
        details class="card" {
            summary { "The hours as a table" }
            div class="scroll" tabindex="0" role="region" aria-label="The hours as a table" {
                table class="hours" {
                    thead {
                        tr {
                            th scope="col" { "Hour (UTC)" }
                            th scope="col" { "Health" }
                            @for measure in measure::ALL { th scope="col" class="figure" { (measure.name) } }
                            th scope="col" { "Confidence" }
                        }
                    }
                    tbody {
                        @for (hour, counters) in model.hours.iter().rev() {
                            tr {
                                th scope="row" { (clock(*hour)) }
                                td { (page::pill(counters.health())) }
                                @for measure in measure::ALL { td class="figure" { (measure.markup(counters)) } }
                                td { (page::confidence(counters)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The path of the JSON document about all models.
pub(super) const SUMMARY: &str = "/web/v1/model-stability/summary";
const OPENAPI: &str = "/web/v1/openapi.json";

/// Renders the section that explains how the figures are measured, with links to the JSON documents. `json` is the path of the
/// document with this page's figures.
pub(super) fn section(json: &str) -> Markup {
    html! {
        section class="method" aria-labelledby="method" {
            h2 id="method" { "How this is measured" }
            div class="columns" {
                div {
                    h3 { "What counts" }
                    p {
                        "Every figure comes from billed requests: those that were forwarded to a provider and did not fail by "
                        "the client\u{2019}s own mistake. Each request has the same weight, so busy hours count more. "
                        "No test requests are made, and the number of requests is not published."
                    }
                    p {
                        "A request succeeded if its final status is 2xx. An answer that the provider broke off counts as a "
                        "failure, even if it began well. A request whose client left before the end is not counted."
                    }
                }
                div {
                    h3 { "Labels" }
                    dl {
                        @for (health, condition) in thresholds() {
                            dt { (page::pill(health)) }
                            dd { (condition) }
                        }
                    }
                }
                div {
                    h3 { "Confidence" }
                    p {
                        "High with at least " (HIGH_CONFIDENCE_REQUESTS) " requests, medium with at least " (MEDIUM_CONFIDENCE_REQUESTS)
                        ", otherwise low. With low confidence there is no label."
                    }
                    h3 { "The same as JSON" }
                    ul {
                        @if json != SUMMARY { li { a href=(json) { "This model, hour by hour" } } }
                        li { a href=(SUMMARY) { "All models" } }
                        li { a href=(OPENAPI) { "Description (OpenAPI)" } }
                    }
                }
            }
        }
    }
}

const fn thresholds() -> [(Health, &'static str); 6] {
    [
        (Health::Operational, "99.9 % or more succeeded"),
        (Health::Healthy, "99 % or more"),
        (Health::Degraded, "95 % or more"),
        (Health::Unstable, "less than 95 %"),
        (Health::NotEnoughData, "too few requests"),
        (Health::NoData, "no requests"),
    ]
}
