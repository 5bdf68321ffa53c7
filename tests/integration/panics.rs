//! A hook that panics costs one request, never the process. Fail points make it panic.

use crate::harness::client::Piece;
use crate::harness::recordings::{events, unary, whole_stream};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::shapes::{assert_refusal, in_band_error};
use crate::harness::{RecordingProvider, Steps, Weir, WeirBuilder, wait_until};

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
    // Before the request is looked at, and in the midst of admitting it.
    let points = ["request_filter=1*panic", "admission=1*panic"];
    for (wire, point) in ALL_WIRES.into_iter().flat_map(|wire| points.map(|point| (wire, point))) {
        let provider = RecordingProvider::recorded();
        let mut weir = gateway(&provider, point);
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
        wait_until("the panic to be told", || weir.logs().contains("weir panicked"));
    }
}

#[test]
fn a_panic_in_mid_stream_is_an_in_band_error_for_one_request() {
    for wire in ALL_WIRES {
        let steps = Steps::default();
        let gate = steps.clone();
        let provider = RecordingProvider::start(move |request, answer| {
            let events = events(wire_of(&request.target));
            answer.sse();
            answer.chunk(events[0]);
            gate.wait(1);
            answer.chunk(events[1..].concat());
            answer.end();
        });
        // The first piece passes and is with the client; at the next the hook panics.
        let weir = gateway(&provider, "response_body=1*off->1*panic");
        let key = weir.key().text;
        let mut client = weir.connect();
        client.write(&wire.streaming(&key, "hi").bytes(Upload::Length));
        let mut head = client.head_to("POST");
        let Piece::Data(first) = client.piece(&mut head) else {
            panic!("{wire:?}: no first piece")
        };
        assert_eq!(String::from_utf8_lossy(&first), events(wire)[0]);
        steps.permit();
        let text = client.rest(head).text();
        assert!(
            in_band_error(wire, &text).is_some(),
            "{wire:?}: no in-band error: {text}"
        );
        assert_eq!(weir.access_lines_at_least(1)[0]["outcome"], "internal", "{wire:?}");
        let next = weir.exchange(&wire.streaming(&key, "hi"));
        assert_eq!(next.text(), whole_stream(wire), "{wire:?}: the process serves on");
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
