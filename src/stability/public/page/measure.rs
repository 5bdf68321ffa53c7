//! The four figures of a model (success rate, latency, first token, speed), with the functions that compute and format them.

use maud::{Markup, html};

use crate::{
    domain::faults::stability::{Health, Hour, ModelWindow, StabilityCounters},
    stability::public::page,
};

/// One figure of a model, such as its latency.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    /// The name of the figure, for a column heading.
    pub(super) name: &'static str,
    /// The meaning of the figure, in one sentence.
    pub(super) meaning: &'static str,
    value: fn(&StabilityCounters) -> Option<f64>,
    formatter: fn(f64) -> String,
}

impl Measure {
    /// Returns the value of this figure; `None` if nothing was measured.
    pub(super) fn value_in(&self, counters: &StabilityCounters) -> Option<f64> {
        (self.value)(counters)
    }

    /// Formats a value of this figure with its unit.
    pub(super) fn format(&self, value: f64) -> String {
        (self.formatter)(value)
    }

    /// Renders the value of this figure with its unit; a dash if nothing was measured.
    pub(super) fn markup(&self, counters: &StabilityCounters) -> Markup {
        match self.value_in(counters) {
            Some(value) => html! { (self.format(value)) },
            None => html! { span class="none" title="Not measured" { "\u{2014}" } },
        }
    }
}

/// The share of successful requests, in per cent.
pub(super) const SUCCESS: Measure = Measure {
    name: "Success rate",
    meaning: "Share of requests that succeeded.",
    value: |counters| (counters.requests > 0).then(|| counters.stats().success_rate),
    formatter: per_cent,
};

/// The mean duration of a request, in milliseconds.
pub(super) const LATENCY: Measure = Measure {
    name: "Latency",
    meaning: "Mean time from a request's arrival to the end of its answer.",
    value: |counters| (counters.requests > 0).then(|| counters.stats().avg_latency_ms),
    formatter: duration,
};

/// The mean time to the first content of a streamed answer, in milliseconds.
pub(super) const FIRST_TOKEN: Measure = Measure {
    name: "First token",
    meaning: "Mean time from a request's arrival to the first content, of streamed answers.",
    value: |counters| (counters.ttft_count > 0).then(|| counters.stats().avg_ttft_ms),
    formatter: duration,
};

/// The output speed, in tokens per second.
pub(super) const SPEED: Measure = Measure {
    name: "Speed",
    meaning: "Mean output tokens per second while an answer is generated.",
    value: |counters| (counters.generation_ms > 0).then(|| counters.stats().avg_tps),
    formatter: tokens_per_second,
};

/// All figures, in the order of the columns.
pub(super) const ALL: [Measure; 4] = [SUCCESS, LATENCY, FIRST_TOKEN, SPEED];

/// Formats a percentage with two decimals, as it is published. The value 100 has no decimals, because it is exact.
fn per_cent(value: f64) -> String {
    if value >= 100.0 {
        "100 %".to_owned()
    } else {
        format!("{value:.2} %")
    }
}

/// Formats a duration in milliseconds, seconds or minutes. A value that would be rounded up to the next unit is formatted in that
/// unit.
fn duration(ms: f64) -> String {
    if ms < 9.95 {
        format!("{ms:.1} ms")
    } else if ms < 999.5 {
        format!("{ms:.0} ms")
    } else if ms < 59_950.0 {
        format!("{:.1} s", ms / 1000.0)
    } else {
        format!("{:.1} min", ms / 60_000.0)
    }
}

fn tokens_per_second(value: f64) -> String {
    if value < 9.95 {
        format!("{value:.1} tok/s")
    } else {
        format!("{value:.0} tok/s")
    }
}

/// The width of an hour in a strip, in the drawing's units. The style sheet defines the width of the bar in this space.
const SLOT: u32 = 8;
const HEIGHT: u32 = 24;

/// Renders the strip of a model: one bar for each hour, with the oldest hour on the left. The strip does not reveal the number of
/// requests. The height of a bar depends only on the hour's label, so labels can be distinguished without colours.
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
        path class=(page::class(health)) d={ "M" (x) " " (HEIGHT) "V" (top) } {
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

/// Formats the time at which an hour begins, such as `14:00`.
pub(super) fn clock(hour: Hour) -> String {
    format!("{:02}:00", hour.number().rem_euclid(24))
}

/// Returns the number of hours with each label, as text for readers who cannot see the bars.
fn summary(model: &ModelWindow) -> String {
    let mut parts = Vec::new();
    for health in page::ALL {
        let hours = model.hours.iter().filter(|(_, counters)| counters.health() == health);
        match hours.count() {
            0 => {}
            1 => parts.push(format!("1 hour {}", health.as_str())),
            hours => parts.push(format!("{hours} hours {}", health.as_str())),
        }
    }
    format!("Last 24 hours: {}", parts.join(", "))
}

/// Renders the legend of colours and heights, for display below a table of strips.
pub(super) fn legend() -> Markup {
    html! {
        ul class="legend" aria-label="What the bars mean" {
            @for health in page::ALL {
                li {
                    svg viewBox={ "0 0 " (SLOT) " " (HEIGHT) } aria-hidden="true" {
                        path class=(page::class(health)) d={ "M" (SLOT / 2) " " (HEIGHT) "V" (HEIGHT - height(health)) } {}
                    }
                    (health.as_str())
                }
            }
        }
    }
}
