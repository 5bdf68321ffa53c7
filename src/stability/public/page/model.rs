//! The content of a model's page: its label, its figures, its hours.

use maud::{Markup, html};

use super::chart::chart;
use super::measure::{self, FIRST_TOKEN, LATENCY, SPEED};
use super::strip::{clock, legend, strip};
use super::{address::address, method};
use crate::domain::faults::stability::{Health, ModelWindow};
use crate::stability::public::look::label;

/// The number of hours between two labels below the strip.
const TICK_HOURS: usize = 6;

/// The content of the `body`.
pub(super) fn content(model: &ModelWindow, updated: &Markup) -> Markup {
    let health = model.total.health();
    html! {
        header {
            nav { a href="/status" { "\u{2190} All models" } }
            h1 { bdi { (model.name) } }
            p class="state" {
                (label::pill(health)) " "
                @if health == Health::NoData { "No requests in the last 24 hours" } @else { "Confidence: " (label::confidence(&model.total)) }
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
            (method::section(&address("/web/v1/model-stability/", &model.name)))
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

/// The hours as a table, the newest first.
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
                                td { (label::pill(counters.health())) }
                                @for measure in measure::ALL { td class="figure" { (measure.markup(counters)) } }
                                td { (label::confidence(counters)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
