//! Metrics of finished requests. What an endpoint has served is counted over handles: a label is hashed once, not once a request.

use std::sync::OnceLock;

use prometheus::{Histogram, IntCounter, IntCounterVec};
use smol_str::SmolStr;

use super::gen_ai::{GenAi, GenAiSeries, float};
use super::labels::{Labels, OTHER};
use super::maker::{Maker, NONE};
use crate::domain::wire::{operation::Operation, usage::Usage};
use crate::telemetry::access_log::RequestRecord;

/// Upper bounds of the request body histogram, in bytes: 1 KiB to 64 MiB.
const BODY_BUCKETS: [f64; 9] = [
    1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0, 67108864.0,
];

/// The metrics that each finished request has a part in.
pub(super) struct Requests {
    ended: IntCounterVec,
    tokens: IntCounterVec,
    body_bytes: Histogram,
    gen_ai: GenAi,
}

/// The time series of the requests that one endpoint serves. Each is looked up when it is first fed, so that none is there
/// before; the registry keeps it when the endpoint is gone.
#[derive(Debug)]
pub(crate) struct EndpointSeries {
    protocol: &'static str,
    model: SmolStr,
    provider: SmolStr,
    /// Requests that ended well.
    complete: OnceLock<IntCounter>,
    /// Tokens, by [`Usage::NAMES`].
    tokens: [OnceLock<IntCounter>; Usage::NAMES.len()],
    /// Of requests that name the model as the catalogue does.
    asked: GenAiSeries,
    /// Of requests that name it in a way that is no label.
    asked_otherwise: GenAiSeries,
}

impl EndpointSeries {
    /// Those of an operation of a model at a provider, both by their names in the catalogue.
    pub(crate) fn new(operation: Operation, model: &str, provider: &str) -> Self {
        Self::labelled(operation.protocol().as_str(), model, provider)
    }

    fn labelled(protocol: &'static str, model: &str, provider: &str) -> Self {
        Self {
            protocol,
            model: model.into(),
            provider: provider.into(),
            complete: OnceLock::new(),
            tokens: Default::default(),
            asked: GenAiSeries::default(),
            asked_otherwise: GenAiSeries::default(),
        }
    }
}

impl Requests {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            ended: make.counters(
                "weir_requests_total",
                "Requests that ended, by how.",
                &["protocol", "model", "provider", "outcome", "status_class"],
            )?,
            tokens: make.counters(
                "weir_tokens_total",
                "Tokens and tool calls that providers reported, each in exactly one type.",
                &["provider", "model", "type"],
            )?,
            body_bytes: make.histogram("weir_request_body_bytes", "Sizes of request bodies.", &BODY_BUCKETS)?,
            gen_ai: GenAi::new(make)?,
        })
    }

    /// Counts a finished request. `served` are the series of the endpoint that the last attempt went to; `None` if there was no
    /// attempt.
    pub(super) fn record(&self, record: &RequestRecord, served: Option<&EndpointSeries>, labels: &Labels) {
        match served {
            Some(series) => self.feed(record, series, labels),
            None => {
                let (model, provider) = (record.model.as_deref(), record.provider.as_deref());
                let protocol = record.protocol.unwrap_or(NONE);
                let series = EndpointSeries::labelled(protocol, labels.model(model), labels.provider(provider));
                self.feed(record, &series, labels);
            }
        }
    }

    fn feed(&self, record: &RequestRecord, series: &EndpointSeries, labels: &Labels) {
        let (model, provider) = (series.model.as_str(), series.provider.as_str());
        let class = status_class(record.status);
        let ended = || {
            let labels = [series.protocol, model, provider, record.outcome, class];
            self.ended.with_label_values(&labels)
        };
        match (record.outcome, class) {
            ("ok", "2xx") => series.complete.get_or_init(ended).inc(),
            _ => ended().inc(),
        }
        if record.request_bytes > 0 {
            self.body_bytes.observe(float(record.request_bytes));
        }
        if let Some(usage) = &record.usage {
            let parts = usage.named().zip(&series.tokens);
            for ((kind, count), tokens) in parts.filter(|((_, count), _)| *count > 0) {
                let tokens = tokens.get_or_init(|| self.tokens.with_label_values(&[provider, model, kind]));
                tokens.inc_by(count);
            }
        }
        if record.provider.is_some() {
            let asked = match record.model_asked.as_deref() {
                Some(asked) if asked == model => model,
                asked => labels.model(asked),
            };
            let rare;
            let series = if asked == model {
                &series.asked
            } else if asked == OTHER {
                &series.asked_otherwise
            } else {
                rare = GenAiSeries::default();
                &rare
            };
            self.gen_ai.record(record, provider, asked, model, series);
        }
    }
}

fn status_class(status: u16) -> &'static str {
    match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => NONE,
    }
}
