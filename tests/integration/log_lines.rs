//! What the log says when things fail: each failure once, in weir's words, without a byte of what a provider or a client
//! sent; and a client that leaves is no error.

use std::time::Duration;

use crate::harness::answer::Answer;
use crate::harness::leaving::{ALL_WAYS, Visit};
use crate::harness::recordings::events;
use crate::harness::request::{Request, Upload, Wire};
use crate::harness::{Client, RecordingProvider, Weir, WeirBuilder, wait_until};

/// In everything that a provider or a client sends here.
const CANARY: &str = "canary-4bYx9Ttq";

/// How the provider fails, and what the access log says of it.
const FAILURES: [(&str, &str); 15] = [
    ("no status line", "provider_cut"),
    ("a status that is none", "provider_cut"),
    ("a broken header", "provider_cut"),
    ("a broken length", "provider_cut"),
    ("a redirect", "provider_error"),
    ("a broken chunk", "provider_cut"),
    ("closed before the head", "provider_cut"),
    ("closed within the head", "provider_cut"),
    ("closed in mid-stream", "provider_cut"),
    ("ended in mid-stream", "provider_cut"),
    ("silent in mid-stream", "provider_timeout"),
    ("more than its length", "ok"),
    ("an error", "provider_error"),
    ("an in-band error", "in_band_error"),
    ("a finish reason of its own", "ok"),
];

/// Fails as the request's prompt says.
fn fail(prompt: &str, answer: &mut Answer<'_>) {
    let events = events(Wire::Messages);
    let is = |what: &str| prompt.contains(&format!("\"{what}\""));
    let json = [("content-type", "application/json")];
    if is("no status line") {
        answer.raw(format!("{CANARY}\r\n\r\n").as_bytes());
    } else if is("a status that is none") {
        answer.raw(format!("HTTP/1.1 {CANARY}\r\ncontent-length: 0\r\n\r\n").as_bytes());
    } else if is("a broken header") {
        answer.raw(format!("HTTP/1.1 200 OK\r\n{CANARY} : \x01{CANARY}\r\ncontent-length: 0\r\n\r\n").as_bytes());
    } else if is("a broken length") {
        answer.raw(format!("HTTP/1.1 200 OK\r\ncontent-length: {CANARY}\r\n\r\n").as_bytes());
    } else if is("a redirect") {
        let to = format!("https://{CANARY}/");
        answer.full(302, &[("location", &to)], CANARY.as_bytes());
    } else if is("a broken chunk") {
        answer.sse();
        answer.chunk(events[0]);
        answer.raw(format!("{CANARY}\r\n{CANARY}\r\n").as_bytes());
    } else if is("closed within the head") {
        answer.raw(format!("HTTP/1.1 200 {CANARY}\r\nx-{CANARY}: {CANARY}\r\n").as_bytes());
    } else if is("closed in mid-stream") || is("ended in mid-stream") || is("silent in mid-stream") {
        answer.sse();
        answer.chunk(events[0]);
        answer.chunk(events[3].replace("Hello", CANARY));
        if is("ended in mid-stream") {
            return answer.end();
        }
        if is("silent in mid-stream") {
            answer.wait_peer_left(Duration::from_secs(60));
        }
    } else if is("more than its length") {
        let body = crate::harness::recordings::unary(Wire::Messages);
        answer.full(200, &json, body.as_bytes());
        answer.raw(CANARY.as_bytes());
    } else if is("an error") {
        answer.full(500, &json, format!(r#"{{"error":"{CANARY}"}}"#).as_bytes());
    } else if is("an in-band error") {
        answer.sse();
        answer.chunk(format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{CANARY}\",\"message\":\"{CANARY}\"}}}}\n\n"
        ));
        return answer.end();
    } else if is("a finish reason of its own") {
        answer.sse();
        events
            .iter()
            .for_each(|event| answer.chunk(event.replace("end_turn", CANARY)));
        return answer.end();
    }
    answer.cut();
}

/// The lines of weir's log that are about a request.
fn lines_about(weir: &mut Weir, request_id: &str) -> Vec<String> {
    let log = weir.process().err();
    log.lines()
        .filter(|line| line.contains(request_id))
        .map(str::to_owned)
        .collect()
}

/// Fails the test where the log calls something a warning or an error that `expected` does not know.
#[track_caller]
fn assert_calm(weir: &mut Weir, expected: &[&str]) {
    let log = weir.process().err();
    let loud = |line: &&str| line.contains(" ERROR ") || line.contains(" WARN ");
    let others: Vec<&str> = log
        .lines()
        .filter(loud)
        .filter(|line| !expected.iter().any(|words| line.contains(words)))
        .collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn a_failure_of_a_provider_is_told_once_and_without_its_bytes() {
    let provider = RecordingProvider::start(|request, answer| {
        fail(&String::from_utf8_lossy(&request.body), answer);
    });
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.idle_seconds", 1)
        .start();
    let key = weir.key().text;
    for (how, outcome) in FAILURES {
        let request = if how == "more than its length" {
            Wire::Messages.request(&key, how)
        } else {
            Wire::Messages.streaming(&key, how)
        };
        let answer = weir.exchange(&request);
        let id = answer.header("x-weir-request-id").unwrap().to_owned();
        let line = weir.access_line(&id);
        assert_eq!(line["outcome"], outcome, "{how}: {line}");
        if how == "a finish reason of its own" {
            assert_eq!(line["finish_reason"], "other", "{line}");
        }
        let is_told = how == "a redirect" || outcome.starts_with("provider_") && outcome != "provider_error";
        let wanted = usize::from(is_told);
        // The access log is another file, which may be written first.
        wait_until("the line about the failure", || {
            lines_about(&mut weir, &id).len() >= wanted
        });
        let told = lines_about(&mut weir, &id);
        assert_eq!(told.len(), wanted, "{how}: {told:#?}");
    }
    let logs = weir.logs();
    assert!(!logs.contains(CANARY), "{logs}");
    // Nothing but an operator can end a redirect, or help a provider that fails one request after the other.
    assert_calm(&mut weir, &["the provider answered with a redirect", "in a row"]);
}

#[test]
fn a_provider_that_cannot_be_reached_is_a_warning_with_its_cause() {
    let mut weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key().text;
    let answer = weir.exchange(&Wire::Messages.request(&key, CANARY));
    assert_eq!(answer.status, 503);
    let id = answer.header("x-weir-request-id").unwrap().to_owned();
    weir.access_line(&id);
    let told = lines_about(&mut weir, &id);
    let (last, before) = told.split_last().expect("a line");
    assert!(
        last.contains("cannot connect to the provider") && last.contains("ConnectRefused"),
        "{told:#?}"
    );
    assert!(
        before.iter().all(|line| line.contains("another attempt follows")),
        "{told:#?}"
    );
    assert!(told.iter().all(|line| line.contains(" WARN ")), "{told:#?}");
    assert_calm(&mut weir, &["connect"]);
}

#[test]
fn a_client_that_leaves_or_sends_nonsense_is_no_error() {
    let provider = RecordingProvider::start(|_, answer| {
        answer.sse();
        answer.chunk(events(Wire::Messages)[0]);
        answer.wait_peer_left(Duration::from_secs(60));
    });
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.client_gone_finish_seconds", 1)
        .start();
    let key = weir.key().text;
    let request = Wire::Messages.streaming(&key, CANARY);
    for way in ALL_WAYS {
        Visit::begin(weir.gateway, &request, way).leave();
    }
    let whole = request.bytes(Upload::Length);
    let head = request.head_bytes(Upload::Length);
    let parts: [&[u8]; 6] = [
        // Before the answer's head, within the body, within the head.
        &whole,
        &whole[..whole.len() - 5],
        &head[..head.len() - 5],
        b"canary-4bYx9Ttq / HTTP/1.1\r\n\r\nbut that is not all, and it is no HTTP\r\n\r\n",
        b"GET /canary-4bYx9Ttq HTTP/1.1\r\nhost: a\r\nhost: canary-4bYx9Ttq\r\n\x01: canary-4bYx9Ttq\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ncanary-4bYx9Ttq canary-4bYx9Ttq canary-4bYx9Ttq",
    ];
    for part in parts {
        for resets in [false, true] {
            let mut client = Client::connect(weir.gateway);
            client.write(part);
            if resets {
                client.reset();
            }
        }
    }
    // What came before has been seen to its end when nothing runs any more.
    assert_eq!(weir.exchange(&Request::get("/api/hello")).status, 200);
    wait_until("the clients to be gone", || {
        weir.metrics().contains("\nweir_requests_in_flight 0\n")
    });
    assert!(
        weir.process().err().contains("listening"),
        "the log is at its default level"
    );
    weir.process().signal("TERM");
    assert!(weir.process().wait_ended().success());
    assert!(!weir.logs().contains(CANARY), "{}", weir.logs());
    assert_calm(&mut weir, &[]);
}

#[test]
fn what_fails_within_weir_is_an_error_once() {
    let provider = RecordingProvider::recorded();
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .variable("FAILPOINTS", "request_filter=1*panic")
        .panics_expected()
        .start();
    let key = weir.key().text;
    let answer = weir.exchange(&Wire::Messages.request(&key, "hi"));
    assert_eq!(answer.status, 500);
    weir.access_lines_at_least(1);
    let log = weir.process().err();
    assert_eq!(log.matches(" ERROR ").count(), 1, "{log}");
}
