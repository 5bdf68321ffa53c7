//! The stability of each model: hourly counters of billed requests, and the published statistics that are computed from them
//! (docs/interface.md, The public record).
//!
//! Each billed request has one [`Row`] in the consumption log. Unless its client disconnected, the request is counted for the
//! catalogue model that served it, in the hour in which it ended. Each node has counters for its own rows. These counters
//! ([`NodeHourCounters`]) only grow and are always stored completely, so storing them again does no harm. Only the means over a
//! window are published, never the counters.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::domain::{faults::End, ledger::consumption::Row};

/// The length of the published window in hours, including the current hour.
pub(crate) const WINDOW_HOURS: i64 = 24;
/// The minimum number of requests for high confidence.
pub(crate) const HIGH_CONFIDENCE_REQUESTS: u64 = 100;
/// The minimum number of requests for medium confidence.
pub(crate) const MEDIUM_CONFIDENCE_REQUESTS: u64 = 10;

const HOUR_MS: i64 = 3_600_000;

/// An hour in UTC, as the number of hours since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hour(i64);

impl Hour {
    /// Returns the hour that contains `at_ms`, in milliseconds since the Unix epoch.
    pub const fn from_unix_ms(at_ms: i64) -> Self {
        Self(at_ms.div_euclid(HOUR_MS))
    }

    /// Creates the hour from the number of hours since the Unix epoch.
    pub const fn from_number(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number of hours since the Unix epoch.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Returns the time at which the hour begins, in seconds since the Unix epoch.
    pub const fn start_seconds(self) -> i64 {
        self.0.saturating_mul(HOUR_MS / 1000)
    }

    /// Returns the hour `hours` hours later, or earlier if `hours` is negative.
    pub const fn plus(self, hours: i64) -> Self {
        Self(self.0.saturating_add(hours))
    }

    /// Returns the hours of the window that ends with this hour, the oldest first.
    pub fn window(self) -> impl DoubleEndedIterator<Item = Self> {
        (1 - WINDOW_HOURS..=0).map(move |hours| self.plus(hours))
    }
}

/// The counters of one model in one hour. Additions saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StabilityCounters {
    /// The number of billed requests whose clients did not disconnect.
    pub requests: u64,
    /// The number of these requests whose final status is 2xx.
    pub successes: u64,
    /// The sum of the times from arrival to end, in milliseconds, of the requests that `requests` includes.
    pub latency_ms: u64,
    /// The sum of the times from arrival to first content, in milliseconds, of the requests that `ttft_count` includes.
    pub ttft_ms: u64,
    /// The number of streaming requests whose answer had content.
    pub ttft_count: u64,
    /// The number of output tokens of the successful requests whose output tokens and generation time are both more than zero.
    pub output_tokens: u64,
    /// The sum of the generation times of the requests that `output_tokens` includes, in milliseconds. The generation time of a
    /// stream is the time from its first content to its end. For a non-streaming answer, it is the total time of the request.
    pub generation_ms: u64,
}

impl StabilityCounters {
    /// Returns the counters of one billed request. `None` if its client disconnected before the answer was complete, because such
    /// a request says nothing about the provider.
    ///
    /// A request is successful if its final status is 2xx. A stream that its provider broke off has the recorded status 502 or
    /// 504. Output tokens and generation time are added only for successful requests where both are more than zero, because
    /// other requests would distort the number of tokens per second.
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

    /// Computes the published statistics.
    pub fn stats(&self) -> StabilityStats {
        StabilityStats {
            success_rate: self.success_rate(),
            avg_latency_ms: ratio(self.latency_ms, self.requests, 10),
            avg_ttft_ms: ratio(self.ttft_ms, self.ttft_count, 10),
            avg_tps: ratio(self.output_tokens.saturating_mul(1000), self.generation_ms, 100),
            confidence: Confidence::from_requests(self.requests),
        }
    }

    /// Returns the health label that users see.
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

    /// Adds the counters `other` to these counters.
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

/// The counters of one hour, by the model's name in the catalogue.
pub(crate) type ModelCounters = BTreeMap<String, StabilityCounters>;

/// The counters that one node has collected so far for one hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeHourCounters {
    pub hour: Hour,
    /// The counters of the hour, by model.
    pub bucket: ModelCounters,
}

impl NodeHourCounters {
    /// Returns the watermark: the number of requests in the counters. It grows with every row. So if there are two versions of
    /// the counters of a node and hour, the version with the higher watermark includes all requests of the other version.
    pub(crate) fn watermark(&self) -> u64 {
        self.bucket
            .values()
            .fold(0, |sum, counters| sum.saturating_add(counters.requests))
    }
}

/// Returns `sum / count`, rounded to the nearest multiple of `1 / steps`; 0 if `count` is 0.
fn ratio(sum: u64, count: u64, steps: u64) -> f64 {
    if count == 0 {
        return 0.0;
    }
    let (sum, count, steps_wide) = (u128::from(sum), u128::from(count), u128::from(steps));
    let rounded = (2 * sum * steps_wide + count) / (2 * count);
    to_f64(u64::try_from(rounded).unwrap_or(u64::MAX)) / to_f64(steps)
}

/// Converts an integer to the nearest `f64`. The conversion is exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "means are published rounded anyway")]
fn to_f64(whole: u64) -> f64 {
    whole as f64
}

/// The reliability of a model's published statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// There are fewer than [`MEDIUM_CONFIDENCE_REQUESTS`] requests.
    Low,
    /// There are at least [`MEDIUM_CONFIDENCE_REQUESTS`] requests, but fewer than [`HIGH_CONFIDENCE_REQUESTS`].
    Medium,
    /// There are at least [`HIGH_CONFIDENCE_REQUESTS`] requests.
    High,
}

impl Confidence {
    /// Returns the confidence for this number of requests.
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

/// A label for the success rate, on the pages of the public record. JSON answers do not contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// The success rate is at least 99.9 %.
    Operational,
    /// The success rate is at least 99 %, but below 99.9 %.
    Healthy,
    /// The success rate is at least 95 %, but below 99 %.
    Degraded,
    /// The success rate is below 95 %.
    Unstable,
    /// There were no requests.
    NoData,
    /// There were too few requests for another label: the confidence is low.
    NotEnoughData,
}

impl Health {
    /// Returns the label for a success rate in percent.
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

    /// Returns the text of the label.
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

/// The published statistics of a model. All values are finite. A value is 0 if there were no requests from which to compute it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StabilityStats {
    /// The percentage of successful requests, from 0 to 100, rounded down to two decimal places. So 100 means that no request
    /// failed.
    pub success_rate: f64,
    /// The mean duration of requests in milliseconds, with one decimal place.
    pub avg_latency_ms: f64,
    /// The mean time from arrival to first content of streaming requests in milliseconds, with one decimal place.
    pub avg_ttft_ms: f64,
    /// The mean number of output tokens per second, with two decimal places.
    pub avg_tps: f64,
    /// The reliability of the statistics.
    pub confidence: Confidence,
}

/// The counters of all models in the published window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StabilityWindow {
    /// The current hour, which is the last one of the window.
    pub now: Hour,
    /// The models, sorted by name.
    pub models: Vec<ModelWindow>,
}

/// The counters of one model in the published window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelWindow {
    /// The model's name in the catalogue.
    pub name: String,
    /// The sum of the counters of all hours.
    pub total: StabilityCounters,
    /// The counters of each hour of the window, the oldest first; zero for an hour without requests.
    pub hours: Vec<(Hour, StabilityCounters)>,
}

impl StabilityWindow {
    /// Creates the window that ends with the hour `now`. The window contains the given models, and all other models that served
    /// requests in this window.
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

    /// Returns the counters of the model with this name; `None` if the window does not include the model.
    pub fn find(&self, name: &str) -> Option<&ModelWindow> {
        let place = self.models.binary_search_by(|model| model.name.as_str().cmp(name));
        place.ok().and_then(|place| self.models.get(place))
    }
}
