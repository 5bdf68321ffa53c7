//! The metrics that Prometheus scrapes.
//!
//! Names follow the OpenTelemetry semantic conventions for generative AI (in their development status of 2025) where
//! one exists, written the Prometheus way: `gen_ai.client.operation.duration` in seconds is
//! `gen_ai_client_operation_duration_seconds`. Everything else is `weir_*`.
//!
//! A metric is declared once, in `metrics/declared.rs`, and fed over its handle. Every label is bounded: the value of one is text of the
//! program, a name of the configuration, or a model or provider that the catalogue has (otherwise `other`, absent `none`). No
//! client can make a time series.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::Registry;

use crate::telemetry::access_log::RequestRecord;

mod connections;
mod declared;
mod gen_ai;
mod kinds;
mod labels;
mod process;
mod requests;

pub(crate) use connections::{CertificateEnd, CloseReason, ListenerFigures};
pub(crate) use declared::Money;
use declared::{Connections, GenAi, Journal, Log, Process, Program, Providers, Requests, Store};
pub(crate) use kinds::{GaugeGuard, Label, Reading, Series};
use labels::{Labels, NONE};
pub(crate) use requests::{EndpointSeries, UnattendedEnd};

/// The content type of [`Metrics::render`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of the process. Shared in an `Arc`; every method is cheap and never waits (but [`Metrics::render`]).
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) requests: Requests,
    pub(crate) providers: Providers,
    pub(crate) money: Money,
    pub(crate) journal: Journal,
    pub(crate) store: Store,
    pub(crate) log: Log,
    pub(crate) program: Program,
    pub(crate) connections: Connections,
    pub(crate) process: Process,
    gen_ai: GenAi,
    labels: ArcSwap<Labels>,
    exposition: Exposition,
}

/// How the metrics are shown.
struct Exposition {
    registry: Registry,
    samplers: Mutex<Vec<Sampler>>,
}

type Sampler = Box<dyn Fn(&Metrics) + Send>;

impl Metrics {
    /// All metrics at zero, for the catalogue's models and providers. Fails only on a mistake in the declarations.
    pub(crate) fn new(models: &[&str], providers: &[&str]) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let metrics = Self {
            requests: Requests::register(&registry)?,
            providers: Providers::register(&registry)?,
            money: Money::register(&registry)?,
            journal: Journal::register(&registry)?,
            store: Store::register(&registry)?,
            log: Log::register(&registry)?,
            program: Program::register(&registry)?,
            connections: Connections::register(&registry)?,
            gen_ai: GenAi::register(&registry)?,
            process: Process::register(&registry)?,
            labels: ArcSwap::default(),
            exposition: Exposition {
                registry,
                samplers: Mutex::default(),
            },
        };
        metrics.program.build_info.of([env!("CARGO_PKG_VERSION").into()]).set(1);
        metrics.process.begin();
        metrics.requests.begin();
        metrics.connections.begin();
        metrics.know(models.iter().copied(), providers.iter().copied());
        Ok(metrics)
    }

    /// Adds names that may be labels. Known ones stay: their time series go on.
    pub(crate) fn know<'a>(&self, models: impl Iterator<Item = &'a str>, providers: impl Iterator<Item = &'a str>) {
        let mut labels = Labels::clone(&self.labels.load());
        labels.models.extend(models.map(str::to_owned));
        for provider in providers {
            if labels.providers.insert(provider.to_owned()) {
                // So that rates and alarms see the zero before the first event.
                let provider = Label::configured(provider);
                self.providers.on.of([provider]).set(0);
                self.providers.credential_refused.of([provider]).reach(0);
                self.providers.passed_over.of([provider]).reach(0);
            }
        }
        self.labels.store(labels.into());
    }

    /// The label of a provider: its name, if the catalogue has it.
    pub(crate) fn provider<'a>(&self, name: &'a str) -> Label<'a> {
        self.labels.load().provider(Some(name))
    }

    /// Counts a finished request in everything it belongs to, its refusal included. `served` are the series of the endpoint that
    /// the last attempt went to; `None` if there was no attempt.
    pub(crate) fn record_request(&self, record: &RequestRecord, served: Option<&EndpointSeries>) {
        requests::record((&self.requests, &self.gen_ai), record, served, &self.labels.load());
        if let Some(reason) = record.refusal {
            self.count_refusal(record.protocol.unwrap_or(NONE), reason);
        }
    }

    /// Counts a refusal that has no [`RequestRecord`], for example one before a request could be read.
    /// [`Metrics::record_request`] counts those that have one.
    pub(crate) fn count_refusal(&self, protocol: &'static str, reason: &'static str) {
        self.requests.refusals.of([protocol.into(), reason.into()]).inc();
    }

    /// The figures of a listener's connections.
    pub(crate) fn listener(&self, listener: &'static str) -> ListenerFigures {
        self.connections.listener(listener)
    }

    /// Has `sampler` called before each scrape, to copy in values that live elsewhere. It must not wait, and must not
    /// call [`Metrics::read_sampled`] or this method.
    pub(crate) fn sample(&self, sampler: impl Fn(&Self) + Send + 'static) {
        self.exposition.samplers.lock().push(Box::new(sampler));
    }

    /// Brings all values up to this moment for `read`, which must neither wait nor call this method or [`Metrics::sample`].
    pub(crate) fn read_sampled<T>(&self, read: impl FnOnce(&Self) -> T) -> T {
        // Held to the end: samplers read, compare and add, which two readers at once would do twice.
        let samplers = self.exposition.samplers.lock();
        for sampler in samplers.iter() {
            sampler(self);
        }
        self.process.sample();
        read(self)
    }

    /// Everything in Prometheus' text format 0.0.4 ([`CONTENT_TYPE`]).
    pub(crate) fn render(&self) -> String {
        let gathered = self.read_sampled(|metrics| metrics.exposition.registry.gather());
        let mut text = String::new();
        if let Err(error) = prometheus::TextEncoder::new().encode_utf8(&gathered, &mut text) {
            tracing::error!(%error, "metrics cannot be rendered");
        }
        text
    }
}

impl std::fmt::Debug for Exposition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Exposition").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
