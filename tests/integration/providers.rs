//! Every shipped provider with the sample provider behind it: answers, streams, and each kind of error in the shape that
//! docs/interface.md, Errors, gives it.

use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::shapes::assert_refusal;
use crate::harness::{Request, Weir, client::Response};

/// The Messages providers in the order of docs/interface.md, Messages, each with a model of its file.
const MESSAGES: [(&str, &str); 8] = [
    ("anthropic", "claude-opus-5-5"),
    ("deepseek", "deepseek-flash"),
    ("mimo", "mimo-v2.6-pro"),
    ("minimax", "MiniMax-M3"),
    ("moonshot", "kimi-k3"),
    ("zai", "glm-5.3"),
    ("qwen", "qwen3.8-max"),
    ("openrouter", "openrouter/glm-5.3"),
];
/// The Responses providers.
const RESPONSES: [(&str, &str); 2] = [("openai", "gpt-5.6-sol"), ("deepseek", "deepseek-v4-pro")];
/// Providers whose own shapes are put into the protocol's.
const RESHAPED: [&str; 4] = ["deepseek", "zai", "qwen", "openrouter"];
/// Hosts that are asked in a protocol that not all clients speak, which it is, and a model of each one's file.
const HOSTS: [(&str, &str, &str); 7] = [
    ("groq", "chat", "groq/gpt-oss-120b"),
    ("cerebras", "chat", "cerebras/qwen3.8-27b"),
    ("mistral", "chat", "mistral-medium-3-5"),
    ("xai", "chat", "grok-4.7"),
    ("together", "chat", "together/deepseek-v4.1-flash"),
    ("fireworks", "chat", "fireworks/kimi-k3"),
    ("openrouter", "messages", "openrouter/gpt-oss-120b"),
];
/// Hosts that send the usage at the end of a stream without being asked for it, which the sample provider does not.
const TOLD_USAGE_UNASKED: [&str; 2] = ["mistral", "fireworks"];

fn each(mut check: impl FnMut(&Weir, &str, Wire, &str, &str)) {
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let key = weir.key().text;
    let messages = MESSAGES.map(|(provider, model)| (Wire::Messages, provider, model));
    let responses = RESPONSES.map(|(provider, model)| (Wire::Responses, provider, model));
    let gemini = [(Wire::Gemini, "gemini", "gemini-3.8-flash")];
    for (wire, provider, model) in messages.into_iter().chain(responses).chain(gemini) {
        check(&weir, &key, wire, provider, model);
    }
}

/// The shape that docs/interface.md, Errors, gives a provider: the third of the Messages ones has its own.
fn has_its_shape(provider: &str, wire: Wire, answer: &Response) -> bool {
    let body = answer.json();
    if provider == "mimo" && wire == Wire::Messages {
        let has = |name: &str| body[name].is_string();
        return has("code") && has("type") && has("message") && body.get("error").is_none();
    }
    let error = &body["error"];
    error["message"].is_string()
        && match wire {
            Wire::Messages => body["type"] == "error" && error["type"].is_string(),
            Wire::Responses => error["type"].is_string() && error.get("code").is_some(),
            Wire::Gemini => error["status"].is_string() && error["code"] == answer.status,
        }
}

#[test]
fn each_provider_answers_in_one_piece_and_as_a_stream() {
    each(|weir, key, wire, provider, model| {
        let unary = weir.exchange(&wire.request_for(model, key, "hi"));
        let stream = weir.exchange(&wire.streaming_for(model, key, "hi"));
        for answer in [unary, stream] {
            assert_eq!(answer.status, 200, "{provider}: {}", answer.text());
            let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
            assert_eq!((&line["provider"], &line["outcome"]), (&provider.into(), &"ok".into()));
            assert!(line["usage"]["output_text"].as_u64() > Some(0), "{provider}: {line}");
        }
    });
}

#[test]
fn each_host_serves_the_clients_of_all_protocols() {
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let key = weir.key().text;
    for (provider, spoken, model) in HOSTS {
        for wire in ALL_WIRES {
            let client = match wire {
                Wire::Messages => "messages",
                Wire::Responses => "responses",
                Wire::Gemini => "gemini",
            };
            let unary = wire.request_for(model, &key, "hi");
            let stream = wire.streaming_for(model, &key, "hi");
            for (request, is_stream) in [(unary, false), (stream, true)] {
                let answer = weir.exchange(&request);
                assert_eq!(answer.status, 200, "{provider} {client}: {}", answer.text());
                let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
                assert_eq!((&line["provider"], &line["outcome"]), (&provider.into(), &"ok".into()));
                if client != spoken {
                    assert_eq!(line["translated"], format!("{client}->{spoken}"));
                }
                if !(is_stream && TOLD_USAGE_UNASKED.contains(&provider)) {
                    assert!(line["usage"]["output_text"].as_u64() > Some(0), "{provider}: {line}");
                }
            }
            let failed = weir.exchange(&wire.request_for(model, &key, "[[sample: status=422]]"));
            assert_eq!(failed.status, 422, "{provider} {client}");
            assert!(has_its_shape(provider, wire, &failed), "{provider}: {}", failed.text());
        }
    }
}

#[test]
fn errors_have_the_shape_that_each_provider_has_here() {
    each(|weir, key, wire, provider, model| {
        for status in [400, 404, 408, 409, 422, 429, 500, 502, 503, 504, 529] {
            let prompt = format!("[[sample: status={status} retry_after=30]]");
            let answer = weir.exchange(&wire.request_for(model, key, &prompt));
            assert_eq!(answer.status, status, "{provider}");
            assert!(
                has_its_shape(provider, wire, &answer),
                "{provider} {status}: {}",
                answer.text()
            );
            assert_eq!(answer.header("retry-after"), Some("30"), "{provider} {status}");
        }
    });
}

#[test]
fn errors_in_shapes_of_the_providers_own_are_put_into_the_one_that_it_has_here() {
    each(|weir, key, wire, provider, model| {
        let answer = weir.exchange(&wire.request_for(model, key, "[[sample: status=422 native_errors=true]]"));
        assert!(has_its_shape(provider, wire, &answer), "{provider}: {}", answer.text());
        assert!(
            answer.text().contains("demands this status"),
            "the provider's words stay"
        );
        let page = weir.exchange(&wire.request_for(model, key, "[[sample: status=422 content_type=text/html]]"));
        assert!(has_its_shape(provider, wire, &page), "{provider}: {}", page.text());
        assert_eq!(page.header("content-type"), Some("application/json"), "{provider}");
    });
}

#[test]
fn weirs_own_refusals_have_the_shape_of_the_provider_that_they_are_about() {
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    let model = "mimo-v2.6-pro";
    let spent = weir.key_with(&["--quota-usd", "0.000000001"]).text;
    assert_eq!(
        weir.exchange(&Wire::Messages.request_for(model, &spent, "hi")).status,
        200
    );
    let other = weir.key_with(&["--models", "kimi-k3"]).text;
    let key = weir.key().text;
    let mut count = Wire::Messages.request_for(model, &key, "hi");
    count.target = "/v1/messages/count_tokens".to_owned();
    let refused = |request: &Request, status: u16, kind: &str| {
        let answer = weir.exchange(request);
        assert!(
            has_its_shape("mimo", Wire::Messages, &answer),
            "{status}: {}",
            answer.text()
        );
        let body = answer.json();
        assert_eq!(
            (answer.status, &body["code"], &body["type"]),
            (status, &status.to_string().into(), &kind.into())
        );
        assert_eq!(answer.header("request-id"), body["request_id"].as_str());
    };
    refused(&Wire::Messages.request_for(model, &spent, "hi"), 429, "billing_error");
    refused(
        &Wire::Messages.request_for(model, &other, "hi"),
        403,
        "permission_error",
    );
    refused(&count, 404, "not_found_error");
    assert!(weir.cli(&["provider", "disable", "mimo"], &[]).status.success());
    refused(&Wire::Messages.request_for(model, &key, "hi"), 503, "api_error");
    // Of whom nothing is known yet, or who is another: the protocol's.
    let unknown = weir.exchange(&Wire::Messages.request_for("mimo-v0", &key, "hi"));
    assert_refusal(Wire::Messages, &unknown, 404, "not_found_error");
    let elsewhere = weir.exchange(&Wire::Responses.request_for(model, &key, "hi"));
    assert!(elsewhere.json()["error"]["code"].is_string(), "{}", elsewhere.text());
}

#[test]
fn a_refused_credential_is_told_in_the_providers_shape() {
    each(|weir, key, wire, provider, model| {
        let answer = weir.exchange(&wire.request_for(model, key, "[[sample: status=401]]"));
        assert_eq!(answer.status, 503, "{provider}");
        if provider != "mimo" && wire == Wire::Messages {
            assert_refusal(wire, &answer, 503, "api_error");
        } else {
            assert!(has_its_shape(provider, wire, &answer), "{provider}: {}", answer.text());
        }
    });
}

#[test]
fn an_error_inside_a_success_is_never_counted_as_one() {
    each(|weir, key, wire, provider, model| {
        for prompt in [
            "[[sample: in_band_error_after=0]]",
            "[[sample: in_band_error_after=0 native_errors=true]]",
        ] {
            if wire != Wire::Messages && prompt.contains("native") {
                continue;
            }
            let answer = weir.exchange(&wire.request_for(model, key, prompt));
            let line = weir.access_line(answer.header("x-weir-request-id").unwrap());
            assert!(answer.status >= 500, "{provider}: {}", answer.text());
            assert_eq!(line["outcome"], "provider_error", "{provider}: {}", answer.text());
            if RESHAPED.contains(&provider) {
                assert!(has_its_shape(provider, wire, &answer), "{provider}: {}", answer.text());
            }
        }
    });
}

#[test]
fn only_provider_4_is_asked_again_after_529_more_than_once() {
    each(|weir, key, wire, provider, model| {
        let answer = weir.exchange(&wire.request_for(model, key, "[[sample: status=529]]"));
        assert_eq!(answer.status, 529, "{provider}");
        let attempts = weir.access_line(answer.header("x-weir-request-id").unwrap())["attempts"].clone();
        assert_eq!(attempts, if provider == "minimax" { 4 } else { 2 }, "{provider}");
    });
}

/// A model of the third Messages provider.
const THIRD: &str = "mimo-v2.6-pro";

/// A key that is refused whatever it asks, why, and the `type` of the refusal.
fn refused_keys(weir: &Weir) -> Vec<(&'static str, String, &'static str)> {
    weir.fund();
    let of = |account: &str, flags: &[&str]| {
        let words = [&["key", "create", "--account", account, "--name", "k"], flags].concat();
        weir.cli_json(&words)["key"].as_str().unwrap().to_owned()
    };
    for account in ["poor", "suspended"] {
        weir.cli_json(&["account", "create", "--id", account]);
    }
    weir.cli_json(&["account", "suspend", "suspended"]);
    let limited = weir.key_with(&["--rpm", "1"]).text;
    assert_eq!(
        weir.exchange(&Wire::Messages.request_for(THIRD, &limited, "hi")).status,
        200
    );
    vec![
        ("quota", weir.key_with(&["--quota-usd", "0"]).text, "billing_error"),
        ("balance", of("poor", &[]), "billing_error"),
        ("suspension", of("suspended", &[]), "billing_error"),
        ("rate", limited, "rate_limit_error"),
    ]
}

#[test]
fn the_same_refusal_has_the_same_shape_however_often_it_is_given_and_at_each_provider_its_own() {
    let sample = SampleProvider::start();
    let weir = Weir::start(&sample.base_url());
    for (why, key, kind) in refused_keys(&weir) {
        for round in 0..4 {
            for (provider, model) in [("mimo", THIRD), ("anthropic", "claude-opus-5-5"), ("mimo", THIRD)] {
                let request = Wire::Messages.request_for(model, &key, "hi");
                let answer = weir.exchange(&request);
                assert_eq!(answer.status, 429, "{why}: {}", answer.text());
                let body = answer.json();
                assert!(
                    has_its_shape(provider, Wire::Messages, &answer),
                    "{why} {round} {provider}: {body}"
                );
                let told = if provider == "mimo" {
                    &body["type"]
                } else {
                    &body["error"]["type"]
                };
                assert_eq!(told, kind, "{why} {round}: {body}");
            }
        }
        // Whatever is wrong with the body, and where it is not read, the refusal is the same in the protocol's shape.
        let broken = Wire::Messages.request_for(THIRD, &key, "hi").body(b"{");
        assert_refusal(Wire::Messages, &weir.exchange(&broken), 429, kind);
        let chunked = Wire::Messages.request_for(THIRD, &key, "hi");
        let mut client = weir.connect();
        client.write(
            &chunked
                .clone()
                .header("expect", "100-continue")
                .head_bytes(Upload::Length),
        );
        assert_refusal(Wire::Messages, &client.response_to("POST"), 429, kind);
        let mut client = weir.connect();
        client.write(&chunked.bytes(Upload::Chunked(7)));
        assert_refusal(Wire::Messages, &client.response_to("POST"), 429, kind);
    }
}
