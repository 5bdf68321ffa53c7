//! Whose key it is: which header wins, what is refused, and that a refusal reads nothing.

use std::time::Duration;

use crate::harness::client::Piece;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::assert_unauthorized;
use crate::harness::weir::Key;
use crate::harness::{RecordingProvider, Request, Weir};

/// A request of this protocol with exactly these headers as credentials.
fn with(wire: Wire, headers: &[(&str, &str)]) -> Request {
    headers
        .iter()
        .fold(wire.without_credential("hi"), |request, (name, value)| {
            request.header(name, value)
        })
}

fn revoked(weir: &Weir) -> Key {
    let key = weir.key();
    weir.cli_json(&["key", "revoke", &key.id]);
    key
}

/// A key that is well-formed and unknown here: it was made by another gateway.
fn foreign() -> String {
    Weir::start("http://127.0.0.1:9").key().text
}

#[test]
fn each_protocol_takes_its_header_and_its_fallback() {
    let provider = RecordingProvider::answering("{}");
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let bearer = format!("Bearer {key}");
    let lower = format!("bearer {key}");
    for (wire, headers) in [
        (Wire::Messages, vec![("x-api-key", key.as_str())]),
        (Wire::Messages, vec![("authorization", bearer.as_str())]),
        (
            Wire::Messages,
            vec![("X-Api-Key", key.as_str()), ("Authorization", bearer.as_str())],
        ),
        (
            Wire::Messages,
            vec![
                ("x-api-key", key.as_str()),
                ("authorization", "Bearer somebody-elses-token"),
            ],
        ),
        (
            Wire::Messages,
            vec![
                ("x-api-key", "somebody-elses-token"),
                ("authorization", bearer.as_str()),
            ],
        ),
        (Wire::Responses, vec![("authorization", bearer.as_str())]),
        (Wire::Responses, vec![("Authorization", lower.as_str())]),
        (Wire::Gemini, vec![("x-goog-api-key", key.as_str())]),
        (Wire::Gemini, vec![("x-genai-api-key", key.as_str())]),
        (
            Wire::Gemini,
            vec![
                ("x-goog-api-key", key.as_str()),
                ("authorization", "Bearer somebody-elses-token"),
            ],
        ),
        (
            Wire::Gemini,
            vec![("x-goog-api-key", key.as_str()), ("authorization", bearer.as_str())],
        ),
    ] {
        let answer = weir.exchange(&with(wire, &headers));
        assert_eq!(
            answer.status,
            200,
            "{wire:?} {:?}: {}",
            headers.iter().map(|h| h.0).collect::<Vec<_>>(),
            answer.text()
        );
    }
    let bytes = String::from_utf8(provider.plain_bytes()).unwrap();
    assert!(
        !bytes.contains(&key) && !bytes.contains("somebody-elses-token"),
        "a client's credential went upstream"
    );
}

#[test]
fn responses_takes_bearer_only() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key().text;
    for headers in [
        vec![("x-api-key", key.as_str())],
        vec![("x-goog-api-key", key.as_str())],
        vec![("authorization", key.as_str())],
    ] {
        assert_unauthorized(Wire::Responses, &weir.exchange(&with(Wire::Responses, &headers)));
    }
}

#[test]
fn the_query_key_works_for_gemini_and_goes_no_further() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for query in [
        format!("?key={key}"),
        format!("?alt=sse&key={key}"),
        format!("?key={key}&alt=sse"),
        format!("?%6bey={key}"),
    ] {
        let mut request = Wire::Gemini.without_credential("hi");
        request.target = format!("{}{query}", request.target.replace(":generate", ":streamGenerate"));
        let answer = weir.exchange(&request);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let target = provider.last().target;
        assert!(!target.contains(&key) && !target.contains("key="), "{target}");
        assert_eq!(target.contains("alt=sse"), query.contains("alt=sse"), "{target}");
    }
    assert!(!weir.logs().contains(&key));
}

#[test]
fn two_different_keys_or_one_header_twice_are_refused() {
    let provider = RecordingProvider::answering("{}");
    let weir = Weir::start(&provider.base_url());
    let (one, two) = (weir.key().text, weir.key().text);
    let (bearer_one, bearer_two) = (format!("Bearer {one}"), format!("Bearer {two}"));
    for (wire, headers) in [
        (
            Wire::Messages,
            vec![("x-api-key", one.as_str()), ("authorization", bearer_two.as_str())],
        ),
        (
            Wire::Messages,
            vec![("x-api-key", one.as_str()), ("x-api-key", two.as_str())],
        ),
        (
            Wire::Messages,
            vec![("x-api-key", one.as_str()), ("x-api-key", one.as_str())],
        ),
        (
            Wire::Responses,
            vec![
                ("authorization", bearer_one.as_str()),
                ("authorization", bearer_two.as_str()),
            ],
        ),
        (
            Wire::Responses,
            vec![
                ("authorization", bearer_one.as_str()),
                ("authorization", bearer_one.as_str()),
            ],
        ),
        (
            Wire::Gemini,
            vec![("x-goog-api-key", one.as_str()), ("x-genai-api-key", two.as_str())],
        ),
        (
            Wire::Gemini,
            vec![("x-goog-api-key", one.as_str()), ("x-goog-api-key", two.as_str())],
        ),
    ] {
        assert_unauthorized(wire, &weir.exchange(&with(wire, &headers)));
    }
    let mut request = with(Wire::Gemini, &[("x-goog-api-key", &one)]);
    request.target = format!("{}?key={two}", request.target);
    assert_unauthorized(Wire::Gemini, &weir.exchange(&request));
    assert_eq!(provider.connections(), 0);
}

#[test]
fn missing_malformed_unknown_revoked_and_expired_keys_are_401_in_every_shape() {
    let provider = RecordingProvider::answering("{}");
    let weir = Weir::start(&provider.base_url());
    let revoked = revoked(&weir).text;
    let expired = weir.expired_key();
    let foreign = foreign();
    let mut misspelt = weir.key().text;
    let last = misspelt.pop().unwrap();
    misspelt.push(if last == 'a' { 'b' } else { 'a' });
    for wire in ALL_WIRES {
        assert_unauthorized(wire, &weir.exchange(&wire.without_credential("hi")));
        for key in ["", "x", "sk-ant-something", &misspelt, &foreign, &revoked, &expired] {
            let (name, value) = wire.key_header(key);
            assert_unauthorized(wire, &weir.exchange(&with(wire, &[(name, value.as_str())])));
        }
    }
    assert_eq!(provider.connections(), 0);
    let logs = weir.logs();
    for secret in [&misspelt, &foreign, &revoked, &expired] {
        assert!(!logs.contains(secret.as_str()), "a refused key stands in a log");
    }
}

#[test]
fn a_refused_key_gets_its_answer_before_the_body_and_never_a_100() {
    let weir = Weir::start("http://127.0.0.1:9");
    let revoked = revoked(&weir).text;
    for wire in ALL_WIRES {
        for key in [revoked.as_str(), "unknown"] {
            let mut request = wire.request(key, "hi").header("expect", "100-continue");
            request.body = vec![b' '; 10_000_000];
            let mut client = weir.connect();
            client.write(&request.head_bytes(Upload::Length));
            // Not one byte of the body has been sent: the answer cannot have waited for it.
            let head = client.head_to("POST");
            assert_eq!(head.status, 401, "{wire:?}");
            assert_unauthorized(wire, &client.rest(head));
            assert!(
                client.closed_within(Duration::from_secs(10)),
                "the connection must not wait for a body it does not want"
            );
        }
    }
}

#[test]
fn a_refused_key_with_an_unread_body_smuggles_no_second_request() {
    let provider = RecordingProvider::answering("{}");
    let weir = Weir::start(&provider.base_url());
    let good = weir.key().text;
    let hidden = Wire::Messages.request(&good, "smuggled").bytes(Upload::Length);
    let mut request = Wire::Messages.request("unknown", "hi");
    request.body = hidden;
    let mut client = weir.connect();
    client.write(&request.bytes(Upload::Length));
    let mut head = client.head_to("POST");
    assert_eq!(head.status, 401);
    while let Piece::Data(_) = client.piece(&mut head) {}
    assert_eq!(
        client.try_head_to("POST").map(|head| head.status),
        None,
        "a second answer on the connection"
    );
    assert_eq!(provider.connections(), 0);
}

#[test]
fn a_key_limited_to_some_models_gets_403_for_others() {
    let provider = RecordingProvider::answering("{}");
    let weir = Weir::start(&provider.base_url());
    let key = weir.key_with(&["--models", Wire::Responses.model()]).text;
    assert_eq!(weir.exchange(&Wire::Responses.request(&key, "hi")).status, 200);
    for wire in [Wire::Messages, Wire::Gemini] {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        let kind = if wire == Wire::Messages {
            "permission_error"
        } else {
            "PERMISSION_DENIED"
        };
        crate::harness::shapes::assert_refusal(wire, &answer, 403, kind);
    }
    assert_eq!(provider.count(), 1);
}
