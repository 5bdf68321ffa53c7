//! Counting tokens: where it is possible, and how often at one time.

use std::sync::Arc;

use crate::early_refusals::calls_of;
use crate::harness::redis::RedisServer;
use crate::harness::request::{Upload, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::tools::skip;
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

/// A key that has spent its quota is refused at both paths as it is for generation, before its body is read; its lists and its
/// usage stay, and a raised quota holds with the next request.
fn spent_quota(builder: WeirBuilder) {
    let provider = RecordingProvider::recorded();
    let weir = builder.all_providers(&provider.base_url()).start();
    let key = weir.key_with(&["--quota-usd", "0.00001"]);
    let counts = || {
        [
            (messages(&key.text, MESSAGES_MODEL), Wire::Messages),
            (gemini(&key.text), Wire::Gemini),
        ]
    };
    for (request, wire) in counts() {
        assert_eq!(weir.exchange(&request).status, 200, "{wire:?}");
    }
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
    weir.books(1);
    for (request, wire) in counts() {
        let kind = if wire == Wire::Messages {
            "billing_error"
        } else {
            "RESOURCE_EXHAUSTED"
        };
        let before = provider.count();
        let refused = weir.exchange(&request);
        assert_refusal(wire, &refused, 429, kind);
        let generation = weir.exchange(&wire.request(&key.text, "hi"));
        let (message, same) = (
            &refused.json()["error"]["message"],
            &generation.json()["error"]["message"],
        );
        assert_eq!(message, same, "{wire:?}");
        assert_eq!(refused.header("x-should-retry"), generation.header("x-should-retry"));
        let line = weir.access_line(refused.header("x-weir-request-id").unwrap());
        assert_eq!(line["refusal"], "quota_exhausted", "{line}");
        assert_eq!(provider.count(), before);
    }
    for target in ["/v1/models", "/web/v1/me"] {
        let list = Request::get(target).header("x-api-key", &key.text);
        assert_eq!(weir.exchange(&list).status, 200, "{target}");
    }
    let raised = weir.cli(&["key", "update", &key.id, "--quota-usd", "10"], &[]);
    assert!(raised.status.success(), "{raised:?}");
    for (request, wire) in counts() {
        assert_eq!(weir.exchange(&request).status, 200, "{wire:?}");
    }
    // A balance is another matter: a count costs nothing.
    let poor = weir.cli(
        &[
            "account", "adjust", "--id", "tests", "--usd", "-2000", "--reason", "test",
        ],
        &[],
    );
    assert!(poor.status.success(), "{poor:?}");
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 429);
    for (request, wire) in counts() {
        assert_eq!(weir.exchange(&request).status, 200, "{wire:?}");
    }
}

#[test]
fn a_key_whose_quota_is_spent_counts_no_tokens() {
    spent_quota(WeirBuilder::new());
}

#[test]
fn a_key_whose_quota_is_spent_counts_no_tokens_with_redis_either() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    spent_quota(WeirBuilder::new().redis(&redis));
}

#[test]
fn a_count_asks_redis_once_and_not_at_all_without_a_quota() {
    let Some(redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let provider = RecordingProvider::recorded();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .redis(&redis)
        .start();
    for (flags, asked) in [(&[][..], 0), (&["--quota-usd", "10"][..], 1)] {
        let key = weir.key_with(flags).text;
        assert_eq!(weir.exchange(&messages(&key, MESSAGES_MODEL)).status, 200);
        let (idle, rounds) = (20_u64, 20_u64);
        let before = calls_of(&redis, &["evalsha"]);
        for _ in 0..rounds {
            assert_eq!(weir.exchange(&messages(&key, MESSAGES_MODEL)).status, 200);
        }
        let found = calls_of(&redis, &["evalsha"]) - before;
        // What the node asks by itself meanwhile is no part of it.
        assert!(
            found >= asked * rounds && found < asked * rounds + idle,
            "{flags:?}: {found} calls"
        );
    }
}
