//! The metrics that Prometheus scrapes.
//!
//! If the OpenTelemetry semantic conventions for generative AI (in their development status of 2025) define a metric, weir uses
//! the metric's name from the conventions in Prometheus' form: `gen_ai.client.operation.duration` in seconds is
//! `gen_ai_client_operation_duration_seconds`. All other names begin with `weir_` or `process_`.
//!
//! A metric is declared once, in `metrics/declared.rs`, and updated through its handle. The number of values of each label is
//! limited. A value is a string constant, a name from the configuration, or a model or provider in the catalogue. Any other model
//! or provider becomes `other`, and a missing one becomes `none`. Therefore no client can create a time series.

mod declared;
mod kinds;
mod requests;
mod sockets;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::Registry;

use crate::telemetry::{
    access_log::RequestRecord,
    metrics::declared::{
        ConnectionMetrics, GenAiMetrics, JournalMetrics, LogMetrics, ProcessMetrics, ProgramMetrics, ProviderMetrics,
        RequestMetrics, SocketMetrics, StoreMetrics,
    },
};

pub(crate) use crate::telemetry::metrics::declared::MoneyMetrics;
pub(crate) use crate::telemetry::metrics::kinds::{GaugeGuard, Label, MetricReading, MetricSeries};
pub(crate) use crate::telemetry::metrics::requests::{CertificateEnd, CloseReason, ListenerFigures};
pub(crate) use crate::telemetry::metrics::requests::{DetachedEnd, EndpointSeries};
pub(crate) use crate::telemetry::metrics::sockets::{HandshakeRefusal, LineEnd, SocketEnd};

/// The content type of the text that [`Metrics::render`] returns.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of the process, shared in an `Arc`. Every method except [`Metrics::render`] is cheap and never waits.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) requests: RequestMetrics,
    pub(crate) providers: ProviderMetrics,
    pub(crate) money: MoneyMetrics,
    pub(crate) journal: JournalMetrics,
    pub(crate) store: StoreMetrics,
    pub(crate) log: LogMetrics,
    pub(crate) program: ProgramMetrics,
    pub(crate) connections: ConnectionMetrics,
    pub(crate) sockets: SocketMetrics,
    pub(crate) process: ProcessMetrics,
    gen_ai: GenAiMetrics,
    labels: ArcSwap<KnownLabels>,
    exposition: Exposition,
}

/// The registry of all metrics, with the samplers that update metrics before each scrape.
struct Exposition {
    registry: Registry,
    samplers: Mutex<Vec<Sampler>>,
}

type Sampler = Box<dyn Fn(&Metrics) + Send>;

impl Metrics {
    /// Creates all metrics at zero, for the given models and providers of the catalogue. Fails only if a declaration is invalid.
    pub(crate) fn new(models: &[&str], providers: &[&str]) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let metrics = Self {
            requests: RequestMetrics::register(&registry)?,
            providers: ProviderMetrics::register(&registry)?,
            money: MoneyMetrics::register(&registry)?,
            journal: JournalMetrics::register(&registry)?,
            store: StoreMetrics::register(&registry)?,
            log: LogMetrics::register(&registry)?,
            program: ProgramMetrics::register(&registry)?,
            connections: ConnectionMetrics::register(&registry)?,
            sockets: SocketMetrics::register(&registry)?,
            gen_ai: GenAiMetrics::register(&registry)?,
            process: ProcessMetrics::register(&registry)?,
            labels: ArcSwap::default(),
            exposition: Exposition {
                registry,
                samplers: Mutex::default(),
            },
        };
        metrics
            .program
            .build_info
            .with_labels([env!("CARGO_PKG_VERSION").into()])
            .set(1);
        metrics.process.set_start();
        metrics.requests.create_at_zero();
        metrics.connections.create_at_zero();
        metrics.sockets.create_at_zero();
        metrics.add_labels(models.iter().copied(), providers.iter().copied());
        Ok(metrics)
    }

    /// Adds models and providers whose names can be labels. Earlier names and their time series remain.
    pub(crate) fn add_labels<'a>(
        &self,
        models: impl Iterator<Item = &'a str>,
        providers: impl Iterator<Item = &'a str>,
    ) {
        let mut labels = KnownLabels::clone(&self.labels.load());
        labels.models.extend(models.map(str::to_owned));
        for provider in providers {
            if labels.providers.insert(provider.to_owned()) {
                // The series are created at zero, so that rates and alerts have a value before the first event.
                let provider = Label::configured(provider);
                self.providers.on.with_labels([provider]).set(0);
                self.providers.credential_refused.with_labels([provider]).raise_to(0);
                self.providers.skipped.with_labels([provider]).raise_to(0);
            }
        }
        self.labels.store(labels.into());
    }

    /// Returns the label of a provider: the provider's name if it is in the catalogue, otherwise `other`.
    pub(crate) fn provider_label<'a>(&self, name: &'a str) -> Label<'a> {
        self.labels.load().provider(Some(name))
    }

    /// Records a finished or refused request in all metrics. `served` are the series for the endpoint of the last attempt; `None`
    /// if there was no attempt.
    pub(crate) fn record_request(&self, record: &RequestRecord, served: Option<&EndpointSeries>) {
        requests::record((&self.requests, &self.gen_ai), record, served, &self.labels.load());
        if let Some(reason) = record.refusal {
            self.record_refusal(record.protocol.unwrap_or(NONE), reason);
        }
    }

    /// Counts a refusal for which no [`RequestRecord`] exists, for example because the request could not be read.
    /// [`Metrics::record_request`] counts all other refusals.
    pub(crate) fn record_refusal(&self, protocol: &'static str, reason: &'static str) {
        self.requests
            .refusals
            .with_labels([protocol.into(), reason.into()])
            .inc();
    }

    /// Returns the connection metrics of one listener.
    pub(crate) fn listener(&self, listener: &'static str) -> ListenerFigures {
        self.connections.listener(listener)
    }

    /// Adds a sampler, a function that is called before each scrape and copies values from other parts into metrics. The sampler
    /// must not wait, and must call neither [`Metrics::read_sampled`] nor this method.
    pub(crate) fn add_sampler(&self, sampler: impl Fn(&Self) + Send + 'static) {
        self.exposition.samplers.lock().push(Box::new(sampler));
    }

    /// Runs all samplers, and then `read` with the updated metrics. `read` must neither wait nor call this method or
    /// [`Metrics::add_sampler`].
    pub(crate) fn read_sampled<T>(&self, read: impl FnOnce(&Self) -> T) -> T {
        // The lock is held to the end, because samplers read, compare and add: with two concurrent readers, values would be added
        // twice.
        let samplers = self.exposition.samplers.lock();
        for sampler in samplers.iter() {
            sampler(self);
        }
        self.process.sample();
        read(self)
    }

    /// Renders all metrics in Prometheus' text format 0.0.4 ([`CONTENT_TYPE`]).
    pub(crate) fn render(&self) -> String {
        let gathered = self.read_sampled(|metrics| metrics.exposition.registry.gather());
        let mut text = String::new();
        if let Err(error) = prometheus::TextEncoder::new().encode_utf8(&gathered, &mut text) {
            tracing::error!(%error, "cannot render the metrics for a scrape");
        }
        text
    }
}

impl std::fmt::Debug for Exposition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Exposition").finish_non_exhaustive()
    }
}

/// The label value for a missing name, such as the provider of a refused request.
const NONE: &str = "none";
/// The label value for a model or provider that is not in the catalogue.
const OTHER: &str = "other";

/// The models and providers whose names can be labels.
#[derive(Clone, Debug, Default)]
struct KnownLabels {
    models: BTreeSet<String>,
    providers: BTreeSet<String>,
}

impl KnownLabels {
    fn model<'a>(&self, name: Option<&'a str>) -> Label<'a> {
        bounded(&self.models, name)
    }

    fn provider<'a>(&self, name: Option<&'a str>) -> Label<'a> {
        bounded(&self.providers, name)
    }
}

fn bounded<'a>(known: &BTreeSet<String>, name: Option<&'a str>) -> Label<'a> {
    match name {
        None => NONE.into(),
        Some(name) if known.contains(name) => Label::configured(name),
        Some(_) => OTHER.into(),
    }
}

/// The number of ticks per second (`USER_HZ`). `/proc` reports CPU time in ticks. The number is the same on every Linux
/// architecture.
const TICKS_PER_SECOND: f64 = 100.0;

impl ProcessMetrics {
    /// Sets the start time of the process to now.
    fn set_start(&self) {
        self.started.set(crate::edges::clock::unix_seconds());
    }

    /// Updates the metrics of the process. A value that cannot be read is not changed.
    fn sample(&self) {
        let (status, limits) = (read("/proc/self/status"), read("/proc/self/limits"));
        let resident = field(&status, "VmRSS:").and_then(|kib| kib.checked_mul(1024));
        for (gauge, value) in [
            (&self.resident_bytes, resident),
            (&self.threads, field(&status, "Threads:")),
            (&self.open_fds, open_fds()),
            (&self.max_fds, field(&limits, "Max open files")),
        ] {
            if let Some(value) = value {
                gauge.set(value);
            }
        }
        if let Some(seconds) = cpu_seconds(&read("/proc/self/stat")) {
            self.cpu_seconds.raise_to(seconds);
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the first number after `key`, in the line that begins with `key`.
fn field(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

fn open_fds() -> Option<u64> {
    let listed = std::fs::read_dir("/proc/self/fd").ok()?.count();
    // One of the descriptors belongs to the listing itself.
    u64::try_from(listed.saturating_sub(1)).ok()
}

/// Returns the CPU time in seconds from the text of `/proc/self/stat`: the sum of fields 14 (`utime`) and 15 (`stime`). Field 2
/// is the program's name in parentheses and may contain any characters.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut ticks = rest.split_ascii_whitespace().skip(11).map(str::parse::<f64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod process_tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_an_odd_process_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    fn this_process_has_all_of_them() {
        let text = Metrics::new(&[], &[]).unwrap().render();
        for name in [
            "process_start_time_seconds",
            "process_resident_memory_bytes",
            "process_threads",
            "process_open_fds",
            "process_max_fds",
            "process_cpu_seconds_total",
        ] {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
            let value = line
                .and_then(|line| line.rsplit(' ').next())
                .and_then(|text| text.parse::<f64>().ok());
            assert!(value.is_some_and(|value| value > 0.0), "{name} in {text}");
        }
    }
}
