//! Rows of the consumption log posted as events: each arrives, whatever the receiver does and whatever is killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value as Json;

use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::{RecordingProvider, WeirBuilder, wait_until};

const SECRET: &str = "whsec-canary-5Fq1";
const VARIABLE: &str = "WEIR_TEST_EVENTS_SECRET";

/// The events that a receiver has got, by id.
fn events(receiver: &RecordingProvider) -> BTreeMap<String, Json> {
    let mut all = BTreeMap::new();
    for request in receiver.requests() {
        let events: Vec<Json> = serde_json::from_slice(&request.body).unwrap();
        for event in events {
            let id = event["id"].as_str().unwrap().to_owned();
            if let Some(before) = all.insert(id, event.clone()) {
                assert_eq!(before, event, "an event that comes again is the same");
            }
        }
    }
    all
}

#[test]
fn each_billed_request_is_an_event_whatever_the_receiver_does_and_whatever_is_killed() {
    let asked = AtomicUsize::new(0);
    let receiver = RecordingProvider::start(move |_, answer| {
        // The first ones fail.
        let status = if asked.fetch_add(1, Ordering::Relaxed) < 2 {
            503
        } else {
            202
        };
        answer.full(status, &[], b"{}");
    });
    let provider = SampleProvider::start();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("log.events.url", format!("{}/ingest", receiver.base_url()))
        .set("log.events.secret", format!("env:{VARIABLE}"))
        .set("log.events.required", true)
        .variable(VARIABLE, SECRET)
        .start();
    let key = weir.key().text;
    let mut charged = 0;
    for _ in 0..2 {
        for _ in 0..3 {
            let request = Wire::Messages.request(&key, "Tell me of weirs. [[sample: deltas=3]]");
            assert_eq!(weir.exchange(&request).status, 200);
            charged += 1;
        }
        weir.kill_and_restart();
    }
    let books = weir.books(charged);
    wait_until("all events to be there", || events(&receiver).len() == charged);
    let events = events(&receiver);
    let mut sent: Vec<&str> = books
        .rows
        .iter()
        .map(|row| row["request_id"].as_str().unwrap())
        .collect();
    let mut got: Vec<&str> = events
        .values()
        .map(|event| event["data"]["request_id"].as_str().unwrap())
        .collect();
    sent.sort_unstable();
    got.sort_unstable();
    assert_eq!(got, sent);
    let cost: i64 = events
        .values()
        .map(|event| event["data"]["cost_nano_usd"].as_i64().unwrap())
        .sum();
    assert_eq!(cost, books.charged());
    let last = receiver.last();
    assert!(
        last.header("webhook-signature").unwrap().starts_with("v1,"),
        "it is signed"
    );
    assert_eq!(last.target, "/ingest");
    assert!(!weir.logs().contains(SECRET));
}
