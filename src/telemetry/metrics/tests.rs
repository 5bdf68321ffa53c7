//! What a scrape shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::domain::wire::usage::Usage;

fn metrics() -> Metrics {
    Metrics::new(&["claude-x", "claude-x-latest"], &["anthropic", "gemini"]).expect("the definitions are right")
}

fn served() -> RequestRecord {
    RequestRecord {
        protocol: Some("messages"),
        operation: Some("messages"),
        model_asked: Some("claude-x-latest".to_owned()),
        model: Some("claude-x".to_owned()),
        provider: Some("anthropic".to_owned()),
        status: 200,
        outcome: "ok",
        stream: true,
        ttft_ms: Some(300),
        latency_ms: 2000,
        usage: Some(Usage {
            input_uncached: 100,
            cache_read: 900,
            output_text: 40,
            ..Usage::default()
        }),
        ..RequestRecord::default()
    }
}

fn has(metrics: &Metrics, line: &str) {
    let text = metrics.render();
    assert!(text.lines().any(|shown| shown == line), "no {line} in\n{text}");
}

#[test]
fn a_served_request_is_counted_under_the_conventions_names() {
    let metrics = metrics();
    metrics.record_request(&served());
    has(
        &metrics,
        r#"weir_requests_total{model="claude-x",outcome="ok",protocol="messages",provider="anthropic",status_class="2xx"} 1"#,
    );
    let common = concat!(
        r#"gen_ai_operation_name="chat",gen_ai_provider_name="anthropic","#,
        r#"gen_ai_request_model="claude-x-latest",gen_ai_response_model="claude-x""#
    );
    has(
        &metrics,
        &format!("gen_ai_server_time_to_first_token_seconds_sum{{{common}}} 0.3"),
    );
    has(
        &metrics,
        &format!(r#"gen_ai_client_operation_duration_seconds_sum{{error_type="",{common}}} 2"#),
    );
    has(
        &metrics,
        &format!(r#"gen_ai_client_token_usage_sum{{{common},gen_ai_token_type="input"}} 1000"#),
    );
    has(
        &metrics,
        &format!(r#"gen_ai_client_token_usage_sum{{{common},gen_ai_token_type="output"}} 40"#),
    );
    has(
        &metrics,
        r#"weir_tokens_total{model="claude-x",provider="anthropic",type="cache_read"} 900"#,
    );
}

#[test]
fn providers_bear_the_conventions_names_and_failures_an_error_type() {
    let metrics = metrics();
    metrics.record_request(&RequestRecord {
        operation: Some("stream_generate_content"),
        provider: Some("gemini".to_owned()),
        outcome: "provider_cut",
        ..served()
    });
    let text = metrics.render();
    let wanted = r#"gen_ai_client_operation_duration_seconds_count{error_type="provider_cut",gen_ai_operation_name="generate_content",gen_ai_provider_name="gcp.gemini""#;
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn clients_cannot_make_time_series() {
    let metrics = metrics();
    for number in 0..100 {
        metrics.record_request(&RequestRecord {
            model_asked: Some(format!("made-up-{number}")),
            model: Some(format!("made-up-{number}")),
            provider: Some(format!("made-up-{number}")),
            ..served()
        });
        metrics.upstream_retried(&format!("made-up-{number}"), "connect");
        metrics.provider_credential_refused(&format!("made-up-{number}"));
    }
    let text = metrics.render();
    assert!(!text.contains("made-up"));
    assert!(text.contains(r#"weir_upstream_retries_total{provider="other",reason="connect"} 100"#));
}

#[test]
fn a_refusal_is_counted_once_and_has_no_provider_histograms() {
    let metrics = metrics();
    metrics.record_request(&RequestRecord {
        protocol: Some("gemini"),
        status: 401,
        outcome: "refused",
        refusal: Some("key_unknown"),
        ..RequestRecord::default()
    });
    has(
        &metrics,
        r#"weir_refusals_total{protocol="gemini",reason="key_unknown"} 1"#,
    );
    has(
        &metrics,
        r#"weir_requests_total{model="none",outcome="refused",protocol="gemini",provider="none",status_class="4xx"} 1"#,
    );
    assert!(
        !metrics
            .render()
            .contains("gen_ai_client_operation_duration_seconds_count")
    );
}

#[test]
fn guards_count_what_lives() {
    let metrics = metrics();
    let (first, second) = (metrics.stream_opened(), metrics.stream_opened());
    drop(first);
    has(&metrics, "weir_streams_open 1");
    drop(second);
    has(&metrics, "weir_streams_open 0");
    metrics.requests_in_flight_are(3);
    has(&metrics, "weir_requests_in_flight 3");
}

#[test]
fn values_that_live_elsewhere_are_sampled_at_each_scrape() {
    let metrics = metrics();
    let lost = Arc::new(AtomicU64::new(3));
    let source = Arc::clone(&lost);
    metrics.sample(move |metrics| {
        metrics.lost_lines().access_log_are(source.load(Ordering::Relaxed));
        metrics.resolver_failures_are("api.example.com", source.load(Ordering::Relaxed));
        metrics.body_bytes_buffered_are(17);
        metrics.head_bytes_buffered_are(18);
        metrics.store_is(Health::Up);
        metrics.money_is(&MoneyFigures {
            held: 7,
            journal_disk_free: 1 << 40,
            ..MoneyFigures::default()
        });
        metrics.provider_is("anthropic", Health::Up);
    });
    has(&metrics, "weir_access_log_dropped_total 3");
    lost.store(5, Ordering::Relaxed);
    has(&metrics, "weir_access_log_dropped_total 5");
    has(&metrics, r#"weir_resolver_failures_total{host="api.example.com"} 5"#);
    has(&metrics, "weir_body_bytes_buffered 17");
    has(&metrics, "weir_head_bytes_buffered 18");
    has(&metrics, "weir_store_up 1");
    has(&metrics, "weir_held_nano_usd 7");
    has(&metrics, "weir_journal_disk_free_bytes 1099511627776");
    has(&metrics, r#"weir_provider_on{provider="anthropic"} 1"#);
    has(&metrics, r#"weir_provider_on{provider="gemini"} 0"#);
}

#[test]
fn everything_is_there_before_anything_happened() {
    let metrics = metrics();
    metrics.key_cache_events_are("hit", 1);
    metrics.panicked();
    metrics.admission_took(Duration::from_millis(2));
    has(&metrics, r#"weir_key_cache_total{event="hit"} 1"#);
    has(&metrics, "weir_panics_total 1");
    has(&metrics, r#"weir_admission_duration_seconds_bucket{le="0.001"} 0"#);
    has(&metrics, r#"weir_admission_duration_seconds_bucket{le="0.0025"} 1"#);
    has(
        &metrics,
        concat!(r#"weir_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
    );
    has(
        &metrics,
        r#"weir_provider_credential_refused_total{provider="anthropic"} 0"#,
    );
    assert!(metrics.render().contains("process_resident_memory_bytes"));
}

#[test]
fn an_answer_in_one_piece_has_no_first_token() {
    let metrics = metrics();
    metrics.record_request(&RequestRecord {
        stream: false,
        ..served()
    });
    let text = metrics.render();
    assert!(text.contains("gen_ai_client_operation_duration_seconds_count{"));
    assert!(
        !text.contains("gen_ai_server_time_to_first_token_seconds_count{"),
        "{text}"
    );
}
