//! Whose key it is: which header wins, what is refused, and that a refusal reads nothing.

use std::time::Duration;

use crate::harness::client::Piece;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::{assert_unauthorized, request_id_header};
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
fn a_key_without_its_scheme_is_refused_with_the_words_that_the_scheme_is_missing() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key().text;
    for wire in [Wire::Messages, Wire::Responses] {
        for value in [key.clone(), format!("Basic {key}")] {
            let answer = weir.exchange(&with(wire, &[("authorization", value.as_str())]));
            assert_unauthorized(wire, &answer);
            assert!(answer.text().contains("`Bearer` is missing"), "{}", answer.text());
            assert!(!answer.text().contains(&key), "{}", answer.text());
        }
    }
    let answer = weir.exchange(&with(Wire::Gemini, &[("authorization", key.as_str())]));
    assert_unauthorized(Wire::Gemini, &answer);
    assert!(answer.text().contains("x-goog-api-key"), "{}", answer.text());
}

#[test]
fn each_protocol_takes_its_header_and_its_fallback() {
    let provider = RecordingProvider::least();
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
fn the_preferred_place_wins_over_a_second_valid_key() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let (one, two, gone) = (weir.key(), weir.key(), revoked(&weir));
    // Where the preferred key stands, and where another one does that must not count.
    let cases = [
        (Wire::Messages, "x-api-key", "authorization"),
        (Wire::Messages, "x-api-key", "x-goog-api-key"),
        (Wire::Messages, "authorization", "x-goog-api-key"),
        (Wire::Responses, "authorization", "x-api-key"),
        (Wire::Responses, "authorization", "x-goog-api-key"),
        (Wire::Gemini, "x-goog-api-key", "x-api-key"),
        (Wire::Gemini, "x-genai-api-key", "authorization"),
        (Wire::Gemini, "x-goog-api-key", "?key="),
    ];
    let both = |(wire, preferred, other): (Wire, &str, &str), first: &Key, second: &Key| {
        let place = |request: Request, name: &str, key: &Key| match name {
            "?key=" => Request {
                target: format!("{}?key={}", request.target, key.text),
                ..request
            },
            "authorization" => request.header(name, &format!("Bearer {}", key.text)),
            _ => request.header(name, &key.text),
        };
        place(place(wire.without_credential("hi"), other, second), preferred, first)
    };
    for case in cases {
        let answer = weir.exchange(&both(case, &one, &two));
        assert_eq!(answer.status, 200, "{case:?}: {}", answer.text());
        let id = answer.header(request_id_header(case.0)).unwrap();
        assert_eq!(weir.access_line(id)["key_id"], one.id.as_str(), "{case:?}");
        assert_unauthorized(case.0, &weir.exchange(&both(case, &gone, &two)));
    }
    let bytes = String::from_utf8(provider.plain_bytes()).unwrap();
    assert!(
        !bytes.contains(&one.text) && !bytes.contains(&two.text),
        "a client's key went upstream"
    );
}

#[test]
fn one_place_twice_is_refused() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let (one, two) = (weir.key().text, weir.key().text);
    let bearer = |key: &str| format!("Bearer {key}");
    for (first, second) in [(&one, &two), (&one, &one)] {
        for (wire, headers) in [
            (
                Wire::Messages,
                [("x-api-key", first.clone()), ("x-api-key", second.clone())],
            ),
            (
                Wire::Messages,
                [("authorization", bearer(first)), ("authorization", bearer(second))],
            ),
            (
                Wire::Responses,
                [("authorization", bearer(first)), ("authorization", bearer(second))],
            ),
            (
                Wire::Gemini,
                [("x-goog-api-key", first.clone()), ("x-goog-api-key", second.clone())],
            ),
            (
                Wire::Gemini,
                [("x-goog-api-key", first.clone()), ("x-genai-api-key", second.clone())],
            ),
        ] {
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            assert_unauthorized(wire, &weir.exchange(&with(wire, &headers)));
        }
        let mut request = with(Wire::Gemini, &[]);
        request.target = format!("{}?key={first}&key={second}", request.target);
        assert_unauthorized(Wire::Gemini, &weir.exchange(&request));
    }
    assert_eq!(provider.connections(), 0);
}

#[test]
fn every_401_tells_clients_not_to_try_again_whatever_was_asked_for() {
    let weir = Weir::start("http://127.0.0.1:9");
    let (revoked, expired, foreign) = (revoked(&weir).text, weir.expired_key(), foreign());
    let good = weir.key().text;
    let gemini = |method: &str| format!("/v1beta/models/{}:{method}", Wire::Gemini.model());
    let requests = [
        (Wire::Messages, Request::post("/v1/messages/count_tokens").json("{}")),
        (
            Wire::Messages,
            Request::get("/v1/models").header("anthropic-version", "2023-06-01"),
        ),
        (Wire::Messages, Request::post("/v1/messages").json("{\"stream\":true}")),
        (Wire::Responses, Request::get("/v1/models")),
        (Wire::Responses, Request::get("/v1/models/some")),
        (
            Wire::Responses,
            Request::post("/v1/responses").json("{\"stream\":true}"),
        ),
        (Wire::Gemini, Request::get("/v1beta/models")),
        (Wire::Gemini, Request::post(&gemini("countTokens")).json("{}")),
        (Wire::Gemini, Request::post(&gemini("streamGenerateContent")).json("{}")),
    ];
    for (wire, request) in requests {
        let mut asked = vec![request.clone()];
        for key in ["sk-other", &revoked, &expired, &foreign] {
            let (name, value) = wire.key_header(key);
            asked.push(request.clone().header(name, &value));
        }
        let (name, value) = wire.key_header(&good);
        asked.push(request.header(name, &value).header(name, &value));
        for request in asked {
            assert_unauthorized(wire, &weir.exchange(&request));
        }
    }
}

#[test]
fn missing_malformed_unknown_revoked_and_expired_keys_are_401_in_every_shape() {
    let provider = RecordingProvider::least();
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
    let provider = RecordingProvider::least();
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
    // The next answer on the connection, which serves on, is the next request's.
    client.write(&Request::get("/api/hello").bytes(Upload::Length));
    assert_eq!(client.response_to("GET").json()["status"], "ok");
    assert_eq!(provider.connections(), 0);
}

#[test]
fn a_key_limited_to_some_models_gets_403_for_others() {
    let provider = RecordingProvider::least();
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
