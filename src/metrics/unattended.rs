//! Metrics of answers that are read to their end after their clients have disconnected.

use prometheus::{IntCounterVec, IntGauge};

use super::{GaugeGuard, Maker, Metrics};

pub(super) struct Unattended {
    running: IntGauge,
    ended: IntCounterVec,
}

impl Unattended {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        let unattended = Self {
            running: make.gauge(
                "weir_unattended_answers",
                "Answers being read to their end although their clients have left.",
            )?,
            ended: make.counters(
                "weir_unattended_answers_total",
                "Answers that were to be read to their end although their clients had left, by what became of them.",
                &["end"],
            )?,
        };
        for end in UnattendedEnd::ALL {
            unattended.ended.with_label_values(&[end.as_str()]);
        }
        Ok(unattended)
    }
}

/// What became of an answer that was to be read to its end although its client had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnattendedEnd {
    /// The answer was read to its end.
    Whole,
    /// It broke off: the provider's doing, or a time limit's.
    BrokenOff,
    /// Too many ran on already, so the provider was cut off when the client left.
    NoPlace,
}

impl UnattendedEnd {
    const ALL: [Self; 3] = [Self::Whole, Self::BrokenOff, Self::NoPlace];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::BrokenOff => "broken_off",
            Self::NoPlace => "no_place",
        }
    }
}

impl Metrics {
    /// An answer runs on although its client has left; it does until the guard is dropped.
    pub fn answer_unattended(&self) -> GaugeGuard {
        GaugeGuard::new(&self.unattended.running)
    }

    /// What became of an answer that was to run on although its client had left.
    pub fn unattended_answer(&self, end: UnattendedEnd) {
        self.unattended.ended.with_label_values(&[end.as_str()]).inc();
    }
}
