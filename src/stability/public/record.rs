//! The published stability record as JSON. It has exactly the fields that docs/interface.md, The public record, lists. The number
//! of requests is not one of them.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::json;

use crate::{
    domain::faults::stability::{Confidence, Hour, ModelWindow, StabilityCounters, StabilityWindow},
    stability::public::{ALLOW, PublicResponse, open_headers},
};

#[derive(Serialize)]
struct PublicReply<T> {
    success: bool,
    data: T,
}

#[derive(Serialize)]
struct SummaryRow<'a> {
    model_name: &'a str,
    success_rate: f64,
    avg_latency_ms: f64,
    avg_tps: f64,
    confidence: Confidence,
}

#[derive(Serialize)]
struct ModelDetail<'a> {
    model_name: &'a str,
    confidence: Confidence,
    summary: ModelMeans,
    series: Vec<SeriesPoint>,
    updated_at: i64,
}

#[derive(Serialize)]
struct ModelMeans {
    success_rate: f64,
    avg_latency_ms: f64,
    avg_ttft_ms: f64,
    avg_tps: f64,
}

#[derive(Serialize)]
struct SeriesPoint {
    ts: i64,
    success_rate: f64,
    avg_latency_ms: f64,
    avg_ttft_ms: f64,
    avg_tps: f64,
    confidence: Confidence,
}

/// Returns the JSON document about all models, with one row for each model, sorted by name.
pub(super) fn summary(window: &StabilityWindow) -> Vec<u8> {
    let rows: Vec<SummaryRow<'_>> = window.models.iter().map(row).collect();
    to_json(rows)
}

fn row(model: &ModelWindow) -> SummaryRow<'_> {
    let figures = model.total.stats();
    SummaryRow {
        model_name: &model.name,
        success_rate: figures.success_rate,
        avg_latency_ms: figures.avg_latency_ms,
        avg_tps: figures.avg_tps,
        confidence: figures.confidence,
    }
}

/// Returns the JSON document about one model, with a point for each hour, the oldest first. `updated_at` is the time at which the
/// counts were read, in seconds since the Unix epoch.
pub(super) fn detail(model: &ModelWindow, updated_at: i64) -> Vec<u8> {
    let figures = model.total.stats();
    to_json(ModelDetail {
        model_name: &model.name,
        confidence: figures.confidence,
        summary: ModelMeans {
            success_rate: figures.success_rate,
            avg_latency_ms: figures.avg_latency_ms,
            avg_ttft_ms: figures.avg_ttft_ms,
            avg_tps: figures.avg_tps,
        },
        series: model.hours.iter().map(point).collect(),
        updated_at,
    })
}

fn point((hour, counters): &(Hour, StabilityCounters)) -> SeriesPoint {
    let figures = counters.stats();
    SeriesPoint {
        ts: hour.start_seconds(),
        success_rate: figures.success_rate,
        avg_latency_ms: figures.avg_latency_ms,
        avg_ttft_ms: figures.avg_ttft_ms,
        avg_tps: figures.avg_tps,
        confidence: figures.confidence,
    }
}

/// Serializes a successful reply. This cannot fail, because strings, integers and finite numbers can always be serialized.
fn to_json<T: Serialize>(data: T) -> Vec<u8> {
    serde_json::to_vec(&PublicReply { success: true, data }).unwrap_or_default()
}

/// The reason why a request is refused. The message never quotes the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicRefusal {
    /// The query parameter `hours` is not exactly 24, or is given twice.
    HoursNotSupported,
    /// No model has the requested name.
    ModelNotFound,
    /// The path does not exist.
    PathNotFound,
    /// The method is not GET or HEAD.
    MethodNotAllowed,
    /// The client accepts none of the content codings.
    EncodingNotAvailable,
    /// The client's address has sent too many requests.
    RateLimited {
        /// The exact time until the next request from this address is accepted.
        wait: Duration,
    },
    /// The stability record has not been read from the store yet.
    NotReady,
}

/// The value of `retry-after` before the first read of the store, in seconds.
const NOT_READY_SECONDS: u64 = 5;

impl PublicRefusal {
    fn status(self) -> StatusCode {
        match self {
            Self::HoursNotSupported => StatusCode::BAD_REQUEST,
            Self::ModelNotFound | Self::PathNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::EncodingNotAvailable => StatusCode::NOT_ACCEPTABLE,
            Self::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::NotReady => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::HoursNotSupported => "hours_not_supported",
            Self::ModelNotFound => "model_not_found",
            Self::PathNotFound => "path_not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::EncodingNotAvailable => "encoding_not_available",
            Self::RateLimited { .. } => "rate_limited",
            Self::NotReady => "not_ready",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::HoursNotSupported => "only a window of 24 hours is supported: omit `hours`, or use hours=24 once",
            Self::ModelNotFound => {
                "no model has that name: GET /web/v1/model-stability/summary lists all names; percent-encode the name in the path"
            }
            Self::PathNotFound => {
                "this path does not exist: the page is /status, the API's description is /web/v1/openapi.json"
            }
            Self::MethodNotAllowed => "this path is read-only: use GET or HEAD",
            Self::EncodingNotAvailable => "Accept-Encoding refuses every available coding: allow identity, gzip or br",
            Self::RateLimited { .. } => {
                "too many requests from your address: wait for the seconds in retry-after; an answer stays valid for the seconds in max-age"
            }
            Self::NotReady => "the stability record has not been read yet: try again after the seconds in retry-after",
        }
    }

    /// Returns the answer. The answer must not be cached, because the next answer may differ.
    pub(super) fn answer(self) -> PublicResponse {
        let mut headers = open_headers();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=utf-8"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self == Self::MethodNotAllowed {
            headers.insert(header::ALLOW, HeaderValue::from_static(ALLOW));
        }
        let body = json!({ "success": false, "error": { "code": self.code(), "message": self.message() } });
        PublicResponse {
            status: self.status(),
            headers,
            body: Bytes::from(body.to_string()),
        }
    }

    /// Returns the value of `retry-after` in seconds, rounded up so that a client does not retry too early. `None` for refusals
    /// that a retry does not change.
    fn retry_after(self) -> Option<u64> {
        match self {
            Self::RateLimited { wait } => {
                Some(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1))
            }
            Self::NotReady => Some(NOT_READY_SECONDS),
            _ => None,
        }
    }
}
