//! What a client hears when the provider says no, or says nothing.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::answer::Answer;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder};

fn unavailable(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "api_error",
        Wire::Responses => "provider_unreachable",
        Wire::Gemini => "UNAVAILABLE",
    }
}

#[test]
fn a_providers_error_passes_byte_for_byte() {
    const BODY: &str = "{ \"type\":\"error\",\"error\":{\"type\":\"any_error\",\"message\":\"exact w\u{f6}rds\"},\r\n\"extra\":[1.0] }\n";
    let status = Arc::new(Mutex::new(400_u16));
    let now = Arc::clone(&status);
    let provider = RecordingProvider::start(move |_, answer| {
        let headers = [
            ("content-type", "application/json"),
            ("retry-after", "30"),
            ("x-odd", "kept"),
        ];
        answer.full(*now.lock().unwrap(), &headers, BODY.as_bytes());
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut sent = 0;
    for code in [400, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529] {
        *status.lock().unwrap() = code;
        for wire in ALL_WIRES {
            for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
                let answer = weir.exchange(&request);
                assert_eq!((answer.status, answer.text().as_str()), (code, BODY), "{wire:?}");
                assert_eq!(answer.header("retry-after"), Some("30"), "{wire:?} {code}");
                sent += 1;
            }
        }
    }
    assert_eq!(provider.count(), sent, "nothing is repeated on the provider's status");
}

#[test]
fn a_refused_provider_credential_is_503_without_a_word_of_the_provider() {
    let status = Arc::new(Mutex::new(401_u16));
    let now = Arc::clone(&status);
    let provider = RecordingProvider::start(move |_, answer| {
        let body = br#"{"error":{"message":"account acme-corp-4711: Incorrect API key provided: provider-canary***"}}"#;
        let headers = [
            ("content-type", "application/json"),
            ("www-authenticate", "acme-corp"),
            ("x-account", "acme-corp"),
        ];
        answer.full(*now.lock().unwrap(), &headers, body);
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for code in [401, 402, 403] {
        *status.lock().unwrap() = code;
        for wire in ALL_WIRES {
            for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
                let answer = weir.exchange(&request);
                let kind = if wire == Wire::Responses {
                    "provider_credential_refused"
                } else {
                    unavailable(wire)
                };
                assert_refusal(wire, &answer, 503, kind);
                let all = format!("{:?}{}", answer.headers, answer.text());
                assert!(
                    !all.contains("acme") && !all.contains("provider-canary"),
                    "{wire:?} {code}: {all}"
                );
            }
        }
    }
    assert!(
        !weir.logs().contains("acme-corp"),
        "the provider's words about our account stand in a log"
    );
    let lines = weir.access_lines_at_least(18);
    assert!(
        lines.iter().all(|line| line["outcome"] == "credential_refused"),
        "{lines:?}"
    );
}

#[test]
fn a_provider_that_refuses_connections_is_503_at_once() {
    // The port was just free: nobody listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let weir = Weir::start(&format!("http://{closed}"));
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
            let started = Instant::now();
            assert_refusal(wire, &weir.exchange(&request), 503, unavailable(wire));
            assert!(
                started.elapsed() < Duration::from_secs(3),
                "{wire:?}: {:?}",
                started.elapsed()
            );
        }
    }
    let lines = weir.access_lines_at_least(6);
    assert!(
        lines.iter().all(|line| line["outcome"] == "provider_unreachable"),
        "{lines:?}"
    );
}

#[test]
fn a_provider_whose_name_does_not_resolve_is_503_at_once() {
    let weir = Weir::start("https://no-such-host.invalid");
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let started = Instant::now();
        assert_refusal(wire, &weir.exchange(&wire.request(&key, "hi")), 503, unavailable(wire));
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{wire:?}: {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn a_provider_without_its_secret_is_off_and_its_models_say_so() {
    let provider = RecordingProvider::answering("{}");
    let weir = WeirBuilder::new()
        .provider("anthropic", &provider.base_url())
        .set("provider.openai.enabled", true)
        .set("provider.openai.base_url", provider.base_url())
        .set("provider.openai.secret", "env:WEIR_TEST_NO_SUCH_VARIABLE")
        .start();
    let key = weir.key().text;
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    let answer = weir.exchange(&Wire::Responses.request(&key, "hi"));
    assert_refusal(Wire::Responses, &answer, 503, "provider_disabled");
    let listed = |name: &str, value: &str| weir.exchange(&Request::get("/v1/models").header(name, value)).text();
    assert!(listed("x-api-key", &key).contains(Wire::Messages.model()));
    assert!(!listed("authorization", &format!("Bearer {key}")).contains(Wire::Responses.model()));
    assert_eq!(provider.count(), 1);
}

#[test]
fn an_answer_broken_before_or_inside_its_head_is_502() {
    type Break = fn(&mut Answer<'_>);
    let breaks: [(&str, Break); 4] = [
        ("closed without a byte", |answer| answer.cut()),
        ("half a head", |answer| {
            answer.raw(b"HTTP/1.1 200 OK\r\ncontent-ty");
            answer.cut();
        }),
        ("no HTTP", |answer| {
            answer.raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n");
            answer.cut();
        }),
        ("an endless head", |answer| {
            answer.raw(b"HTTP/1.1 200 OK\r\n");
            answer.raw(&b"x-filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(40_000));
            answer.cut();
        }),
    ];
    let turn = Arc::new(Mutex::new(0_usize));
    let now = Arc::clone(&turn);
    let provider = RecordingProvider::start(move |_, answer| breaks[*now.lock().unwrap()].1(answer));
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (number, (what, _)) in breaks.iter().enumerate() {
        *turn.lock().unwrap() = number;
        for wire in ALL_WIRES {
            let answer = weir.exchange(&wire.request(&key, "hi"));
            assert_eq!(answer.status, 502, "{what}, {wire:?}: {}", answer.text());
            assert!(answer.json()["error"]["message"].is_string(), "{what}, {wire:?}");
        }
    }
    assert_eq!(
        provider.count(),
        breaks.len() * 3,
        "a request on a fresh connection is not sent twice"
    );
}

#[test]
fn a_redirect_is_never_followed() {
    let elsewhere = RecordingProvider::answering("{}");
    let target = format!("{}/v1/messages", elsewhere.base_url());
    let provider = RecordingProvider::start(move |_, answer| answer.full(307, &[("location", &target)], b""));
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let _ = weir.exchange(&wire.request(&key, "hi"));
    }
    assert_eq!((provider.count(), elsewhere.connections()), (3, 0));
}
