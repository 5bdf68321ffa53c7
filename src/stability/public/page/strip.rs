//! Strips of 24 bars, one per hour, whose colour and height show the hour's health.

use maud::{Markup, html};

use super::measure::SUCCESS;
use crate::domain::faults::stability::{Health, Hour, ModelWindow, StabilityCounters};
use crate::stability::public::look::label;

/// The width of an hour in the drawing. The width of its bar is in the style sheet.
const SLOT: u32 = 8;
const HEIGHT: u32 = 24;

/// The strip of a model, the oldest hour on the left. It does not reveal the number of requests: a bar's height depends on its
/// label only, so that labels can be told apart without colours.
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

fn bar(x: u32, hour: Hour, counters: &StabilityCounters) -> Markup {
    let health = counters.health();
    let top = HEIGHT - height(health);
    html! {
        path class=(label::class(health)) d={ "M" (x) " " (HEIGHT) "V" (top) } {
            title {
                (clock(hour)) " UTC: " (health.as_str())
                @if let Some(rate) = SUCCESS.value_in(counters) { ", " (SUCCESS.format(rate)) }
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

/// The time at which an hour begins, such as `14:00`.
pub(super) fn clock(hour: Hour) -> String {
    format!("{:02}:00", hour.number().rem_euclid(24))
}

/// The number of hours with each label, for people who cannot see the bars.
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

/// The legend of colours and heights, for below a table of strips.
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
