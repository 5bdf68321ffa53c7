//! The metrics of OpenTelemetry's semantic conventions for generative AI.

use std::sync::OnceLock;

use super::{
    declared::GenAiMetrics,
    kinds::{Histogram, Label},
    labels::NONE,
};
use crate::telemetry::access_log::RequestRecord;

/// The time series of requests with the same operation, provider and models, each created when it is first fed.
#[derive(Debug, Default)]
pub(super) struct GenAiSeries {
    /// The durations of requests without an error.
    duration: OnceLock<Histogram>,
    first_token: OnceLock<Histogram>,
    input_tokens: OnceLock<Histogram>,
    output_tokens: OnceLock<Histogram>,
}

impl GenAiMetrics {
    /// Records a request. `provider`, `asked` and `served` are bounded labels; `series` belong to them and the record's
    /// operation.
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
        // In an answer that is not streamed, the first token arrives with the last.
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

/// A count as a float. Exact below 2^53; above, the nearest float is good enough for a graph.
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

/// The conventions' well-known operation for each of weir's.
fn operation_name(operation: Option<&'static str>) -> &'static str {
    match operation {
        Some("messages" | "responses") => "chat",
        Some("generate_content" | "stream_generate_content") => "generate_content",
        Some("count_tokens" | "gemini_count_tokens") => "count_tokens",
        Some(other) => other,
        None => NONE,
    }
}

/// The conventions' well-known name of a provider, where it differs from the name of its rule file.
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
