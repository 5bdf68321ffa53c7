//! The metrics of OpenTelemetry's semantic conventions for generative AI.

use prometheus::HistogramVec;

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

    /// `provider`, `asked` and `served` are bounded already.
    pub(super) fn record(&self, record: &RequestRecord, provider: &str, asked: &str, served: &str) {
        let (operation, provider) = (operation_name(record.operation), provider_name(provider));
        let error_type = if record.outcome == "ok" { "" } else { record.outcome };
        self.duration
            .with_label_values(&[operation, provider, asked, served, error_type])
            .observe(float(record.latency_ms) / 1000.0);
        // An answer in one piece has its first token with its last.
        if let Some(ttft_ms) = record.ttft_ms.filter(|_| record.stream) {
            self.first_token
                .with_label_values(&[operation, provider, asked, served])
                .observe(float(ttft_ms) / 1000.0);
        }
        if let Some(usage) = &record.usage {
            let parts = [("input", usage.input_total()), ("output", usage.output_total())];
            for (token_type, count) in parts.into_iter().filter(|(_, count)| *count > 0) {
                self.token_usage
                    .with_label_values(&[operation, provider, asked, served, token_type])
                    .observe(float(count));
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
