//! The published stability record as JSON, with exactly the fields in docs/interface.md, The public record. It does not contain
//! the number of requests.

use serde::Serialize;

use crate::domain::faults::stability::{Confidence, Hour, ModelWindow, StabilityCounters, StabilityWindow};

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

/// Returns the JSON about all models: one row for each, sorted by name.
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

/// Returns the JSON about one model, with a point for each hour, the oldest first. `updated_at` is in seconds since the Unix
/// epoch.
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
