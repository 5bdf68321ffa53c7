//! How long sockets live: pings without an answer, idleness, age, the number of requests, and messages that come late.

use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::stage::{create, create_in, held_until, provider, words};
use crate::harness::websocket::{Message, PONG, TEXT, Turn, WebSocket, frame, is_terminal};
use crate::harness::{RecordingProvider, Steps, Weir, WeirBuilder, wait_until};

/// A gateway with one of `[sockets]`, or of another section, at this value.
fn with(provider: &RecordingProvider, settings: &[(&str, i64)]) -> Weir {
    let builder = WeirBuilder::new().all_providers(&provider.base_url());
    let builder = settings
        .iter()
        .fold(builder, |builder, (path, value)| builder.set(path, *value));
    builder.start()
}

/// Waits until so much time has passed.
fn pass(time: Duration) {
    let until = Instant::now() + time;
    wait_until("the moment to come", || Instant::now() > until);
}

#[track_caller]
fn assert_ended(weir: &Weir, end: &str) {
    let line = format!("weir_sockets_total{{end=\"{end}\"}} 1\n");
    wait_until(&line, || weir.metrics().contains(&line));
}

#[test]
fn a_client_that_answers_pings_stays_and_one_that_does_not_is_disconnected() {
    let provider = provider(&Steps::default());
    let weir = with(&provider, &[("sockets.ping_seconds", 1)]);
    let key = weir.key().text;
    let mut silent = WebSocket::open(weir.gateway, &key);
    let mut lively = WebSocket::open(weir.gateway, &key);
    let mut pings = 0;
    while pings < 3 {
        let Message::Ping(payload) = lively.read() else {
            panic!("no ping");
        };
        lively.send_frame(PONG, &payload);
        pings += 1;
    }
    assert_eq!(lively.ask(&create("hi")).completed().text(), words("hi"));
    // It is gone, so it is told nothing.
    let mut unanswered = 0;
    loop {
        match silent.read() {
            Message::Ping(_) => unanswered += 1,
            Message::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=2).contains(&unanswered), "{unanswered}");
    assert_ended(&weir, "idle");
}

#[test]
fn a_socket_that_is_idle_for_too_long_is_closed_and_one_with_a_running_answer_is_not_idle() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = with(&provider, &[("sockets.idle_seconds", 1)]);
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.send(&create(&held_until(1)));
    socket.event();
    pass(Duration::from_millis(1500));
    steps.permit();
    assert_eq!(socket.turn().completed().last()["type"], "response.completed");
    let ended = Instant::now();
    assert_eq!(socket.close_code(), Some(1001));
    assert!(ended.elapsed() > Duration::from_millis(500), "{:?}", ended.elapsed());
    assert_eq!(socket.read(), Message::End);
    assert_ended(&weir, "idle");
}

#[test]
fn an_old_socket_without_a_request_is_closed_without_an_error() {
    let provider = provider(&Steps::default());
    let weir = with(&provider, &[("sockets.lifetime_seconds", 3)]);
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
    // Clients in Node without a listener for errors end at an error event, and Codex takes it for its next request's.
    assert_eq!(socket.close_code(), Some(1001));
    assert_ended(&weir, "lifetime");
}

#[test]
fn an_answer_outlives_its_socket_and_what_comes_after_it_is_told_to_come_on_another_one() {
    let steps = Steps::default();
    let provider = provider(&steps);
    let weir = with(&provider, &[("sockets.lifetime_seconds", 3)]);
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.send(&create_in("old", &held_until(1)));
    let mut events = vec![socket.event()];
    pass(Duration::from_secs(4));
    socket.send(&create_in("new", "hi"));
    // The refusal may come before the end of the answer that runs.
    events.extend(socket.settle());
    let refused = events.iter().filter(|event| is_terminal(event)).count();
    steps.permit();
    events.extend(socket.events_to_ends(2 - refused));
    assert_eq!(
        Turn::of_lane(&events, Some("old")).completed().text(),
        words(&held_until(1))
    );
    let refused = Turn::of_lane(&events, Some("new"));
    refused.refused(400, "websocket_connection_limit_reached");
    assert_eq!(socket.close_code(), Some(1001));
    assert_eq!(provider.count(), 1);
    let mut another = WebSocket::open(weir.gateway, &key);
    assert_eq!(another.ask(&create("hi")).completed().text(), words("hi"));
}

#[test]
fn a_socket_serves_so_many_requests_and_then_the_client_opens_another_one() {
    const REQUESTS_MAX: usize = 5;
    let provider = provider(&Steps::default());
    let weir = with(&provider, &[("connections.requests_max", REQUESTS_MAX as i64)]);
    let key = weir.key().text;
    let mut socket = WebSocket::open(weir.gateway, &key);
    let mut served = 0;
    loop {
        socket.send(&create("hi"));
        let first: Json = match socket.message() {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            Message::Close(code, _) => {
                assert_eq!(code, 1001);
                break;
            }
            other => panic!("{other:?}"),
        };
        if is_terminal(&first) {
            Turn { events: vec![first] }.refused(400, "websocket_connection_limit_reached");
            assert_eq!(socket.close_code(), Some(1001));
            break;
        }
        assert_eq!(socket.turn().completed().text(), words("hi"));
        served += 1;
    }
    // The handshake may count, too.
    assert!((REQUESTS_MAX - 1..=REQUESTS_MAX).contains(&served), "{served}");
}

/// A program can open its socket long before its user has a prompt.
#[test]
fn a_socket_whose_first_message_begins_late_is_served() {
    let provider = provider(&Steps::default());
    let weir = with(&provider, &[("connections.first_byte_seconds", 1)]);
    let mut socket = WebSocket::open(weir.gateway, &weir.key().text);
    pass(Duration::from_millis(1500));
    assert_eq!(socket.ask(&create("hi")).completed().text(), words("hi"));
}

/// Defect 10: the first message must be there in all within a fixed time, so that a large one over a slow link never is.
#[test]
fn a_first_message_may_take_longer_than_its_first_byte() {
    let provider = provider(&Steps::default());
    let weir = with(&provider, &[("connections.first_byte_seconds", 1)]);
    let key = weir.key().text;
    let prompt = "slow ".repeat(1000);
    let bytes = frame(TEXT, create(&prompt).to_string().as_bytes());
    let mut socket = WebSocket::open(weir.gateway, &key);
    for piece in bytes.chunks(bytes.len() / 20) {
        socket.write(piece);
        pass(Duration::from_millis(120));
    }
    assert_eq!(socket.turn().completed().text(), words(&prompt));
}

#[test]
fn a_message_that_comes_too_slowly_is_refused_like_the_body_of_a_post() {
    let provider = provider(&Steps::default());
    let weir = with(&provider, &[("gateway.body_read_seconds", 1)]);
    let key = weir.key().text;
    let bytes = frame(TEXT, create("hi").to_string().as_bytes());
    let mut socket = WebSocket::open(weir.gateway, &key);
    socket.write(&bytes[..bytes.len() / 2]);
    match socket.message() {
        Message::Text(text) => {
            let event: Json = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (&event["type"], &event["status"]),
                (&"error".into(), &408.into()),
                "{event}"
            );
            // The rest of the message cannot be told from the next one before it has come.
            assert!(matches!(socket.message(), Message::Close(..) | Message::End));
        }
        Message::Close(code, _) => assert!([1001, 1008].contains(&code), "{code}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(provider.count(), 0);
}
