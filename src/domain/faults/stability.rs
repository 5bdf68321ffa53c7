//! The stability of each model: hourly counters of billed requests, and the statistics published from them (docs/interface.md,
//! The public record).
//!
//! A billed request is one [`Row`] of the consumption log. Unless its client left, it counts in the [`ModelCounters`] of the hour in
//! which it ended, for the catalogue model that served it. Each node adds up its own rows. Its [`NodeHourCounters`] of an hour only grows,
//! so it is always stored whole, and storing it again does no harm. Only means over a window are published, never counts.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::domain::{faults::End, ledger::consumption::Row};

/// Length of the published window in hours, the current hour included.
pub(crate) const WINDOW_HOURS: i64 = 24;
/// Minimum number of requests for high confidence.
pub(crate) const HIGH_CONFIDENCE_REQUESTS: u64 = 100;
/// Minimum number of requests for medium confidence.
pub(crate) const MEDIUM_CONFIDENCE_REQUESTS: u64 = 10;

const HOUR_MS: i64 = 3_600_000;

/// An hour of UTC, counted from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hour(i64);

impl Hour {
    /// The hour that contains this time, in milliseconds since the Unix epoch.
    pub const fn from_unix_ms(at_ms: i64) -> Self {
        Self(at_ms.div_euclid(HOUR_MS))
    }

    /// The hour with this number since the epoch.
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Its number since the epoch.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// When it begins, in seconds since the Unix epoch.
    pub const fn start_seconds(self) -> i64 {
        self.0.saturating_mul(HOUR_MS / 1000)
    }

    /// The hour `hours` later, or earlier if negative.
    pub const fn plus(self, hours: i64) -> Self {
        Self(self.0.saturating_add(hours))
    }

    /// The hours of the window that ends with this one, the oldest first.
    pub fn window(self) -> impl DoubleEndedIterator<Item = Self> {
        (1 - WINDOW_HOURS..=0).map(move |hours| self.plus(hours))
    }
}

/// The counters of one model in one hour. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StabilityCounters {
    /// Billed requests whose clients stayed.
    pub requests: u64,
    /// Those whose final status is 2xx.
    pub successes: u64,
    /// Total time from arrival to end of all requests, in milliseconds.
    pub latency_ms: u64,
    /// Total time from arrival to the first content of the requests in `ttft_count`, in milliseconds.
    pub ttft_ms: u64,
    /// Streamed requests whose first content was seen.
    pub ttft_count: u64,
    /// Tokens that were generated in `generation_ms`.
    pub output_tokens: u64,
    /// The generation time of `output_tokens`, in milliseconds: from the first content of a stream to its end, or the whole
    /// time of a unary answer.
    pub generation_ms: u64,
}

impl StabilityCounters {
    /// The counters of one billed request; `None` if its client left before the answer was complete, which says nothing about
    /// the provider.
    ///
    /// It succeeded if its final status is 2xx: a stream that its provider broke is recorded as 502 or 504. Only successes with
    /// output tokens and a measurable duration count for the generation rate; others would distort it.
    pub fn from_row(row: &Row) -> Option<Self> {
        if !End::is_published(&row.outcome) {
            return None;
        }
        let success = (200..300).contains(&row.status);
        let ttft = row.ttft_ms.filter(|_| row.stream);
        let generation_ms = match ttft {
            Some(ttft) => row.latency_ms.saturating_sub(ttft),
            None if row.stream => 0,
            None => row.latency_ms,
        };
        let output_tokens = row.usage.output_total();
        let rated = success && output_tokens > 0 && generation_ms > 0;
        Some(Self {
            requests: 1,
            successes: u64::from(success),
            latency_ms: row.latency_ms,
            ttft_ms: ttft.unwrap_or(0),
            ttft_count: u64::from(ttft.is_some()),
            output_tokens: if rated { output_tokens } else { 0 },
            generation_ms: if rated { generation_ms } else { 0 },
        })
    }

    /// The published statistics.
    pub fn stats(&self) -> StabilityStats {
        StabilityStats {
            success_rate: self.success_rate(),
            avg_latency_ms: ratio(self.latency_ms, self.requests, 10),
            avg_ttft_ms: ratio(self.ttft_ms, self.ttft_count, 10),
            avg_tps: ratio(self.output_tokens.saturating_mul(1000), self.generation_ms, 100),
            confidence: Confidence::from_requests(self.requests),
        }
    }

    /// The label for people.
    pub fn health(&self) -> Health {
        match (self.requests, Confidence::from_requests(self.requests)) {
            (0, _) => Health::NoData,
            (_, Confidence::Low) => Health::NotEnoughData,
            (_, Confidence::Medium | Confidence::High) => Health::from_success_rate(self.success_rate()),
        }
    }

    fn success_rate(&self) -> f64 {
        let hundredths = u128::from(self.successes) * 10_000 / u128::from(self.requests.max(1));
        to_f64(u64::try_from(hundredths).unwrap_or(u64::MAX).min(10_000)) / 100.0
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.successes = self.successes.saturating_add(other.successes);
        self.latency_ms = self.latency_ms.saturating_add(other.latency_ms);
        self.ttft_ms = self.ttft_ms.saturating_add(other.ttft_ms);
        self.ttft_count = self.ttft_count.saturating_add(other.ttft_count);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.generation_ms = self.generation_ms.saturating_add(other.generation_ms);
    }
}

/// The counters of one hour, by catalogue model.
pub(crate) type ModelCounters = BTreeMap<String, StabilityCounters>;

/// The counters of one node in one hour so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeHourCounters {
    pub hour: Hour,
    /// The counters of the hour.
    pub bucket: ModelCounters,
}

impl NodeHourCounters {
    /// The number of requests it counts. It grows with every row of the hour, so of two shares of the same node and hour, the
    /// one with the greater watermark includes the other.
    pub(crate) fn watermark(&self) -> u64 {
        self.bucket
            .values()
            .fold(0, |sum, counters| sum.saturating_add(counters.requests))
    }
}

/// `sum / count` in steps of `1 / steps`, rounded to the nearest; 0 if nothing was counted.
fn ratio(sum: u64, count: u64, steps: u64) -> f64 {
    if count == 0 {
        return 0.0;
    }
    let (sum, count, steps_wide) = (u128::from(sum), u128::from(count), u128::from(steps));
    let rounded = (2 * sum * steps_wide + count) / (2 * count);
    to_f64(u64::try_from(rounded).unwrap_or(u64::MAX)) / to_f64(steps)
}

/// The nearest `f64`; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "means are published rounded anyway")]
fn to_f64(whole: u64) -> f64 {
    whole as f64
}

/// How reliable the published statistics are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Fewer than [`MEDIUM_CONFIDENCE_REQUESTS`] requests, or none.
    Low,
    /// Fewer than [`HIGH_CONFIDENCE_REQUESTS`] requests.
    Medium,
    /// At least [`HIGH_CONFIDENCE_REQUESTS`] requests.
    High,
}

impl Confidence {
    /// The confidence of this many requests.
    pub const fn from_requests(requests: u64) -> Self {
        if requests >= HIGH_CONFIDENCE_REQUESTS {
            Self::High
        } else if requests >= MEDIUM_CONFIDENCE_REQUESTS {
            Self::Medium
        } else {
            Self::Low
        }
    }
}

/// A label for people, from the success rate; never part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// 99.9 % and above.
    Operational,
    /// 99 % and above.
    Healthy,
    /// 95 % and above.
    Degraded,
    /// Below 95 %.
    Unstable,
    /// No requests.
    NoData,
    /// Too few requests for a label: confidence is low.
    NotEnoughData,
}

impl Health {
    /// The label of a success rate in percent.
    pub fn from_success_rate(success_rate: f64) -> Self {
        if success_rate >= 99.9 {
            Self::Operational
        } else if success_rate >= 99.0 {
            Self::Healthy
        } else if success_rate >= 95.0 {
            Self::Degraded
        } else {
            Self::Unstable
        }
    }

    /// The text of the label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operational => "Operational",
            Self::Healthy => "Healthy",
            Self::Degraded => "Degraded",
            Self::Unstable => "Unstable",
            Self::NoData => "No Data",
            Self::NotEnoughData => "Not enough data",
        }
    }
}

/// The statistics published from counters. Always finite; 0 where nothing was counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StabilityStats {
    /// Percentage of successes, 0 to 100, two decimals, rounded down: 100 means that nothing failed.
    pub success_rate: f64,
    /// Mean duration in milliseconds, one decimal.
    pub avg_latency_ms: f64,
    /// Mean time to the first content of streams in milliseconds, one decimal.
    pub avg_ttft_ms: f64,
    /// Output tokens per second, two decimals.
    pub avg_tps: f64,
    /// How reliable they are.
    pub confidence: Confidence,
}

/// The counters of all models in the window that ends with one hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StabilityWindow {
    /// The current hour: the last of the window.
    pub now: Hour,
    /// The models, sorted by name.
    pub models: Vec<ModelWindow>,
}

/// The counters of one model in the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelWindow {
    /// The model's name in the catalogue.
    pub name: String,
    /// The sum of all hours.
    pub total: StabilityCounters,
    /// The counters of each hour, the oldest first; zero where nothing was counted.
    pub hours: Vec<(Hour, StabilityCounters)>,
}

impl StabilityWindow {
    /// The window with these models, and any other model that served requests in it.
    pub fn new<'a>(
        now: Hour,
        models: impl IntoIterator<Item = &'a str>,
        buckets: &'a BTreeMap<Hour, ModelCounters>,
    ) -> Self {
        let in_window = |hour: Hour| buckets.get(&hour);
        let served = now.window().filter_map(in_window).flat_map(ModelCounters::keys);
        let names: BTreeSet<&str> = models.into_iter().chain(served.map(String::as_str)).collect();
        let model = |name: &str| {
            let counted = |hour: Hour| {
                let counters = in_window(hour).and_then(|bucket| bucket.get(name));
                (hour, counters.copied().unwrap_or_default())
            };
            let hours: Vec<(Hour, StabilityCounters)> = now.window().map(counted).collect();
            let mut total = StabilityCounters::default();
            for (_, counters) in &hours {
                total.add(counters);
            }
            ModelWindow {
                name: name.to_owned(),
                total,
                hours,
            }
        };
        Self {
            now,
            models: names.into_iter().map(model).collect(),
        }
    }

    /// The model of this name.
    pub fn find(&self, name: &str) -> Option<&ModelWindow> {
        let place = self.models.binary_search_by(|model| model.name.as_str().cmp(name));
        place.ok().and_then(|place| self.models.get(place))
    }
}
