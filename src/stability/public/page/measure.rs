//! The four figures: where each comes from, and how it is written for people.

use maud::{Markup, html};

use crate::domain::faults::stability::Counters;

/// One figure of a model.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    /// Its name at the head of a column.
    pub(super) name: &'static str,
    /// What it means, in one sentence.
    pub(super) meaning: &'static str,
    value: fn(&Counters) -> Option<f64>,
    words: fn(f64) -> String,
}

impl Measure {
    /// Its value; `None` where nothing was measured.
    pub(super) fn of(&self, counters: &Counters) -> Option<f64> {
        (self.value)(counters)
    }

    /// A value of it, with its unit.
    pub(super) fn words(&self, value: f64) -> String {
        (self.words)(value)
    }

    /// Its value with its unit, or a dash where nothing was measured.
    pub(super) fn shown(&self, counters: &Counters) -> Markup {
        match self.of(counters) {
            Some(value) => html! { (self.words(value)) },
            None => html! { span class="none" title="Not measured" { "\u{2014}" } },
        }
    }
}

/// How many requests succeeded, in per cent.
pub(super) const SUCCESS: Measure = Measure {
    name: "Success rate",
    meaning: "Share of requests that succeeded.",
    value: |counters| (counters.requests > 0).then(|| counters.figures().success_rate),
    words: per_cent,
};

/// How long a request took, in milliseconds.
pub(super) const LATENCY: Measure = Measure {
    name: "Latency",
    meaning: "Mean time from a request's arrival to the end of its answer.",
    value: |counters| (counters.requests > 0).then(|| counters.figures().avg_latency_ms),
    words: duration,
};

/// How long a stream took to begin, in milliseconds.
pub(super) const FIRST_TOKEN: Measure = Measure {
    name: "First token",
    meaning: "Mean time from a request's arrival to the first content, of streamed answers.",
    value: |counters| (counters.ttft_count > 0).then(|| counters.figures().avg_ttft_ms),
    words: duration,
};

/// How fast it wrote, in tokens per second.
pub(super) const SPEED: Measure = Measure {
    name: "Speed",
    meaning: "Mean output tokens per second while an answer is generated.",
    value: |counters| (counters.generation_ms > 0).then(|| counters.figures().avg_tps),
    words: tokens_per_second,
};

/// All of them, in the order of the columns.
pub(super) const ALL: [Measure; 4] = [SUCCESS, LATENCY, FIRST_TOKEN, SPEED];

/// Two decimals, as published; a full hundred is exact.
fn per_cent(value: f64) -> String {
    if value >= 100.0 {
        "100 %".to_owned()
    } else {
        format!("{value:.2} %")
    }
}

/// Milliseconds below a second, minutes from one on. The limits lie where rounding would show the next unit's first value.
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
