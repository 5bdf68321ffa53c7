//! What a client hears when the provider says no, or says nothing.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::answer::Answer;
use crate::harness::client::Response;
use crate::harness::h2c::{self, EndStream, Length};
use crate::harness::request::{ALL_WIRES, Wire, array_request, wire_of};
use crate::harness::rules::RuleFolder;
use crate::harness::shapes::assert_refusal;
use crate::harness::weir::PROVIDER_KEY;
use crate::harness::{RecordingProvider, Request, Weir, WeirBuilder};

fn unavailable(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "api_error",
        Wire::Responses => "provider_unreachable",
        Wire::Gemini => "UNAVAILABLE",
    }
}

/// An error in the protocol's shape, in words and white space of its own.
fn own_error(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => {
            "{ \"type\":\"error\",\"error\":{\"type\":\"any_error\",\"message\":\"exact w\u{f6}rds\"},\r\n\"extra\":[1.0] }\n"
        }
        Wire::Responses => {
            "{ \"error\":{\"message\":\"exact w\u{f6}rds\",\"type\":\"any\",\"param\":null,\"code\":null},\r\n\"extra\":[1.0] }\n"
        }
        Wire::Gemini => {
            "{ \"error\":{\"code\":7,\"message\":\"exact w\u{f6}rds\",\"status\":\"ANY\"},\r\n\"extra\":[1.0] }\n"
        }
    }
}

/// Whether a body is an error in the protocol's shape.
fn is_shaped(wire: Wire, answer: &Response) -> bool {
    let body = answer.json();
    let error = &body["error"];
    error["message"].is_string()
        && match wire {
            Wire::Messages => body["type"] == "error" && error["type"].is_string(),
            Wire::Responses => error["type"].is_string() && error["code"].is_string(),
            Wire::Gemini => error["status"].is_string() && error["code"] == answer.status,
        }
}

#[test]
fn a_providers_error_in_its_protocols_shape_passes_byte_for_byte() {
    let status = Arc::new(Mutex::new(400_u16));
    let now = Arc::clone(&status);
    let provider = RecordingProvider::start(move |request, answer| {
        let headers = [
            ("content-type", "application/json"),
            ("retry-after", "30"),
            ("x-odd", "kept"),
        ];
        let body = own_error(wire_of(&request.target));
        answer.full(*now.lock().unwrap(), &headers, body.as_bytes());
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut sent = 0;
    for code in [400, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529] {
        *status.lock().unwrap() = code;
        for wire in ALL_WIRES {
            for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
                let answer = weir.exchange(&request);
                assert_eq!(
                    (answer.status, answer.text().as_str()),
                    (code, own_error(wire)),
                    "{wire:?}"
                );
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
    let provider = RecordingProvider::least();
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
            assert!(is_shaped(wire, &answer), "{what}, {wire:?}: {}", answer.text());
        }
    }
    assert_eq!(
        provider.count(),
        breaks.len() * 3,
        "a request on a fresh connection is not sent twice"
    );
}

#[test]
fn a_redirect_is_named_as_one_and_never_followed() {
    let elsewhere = RecordingProvider::least();
    let target = format!("{}/v1/messages?key={PROVIDER_KEY}", elsewhere.base_url());
    let status = Arc::new(Mutex::new(307_u16));
    let now = Arc::clone(&status);
    let provider = RecordingProvider::start(move |_, answer| {
        answer.full(*now.lock().unwrap(), &[("location", &target)], b"moved to acme-corp");
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for code in [301, 302, 303, 304, 307, 308] {
        *status.lock().unwrap() = code;
        for wire in ALL_WIRES {
            let answer = weir.exchange(&wire.request(&key, "hi"));
            let kind = match wire {
                Wire::Messages => "api_error",
                Wire::Responses => "provider_redirected",
                Wire::Gemini => "UNAVAILABLE",
            };
            assert_refusal(wire, &answer, 502, kind);
            assert_eq!(answer.header("x-should-retry"), Some("false"), "{wire:?} {code}");
            let all = format!("{:?}{}", answer.headers, answer.text());
            for what in [&format!("redirect (status {code})"), "operator", "address"] {
                assert!(all.contains(what), "{wire:?} {code}: {all}");
            }
            for hidden in ["acme", PROVIDER_KEY, "127.0.0.1"] {
                assert!(!all.contains(hidden), "{wire:?} {code}: {all}");
            }
            let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
            assert_eq!(
                (&line["outcome"], &line["status"]),
                (&"provider_error".into(), &502.into())
            );
        }
    }
    assert_eq!((provider.count(), elsewhere.connections()), (18, 0));
    let logs = weir.logs();
    assert!(logs.contains("answered with a redirect") && logs.contains("base_url"));
    assert!(!logs.contains(PROVIDER_KEY) && !logs.contains("acme"));
}

#[test]
fn plain_text_and_details_keep_their_words_without_the_credential() {
    const SAID: [(&str, &str, &str); 5] = [
        (
            "text/plain",
            "upstream connect error KEY\n",
            "upstream connect error ***",
        ),
        ("text/html; charset=utf-8", "no healthy upstream", "no healthy upstream"),
        ("application/json", r#"{"detail":"No KEY here"}"#, "No *** here"),
        (
            "application/json",
            r#"{"detail":[{"loc":["body","model"],"msg":"Input should be a valid string","input":"KEY"}]}"#,
            "body.model: Input should be a valid string",
        ),
        (
            "text/html",
            "<html><p>KEY</p></html>",
            "The model's provider answered with status 422.",
        ),
    ];
    let turn = Arc::new(Mutex::new(0_usize));
    let now = Arc::clone(&turn);
    let provider = RecordingProvider::start(move |_, answer| {
        let (content_type, body, _) = SAID[*now.lock().unwrap()];
        let body = body.replace("KEY", PROVIDER_KEY);
        answer.full(422, &[("content-type", content_type)], body.as_bytes());
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (number, (_, body, words)) in SAID.into_iter().enumerate() {
        *turn.lock().unwrap() = number;
        for wire in ALL_WIRES {
            for request in [wire.request(&key, "hi"), wire.streaming(&key, "hi")] {
                let answer = weir.exchange(&request);
                assert!(answer.status == 422 && is_shaped(wire, &answer), "{}", answer.text());
                assert_eq!(answer.json()["error"]["message"], words, "{wire:?}: {body}");
            }
        }
    }
}

#[test]
fn an_error_of_any_other_kind_is_put_into_the_protocols_shape() {
    type Say = fn(&mut Answer<'_>);
    let says: [(&str, Say); 6] = [
        ("a page", |answer| {
            answer.full(
                502,
                &[("content-type", "text/html")],
                b"<html><h1>502 Bad Gateway</h1></html>",
            );
        }),
        ("a page in chunks", |answer| {
            answer.head(502, &[("content-type", "text/html; charset=utf-8")]);
            answer.chunk("<html>502");
            answer.chunk(" Bad Gateway</html>");
            answer.end();
        }),
        ("nothing", |answer| answer.full(502, &[], b"")),
        ("an empty chunked body", |answer| {
            answer.head(502, &[("content-type", "application/json")]);
            answer.end();
        }),
        ("an event", |answer| {
            answer.full(
                502,
                &[("content-type", "text/event-stream")],
                b"event: error\ndata: {}\n\n",
            );
        }),
        ("a body without a type", |answer| {
            answer.full(
                502,
                &[("content-type", "application/json")],
                br#"{"error":{"message":"502 Bad Gateway"}}"#,
            );
        }),
    ];
    let turn = Arc::new(Mutex::new(0_usize));
    let now = Arc::clone(&turn);
    let provider = RecordingProvider::start(move |_, answer| says[*now.lock().unwrap()].1(answer));
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for (number, (what, _)) in says.iter().enumerate() {
        *turn.lock().unwrap() = number;
        for wire in ALL_WIRES {
            let request = wire.request(&key, "hi");
            let h2 = h2c::exchange(weir.gateway, &request, EndStream::OnLastFrame, Length::Said);
            for answer in [weir.exchange(&request), weir.exchange(&wire.streaming(&key, "hi")), h2] {
                assert!(is_shaped(wire, &answer), "{what}, {wire:?}: {}", answer.text());
                assert_eq!(answer.status, 502, "{what}, {wire:?}");
                assert_eq!(
                    answer.header("content-type"),
                    Some("application/json"),
                    "{what}, {wire:?}"
                );
                assert!(!answer.text().contains("<h"), "{what}, {wire:?}: {}", answer.text());
            }
        }
        let array = weir.exchange(&array_request(&key));
        assert!(is_shaped(Wire::Gemini, &array), "{what}: {}", array.text());
    }
}

#[test]
fn an_error_costs_neither_the_clients_connection_nor_the_providers() {
    let provider = RecordingProvider::start(move |request, answer| {
        let body = own_error(wire_of(&request.target));
        answer.full(403, &[("content-type", "application/json")], body.as_bytes());
    });
    // What is about the request, by its status alone.
    let rules = RuleFolder::aborting();
    for wire in ALL_WIRES {
        let name = wire.provider();
        let text = std::fs::read_to_string(rules.path().join(format!("{name}.toml"))).unwrap();
        let rule = "[[error]]\nstatus = 403\nmessage = \"exact*\"\nmeans = \"request_refused\"\n\n[auth]";
        rules.write(name, &text.replacen("[auth]", rule, 1));
    }
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    let mut client = weir.connect();
    for wire in [Wire::Messages, Wire::Messages, Wire::Messages] {
        let answer = client.exchange(&wire.request(&key, "hi"));
        assert_eq!((answer.status, answer.text().as_str()), (403, own_error(wire)));
        assert_eq!(answer.header("connection"), Some("keep-alive"));
    }
    assert_eq!((provider.count(), provider.connections()), (3, 1));
}

#[test]
fn a_403_about_an_object_is_the_clients_and_rests_no_credential() {
    let said = Arc::new(Mutex::new(""));
    let now = Arc::clone(&said);
    let provider = RecordingProvider::start(move |_, answer| {
        let headers = [("content-type", "application/json"), ("x-account", PROVIDER_KEY)];
        answer.full(403, &headers, now.lock().unwrap().as_bytes());
    });
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let resting = |count: u8| {
        let line = format!("weir_provider_credentials_cooling_down{{provider=\"gemini\"}} {count}");
        weir.metrics().contains(&line)
    };
    let of_the_request = [
        r#"{"error":{"code":403,"message":"You do not have permission to access the File abc or it may not exist.","status":"PERMISSION_DENIED"}}"#,
        r#"{"error":{"code":403,"message":"CachedContent not found (or permission denied)","status":"PERMISSION_DENIED"}}"#,
        r#"[{"error":{"code":403,"message":"CachedContent not found (or permission denied)","status":"PERMISSION_DENIED"}}]"#,
    ];
    for body in of_the_request {
        *said.lock().unwrap() = body;
        for request in [
            Wire::Gemini.request(&key, "hi"),
            Wire::Gemini.streaming(&key, "hi"),
            array_request(&key),
        ] {
            let answer = weir.exchange(&request);
            assert_eq!((answer.status, answer.text().as_str()), (403, body));
            assert_eq!(answer.header("x-account"), None, "masked");
            let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
            assert_eq!(
                (&line["outcome"], &line["status"]),
                (&"provider_error".into(), &403.into())
            );
        }
    }
    assert!(resting(0), "{}", weir.metrics());
    let masked =
        format!(r#"{{"error":{{"message":"You do not have permission to access the File {PROVIDER_KEY} now"}}}}"#);
    *said.lock().unwrap() = Box::leak(masked.into_boxed_str());
    let answer = weir.exchange(&Wire::Gemini.request(&key, "hi"));
    assert!(
        answer.status == 403 && is_shaped(Wire::Gemini, &answer),
        "{}",
        answer.text()
    );
    assert!(
        !answer.text().contains(PROVIDER_KEY) && answer.text().contains("the File ***"),
        "{}",
        answer.text()
    );
    assert!(resting(0));
    let of_the_credential = [
        r#"{"error":{"code":403,"message":"Permission denied: Consumer 'acme' has been suspended.","status":"PERMISSION_DENIED"}}"#,
        r#"{"error":{"code":403,"message":"Unknown: You do not have permission to access the File acme","status":"PERMISSION_DENIED"}}"#,
        "<html>acme</html>",
        "",
    ];
    for body in of_the_credential {
        *said.lock().unwrap() = body;
        let answer = weir.exchange(&Wire::Gemini.request(&key, "hi"));
        assert_refusal(Wire::Gemini, &answer, 503, "UNAVAILABLE");
        assert!(!answer.text().contains("acme"), "{body}: {}", answer.text());
        let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
        assert_eq!(line["outcome"], "credential_refused", "{body}");
    }
    assert!(resting(1));
}
