//! What a scrape shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use smol_str::SmolStr;

use super::*;
use crate::domain::wire::{operation::Operation, usage::Usage};

fn metrics() -> Metrics {
    Metrics::new(&["claude-x", "claude-x-latest"], &["anthropic", "gemini"]).expect("the definitions are right")
}

fn served() -> RequestRecord {
    RequestRecord {
        protocol: Some("messages"),
        operation: Some("messages"),
        model_asked: Some("claude-x-latest".into()),
        model: Some("claude-x".into()),
        provider: Some("anthropic".into()),
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
    metrics.record_request(&served(), None);
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
    metrics.record_request(
        &RequestRecord {
            operation: Some("stream_generate_content"),
            provider: Some("gemini".into()),
            outcome: "provider_cut",
            ..served()
        },
        None,
    );
    let text = metrics.render();
    let wanted = r#"gen_ai_client_operation_duration_seconds_count{error_type="provider_cut",gen_ai_operation_name="generate_content",gen_ai_provider_name="gcp.gemini""#;
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn clients_cannot_make_time_series() {
    let metrics = metrics();
    for number in 0..100 {
        metrics.record_request(
            &RequestRecord {
                model_asked: Some(format!("made-up-{number}").into()),
                model: Some(format!("made-up-{number}").into()),
                provider: Some(format!("made-up-{number}").into()),
                ..served()
            },
            None,
        );
        let name = format!("made-up-{number}");
        let provider = metrics.provider_label(&name);
        metrics
            .providers
            .retries
            .with_labels([provider, "connect".into()])
            .inc();
        metrics.providers.credential_refused.with_labels([provider]).inc();
    }
    let text = metrics.render();
    assert!(!text.contains("made-up"));
    assert!(text.contains(r#"weir_upstream_retries_total{provider="other",reason="connect"} 100"#));
}

#[test]
fn a_refusal_is_counted_once_and_has_no_provider_histograms() {
    let metrics = metrics();
    metrics.record_request(
        &RequestRecord {
            protocol: Some("gemini"),
            status: 401,
            outcome: "refused",
            refusal: Some("key_unknown"),
            ..RequestRecord::default()
        },
        None,
    );
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
    let (first, second) = (
        metrics.requests.streams_open.guard(),
        metrics.requests.streams_open.guard(),
    );
    drop(first);
    has(&metrics, "weir_streams_open 1");
    drop(second);
    has(&metrics, "weir_streams_open 0");
    metrics.requests.in_flight.set(3);
    has(&metrics, "weir_requests_in_flight 3");
}

#[test]
fn values_that_live_elsewhere_are_sampled_at_each_scrape() {
    let metrics = metrics();
    let lost = Arc::new(AtomicU64::new(3));
    let source = Arc::clone(&lost);
    metrics.add_sampler(move |metrics| {
        metrics.log.access_dropped.raise_to(source.load(Ordering::Relaxed));
        let host = [Label::configured("api.example.com")];
        metrics
            .providers
            .resolver_failures
            .with_labels(host)
            .raise_to(source.load(Ordering::Relaxed));
        metrics.journal.disk_free.set(1_u64 << 40);
        metrics.money.held.set(7);
        metrics
            .providers
            .on
            .with_labels([metrics.provider_label("anthropic")])
            .set(true);
    });
    has(&metrics, "weir_access_log_dropped_total 3");
    lost.store(5, Ordering::Relaxed);
    has(&metrics, "weir_access_log_dropped_total 5");
    has(&metrics, r#"weir_resolver_failures_total{host="api.example.com"} 5"#);
    has(&metrics, "weir_held_nano_usd 7");
    has(&metrics, "weir_journal_disk_free_bytes 1099511627776");
    has(&metrics, r#"weir_provider_enabled{provider="anthropic"} 1"#);
    has(&metrics, r#"weir_provider_enabled{provider="gemini"} 0"#);
}

#[test]
fn everything_is_there_before_anything_happened() {
    let metrics = metrics();
    metrics.store.key_cache.with_labels(["hit".into()]).raise_to(1);
    metrics.program.panics.inc();
    metrics.store.admission.observe(0.002);
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
fn each_metric_is_in_the_operators_document() {
    let document = include_str!("../../../docs/operations.md");
    let groups = [
        RequestMetrics::NAMES,
        GenAiMetrics::NAMES,
        ConnectionMetrics::NAMES,
        SocketMetrics::NAMES,
        ProviderMetrics::NAMES,
        MoneyMetrics::NAMES,
        JournalMetrics::NAMES,
        StoreMetrics::NAMES,
        LogMetrics::NAMES,
        ProgramMetrics::NAMES,
    ];
    for name in groups.concat() {
        let is_written = document.split(name).skip(1).any(|after| {
            let next = after.chars().next();
            !next.is_some_and(|next| next.is_ascii_alphanumeric() || next == '_')
        });
        assert!(is_written, "docs/operations.md has no {name}");
    }
    assert!(ProcessMetrics::NAMES.iter().all(|name| name.starts_with("process_")) && document.contains("`process_*`"));
}

#[test]
fn a_gauge_shows_the_largest_number_for_one_that_is_larger() {
    let metrics = metrics();
    metrics.journal.disk_free.set(u64::MAX);
    metrics.journal.bytes.set(i64::MAX);
    let shown = |name: &str| {
        shown(&metrics)
            .into_iter()
            .find_map(|line| Some(line.strip_prefix(name)?.to_owned()))
    };
    assert_eq!(shown("weir_journal_disk_free_bytes "), shown("weir_journal_bytes "));
}

#[test]
fn an_answer_in_one_piece_has_no_first_token() {
    let metrics = metrics();
    metrics.record_request(
        &RequestRecord {
            stream: false,
            ..served()
        },
        None,
    );
    let text = metrics.render();
    assert!(text.contains("gen_ai_client_operation_duration_seconds_count{"));
    assert!(
        !text.contains("gen_ai_server_time_to_first_token_seconds_count{"),
        "{text}"
    );
}

/// The endpoints of these tests: operation, model and provider.
const ENDPOINTS: [(Operation, &str, &str); 2] = [
    (Operation::Messages, "claude-x", "anthropic"),
    (Operation::StreamGenerateContent, "claude-x-latest", "gemini"),
];

fn endpoints() -> [EndpointSeries; 2] {
    ENDPOINTS.map(|(operation, model, provider)| EndpointSeries::new(operation, model, provider))
}

/// What a scrape shows but for the process.
fn shown(metrics: &Metrics) -> Vec<String> {
    let text = metrics.render();
    let lines = text.lines().filter(|line| !line.contains("process_"));
    lines.map(str::to_owned).collect()
}

fn lines(metrics: &Metrics, name: &str) -> usize {
    shown(metrics).iter().filter(|line| line.starts_with(name)).count()
}

#[test]
fn an_endpoint_has_no_series_before_a_request_feeds_them() {
    let metrics = metrics();
    let before = shown(&metrics);
    let [endpoint, _] = endpoints();
    assert_eq!(shown(&metrics), before);
    let cut = RequestRecord {
        outcome: "provider_cut",
        stream: false,
        usage: None,
        ..served()
    };
    metrics.record_request(&cut, Some(&endpoint));
    assert_eq!(lines(&metrics, "weir_requests_total{"), 1);
    for name in [
        "weir_tokens_total{",
        "gen_ai_client_token_usage_count{",
        "gen_ai_server_time_to_first_token_seconds_count{",
    ] {
        assert_eq!(lines(&metrics, name), 0, "{name}");
    }
    metrics.record_request(&served(), Some(&endpoint));
    assert_eq!(lines(&metrics, "weir_requests_total{"), 2);
    assert_eq!(lines(&metrics, "weir_tokens_total{"), 3);
    assert_eq!(lines(&metrics, "gen_ai_client_token_usage_count{"), 2);
}

/// A request that an endpoint has served, by the endpoint's index.
fn at_an_endpoint() -> impl Strategy<Value = (usize, RequestRecord)> {
    let usage = proptest::array::uniform4(0_u64..3).prop_map(|[input, read, text, searches]| Usage {
        input_uncached: input,
        cache_read: read,
        output_text: text,
        web_searches: searches,
        ..Usage::default()
    });
    let names = [None, Some("claude-x"), Some("claude-x-latest"), Some("made-up")];
    let end = (
        prop::sample::select(vec!["ok", "provider_cut", "client_gone"]),
        prop::sample::select(vec![0_u16, 200, 404, 503]),
    );
    let rest = (
        any::<bool>(),
        proptest::option::of(0_u64..9_000),
        0_u64..9_000,
        0_u64..99_000,
    );
    let parts = (
        0..ENDPOINTS.len(),
        prop::sample::select(names.to_vec()),
        end,
        proptest::option::of(usage),
        rest,
    );
    parts.prop_map(
        |(at, asked, (outcome, status), usage, (stream, ttft_ms, latency_ms, request_bytes))| {
            let (operation, model, provider) = ENDPOINTS[at];
            let record = RequestRecord {
                protocol: Some(operation.protocol().as_str()),
                operation: Some(operation.as_str()),
                model_asked: asked.map(SmolStr::from),
                model: Some(model.into()),
                provider: Some(provider.into()),
                status,
                outcome,
                stream,
                ttft_ms,
                latency_ms,
                request_bytes,
                usage,
                ..RequestRecord::default()
            };
            (at, record)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_request_counts_the_same_by_its_endpoint_as_by_its_labels(
        records in proptest::collection::vec(at_an_endpoint(), 1..40),
    ) {
        let (by_endpoint, by_labels) = (metrics(), metrics());
        // Those of two configurations, of which one has replaced the other, feed the same series.
        let configurations = [endpoints(), endpoints()];
        for (number, (at, record)) in records.iter().enumerate() {
            by_endpoint.record_request(record, Some(&configurations[number % 2][*at]));
            by_labels.record_request(record, None);
        }
        prop_assert_eq!(shown(&by_endpoint), shown(&by_labels));
    }
}
