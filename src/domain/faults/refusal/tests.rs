//! Tests of `refusal`.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde_json::{Value, json};

use super::*;
use crate::domain::wire::protocol::ErrorForm;

mod bodies;
mod every;

use crate::domain::faults::refusal::tests::every::all;

const PROTOCOLS: [Protocol; 3] = [Protocol::Messages, Protocol::Responses, Protocol::Gemini];

fn body(refusal: &Refusal, protocol: Protocol) -> Value {
    serde_json::from_slice(&refusal.reply(protocol, "req_1").body).unwrap()
}

fn header(reply: &RefusalReply, name: &str) -> Option<String> {
    reply
        .headers
        .iter()
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.clone())
}

#[test]
fn every_refusal_has_the_shape_of_every_protocol() {
    for refusal in all() {
        let messages = body(&refusal, Protocol::Messages);
        assert_eq!(
            (&messages["type"], &messages["request_id"]),
            (&json!("error"), &json!("req_1"))
        );
        let responses = body(&refusal, Protocol::Responses);
        let gemini = body(&refusal, Protocol::Gemini);
        assert_eq!(gemini["error"]["code"], refusal.status());
        for text in [
            &messages["error"]["type"],
            &messages["error"]["message"],
            &responses["error"]["type"],
            &responses["error"]["code"],
            &responses["error"]["message"],
            &gemini["error"]["status"],
            &gemini["error"]["message"],
        ] {
            assert!(text.as_str().is_some_and(|text| !text.is_empty()), "{refusal:?}");
        }
        let root: Value = serde_json::from_slice(&refusal.reply(ErrorForm::NativeRoot, "req_1").body).unwrap();
        assert_eq!(
            (&root["code"], &root["message"], &root["type"]),
            (
                &json!(refusal.status().to_string()),
                &messages["error"]["message"],
                &messages["error"]["type"]
            )
        );
        assert!(root.get("error").is_none(), "{root}");
        for protocol in PROTOCOLS {
            let reply = refusal.reply(protocol, "req_1");
            assert!(ErrorForm::Of(protocol).is_form_of(&reply.body), "{refusal:?}");
            assert_eq!(reply.status, refusal.status());
            assert_eq!(header(&reply, "content-type").as_deref(), Some("application/json"));
        }
    }
}

#[test]
fn types_and_codes_are_those_that_clients_act_on() {
    let cases = [
        (
            Refusal::KeyUnknown,
            401,
            "authentication_error",
            "invalid_api_key",
            "UNAUTHENTICATED",
        ),
        (
            Refusal::ModelNotAllowed { model: "m".to_owned() },
            403,
            "permission_error",
            "model_not_allowed",
            "PERMISSION_DENIED",
        ),
        (
            Refusal::ModelUnknown { model: "m".to_owned() },
            404,
            "not_found_error",
            "model_not_found",
            "NOT_FOUND",
        ),
        (
            Refusal::ModelPathInvalid,
            400,
            "invalid_request_error",
            "model_path_invalid",
            "INVALID_ARGUMENT",
        ),
        (
            Refusal::BodyTooLarge { limit_bytes: 1 },
            413,
            "request_too_large",
            "body_too_large",
            "INVALID_ARGUMENT",
        ),
        (
            Refusal::HeadersTooLarge,
            431,
            "invalid_request_error",
            "headers_too_large",
            "INVALID_ARGUMENT",
        ),
        (
            Refusal::StoreUnavailable,
            503,
            "api_error",
            "store_unavailable",
            "UNAVAILABLE",
        ),
        (
            Refusal::ProviderTimeout,
            504,
            "timeout_error",
            "provider_timeout",
            "DEADLINE_EXCEEDED",
        ),
        (Refusal::Internal, 500, "api_error", "internal", "INTERNAL"),
    ];
    check(&cases);
}

#[test]
fn what_is_refused_before_it_is_parsed_has_the_same_forms() {
    let cases = [
        (
            Refusal::HeadInvalid(HeadFault::Host),
            400,
            "invalid_request_error",
            "host_invalid",
            "INVALID_ARGUMENT",
        ),
        (
            Refusal::HeadTimeout,
            408,
            "timeout_error",
            "head_timeout",
            "DEADLINE_EXCEEDED",
        ),
        (
            Refusal::HeadGaveWay,
            503,
            "api_error",
            "head_budget_exhausted",
            "UNAVAILABLE",
        ),
        (
            Refusal::BodyFramingInvalid,
            400,
            "invalid_request_error",
            "body_framing_invalid",
            "INVALID_ARGUMENT",
        ),
    ];
    check(&cases);
}

fn check(cases: &[(Refusal, u16, &str, &str, &str)]) {
    for (refusal, status, kind, code, name) in cases {
        assert_eq!(refusal.status(), *status);
        assert_eq!(body(refusal, Protocol::Messages)["error"]["type"], *kind);
        assert_eq!(body(refusal, Protocol::Responses)["error"]["code"], *code);
        assert_eq!(body(refusal, Protocol::Gemini)["error"]["status"], *name);
    }
}

#[test]
fn two_refusals_have_the_type_and_code_of_another_and_words_of_their_own() {
    for (special, usual, words) in [
        (Refusal::UpgradeRemoved, Refusal::UpgradeUnavailable, "proxy"),
        (Refusal::BearerSchemeMissing, Refusal::KeyUnknown, "`Bearer` is missing"),
    ] {
        assert_eq!(special.reason(), usual.reason());
        for protocol in PROTOCOLS {
            let [mut special, mut usual] = [&special, &usual].map(|refusal| body(refusal, protocol));
            let message = std::mem::take(&mut special["error"]["message"]);
            assert!(message.as_str().unwrap().contains(words), "{message}");
            usual["error"]["message"] = Value::Null;
            assert_eq!(special, usual);
        }
    }
}

#[test]
fn an_unknown_model_is_named_with_what_to_do_next() {
    assert_eq!(
        body(&Refusal::Internal, Protocol::Responses)["error"]["type"],
        "server_error"
    );
    assert_eq!(
        body(&Refusal::ModelUnknown { model: "m".to_owned() }, Protocol::Responses)["error"],
        json!({
            "message": "There is no model `m`. GET /v1/models lists the models that this API key may use.",
            "type": "invalid_request_error", "param": "model", "code": "model_not_found",
        })
    );
}

#[test]
fn a_member_that_cannot_be_translated_is_the_param_of_the_error() {
    let param = |path: &str| {
        let refusal = Refusal::Untranslatable {
            path: path.to_owned(),
            reason: "leave it out".to_owned(),
        };
        body(&refusal, Protocol::Responses)["error"]["param"].clone()
    };
    assert_eq!(param("input[2].file_id"), "input[2].file_id");
    assert_eq!(param(""), Value::Null);
    assert_eq!(param(&"a".repeat(1000)).as_str().map(str::len), Some(128));
}

#[test]
fn headers_tell_clients_when_to_come_back() {
    for refusal in all() {
        for protocol in PROTOCOLS {
            let reply = refusal.reply(protocol, "req_1");
            let retry = header(&reply, "x-should-retry");
            let never = reply.status == 401
                || matches!(
                    refusal,
                    Refusal::ProviderDisabled { .. }
                        | Refusal::ProviderRedirected { .. }
                        | Refusal::Untranslatable { .. }
                        | Refusal::ProviderCredentialRefused
                        | Refusal::Limited(LimitRefusal::Balance)
                );
            assert_eq!(retry.as_deref(), never.then_some("false"), "{refusal:?}");
            let id = if protocol == Protocol::Messages {
                "request-id"
            } else {
                "x-request-id"
            };
            assert_eq!(header(&reply, id).as_deref(), Some("req_1"));
            assert_eq!(header(&reply, "x-content-type-options").as_deref(), Some("nosniff"));
        }
    }
    let reply = Refusal::BodyBudgetExhausted.reply(Protocol::Messages, "req_1");
    assert_eq!(header(&reply, "retry-after").as_deref(), Some("1"));
    let reply = Refusal::CountTokensBusy { concurrency: 1 }.reply(Protocol::Messages, "req_1");
    assert_eq!(header(&reply, "retry-after").as_deref(), Some("1"));
    for (wait_ms, seconds) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (59_500, "60")] {
        let refusal = Refusal::KeyNotLookedUp {
            wait: Duration::from_millis(wait_ms),
        };
        let reply = refusal.reply(Protocol::Messages, "req_1");
        assert_eq!(header(&reply, "retry-after").as_deref(), Some(seconds));
        let gemini = body(&refusal, Protocol::Gemini);
        assert_eq!(gemini["error"]["details"][0]["retryDelay"], format!("{seconds}s"));
    }
    for refusal in [Refusal::UpgradeUnavailable, Refusal::UpgradeRemoved] {
        let reply = refusal.reply(Protocol::Responses, "req_1");
        assert_eq!(header(&reply, "upgrade").as_deref(), Some("HTTP/1.1"));
        assert_eq!(header(&reply, "sec-websocket-version").as_deref(), Some("13"));
    }
    let reply = Refusal::MethodNotAllowed { allow: "GET" }.reply(Protocol::Gemini, "req_1");
    assert_eq!(header(&reply, "allow").as_deref(), Some("GET"));
}

#[test]
fn limits_of_this_service_are_told_as_clients_know_them() {
    check(&[
        (
            Refusal::BodyTooLargeDecoded { limit_bytes: 1 },
            413,
            "request_too_large",
            "body_too_large_decoded",
            "INVALID_ARGUMENT",
        ),
        (
            Refusal::CountTokensBusy { concurrency: 1 },
            429,
            "rate_limit_error",
            "rate_limit_exceeded",
            "RESOURCE_EXHAUSTED",
        ),
        (
            Refusal::KeyNotLookedUp { wait: Duration::ZERO },
            429,
            "rate_limit_error",
            "rate_limit_exceeded",
            "RESOURCE_EXHAUSTED",
        ),
        (
            Refusal::UpgradeUnavailable,
            426,
            "invalid_request_error",
            "upgrade_unavailable",
            "INVALID_ARGUMENT",
        ),
    ]);
}

#[test]
fn reasons_are_snake_case_and_differ() {
    let reasons: HashSet<&str> = all().iter().map(Refusal::reason).collect();
    // Three refusals are there twice: two with and without what they list, one with two kinds of state. Two have the reason of
    // another, and differ from it in their words.
    assert_eq!(reasons.len(), all().len() - 5);
    assert!(
        reasons
            .iter()
            .all(|reason| reason.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
    );
}

/// `Refusal::reason` has an arm for each variant, because it has no catch-all.
#[test]
fn these_tests_see_every_refusal() {
    let (_, code) = include_str!("../refusal.rs").split_once("fn reason").unwrap();
    let is_name = |character: char| character.is_ascii_alphanumeric();
    let name = |text: &str| text.split(|character| !is_name(character)).next().unwrap().to_owned();
    let declared: HashSet<String> = code.split("Self::").skip(1).map(name).collect();
    let tested: HashSet<String> = all().iter().map(|refusal| name(&format!("{refusal:?}"))).collect();
    assert!(declared.len() > 40);
    assert_eq!(declared, tested);
}

/// The functions for groups of messages end with a catch-all: a variant without an arm of its own would get the words of another.
#[test]
fn no_two_refusals_have_the_same_message() {
    let mut messages: HashMap<String, Refusal> = HashMap::new();
    for refusal in all() {
        let message = body(&refusal, Protocol::Messages)["error"]["message"].to_string();
        let other = messages.insert(message, refusal.clone());
        assert_eq!(other, None, "has the same message as {refusal:?}");
    }
}

#[test]
fn a_name_is_repeated_only_when_it_is_plausible() {
    let message = |model: &str| {
        let refusal = Refusal::ModelUnknown {
            model: model.to_owned(),
        };
        body(&refusal, Protocol::Messages)["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(message("claude-opus-5-5").contains("`claude-opus-5-5`"));
    let key = "weir-0123456789abcdefghijABCDEFGHIJ0123456789abcdefXYZ";
    let long = "x-".repeat(100);
    for odd in ["", " two words", "line\nbreak", "\u{202e}", key, &long] {
        assert!(
            message(odd).starts_with("There is no model with the name that was sent."),
            "{odd}"
        );
    }
}
