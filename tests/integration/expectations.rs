//! `Expect: 100-continue` over HTTP/1.1: clients such as curl send it by themselves. It changes nothing but who speaks first.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::provider::Welcome;
use crate::harness::recordings::unary;
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::rules::RuleFolder;
use crate::harness::shapes::assert_unauthorized;
use crate::harness::{RecordingProvider, Weir};

#[test]
fn a_request_that_expected_100_is_tried_again_like_any_other() {
    let asked = AtomicUsize::new(0);
    let provider = RecordingProvider::start(move |request, answer| {
        if asked.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            return answer.full(
                529,
                &[("content-type", "application/json")],
                b"{\"error\":{\"message\":\"m\"}}",
            );
        }
        answer.json(unary(wire_of(&request.target)));
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    // No more than the reserve of each provider's budget for further attempts.
    for wire in ALL_WIRES {
        for upload in [Upload::Length, Upload::Chunked(100)] {
            let before = provider.count();
            let answer = weir.connect().exchange_expecting(&wire.request(&key, "hi"), upload);
            assert_eq!(answer.status, 200, "{wire:?} {upload:?}: {}", answer.text());
            assert_eq!(provider.count(), before + 2, "{wire:?} {upload:?}");
        }
    }
}

#[test]
fn a_providers_last_word_reaches_who_expected_100() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.full(
            529,
            &[("content-type", "application/json"), ("retry-after", "60")],
            b"{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}",
        );
    });
    let weir = Weir::start(&provider.base_url());
    let request = Wire::Messages.request(&weir.key().text, "hi");
    let answer = weir.connect().exchange_expecting(&request, Upload::Length);
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (529, Some("60")),
        "{}",
        answer.text()
    );
}

#[test]
fn who_expected_100_is_served_by_another_place_or_over_another_connection() {
    let alive = RecordingProvider::start_with(
        None,
        |_| Welcome::ServeThenDie(1),
        |request, answer| answer.json(unary(wire_of(&request.target))),
    );
    let failing = RecordingProvider::start(|_, answer| answer.full(503, &[], b"{}"));
    let origin = |base_url: &str| format!("[[origin]]\nurl = \"{base_url}\"\n");
    let file = format!(
        "name = \"one\"\n{}{}[auth]\nstyle = \"bearer\"\n[[credential]]\nname = \"a\"\nsecret = \"env:SECRET\"\n\
         [retry]\nbackoff_ms = 1\nbudget_percent = 100\n\
         [endpoints]\nmessages = \"https://unused.example/v1/messages\"\n[[model]]\nname = \"m\"\nfree = true\n",
        origin(&alive.base_url()),
        origin(&failing.base_url()),
    );
    let rules = RuleFolder::new(&[("one", &file)]);
    let weir = rules.weir().variable("SECRET", "secret-in-full").start();
    let request = Wire::Messages.request_for("m", &weir.key().text, "hi");
    let mut client = weir.connect();
    for turn in 0..20 {
        let answer = client.exchange_expecting(&request, Upload::Length);
        assert_eq!(answer.status, 200, "turn {turn}: {}", answer.text());
    }
    assert_eq!(alive.count(), 20);
    assert!(failing.count() > 0);
}

#[test]
fn a_connection_serves_on_after_100() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut client = weir.connect();
    for turn in 0..3 {
        let answer = client.exchange_expecting(&Wire::Messages.request(&key, "hi"), Upload::Length);
        assert_eq!(
            (answer.status, answer.header("connection")),
            (200, Some("keep-alive")),
            "turn {turn}"
        );
    }
}

#[test]
fn who_is_refused_unread_is_told_so_in_the_place_of_100() {
    let weir = Weir::start("http://127.0.0.1:9");
    for wire in ALL_WIRES {
        let request = wire.request("weir-nobody", "hi").header("expect", "100-continue");
        let mut client = weir.connect();
        client.write(&request.head_bytes(Upload::Length));
        let head = client.head_to("POST");
        assert_eq!((head.status, head.header("connection")), (401, Some("close")));
        assert_unauthorized(wire, &client.rest(head));
    }
}
