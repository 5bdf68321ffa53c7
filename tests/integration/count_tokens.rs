//! Counting tokens: where it is possible, and how often at one time.

use std::sync::Arc;

use crate::harness::request::{Upload, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::{DEEPSEEK_MODEL, GEMINI_MODEL, MESSAGES_MODEL, RecordingProvider, Request, Steps, WeirBuilder};

fn messages(key: &str, model: &str) -> Request {
    Request {
        target: "/v1/messages/count_tokens?beta=true".to_owned(),
        ..Wire::Messages.request_for(model, key, "hi")
    }
}

fn gemini(key: &str) -> Request {
    Request {
        target: format!("/v1beta/models/{GEMINI_MODEL}:countTokens"),
        ..Wire::Gemini.request(key, "hi")
    }
}

/// A provider that answers when it is permitted to, and tells of every request.
fn gated(arrived: &Steps, permitted: &Steps) -> RecordingProvider {
    let (arrived, permitted) = (arrived.clone(), permitted.clone());
    RecordingProvider::start(move |_, answer| {
        arrived.permit();
        permitted.wait(1);
        answer.least();
    })
}

#[test]
fn a_burst_of_25_passes_and_the_default_limit_is_64() {
    let (arrived, permitted) = (Steps::default(), Steps::default());
    let provider = gated(&arrived, &permitted);
    let weir = Arc::new(WeirBuilder::new().all_providers(&provider.base_url()).start());
    let key = weir.key().text;
    let mut clients = Vec::new();
    for _ in 0..64 {
        let mut client = weir.connect();
        client.write(&messages(&key, MESSAGES_MODEL).bytes(Upload::Length));
        clients.push(client);
    }
    assert!(arrived.wait(64), "all of them reach the provider at once");
    let refused = weir.exchange(&messages(&key, MESSAGES_MODEL));
    assert_refusal(Wire::Messages, &refused, 429, "rate_limit_error");
    permitted.permit();
    for mut client in clients {
        assert_eq!(client.response_to("POST").status, 200);
    }
    assert_eq!(weir.exchange(&messages(&key, MESSAGES_MODEL)).status, 200);
}

#[test]
fn beyond_the_limit_it_is_429_for_this_key_and_this_operation_only() {
    let (arrived, permitted) = (Steps::default(), Steps::default());
    let provider = gated(&arrived, &permitted);
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("gateway.count_tokens_concurrency", 2)
        .start();
    let (key, other) = (weir.key().text, weir.key().text);
    let mut held = Vec::new();
    for request in [messages(&key, MESSAGES_MODEL), gemini(&key)] {
        let mut client = weir.connect();
        client.write(&request.bytes(Upload::Length));
        held.push(client);
    }
    assert!(arrived.wait(2));
    for (request, wire, kind) in [
        (messages(&key, MESSAGES_MODEL), Wire::Messages, "rate_limit_error"),
        (gemini(&key), Wire::Gemini, "RESOURCE_EXHAUSTED"),
    ] {
        let refused = weir.exchange(&request);
        assert_refusal(wire, &refused, 429, kind);
        assert_eq!(refused.header("retry-after"), Some("1"), "{wire:?}");
        assert_eq!(refused.header("x-should-retry"), None, "{wire:?}");
    }
    // Generation, and another key, have nothing to do with it.
    for request in [Wire::Messages.request(&key, "hi"), messages(&other, MESSAGES_MODEL)] {
        let mut client = weir.connect();
        client.write(&request.bytes(Upload::Length));
        held.push(client);
    }
    assert!(arrived.wait(4));
    // A client that leaves gives its place back.
    drop(held.remove(0));
    let mut again = crate::harness::wait_for("a place that is free again", || {
        let mut client = weir.connect();
        client.write(&messages(&key, MESSAGES_MODEL).bytes(Upload::Length));
        let count = provider.count();
        crate::harness::wait::wait_within(std::time::Duration::from_millis(300), || {
            (provider.count() > count).then_some(())
        })
        .map(|()| client)
    });
    permitted.permit();
    assert_eq!(again.response_to("POST").status, 200);
    for mut client in held {
        assert_eq!(client.response_to("POST").status, 200);
    }
}

#[test]
fn where_it_is_not_possible_the_answer_names_the_model_and_others() {
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new().all_providers(&provider.base_url()).start();
    let key = weir.key().text;
    let answer = weir.exchange(&messages(&key, DEEPSEEK_MODEL));
    assert_refusal(Wire::Messages, &answer, 404, "not_found_error");
    let text = answer.text();
    assert!(text.contains(&format!("`{DEEPSEEK_MODEL}`")), "{text}");
    assert!(text.contains("claude-haiku-4-5"), "{text}");
    assert_eq!(provider.connections(), 0);
}
