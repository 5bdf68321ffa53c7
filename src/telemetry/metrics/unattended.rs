//! Metrics of answers that are read to their end after their clients have disconnected.

use prometheus::{IntCounterVec, IntGauge};

use super::gauge_guard::GaugeGuard;
use super::maker::Maker;

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
pub(crate) enum UnattendedEnd {
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

impl Unattended {
    pub(super) fn begin(&self) -> GaugeGuard {
        GaugeGuard::new(&self.running)
    }

    pub(super) fn end(&self, end: UnattendedEnd) {
        self.ended.with_label_values(&[end.as_str()]).inc();
    }
}
