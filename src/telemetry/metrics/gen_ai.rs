//! The metrics of OpenTelemetry's semantic conventions for generative AI.

use std::sync::OnceLock;

use prometheus::{Histogram, HistogramVec};

use super::maker::{Maker, NONE};
use crate::telemetry::access_log::RequestRecord;

/// The conventions' bounds for token counts.
const TOKEN_BUCKETS: [f64; 14] = [
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0,
    67108864.0,
];

/// The conventions' bounds for durations in seconds, continued to ten minutes because agents' answers take so long.
const DURATION_BUCKETS: [f64; 17] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
];

/// The conventions' bounds for the first token in seconds, continued because reasoning models think that long.
const FIRST_TOKEN_BUCKETS: [f64; 20] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
];

/// The labels that all three share. The model of the request is what the client asked for, the one of the response
/// what the catalogue served.
const COMMON: [&str; 4] = [
    "gen_ai_operation_name",
    "gen_ai_provider_name",
    "gen_ai_request_model",
    "gen_ai_response_model",
];

/// Histograms of requests that reached a provider.
pub(super) struct GenAi {
    duration: HistogramVec,
    first_token: HistogramVec,
    token_usage: HistogramVec,
}

/// The time series of requests with the same [`COMMON`] labels, each looked up when it is first fed.
#[derive(Debug, Default)]
pub(super) struct GenAiSeries {
    /// Without an error.
    duration: OnceLock<Histogram>,
    first_token: OnceLock<Histogram>,
    input_tokens: OnceLock<Histogram>,
    output_tokens: OnceLock<Histogram>,
}

impl GenAi {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        let [operation, provider, request, response] = COMMON;
        Ok(Self {
            duration: make.histograms(
                "gen_ai_client_operation_duration_seconds",
                "From the request's arrival to the end of its answer.",
                &[operation, provider, request, response, "error_type"],
                &DURATION_BUCKETS,
            )?,
            first_token: make.histograms(
                "gen_ai_server_time_to_first_token_seconds",
                "From the request's arrival to the first generated content of a stream.",
                &COMMON,
                &FIRST_TOKEN_BUCKETS,
            )?,
            token_usage: make.histograms(
                "gen_ai_client_token_usage",
                "Tokens per request as reported by the provider; cached input is input, reasoning is output.",
                &[operation, provider, request, response, "gen_ai_token_type"],
                &TOKEN_BUCKETS,
            )?,
        })
    }

    /// `provider`, `asked` and `served` are bounded already; `series` are those of these and the record's operation.
    pub(super) fn record(
        &self,
        record: &RequestRecord,
        provider: &str,
        asked: &str,
        served: &str,
        series: &GenAiSeries,
    ) {
        let (operation, provider) = (operation_name(record.operation), provider_name(provider));
        let duration = |error_type: &str| {
            let labels = [operation, provider, asked, served, error_type];
            self.duration.with_label_values(&labels)
        };
        let seconds = float(record.latency_ms) / 1000.0;
        match record.outcome {
            "ok" => series.duration.get_or_init(|| duration("")).observe(seconds),
            error_type => duration(error_type).observe(seconds),
        }
        // An answer in one piece has its first token with its last.
        if let Some(ttft_ms) = record.ttft_ms.filter(|_| record.stream) {
            let labels = [operation, provider, asked, served];
            let first_token = || self.first_token.with_label_values(&labels);
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
                let labels = [operation, provider, asked, served, token_type];
                let tokens = tokens.get_or_init(|| self.token_usage.with_label_values(&labels));
                tokens.observe(float(count));
            }
        }
    }
}

/// A count as Prometheus keeps it. Exact below 2^53; above, the nearest float is good enough for a graph.
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
fn provider_name(provider: &str) -> &str {
    match provider {
        "gemini" | "google" => "gcp.gemini",
        "vertex" => "gcp.vertex_ai",
        "bedrock" => "aws.bedrock",
        "azure" => "azure.ai.openai",
        "mistral" => "mistral_ai",
        "moonshot" => "moonshot_ai",
        "xai" => "x_ai",
        same => same,
    }
}
