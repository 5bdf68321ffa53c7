//! Twenty-four bars, one per hour, coloured and as high as the hour's health is good.

use maud::{Markup, html};

use super::measure::SUCCESS;
use crate::domain::faults::stability::{Counters, Health, Hour, ModelWindow};
use crate::stability::public::look::label;

/// The width of an hour in the drawing, and the height of a full bar. The bar's width is in the style sheet.
const SLOT: u32 = 8;
const HEIGHT: u32 = 24;

/// The strip of a model, the oldest hour on the left. It says nothing of how many requests there were: a bar's height
/// follows its label alone, so that the label can be told without colours.
pub(super) fn strip(model: &ModelWindow) -> Markup {
    let width = model.hours.iter().fold(0, |width, _| width + SLOT);
    html! {
        svg class="strip" viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="img"
            aria-label=(summary(model)) {
            @for ((hour, counters), slot) in model.hours.iter().zip(0_u32..) {
                (bar(slot * SLOT + SLOT / 2, *hour, counters))
            }
        }
    }
}

fn bar(x: u32, hour: Hour, counters: &Counters) -> Markup {
    let health = counters.health();
    let top = HEIGHT - height(health);
    html! {
        path class=(label::class(health)) d={ "M" (x) " " (HEIGHT) "V" (top) } {
            title {
                (clock(hour)) " UTC: " (health.as_str())
                @if let Some(rate) = SUCCESS.of(counters) { ", " (SUCCESS.words(rate)) }
            }
        }
    }
}

const fn height(health: Health) -> u32 {
    match health {
        Health::Operational | Health::NotEnoughData => HEIGHT,
        Health::Healthy => 20,
        Health::Degraded => 15,
        Health::Unstable => 10,
        Health::NoData => 2,
    }
}

/// The time at which an hour begins, `14:00`.
pub(super) fn clock(hour: Hour) -> String {
    format!("{:02}:00", hour.number().rem_euclid(24))
}

/// How many hours had which label, for those who cannot see the bars.
fn summary(model: &ModelWindow) -> String {
    let mut parts = Vec::new();
    for health in label::ALL {
        let hours = model.hours.iter().filter(|(_, counters)| counters.health() == health);
        match hours.count() {
            0 => {}
            1 => parts.push(format!("1 hour {}", health.as_str())),
            hours => parts.push(format!("{hours} hours {}", health.as_str())),
        }
    }
    format!("Last 24 hours: {}", parts.join(", "))
}

/// What the colours and heights mean, for below a table of strips.
pub(super) fn legend() -> Markup {
    html! {
        ul class="legend" aria-label="What the bars mean" {
            @for health in label::ALL {
                li {
                    svg viewBox={ "0 0 " (SLOT) " " (HEIGHT) } aria-hidden="true" {
                        path class=(label::class(health)) d={ "M" (SLOT / 2) " " (HEIGHT) "V" (HEIGHT - height(health)) } {}
                    }
                    (health.as_str())
                }
            }
        }
    }
}
