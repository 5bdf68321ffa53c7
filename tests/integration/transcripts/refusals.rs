//! Requests that weir refuses.

use super::answers::word;
use super::play;
use super::stage::{Case, Stage};
use crate::harness::recordings::events;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::{DEEPSEEK_MODEL, Request};

pub(super) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    vec![("refused", cases())]
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for wire in ALL_WIRES {
        cases.extend(credentials(wire));
        cases.extend(bodies(wire));
        cases.extend(limits(wire));
    }
    cases.extend(places());
    cases.extend(running());
    cases
}

/// A case in which one request is sent that `make` makes for a key.
fn one(wire: Wire, kind: &str, make: impl Fn(&str) -> Request + 'static) -> Case {
    Case::of_weir(format!("{}-{kind}", word(wire)), move |stage| {
        stage.ask(&make(&stage.key))
    })
}

/// A case in which a request is sent with a new key that was made with these flags.
fn with_key(wire: Wire, kind: &str, flags: &'static [&'static str]) -> Case {
    Case::of_weir(format!("{}-{kind}", word(wire)), move |stage| {
        let key = stage.weir.key_with(flags).text;
        stage.ask(&wire.request(&key, "hi"))
    })
}

fn credentials(wire: Wire) -> Vec<Case> {
    vec![
        one(wire, "no-credential", move |_| wire.without_credential("hi")),
        one(wire, "key-unknown", move |key| {
            wire.request(&format!("{}AAAA", &key[..key.len() - 4]), "hi")
        }),
        one(wire, "key-malformed", move |_| wire.request("nonsense", "hi")),
        Case::of_weir(format!("{}-key-revoked", word(wire)), move |stage| {
            let key = stage.weir.key();
            stage.weir.cli_json(&["key", "revoke", &key.id]);
            stage.ask(&wire.request(&key.text, "hi"))
        }),
    ]
}

fn bodies(wire: Wire) -> Vec<Case> {
    vec![
        one(wire, "model-unknown", move |key| {
            wire.request_for("no-such-model", key, "hi")
        }),
        one(wire, "body-no-json", move |key| {
            wire.request(key, "hi").body(b"{\"model\":")
        }),
        one(wire, "body-no-object", move |key| wire.request(key, "hi").body(b"[]")),
        one(wire, "body-empty", move |key| wire.request(key, "hi").body(b"")),
        one(wire, "body-too-deep", move |key| {
            let deep = format!(r#"{{"model":"{}","a":{}}}"#, wire.model(), "[".repeat(300));
            wire.request(key, "hi").body(deep.as_bytes())
        }),
        one(wire, "coding-unknown", move |key| {
            wire.request(key, "hi").header("content-encoding", "made-up")
        }),
        Case::of_weir(format!("{}-body-too-large", word(wire)), move |stage| {
            let mut request = wire.request(&stage.key, "hi");
            request.body = vec![b' '; 70_000];
            stage.ask(&request)
        }),
    ]
}

fn limits(wire: Wire) -> Vec<Case> {
    vec![
        with_key(wire, "quota-spent", &["--quota-usd", "0"]),
        with_key(wire, "model-not-allowed", &["--models", DEEPSEEK_MODEL]),
    ]
}

fn places() -> Vec<Case> {
    vec![
        Case::of_weir("method", |stage| {
            let key = stage.key.clone();
            stage.ask(&Request::get("/v1/messages").header("x-api-key", &key))
        }),
        Case::of_weir("place", |stage| {
            let mut request = Wire::Responses.request(&stage.key, "hi");
            request.target = "/v1/embeddings".to_owned();
            stage.ask(&request)
        }),
        Case::of_weir("version-2", |stage| {
            stage.ask_h2(&Wire::Messages.request_for("no-such-model", &stage.key, "hi"))
        }),
        one(Wire::Responses, "state-unknown", |key| {
            let body = r#"{"model":"gpt-5.6-sol","input":"hi","previous_response_id":"resp_unknown"}"#;
            Wire::Responses.request(key, "hi").body(body.as_bytes())
        }),
        one(Wire::Messages, "two-keys", |key| {
            Wire::Messages
                .request(key, "hi")
                .header("authorization", "Bearer another")
        }),
        Case::of_weir("key-expired", |stage| {
            let key = stage.weir.expired_key();
            stage.ask(&Wire::Messages.request(&key, "hi"))
        }),
        Case::of_weir("account-suspended", |stage| {
            stage.weir.cli_json(&["account", "suspend", "--id", "tests"]);
            let text = stage.ask(&Wire::Messages.request(&stage.key, "hi"));
            stage.weir.cli_json(&["account", "resume", "--id", "tests"]);
            text
        }),
    ]
}

/// What is refused because something of the same key runs, or has run.
fn running() -> Vec<Case> {
    vec![
        Case::of_weir("requests-per-minute", |stage| {
            let key = stage.weir.key_with(&["--rpm", "1"]).text;
            let request = Wire::Messages.request(&key, "hi");
            stage.ask(&request) + &stage.ask(&request)
        }),
        Case::new(
            "concurrency",
            |_, _, answer| {
                answer.sse();
                answer.chunk(events(Wire::Messages)[0]);
                answer.wait_peer_left(std::time::Duration::from_secs(60));
            },
            |stage| {
                let key = stage.weir.key_with(&["--concurrency", "1"]).text;
                let mut running = stage.weir.connect();
                running.write(&Wire::Messages.streaming(&key, "hi").bytes(Upload::Length));
                running.head_to("POST");
                let text = stage.ask(&Wire::Messages.request(&key, "hi"));
                drop(running);
                text
            },
        ),
    ]
}

#[test]
fn are_as_their_transcripts() {
    // A client that leaves is not read on for: the case of concurrency leaves a stream.
    let mut stage = Stage::shipped(|builder| {
        builder
            .set("gateway.body_bytes_max", 65_536)
            .set("upstream.client_gone_finish_seconds", 1)
            .set("money.held_wait_ms", 0)
    });
    play("refused", &mut stage, &cases());
}
