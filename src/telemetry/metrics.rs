//! What Prometheus scrapes.
//!
//! Names follow the OpenTelemetry semantic conventions for generative AI (in their development status of 2025) where
//! one exists, written the Prometheus way: `gen_ai.client.operation.duration` in seconds is
//! `gen_ai_client_operation_duration_seconds`. Everything else is `weir_*`.
//!
//! Every label is bounded: models and providers only if the catalogue has them (otherwise `other`, absent `none`), hosts
//! and everything of type `&'static str` from closed sets. No client can make a time series.

use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use crate::telemetry::access_log::RequestRecord;

mod connections;
mod gauge_guard;
mod gen_ai;
mod health;
mod labels;
mod log_sinks;
mod lost_lines;
mod maker;
mod money;
mod process;
mod providers;
mod reloads;
mod requests;
mod store;
mod tls;
mod unattended;

pub(crate) use connections::{CloseReason, ListenerFigures};
pub(crate) use gauge_guard::GaugeGuard;
pub(crate) use health::Health;
use log_sinks::LogSinkMetrics;
pub(crate) use log_sinks::{LogSinkFigures, LogTrimFigures};
use maker::{Maker, NONE, raise};
pub(crate) use money::MoneyFigures;
pub(crate) use providers::ProviderFigures;
pub(crate) use requests::EndpointSeries;
pub(crate) use tls::CertificateFigure;
pub(crate) use unattended::UnattendedEnd;
use {
    connections::Connections, labels::Labels, lost_lines::LostLines, money::MoneyMetrics, providers::ProviderMetrics,
};
use {reloads::Reloads, requests::Requests, store::StoreMetrics, tls::Tls, unattended::Unattended};

/// The content type of [`Metrics::render`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of the process. Shared in an `Arc`; every method is cheap and never waits (but [`Metrics::render`]).
pub(crate) struct Metrics {
    registry: Registry,
    labels: ArcSwap<Labels>,
    connections: Connections,
    requests: Requests,
    refusals: IntCounterVec,
    in_flight: IntGauge,
    streams_open: IntGauge,
    unattended: Unattended,
    body_bytes: IntGauge,
    head_bytes: IntGauge,
    providers: ProviderMetrics,
    money: MoneyMetrics,
    log_sinks: LogSinkMetrics,
    lost_lines: LostLines,
    sessions_unwritten: IntCounter,
    key_cache: IntCounterVec,
    store: StoreMetrics,
    tls: Tls,
    resolver_failures: IntCounterVec,
    panics: IntCounter,
    reloads: Reloads,
    process: process::Process,
    samplers: Mutex<Vec<Sampler>>,
}

type Sampler = Box<dyn Fn(&Metrics) + Send>;

impl Metrics {
    /// All metrics at zero, for the catalogue's models and providers. Fails only on a mistake in the definitions.
    pub(crate) fn new(models: &[&str], providers: &[&str]) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let make = Maker { registry: &registry };
        let metrics = Self {
            labels: ArcSwap::default(),
            connections: Connections::new(&make)?,
            requests: Requests::new(&make)?,
            refusals: make.counters(
                "weir_refusals_total",
                "Requests that weir itself refused.",
                &["protocol", "reason"],
            )?,
            in_flight: make.gauge("weir_requests_in_flight", "Requests being served.")?,
            streams_open: make.gauge("weir_streams_open", "Streamed answers under way.")?,
            unattended: Unattended::new(&make)?,
            body_bytes: make.gauge("weir_body_bytes_buffered", "Request bytes held in memory.")?,
            head_bytes: make.gauge(
                "weir_head_bytes_buffered",
                "Bytes of large heads that have not come to their end.",
            )?,
            providers: ProviderMetrics::new(&make)?,
            money: MoneyMetrics::new(&make)?,
            log_sinks: LogSinkMetrics::new(&make)?,
            lost_lines: LostLines::new(&make)?,
            sessions_unwritten: make.counter(
                "weir_sessions_unwritten_total",
                "Names of state at providers that only this node knows, because too many waited to be written.",
            )?,
            key_cache: make.counters("weir_key_cache_total", "What the key cache did.", &["event"])?,
            store: StoreMetrics::new(&make)?,
            tls: Tls::new(&make)?,
            resolver_failures: make.counters(
                "weir_resolver_failures_total",
                "Failed lookups of provider hosts.",
                &["host"],
            )?,
            panics: make.counter("weir_panics_total", "Panics caught; each is a bug.")?,
            reloads: Reloads::new(&make)?,
            process: process::Process::new(),
            samplers: Mutex::default(),
            registry: registry.clone(),
        };
        let build = make.gauges("weir_build_info", "Always 1; the version is a label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
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
                self.providers.begin(provider);
            }
        }
        self.labels.store(labels.into());
    }

    /// Counts a finished request in everything it belongs to, its refusal included. `served` are the series of the endpoint that
    /// the last attempt went to; `None` if there was no attempt.
    pub(crate) fn record_request(&self, record: &RequestRecord, served: Option<&EndpointSeries>) {
        self.requests.record(record, served, &self.labels.load());
        if let Some(reason) = record.refusal {
            self.refused(record.protocol.unwrap_or(NONE), reason);
        }
    }

    /// Counts a refusal that has no [`RequestRecord`], for example one before a request could be read.
    /// [`Metrics::record_request`] counts those that have one.
    pub(crate) fn refused(&self, protocol: &'static str, reason: &'static str) {
        self.refusals.with_label_values(&[protocol, reason]).inc();
    }

    /// The requests being served now; for use in a sampler.
    pub(crate) fn requests_in_flight_are(&self, running: usize) {
        self.in_flight.set(i64::try_from(running).unwrap_or(i64::MAX));
    }

    /// A streamed answer began; it is open until the guard is dropped.
    pub(crate) fn stream_opened(&self) -> GaugeGuard {
        GaugeGuard::new(&self.streams_open)
    }

    /// How often something happened in the key cache since the start (`hit`, `miss` and so on); for use in a sampler.
    pub(crate) fn key_cache_events_are(&self, event: &'static str, total: u64) {
        raise(&self.key_cache.with_label_values(&[event]), total);
    }

    /// A panic was caught.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// The request bytes held in memory now.
    pub(crate) fn body_bytes_buffered_are(&self, bytes: u64) {
        self.body_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// The bytes of large heads that have not come to their end now.
    pub(crate) fn head_bytes_buffered_are(&self, bytes: u64) {
        self.head_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Lines that were lost.
    pub(crate) fn lost_lines(&self) -> &LostLines {
        &self.lost_lines
    }

    /// The sessions that were not handed to the store since the start; for use in a sampler.
    pub(crate) fn sessions_unwritten_are(&self, total: u64) {
        raise(&self.sessions_unwritten, total);
    }

    /// The failed lookups of a configured host since the start; for use in a sampler.
    pub(crate) fn resolver_failures_are(&self, host: &str, total: u64) {
        raise(&self.resolver_failures.with_label_values(&[host]), total);
    }

    /// What money did since the start and where it stands; for use in a sampler.
    pub(crate) fn money_is(&self, figures: &MoneyFigures) {
        self.money.are(figures);
    }

    /// How a sink of the consumption log stands; for use in a sampler. `sink` from a closed set.
    pub(crate) fn log_sink_is(&self, sink: &'static str, figures: LogSinkFigures) {
        self.log_sinks.is(sink, figures);
    }

    /// What has left the store for the log's home; for use in a sampler.
    pub(crate) fn log_trimmed_is(&self, figures: LogTrimFigures) {
        self.log_sinks.trimmed(figures);
    }

    /// When the log was last found to be whole, in seconds since the Unix epoch; for use in a sampler.
    pub(crate) fn log_verified_is(&self, at: i64) {
        self.log_sinks.verified(at);
    }

    /// A further attempt at a provider.
    pub(crate) fn upstream_retried(&self, provider: &str, reason: &'static str) {
        let labels = self.labels.load();
        self.providers.retried(labels.provider(Some(provider)), reason);
    }

    /// The provider refused weir's own credential: somebody must act.
    pub(crate) fn provider_credential_refused(&self, provider: &str) {
        let labels = self.labels.load();
        self.providers.credential_refused(labels.provider(Some(provider)));
    }

    /// Whether the provider is served.
    pub(crate) fn provider_is(&self, provider: &str, state: Health) {
        self.providers.is(self.labels.load().provider(Some(provider)), state);
    }

    /// How a provider stands; for use in a sampler.
    pub(crate) fn provider_stands(&self, provider: &str, figures: ProviderFigures) {
        self.providers
            .stands(self.labels.load().provider(Some(provider)), figures);
    }

    /// Whether the store is reachable.
    pub(crate) fn store_is(&self, state: Health) {
        self.store.is(state);
    }

    /// Whether the store is set up in a way that is warned of; `kind` from a closed set.
    pub(crate) fn store_warning_is(&self, kind: &'static str, is_so: bool) {
        self.store.warning_is(kind, is_so);
    }

    /// What the store's fullest server uses of the memory that it may use, in bytes.
    pub(crate) fn store_memory_is(&self, used: u64, most: u64) {
        self.store.memory_is(used, most);
    }

    /// How many hours of this node's counters the store lacks, and when the published record was last read, in seconds since
    /// the Unix epoch.
    pub(crate) fn stability_is(&self, untold_hours: usize, read_at: i64) {
        self.store.stability_is(untold_hours, read_at);
    }

    /// By how many milliseconds this node's clock is ahead of the store's.
    pub(crate) fn clock_offset_is(&self, offset_ms: i64) {
        self.store.clock_offset_is(offset_ms);
    }

    /// The store and the journal took so long to admit or refuse a request.
    pub(crate) fn admission_took(&self, time: Duration) {
        self.store.admission_took(time);
    }

    /// An answer runs on although its client has left; it does until the guard is dropped.
    pub(crate) fn answer_unattended(&self) -> GaugeGuard {
        self.unattended.begin()
    }

    /// What became of an answer that was to run on although its client had left.
    pub(crate) fn unattended_answer(&self, end: UnattendedEnd) {
        self.unattended.end(end);
    }

    /// Has `sampler` called before each scrape, to copy in values that live elsewhere. It must not wait, and must not
    /// call [`Metrics::render`] or this method.
    pub(crate) fn sample(&self, sampler: impl Fn(&Self) + Send + 'static) {
        self.samplers.lock().push(Box::new(sampler));
    }

    /// Everything in Prometheus' text format 0.0.4 ([`CONTENT_TYPE`]).
    pub(crate) fn render(&self) -> String {
        // Held to the end: samplers read, compare and add, which two scrapes at once would do twice.
        let samplers = self.samplers.lock();
        for sampler in samplers.iter() {
            sampler(self);
        }
        let mut text = String::new();
        if let Err(error) = prometheus::TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics cannot be rendered");
        }
        self.process.render(&mut text);
        text
    }

    pub(crate) fn listener(&self, listener: &'static str) -> ListenerFigures {
        self.connections.listener(listener)
    }

    /// A reload has ended at `now`, in seconds since the epoch.
    pub(crate) fn reloaded(&self, good: bool, now: i64) {
        self.reloads.ended(good, now);
    }

    /// The certificates in use, all of them; for use in a sampler. Those of one name and kind count as the first to end.
    pub(crate) fn certificates_are(&self, certificates: &[CertificateFigure]) {
        self.tls.certificates_are(certificates);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
