//! A hook that panics costs one request, never the process. Fail points make it panic.

use crate::harness::recordings::{events, unary};
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::shapes::{assert_refusal, in_band_error};
use crate::harness::{RecordingProvider, Weir, WeirBuilder, wait_until};

fn gateway(provider: &RecordingProvider, points: &str) -> Weir {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .variable("FAILPOINTS", points)
        .panics_expected()
        .start()
}

/// The value of the first metric whose line has all these words.
fn metric(weir: &Weir, words: &[&str]) -> Option<f64> {
    let metrics = weir.metrics();
    let line = metrics
        .lines()
        .find(|line| !line.starts_with('#') && words.iter().all(|word| line.contains(word)))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_panic_before_the_provider_is_asked_is_500_for_one_request() {
    for wire in ALL_WIRES {
        let provider = RecordingProvider::recorded();
        let mut weir = gateway(&provider, "request_filter=1*panic");
        let key = weir.key().text;
        let kind = match wire {
            Wire::Messages => "api_error",
            Wire::Responses => "internal",
            Wire::Gemini => "INTERNAL",
        };
        assert_refusal(wire, &weir.exchange(&wire.request(&key, "hi")), 500, kind);
        assert_eq!(
            weir.exchange(&wire.request(&key, "hi")).status,
            200,
            "{wire:?}: the process serves on"
        );
        assert!(weir.process().ended().is_none());
        assert_eq!(weir.access_lines_at_least(2)[0]["outcome"], "internal", "{wire:?}");
        wait_until("the panic to be counted", || {
            metric(&weir, &["panic"]).is_some_and(|count| count >= 1.0)
        });
    }
}

#[test]
fn a_panic_in_mid_stream_is_an_in_band_error_for_one_request() {
    for wire in ALL_WIRES {
        let provider = RecordingProvider::recorded();
        // The first piece passes, at the second the hook panics.
        let weir = gateway(&provider, "response_body=1*off->1*panic");
        let key = weir.key().text;
        let answer = weir.exchange(&wire.streaming(&key, "hi"));
        let text = answer.text();
        assert!(
            in_band_error(wire, &text).is_some() || !answer.complete,
            "{wire:?}: looks like success: {text}"
        );
        assert!(
            answer.status != 200 || in_band_error(wire, &text).is_some(),
            "{wire:?}: no in-band error: {text}"
        );
        let next = weir.exchange(&wire.streaming(&key, "hi"));
        assert_eq!(next.text(), events(wire).concat(), "{wire:?}: the process serves on");
    }
}

#[test]
fn a_panic_inside_a_unary_answer_breaks_that_answer_only() {
    for wire in ALL_WIRES {
        let provider = RecordingProvider::recorded();
        let weir = gateway(&provider, "response_body=1*panic");
        let key = weir.key().text;
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert!(
            !answer.complete || answer.status == 500,
            "{wire:?}: {} {}",
            answer.status,
            answer.text()
        );
        let next = weir.exchange(&wire.request(&key, "hi"));
        assert_eq!(
            (next.status, next.text().as_str()),
            (200, unary(wire)),
            "{wire:?}: the process serves on"
        );
    }
}
