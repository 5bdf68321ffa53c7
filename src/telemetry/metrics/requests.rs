//! Metrics of finished requests. The requests of an endpoint are counted through stored handles, so labels are hashed only once,
//! not for each request.

use std::sync::OnceLock;

use smol_str::SmolStr;

use crate::{
    domain::wire::{http1::head::HeadFault, operation::Operation, usage::Usage},
    telemetry::{
        access_log::RequestRecord,
        metrics::{
            KnownLabels, NONE, OTHER,
            declared::{ConnectionMetrics, GenAiMetrics, RequestMetrics},
            kinds::{Counter, CounterFamily, GaugeFamily, GaugeGuard, Histogram, Label},
        },
    },
};

/// The way in which a detached answer ended, or the reason why an answer could not be detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetachedEnd {
    /// The answer was read to its end.
    Complete,
    /// The answer broke off, because of the provider or a timeout.
    Broken,
    /// The answer was ended when the client disconnected, because the maximum number of detached answers was running.
    NoPermit,
}

impl DetachedEnd {
    const ALL: [Self; 3] = [Self::Complete, Self::Broken, Self::NoPermit];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Broken => "broken",
            Self::NoPermit => "no_permit",
        }
    }
}

impl RequestMetrics {
    /// Creates the counter for each kind of end at zero, so that rates have a value before the first event.
    pub(super) fn create_at_zero(&self) {
        for end in DetachedEnd::ALL {
            self.unattended_ended.with_labels([end.as_str().into()]).raise_to(0);
        }
    }

    /// Counts a detached answer by its end.
    pub(crate) fn record_detached(&self, end: DetachedEnd) {
        self.unattended_ended.with_labels([end.as_str().into()]).inc();
    }
}

/// The time series of the requests that one endpoint serves. A series is created with its first value, and the registry retains
/// it after the endpoint has been removed.
#[derive(Debug)]
pub(crate) struct EndpointSeries {
    protocol: &'static str,
    model: SmolStr,
    provider: SmolStr,
    /// The counter of requests that ended without an error.
    complete: OnceLock<Counter>,
    /// The counters of tokens, in the order of [`Usage::NAMES`].
    tokens: [OnceLock<Counter>; Usage::NAMES.len()],
    /// The series of requests in which the client sent the catalogue's name of the model.
    asked: GenAiSeries,
    /// The series of requests in which the client sent a model name that cannot be a label.
    asked_otherwise: GenAiSeries,
}

impl EndpointSeries {
    /// Creates the series for an operation of a model at a provider. `model` and `provider` are names of the catalogue.
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

/// Records a finished request in the metrics. `served` are the series for the endpoint of the last attempt; `None` if there was
/// no attempt.
pub(super) fn record(
    into: (&RequestMetrics, &GenAiMetrics),
    record: &RequestRecord,
    served: Option<&EndpointSeries>,
    labels: &KnownLabels,
) {
    match served {
        Some(series) => feed(into, record, series, labels),
        None => {
            let (model, provider) = (record.model.as_deref(), record.provider.as_deref());
            let protocol = record.protocol.unwrap_or(NONE);
            let (model, provider) = (labels.model(model), labels.provider(provider));
            let series = EndpointSeries::labelled(protocol, model.as_ref(), provider.as_ref());
            feed(into, record, &series, labels);
        }
    }
}

fn feed(
    (requests, gen_ai): (&RequestMetrics, &GenAiMetrics),
    record: &RequestRecord,
    series: &EndpointSeries,
    labels: &KnownLabels,
) {
    let (model, provider) = (Label::configured(&series.model), Label::configured(&series.provider));
    let class = status_class(record.status);
    let ended = || {
        let labels = [
            series.protocol.into(),
            model,
            provider,
            record.outcome.into(),
            class.into(),
        ];
        requests.ended.with_labels(labels)
    };
    match (record.outcome, class) {
        ("ok", "2xx") => series.complete.get_or_init(ended).inc(),
        _ => ended().inc(),
    }
    if record.request_bytes > 0 {
        requests.body_bytes.observe(float(record.request_bytes));
    }
    if let Some(usage) = &record.usage {
        let parts = usage.named_parts().zip(&series.tokens);
        for ((kind, count), tokens) in parts.filter(|((_, count), _)| *count > 0) {
            let tokens = tokens.get_or_init(|| requests.tokens.with_labels([provider, model, kind.into()]));
            tokens.add(count);
        }
    }
    if record.provider.is_some() {
        let asked = match record.model_asked.as_deref() {
            Some(asked) if asked == series.model => model,
            asked => labels.model(asked),
        };
        let rare;
        let series = if asked.as_ref() == series.model {
            &series.asked
        } else if asked.as_ref() == OTHER {
            &series.asked_otherwise
        } else {
            rare = GenAiSeries::default();
            &rare
        };
        gen_ai.record(record, provider, asked, model, series);
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

/// The time series of requests with the same operation, provider and models. A series is created with its first value.
#[derive(Debug, Default)]
pub(super) struct GenAiSeries {
    /// The durations of requests that ended without an error.
    duration: OnceLock<Histogram>,
    first_token: OnceLock<Histogram>,
    input_tokens: OnceLock<Histogram>,
    output_tokens: OnceLock<Histogram>,
}

impl GenAiMetrics {
    /// Records a request. `provider`, `asked` (the requested model) and `served` (the catalogue's model) are labels. `series` are
    /// the time series for these labels and the record's operation.
    pub(super) fn record(
        &self,
        record: &RequestRecord,
        provider: Label<'_>,
        asked: Label<'_>,
        served: Label<'_>,
        series: &GenAiSeries,
    ) {
        let (operation, provider) = (operation_name(record.operation).into(), provider_name(provider));
        let duration = |error_type: &'static str| {
            let labels = [operation, provider, asked, served, error_type.into()];
            self.duration.with_labels(labels)
        };
        let seconds = float(record.latency_ms) / 1000.0;
        match record.outcome {
            "ok" => series.duration.get_or_init(|| duration("")).observe(seconds),
            error_type => duration(error_type).observe(seconds),
        }
        // In a non-streaming answer, the client gets the first token together with the last one.
        if let Some(ttft_ms) = record.ttft_ms.filter(|_| record.stream) {
            let labels = [operation, provider, asked, served];
            let first_token = || self.first_token.with_labels(labels);
            series
                .first_token
                .get_or_init(first_token)
                .observe(float(ttft_ms) / 1000.0);
        }
        if let Some(usage) = &record.usage {
            let parts = [
                ("input", usage.input_total(), &series.input_tokens),
                ("output", usage.output_total(), &series.output_tokens),
            ];
            for (token_type, count, tokens) in parts.into_iter().filter(|(_, count, _)| *count > 0) {
                let labels = [operation, provider, asked, served, token_type.into()];
                let tokens = tokens.get_or_init(|| self.token_usage.with_labels(labels));
                tokens.observe(float(count));
            }
        }
    }
}

/// Converts a count to a float. The result is exact below 2^53. Above that, the nearest float is precise enough for a graph.
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// Returns the name of an operation in the OpenTelemetry conventions, or weir's own name if the conventions do not define one.
fn operation_name(operation: Option<&'static str>) -> &'static str {
    match operation {
        Some("messages" | "responses") => "chat",
        Some("generate_content" | "stream_generate_content") => "generate_content",
        Some("count_tokens" | "gemini_count_tokens") => "count_tokens",
        Some(other) => other,
        None => NONE,
    }
}

/// Returns the name of a provider in the OpenTelemetry conventions, or the name of the provider's file if the conventions do not
/// define one.
fn provider_name(provider: Label<'_>) -> Label<'_> {
    match provider.as_ref() {
        "gemini" | "google" => "gcp.gemini".into(),
        "vertex" => "gcp.vertex_ai".into(),
        "bedrock" => "aws.bedrock".into(),
        "azure" => "azure.ai.openai".into(),
        "mistral" => "mistral_ai".into(),
        "moonshot" => "moonshot_ai".into(),
        "xai" => "x_ai".into(),
        _ => provider,
    }
}

/// The listeners to which clients connect.
const LISTENERS: [&str; 3] = ["gateway", "stability", "redirect"];

impl ConnectionMetrics {
    /// Creates the metrics of each listener and reason at zero, so that rates have a value before the first event.
    pub(super) fn create_at_zero(&self) {
        for listener in LISTENERS {
            self.open.with_labels([listener.into()]).set(0);
            let faults = HeadFault::ALL.into_iter().map(CloseReason::Head);
            for reason in CloseReason::LIMITS.into_iter().chain(faults) {
                self.closed
                    .with_labels([listener.into(), reason.as_str().into()])
                    .raise_to(0);
            }
        }
    }

    /// Returns the connection metrics of one listener.
    pub(super) fn listener(&self, listener: &'static str) -> ListenerFigures {
        ListenerFigures {
            listener,
            open: self.open.clone(),
            closed: self.closed.clone(),
        }
    }

    /// Sets the metric that contains the expiry of each certificate in use. Called in samplers. If several certificates have the
    /// same name and kind of key, the metric contains only the earliest expiry.
    pub(crate) fn set_certificate_ends(&self, all: impl Iterator<Item = CertificateEnd>) {
        self.certificate_end.clear();
        for one in all {
            let labels = [one.listener.into(), Label::configured(&one.name), one.key.into()];
            self.certificate_end.with_labels(labels).lower_to(one.until);
        }
    }
}

/// The expiry of a certificate that a listener uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateEnd {
    /// The configuration section of the listener.
    pub listener: &'static str,
    /// The first of the certificate's names.
    pub name: String,
    /// The kind of the certificate's key.
    pub key: &'static str,
    /// The last second in which the certificate is valid, in seconds since the Unix epoch.
    pub until: i64,
}

/// The reason why weir closes a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The maximum number of connections was already open.
    TooMany,
    /// The connection carried no request and was closed in favour of a new connection.
    GaveWay,
    /// The client's address already had its maximum number of connections.
    TooManyOfAddress,
    /// The TLS handshake or the PROXY header failed or took too long.
    Handshake,
    /// The first byte of the connection did not arrive in time.
    Silent,
    /// No further request arrived on the connection in time.
    Idle,
    /// The head of a request was not complete in time.
    HeadLate,
    /// An incomplete head was dropped, because the memory for heads was used up.
    HeadBudgetExhausted,
    /// The head of a request was refused.
    Head(HeadFault),
    /// The chunked framing of a body was malformed.
    ChunksInvalid,
    /// The client did not read an answer, or read it too slowly.
    AnswerUntaken,
    /// The connection carried its maximum number of requests.
    Requests,
}

impl CloseReason {
    const LIMITS: [Self; 11] = [
        Self::TooMany,
        Self::GaveWay,
        Self::TooManyOfAddress,
        Self::Handshake,
        Self::Silent,
        Self::Idle,
        Self::HeadLate,
        Self::HeadBudgetExhausted,
        Self::ChunksInvalid,
        Self::AnswerUntaken,
        Self::Requests,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::GaveWay => "gave_way",
            Self::TooManyOfAddress => "too_many_from_address",
            Self::Handshake => "handshake",
            Self::Silent => "first_byte_timeout",
            Self::Idle => "idle",
            Self::HeadLate => "head_timeout",
            Self::HeadBudgetExhausted => "head_budget_exhausted",
            Self::Head(fault) => fault.reason(),
            Self::ChunksInvalid => "chunks_invalid",
            Self::AnswerUntaken => "write_timeout",
            Self::Requests => "requests",
        }
    }
}

/// Returns the connection metrics of one listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerFigures {
    listener: &'static str,
    open: GaugeFamily<1>,
    closed: CounterFamily<2>,
}

impl ListenerFigures {
    /// Counts a connection as open until the returned guard is dropped.
    pub(crate) fn on_open(&self) -> GaugeGuard {
        self.open.with_labels([self.listener.into()]).guard()
    }

    /// Counts a connection that weir closes for this reason.
    pub(crate) fn record_close(&self, reason: CloseReason) {
        self.closed
            .with_labels([self.listener.into(), reason.as_str().into()])
            .inc();
    }
}
