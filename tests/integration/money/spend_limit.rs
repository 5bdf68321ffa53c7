//! What a success tells Messages clients of their key's quota.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::client::Response;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::{RecordingProvider, Weir};

/// What the provider says of the operator's account.
const OPERATORS: [(&str, &str); 3] = [
    ("anthropic-ratelimit-unified-status", "allowed_warning"),
    ("anthropic-ratelimit-unified-5h-utilization", "0.97"),
    ("anthropic-ratelimit-requests-remaining", "11"),
];

/// A provider whose answers have these counts of output tokens, one after the other, at 10 USD per million.
fn provider(output_tokens: [u64; 3]) -> RecordingProvider {
    let asked = AtomicUsize::new(0);
    RecordingProvider::start(move |_, answer| {
        let tokens = output_tokens[asked.fetch_add(1, Ordering::Relaxed) % output_tokens.len()];
        let body = format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[{{"type":"text","text":"hi"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":0,"output_tokens":{tokens}}}}}"#
        );
        let mut headers = vec![("content-type", "application/json"), ("request-id", "req_theirs")];
        headers.extend(OPERATORS);
        answer.full(200, &headers, body.as_bytes());
    })
}

fn unified<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    answer.header(&format!("anthropic-ratelimit-unified-{name}"))
}

#[test]
fn a_quota_that_is_nearly_spent_is_told_with_each_success() {
    let provider = provider([150, 40, 1]);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key_with(&["--quota-usd", "0.002", "--reset", "daily"]);
    let told = [
        ("allowed", "0", None),
        ("allowed_warning", "0.75", Some("0.75")),
        ("allowed_warning", "0.95", Some("0.95")),
    ];
    for (number, (status, utilization, threshold)) in told.into_iter().enumerate() {
        let answer = weir.exchange(&Wire::Messages.request(&key.text, "hi"));
        assert_eq!(answer.status, 200);
        for (name, value) in [
            ("status", Some(status)),
            ("overage-status", Some(status)),
            ("representative-claim", Some("overage")),
            ("overage-utilization", Some(utilization)),
            ("overage-surpassed-threshold", threshold),
            ("5h-utilization", None),
        ] {
            assert_eq!(unified(&answer, name), value, "{name} of answer {number}");
        }
        let resets_at: i64 = unified(&answer, "reset").unwrap().parse().unwrap();
        let seconds = resets_at - jiff::Timestamp::now().as_second();
        assert!(
            resets_at % 86_400 == 0 && (-60..=86_400).contains(&seconds),
            "{resets_at}"
        );
        assert_eq!(unified(&answer, "overage-reset"), unified(&answer, "reset"));
        assert_eq!(answer.header("anthropic-ratelimit-requests-remaining"), None);
        weir.books(number + 1);
    }
}

#[test]
fn without_a_quota_the_providers_rate_limit_headers_stay() {
    let provider = provider([1, 1, 1]);
    let weir = Weir::start(&provider.base_url());
    let answer = weir.exchange(&Wire::Messages.request(&weir.key().text, "hi"));
    for (name, value) in OPERATORS {
        assert_eq!(answer.header(name), Some(value));
    }
    assert_eq!(unified(&answer, "overage-utilization"), None);
}

#[test]
fn clients_of_the_other_protocols_are_told_nothing_that_they_do_not_know() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key_with(&["--quota-usd", "1"]).text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert_eq!(answer.status, 200, "{wire:?}");
        let is_told = unified(&answer, "status").is_some();
        assert_eq!(is_told, wire == Wire::Messages, "{wire:?}");
        // Never: it does not reset.
        assert_eq!(unified(&answer, "reset"), None, "{wire:?}");
    }
}
