//! Keys on open sockets: each request is authenticated and admitted anew, and a socket without a valid key ends.

use std::time::Duration;

use super::stage::{create, create_in, held_until, provider, words};
use crate::harness::request::Wire;
use crate::harness::sample::SampleProvider;
use crate::harness::websocket::{Message, Turn, WebSocket};
use crate::harness::{MESSAGES_MODEL, RESPONSES_MODEL, Steps, Weir, WeirBuilder, wait_until};

/// Waits until this key is refused by POST.
#[track_caller]
fn wait_refused(weir: &Weir, key: &str) {
    wait_until("the key to be refused", || {
        weir.exchange(&Wire::Responses.request(key, "hi")).status == 401
    });
}

/// Checks that the next request is refused in the words of a POST, and that the socket ends then.
#[track_caller]
fn assert_refused_and_closed(weir: &Weir, socket: &mut WebSocket, key: &str) {
    let post = weir.exchange(&Wire::Responses.request(key, "hi"));
    let event = socket.ask(&create("hi")).refused(401, "invalid_api_key");
    assert_eq!(event["error"], post.json()["error"]);
    assert_eq!(socket.close_code(), Some(1008));
    assert_eq!(socket.read(), Message::End);
}

/// Defect 9: the key counts as it was at the handshake, for as long as the socket lives.
#[test]
fn a_key_that_is_no_longer_valid_ends_its_socket_with_the_next_request() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let revoked = weir.key();
    let rotated = weir.key();
    let ending = jiff::Timestamp::now() + Duration::from_secs(6);
    let expired = weir.key_with(&["--expires", &ending.to_string()]);
    let mut sockets = [&revoked, &rotated, &expired].map(|key| WebSocket::open(weir.gateway, &key.text));
    for socket in &mut sockets {
        assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
    }
    weir.cli_json(&["key", "revoke", &revoked.id]);
    weir.cli_json(&["key", "rotate", &rotated.id, "--overlap", "0"]);
    for (socket, key) in sockets.iter_mut().zip([&revoked, &rotated, &expired]) {
        wait_refused(&weir, &key.text);
        let before = provider.count();
        assert_refused_and_closed(&weir, socket, &key.text);
        assert_eq!(provider.count(), before);
    }
    let line = "weir_sockets_total{end=\"key\"} 3\n";
    wait_until(line, || weir.metrics().contains(line));
}

/// Defect 9, without a request.
#[test]
fn a_key_that_is_no_longer_valid_ends_its_idle_socket_at_the_next_ping() {
    let provider = provider(&Steps::default());
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("sockets.ping_seconds", 1)
        .start();
    let (revoked, other) = (weir.key(), weir.key());
    let mut idle = WebSocket::open(weir.gateway, &revoked.text);
    let mut others = WebSocket::open(weir.gateway, &other.text);
    idle.ask(&create("hi")).completed();
    weir.cli_json(&["key", "revoke", &revoked.id]);
    assert_eq!(idle.close_code(), Some(1008));
    assert_eq!(others.ask(&create("hi")).completed().text(), words("hi"));
}

#[test]
fn an_answer_that_runs_when_its_key_is_revoked_ends_as_it_would_by_post() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = Weir::start(&provider.base_url());
    let key = weir.key();
    let mut socket = WebSocket::open(weir.gateway, &key.text);
    socket.send(&create_in("running", &held_until(1)));
    let mut events = vec![socket.event()];
    weir.cli_json(&["key", "revoke", &key.id]);
    wait_refused(&weir, &key.text);
    // The socket ends behind the answer, not in the middle of it.
    socket.send(&create_in("late", "hi"));
    events.extend(socket.settle());
    let refused = events.iter().filter(|event| event["type"] == "error").count();
    steps.permit();
    events.extend(socket.events_to_ends(2 - refused));
    let running = Turn::of_lane(&events, Some("running")).completed();
    assert_eq!(running.text(), words(&held_until(1)));
    Turn::of_lane(&events, Some("late")).refused(401, "invalid_api_key");
    assert_eq!(socket.close_code(), Some(1008));
}

/// Defect 7: what the key may use is looked at for POST only, or at the handshake only.
#[test]
fn each_request_may_use_the_models_of_its_key_as_they_are_now() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    let key = weir.key_with(&["--models", RESPONSES_MODEL]);
    let mut socket = WebSocket::open(weir.gateway, &key.text);
    let mut other = create("hi");
    other["model"] = MESSAGES_MODEL.into();
    for _ in 0..2 {
        let post = weir.exchange(&Wire::Responses.request_for(MESSAGES_MODEL, &key.text, "hi"));
        let expected = post.json()["error"].clone();
        let event = socket
            .ask(&other)
            .refused(post.status, expected["code"].as_str().unwrap());
        assert_eq!(event["error"], expected);
        assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
    }
    weir.cli_json(&["key", "update", &key.id, "--models", MESSAGES_MODEL]);
    wait_until("the change to take effect", || {
        weir.exchange(&Wire::Responses.request(&key.text, "hi")).status != 200
    });
    let post = weir.exchange(&Wire::Responses.request(&key.text, "hi"));
    let expected = post.json()["error"].clone();
    socket
        .ask(&create("hi"))
        .refused(post.status, expected["code"].as_str().unwrap());
    weir.cli_json(&["key", "update", &key.id, "--models", RESPONSES_MODEL]);
    wait_until("the change to take effect", || {
        weir.exchange(&Wire::Responses.request(&key.text, "hi")).status == 200
    });
    assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
}

#[test]
fn an_account_that_is_suspended_is_refused_and_goes_on_later_on_the_same_socket() {
    let provider = provider(&Steps::default());
    let weir = Weir::start(&provider.base_url());
    weir.cli_json(&["account", "create", "--id", "held", "--balance-usd", "10"]);
    let made = weir.cli_json(&["key", "create", "--account", "held", "--name", "held"]);
    let key = made["key"].as_str().unwrap();
    let mut socket = WebSocket::open(weir.gateway, key);
    socket.ask(&create("hi")).completed();
    weir.cli_json(&["account", "suspend", "--id", "held"]);
    let mut post = None;
    wait_until("the account to be suspended", || {
        let answer = weir.exchange(&Wire::Responses.request(key, "hi"));
        let is_refused = answer.status != 200;
        post = Some(answer).filter(|_| is_refused);
        is_refused
    });
    let post = post.unwrap();
    let expected = post.json()["error"].clone();
    let event = socket
        .ask(&create("hi"))
        .refused(post.status, expected["code"].as_str().unwrap());
    assert_eq!(event["error"], expected);
    weir.cli_json(&["account", "resume", "--id", "held"]);
    wait_until("the account to be resumed", || {
        weir.exchange(&Wire::Responses.request(key, "hi")).status == 200
    });
    assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
}

#[test]
fn a_quota_that_is_reached_in_the_middle_cuts_the_answer_and_the_next_one_shows_codex_why() {
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let flags = ["--quota-usd", "0.001", "--reset", "daily", "--on-exhausted", "cut"];
    let key = weir.key_with(&flags);
    let mut socket = WebSocket::open(weir.gateway, &key.text);
    let cut = socket.ask(&create("Tell me. [[sample: deltas=2000 delta_bytes=40 gap_ms=5]]"));
    assert_eq!(cut.last()["type"], "response.failed", "{}", cut.last());
    assert!(!cut.text().is_empty());
    let refused = socket.ask(&create("hi")).refused(429, "insufficient_quota");
    assert_eq!(refused["error"]["type"], "usage_limit_reached", "{refused}");
    assert!(refused["error"]["resets_at"].is_number(), "{refused}");
    let words = refused["headers"]["x-codex-promo-message"].as_str();
    assert!(words.is_some_and(|words| words.contains("raised")), "{refused}");
    weir.cli_json(&["key", "update", &key.id, "--quota-usd", "100"]);
    wait_until("the quota to be raised", || {
        let turn = socket.ask(&create("hi"));
        turn.last()["type"] == "response.completed"
    });
}
