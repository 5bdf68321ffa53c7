//! What is served where, and how everything else is refused.

use crate::harness::request::{Upload, Wire};
use crate::harness::shapes::assert_refusal;
use crate::harness::{GEMINI_MODEL, MESSAGES_MODEL, RESPONSES_MODEL, RecordingProvider, Request, Weir, WeirBuilder};

const EMPTY: &str = "{}";

#[test]
fn an_unknown_path_is_404_in_the_shape_of_its_prefix() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    for (path, wire) in [
        ("/v1/messages/unknown", Wire::Messages),
        ("/v1/messages/batches", Wire::Messages),
        ("/v1/responses/resp_1", Wire::Responses),
        ("/v1/unknown", Wire::Responses),
        ("/", Wire::Responses),
        ("/v1beta/unknown", Wire::Gemini),
        ("/v1beta/models/gemini:embedContent", Wire::Gemini),
        ("/v1beta/tunedModels/mine:generateContent", Wire::Gemini),
        ("/v1/tunedModels/mine:generateContent", Wire::Gemini),
    ] {
        let request = Request::post(path)
            .header("authorization", &format!("Bearer {}", key.text))
            .json(EMPTY);
        let kind = match wire {
            Wire::Messages => "not_found_error",
            Wire::Responses => "unknown_url",
            Wire::Gemini => "NOT_FOUND",
        };
        assert_refusal(wire, &weir.exchange(&request), 404, kind);
    }
}

#[test]
fn a_wrong_method_is_405_and_says_which_is_allowed() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    let gemini = format!("/v1beta/models/{GEMINI_MODEL}:generateContent");
    for (method, path, wire, allow) in [
        ("GET", "/v1/messages", Wire::Messages, "POST"),
        ("PUT", "/v1/messages", Wire::Messages, "POST"),
        ("DELETE", "/v1/messages/count_tokens", Wire::Messages, "POST"),
        ("GET", "/v1/responses", Wire::Responses, "POST"),
        ("GET", gemini.as_str(), Wire::Gemini, "POST"),
        ("POST", "/v1/models", Wire::Responses, "GET"),
        ("POST", "/v1beta/models", Wire::Gemini, "GET"),
    ] {
        let request = Request::new(method, path).header("authorization", &format!("Bearer {}", key.text));
        let answer = weir.exchange(&request);
        let kind = match wire {
            Wire::Messages => "invalid_request_error",
            Wire::Responses => "method_not_allowed",
            Wire::Gemini => "INVALID_ARGUMENT",
        };
        assert_refusal(wire, &answer, 405, kind);
        assert!(
            answer.header("allow").is_some_and(|value| value.contains(allow)),
            "{method} {path}"
        );
    }
}

#[test]
fn chat_completions_says_it_has_been_removed_and_names_responses() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    let request = Request::post("/v1/chat/completions")
        .header("authorization", &format!("Bearer {}", key.text))
        .json(EMPTY);
    let answer = weir.exchange(&request);
    assert_refusal(Wire::Responses, &answer, 404, "unknown_url");
    assert!(
        answer.text().contains("/v1/responses") && answer.text().contains("removed"),
        "{}",
        answer.text()
    );
}

#[test]
fn a_head_request_is_refused_without_a_body() {
    let weir = Weir::start("http://127.0.0.1:9");
    for path in ["/v1/messages", "/v1/models", "/v1/responses", "/nothing"] {
        let mut client = weir.connect();
        client.write(&Request::new("HEAD", path).bytes(Upload::Length));
        let answer = client.response_to("HEAD");
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
        // What follows on the connection, if it lives on, is the next answer and no leftover body.
        client.write(b"GET /nowhere HTTP/1.1\r\nhost: weir.test\r\n\r\n");
        if let Some(next) = client.try_head_to("GET") {
            assert_eq!(next.status, 404, "{path}");
        }
    }
}

#[test]
fn every_generation_path_reaches_its_provider() {
    let provider = RecordingProvider::recorded();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key();
    let base = Wire::Gemini.request(&key.text, "hi");
    let messages = Wire::Messages.request(&key.text, "hi");
    let at = |request: &Request, target: &str| Request {
        target: target.to_owned(),
        ..request.clone()
    };
    for (request, expected) in [
        (messages.clone(), "/v1/messages"),
        (at(&messages, "/v1/messages?beta=true"), "/v1/messages?beta=true"),
        (at(&messages, "/v1/messages/count_tokens"), "/v1/messages/count_tokens"),
        (Wire::Responses.request(&key.text, "hi"), "/v1/responses"),
    ] {
        assert_eq!(weir.exchange(&request).status, 200, "{}", request.target);
        let got = provider.last();
        assert_eq!((got.method.as_str(), got.target.as_str()), ("POST", expected));
    }
    for verb in ["generateContent", "countTokens"] {
        for (version, colon) in [("v1beta", ":"), ("v1", ":"), ("v1beta", "%3A"), ("v1", "%3a")] {
            let request = at(&base, &format!("/{version}/models/{GEMINI_MODEL}{colon}{verb}"));
            assert_eq!(weir.exchange(&request).status, 200, "{}", request.target);
            assert_eq!(provider.last().target, format!("/v1beta/models/{GEMINI_MODEL}:{verb}"));
        }
    }
    for query in ["?alt=sse", "?alt=json", ""] {
        let request = at(
            &base,
            &format!("/v1/models/{GEMINI_MODEL}:streamGenerateContent{query}"),
        );
        assert_eq!(weir.exchange(&request).status, 200, "{}", request.target);
        assert_eq!(
            provider.last().target,
            format!("/v1beta/models/{GEMINI_MODEL}:streamGenerateContent{query}")
        );
    }
}

#[test]
fn a_path_that_tries_to_leave_its_template_reaches_no_provider() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key();
    for model in [
        "..",
        "%2e%2e%2fx",
        "a%2Fb",
        "a%252Fb",
        "a%0d%0aX-Evil:1",
        "a%00",
        "a;b",
        "a/b",
        "",
        "%",
        "a%zz",
        "\u{e9}",
        "a:b",
    ] {
        let request = Request {
            target: format!("/v1beta/models/{model}:generateContent"),
            ..Wire::Gemini.request(&key.text, "hi")
        };
        let mut client = weir.connect();
        client.write(&request.bytes(Upload::Length));
        let status = client.try_head_to("POST").map_or(400, |head| head.status);
        assert!((400..500).contains(&status), "{model:?}: {status}");
    }
    assert_eq!(provider.connections(), 0);
}

#[test]
fn the_model_list_has_the_shape_the_credential_asks_for() {
    let weir = Weir::start("http://127.0.0.1:9");
    let key = weir.key();
    let bearer = format!("Bearer {}", key.text);
    let openai = weir
        .exchange(&Request::get("/v1/models").header("authorization", &bearer))
        .json();
    assert_eq!(openai["object"], "list");
    assert!(
        openai["data"]
            .as_array()
            .unwrap()
            .iter()
            .any(|model| model["id"] == RESPONSES_MODEL),
        "{openai}"
    );
    for request in [
        Request::get("/v1/models").header("x-api-key", &key.text),
        Request::get("/v1/models")
            .header("authorization", &bearer)
            .header("anthropic-version", "2026-10-21"),
    ] {
        let list = weir.exchange(&request).json();
        assert_eq!(list["data"][0]["type"], "model", "{list}");
        assert!(
            list["data"]
                .as_array()
                .unwrap()
                .iter()
                .any(|model| model["id"] == MESSAGES_MODEL),
            "{list}"
        );
        assert!(
            list.get("has_more").is_some() && list.get("first_id").is_some(),
            "{list}"
        );
    }
    for path in ["/v1/models", "/v1beta/models"] {
        let list = weir
            .exchange(&Request::get(path).header("x-goog-api-key", &key.text))
            .json();
        let name = format!("models/{GEMINI_MODEL}");
        assert!(
            list["models"]
                .as_array()
                .unwrap()
                .iter()
                .any(|model| model["name"] == name),
            "{list}"
        );
    }
    let unauthorized = weir.exchange(&Request::get("/v1/models"));
    assert_eq!(unauthorized.status, 401);
}

#[test]
fn an_unknown_model_is_404_and_reaches_no_provider() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key();
    for (wire, kind) in [
        (Wire::Messages, "not_found_error"),
        (Wire::Responses, "model_not_found"),
        (Wire::Gemini, "NOT_FOUND"),
    ] {
        let answer = weir.exchange(&wire.request_for("no-such-model", &key.text, "hi"));
        assert_refusal(wire, &answer, 404, kind);
        assert!(answer.text().contains("no-such-model"), "{}", answer.text());
    }
    assert_eq!(provider.connections(), 0);
}

#[test]
fn switching_provider_means_changing_only_the_model() {
    let (first, second) = (RecordingProvider::least(), RecordingProvider::least());
    let weir = WeirBuilder::new()
        .provider("anthropic", &first.base_url())
        .provider("deepseek", &second.base_url())
        .start();
    let key = weir.key();
    assert_eq!(weir.exchange(&Wire::Messages.request(&key.text, "hi")).status, 200);
    let other = Wire::Messages.request_for(crate::harness::DEEPSEEK_MODEL, &key.text, "hi");
    assert_eq!(weir.exchange(&other).status, 200);
    assert_eq!((first.count(), second.count()), (1, 1));
}

#[test]
fn a_websocket_that_is_switched_off_is_answered_with_426_whoever_asks() {
    let weir = WeirBuilder::new().set("sockets.enabled", false);
    let weir = weir.all_providers("http://127.0.0.1:9").start();
    let key = weir.key();
    let probe = Request::get("/v1/responses")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-version", "13")
        .header("openai-beta", "responses_websockets=2026-02-06");
    for request in [
        probe.clone(),
        probe.clone().header("authorization", "Bearer anything"),
        probe.clone().header("authorization", &format!("Bearer {}", key.text)),
    ] {
        let answer = weir.exchange(&request);
        assert_refusal(Wire::Responses, &answer, 426, "upgrade_unavailable");
        assert_eq!(answer.header("upgrade"), Some("HTTP/1.1"));
        assert!(answer.text().contains("POST /v1/responses"), "{}", answer.text());
    }
    // What is no such probe is what it was.
    let plain = weir.exchange(&Request::get("/v1/responses"));
    assert_refusal(Wire::Responses, &plain, 405, "method_not_allowed");
    let other = weir.exchange(&Request::get("/v1/responses").header("upgrade", "h2c"));
    assert_refusal(Wire::Responses, &other, 405, "method_not_allowed");
    let line = weir.access_lines_at_least(5);
    assert_eq!(line[0]["status"], 426, "{line:?}");
}

#[test]
fn a_client_that_asks_whether_somebody_is_there_needs_no_key() {
    let weir = Weir::start("http://127.0.0.1:9");
    for path in ["/", "/api/hello"] {
        let head = Request::new("HEAD", path);
        let mut client = weir.connect();
        client.write(&head.head_bytes(Upload::Length));
        let answer = client.response_to("HEAD");
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{path}");
        // The connection serves on.
        client.write(&Request::get("/api/hello").head_bytes(Upload::Length));
        let answer = client.response_to("GET");
        assert_eq!(
            (answer.status, answer.json()["status"].as_str()),
            (200, Some("ok")),
            "{path}"
        );
        let over_h2 = crate::harness::h2c::exchange(
            weir.gateway,
            &head,
            crate::harness::h2c::EndStream::OnLastFrame,
            crate::harness::h2c::Length::Unsaid,
        );
        assert_eq!((over_h2.status, over_h2.body.len()), (200, 0), "{path}");
    }
    assert_eq!(weir.exchange(&Request::get("/")).status, 404);
    let posted = weir.exchange(&Request::post("/api/hello").json(EMPTY));
    assert_refusal(Wire::Responses, &posted, 405, "method_not_allowed");
}
