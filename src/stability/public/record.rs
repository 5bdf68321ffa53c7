//! The published record as JSON: exactly the fields that docs/interface.md, The public record, names. No count of requests is
//! among them.

use serde::Serialize;

use crate::domain::faults::stability::{Confidence, Counters, Hour, ModelWindow, Window};

#[derive(Serialize)]
struct Reply<T> {
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
struct Detail<'a> {
    model_name: &'a str,
    confidence: Confidence,
    summary: Means,
    series: Vec<Point>,
    updated_at: i64,
}

#[derive(Serialize)]
struct Means {
    success_rate: f64,
    avg_latency_ms: f64,
    avg_ttft_ms: f64,
    avg_tps: f64,
}

#[derive(Serialize)]
struct Point {
    ts: i64,
    success_rate: f64,
    avg_latency_ms: f64,
    avg_ttft_ms: f64,
    avg_tps: f64,
    confidence: Confidence,
}

/// All models, a row each, by name.
pub(super) fn summary(window: &Window) -> Vec<u8> {
    let rows: Vec<SummaryRow<'_>> = window.models.iter().map(row).collect();
    written(rows)
}

fn row(model: &ModelWindow) -> SummaryRow<'_> {
    let figures = model.total.figures();
    SummaryRow {
        model_name: &model.name,
        success_rate: figures.success_rate,
        avg_latency_ms: figures.avg_latency_ms,
        avg_tps: figures.avg_tps,
        confidence: figures.confidence,
    }
}

/// One model, with a point for each hour, the oldest first. `updated_at` in seconds since the epoch.
pub(super) fn detail(model: &ModelWindow, updated_at: i64) -> Vec<u8> {
    let figures = model.total.figures();
    written(Detail {
        model_name: &model.name,
        confidence: figures.confidence,
        summary: Means {
            success_rate: figures.success_rate,
            avg_latency_ms: figures.avg_latency_ms,
            avg_ttft_ms: figures.avg_ttft_ms,
            avg_tps: figures.avg_tps,
        },
        series: model.hours.iter().map(point).collect(),
        updated_at,
    })
}

fn point((hour, counters): &(Hour, Counters)) -> Point {
    let figures = counters.figures();
    Point {
        ts: hour.start_seconds(),
        success_rate: figures.success_rate,
        avg_latency_ms: figures.avg_latency_ms,
        avg_ttft_ms: figures.avg_ttft_ms,
        avg_tps: figures.avg_tps,
        confidence: figures.confidence,
    }
}

/// Strings, integers and finite numbers can always be written.
fn written<T: Serialize>(data: T) -> Vec<u8> {
    serde_json::to_vec(&Reply { success: true, data }).unwrap_or_default()
}
