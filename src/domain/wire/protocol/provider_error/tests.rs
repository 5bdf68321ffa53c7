//! Tests of `provider_error`.

use serde_json::{Value, json};

use super::*;

fn reshaped(protocol: Protocol, status: u16, body: &Value) -> Value {
    serde_json::from_slice(&reshape_error(
        protocol.into(),
        status,
        body.to_string().as_bytes(),
        "req_1",
    ))
    .unwrap()
}

#[test]
fn a_native_root_becomes_the_messages_shape() {
    let body = json!({ "code": "InvalidApiKey", "type": "invalid_key", "message": "no such key", "request_id": "x" });
    assert_eq!(
        reshaped(Protocol::Messages, 401, &body),
        json!({
            "type": "error",
            "error": { "type": "authentication_error", "message": "no such key", "details": { "error_code": "InvalidApiKey" } },
            "request_id": "req_1",
        })
    );
}

#[test]
fn a_wrapped_error_becomes_a_native_root() {
    let root = |status, body: &str| -> Value {
        let shaped = reshape_error(ErrorForm::NativeRoot, status, body.as_bytes(), "req_1");
        assert!(ErrorForm::NativeRoot.is_form_of(&shaped));
        serde_json::from_slice(&shaped).unwrap()
    };
    assert_eq!(
        root(
            401,
            r#"{"error":{"code":"401","message":"Invalid","param":"","type":"invalid_key"}}"#
        ),
        json!({ "code": "401", "message": "Invalid", "type": "invalid_key", "request_id": "req_1" })
    );
    assert_eq!(
        root(
            429,
            r#"{"type":"error","error":{"type":"limitation","message":"busy"}}"#
        ),
        json!({ "code": "429", "message": "busy", "type": "limitation", "request_id": "req_1" })
    );
    assert_eq!(
        root(502, "<html>bad gateway</html>"),
        json!({
            "code": "502", "message": "The model's provider answered with status 502.", "type": "api_error", "request_id": "req_1",
        })
    );
}

#[test]
fn every_form_that_an_error_is_put_into_is_known_again() {
    for form in [
        ErrorForm::Of(Protocol::Messages),
        ErrorForm::Of(Protocol::Responses),
        ErrorForm::Of(Protocol::Gemini),
        ErrorForm::NativeRoot,
    ] {
        for body in [
            r#"{"code":7,"msg":"m"}"#,
            r#"{"error":{"type":"T","message":"m"}}"#,
            "",
            "<html>",
        ] {
            assert!(
                form.is_form_of(&reshape_error(form, 500, body.as_bytes(), "req_1")),
                "{form:?} {body}"
            );
        }
    }
}

#[test]
fn an_error_object_keeps_a_type_that_clients_know() {
    let body = json!({ "error": { "type": "overloaded_error", "message": "busy", "code": 1305 } });
    let shaped = reshaped(Protocol::Messages, 529, &body);
    assert_eq!(
        shaped["error"],
        json!({ "type": "overloaded_error", "message": "busy" })
    );
    let foreign = json!({ "error": { "type": "engine_overloaded_error", "message": "busy" } });
    assert_eq!(
        reshaped(Protocol::Messages, 429, &foreign)["error"]["type"],
        "rate_limit_error"
    );
}

#[test]
fn an_error_string_becomes_the_responses_shape() {
    let body = json!({ "code": "Client specified an invalid argument", "error": "Incorrect value" });
    assert_eq!(
        reshaped(Protocol::Responses, 400, &body),
        json!({ "error": {
            "message": "Incorrect value", "type": "invalid_request_error", "param": null, "code": "Client specified an invalid argument",
        } })
    );
}

#[test]
fn a_context_overflow_of_any_provider_has_the_code_and_the_words_on_which_agents_act() {
    let errors = [
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Prompt is too long: 9 tokens > 8 maximum"}}),
        json!({"error": {"code": 400, "message": "The input token count (9) exceeds the maximum.", "status": "INVALID_ARGUMENT"}}),
        json!({"error": {"message": "This model's maximum context length is 8 tokens.", "type": "BadRequestError", "code": 400}}),
        json!({"error": {"message": "Too much.", "type": "invalid_request_error", "code": "context_length_exceeded"}}),
        json!({"error": {"message": "Too much.", "type": "exceed_context_size_error", "code": 400}}),
    ];
    for error in &errors {
        for status in [400, 413, 422] {
            let responses = reshaped(Protocol::Responses, status, error);
            assert_eq!(responses["error"]["code"], "context_length_exceeded", "{error}");
            assert_eq!(responses["error"]["message"], error["error"]["message"]);
            let messages = reshaped(Protocol::Messages, status, error);
            let message = messages["error"]["message"].as_str().unwrap().to_ascii_lowercase();
            assert!(message.starts_with("prompt is too long: "), "{message}");
            assert_eq!(message.matches("prompt is too long").count(), 1, "{message}");
            let gemini = reshaped(Protocol::Gemini, status, error);
            assert_eq!(gemini["error"]["message"], error["error"]["message"]);
        }
    }
    let busy = json!({"error": {"message": "context window"}});
    assert_eq!(
        reshaped(Protocol::Responses, 429, &busy)["error"]["code"],
        "rate_limit_exceeded"
    );
    let other = json!({"error": {"message": "max_tokens is too large", "type": "invalid_request_error"}});
    assert_eq!(
        reshaped(Protocol::Responses, 400, &other)["error"]["code"],
        "invalid_request"
    );
    assert_eq!(
        reshaped(Protocol::Messages, 400, &other)["error"]["message"],
        "max_tokens is too large"
    );
}

#[test]
fn the_gemini_shape_has_code_and_status() {
    let body = json!([{ "error": { "code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED" } }]);
    let wanted = json!({ "error": { "code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED" } });
    assert_eq!(reshaped(Protocol::Gemini, 429, &body), wanted);
    assert_eq!(
        reshaped(Protocol::Gemini, 500, &json!({ "msg": "oops", "code": 500 }))["error"],
        json!({ "code": 500, "message": "oops", "status": "INTERNAL" })
    );
}

/// The message that a body becomes in each form; it is the same in all of them.
fn message(body: &[u8]) -> String {
    let of = |form| {
        let shaped: Value = serde_json::from_slice(&reshape_error(form, 503, body, "req_1")).unwrap();
        let error = shaped.get("error").unwrap_or(&shaped);
        error["message"].as_str().unwrap().to_owned()
    };
    let message = of(ErrorForm::NativeRoot);
    for protocol in Protocol::ALL {
        assert_eq!(of(protocol.into()), message);
    }
    message
}

#[test]
fn plain_text_and_details_keep_their_words() {
    for (body, words) in [
        (
            "upstream connect error or disconnect/reset before headers\n",
            "upstream connect error or disconnect/reset before headers",
        ),
        ("\u{feff} no healthy w\u{f6}rker\r\n", "no healthy w\u{f6}rker"),
        ("429", "The model's provider answered with status 503."),
        ("error code: 520", "error code: 520"),
        ("a < b and b > c", "a < b and b > c"),
        (r#""Internal Server Error""#, "Internal Server Error"),
        (r#"{"detail":"Not Found"}"#, "Not Found"),
        (r#"{"detail":"Not Found","message":"no such model"}"#, "no such model"),
        (
            r#"{"detail":[{"type":"missing","loc":["body","messages",0,"content"],"msg":"Field required"},{"loc":[],"msg":"and more"},7]}"#,
            "body.messages.0.content: Field required; and more",
        ),
        (r#"{"detail":["one","two"]}"#, "one; two"),
        (r#"{"detail":{"message":"busy","code":3}}"#, "busy"),
        (r#"{"detail":{"error":"busy"}}"#, "busy"),
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n",
            "busy",
        ),
        ("data: {\"detail\":\"busy\"}\r\n\r\ndata: [DONE]\r\n\r\n", "busy"),
        ("data: {}\n\n", "The model's provider answered with status 503."),
        (r#"{"title":"Bad","status":400,"detail":"bad key"}"#, "bad key"),
    ] {
        assert_eq!(message(body.as_bytes()), words, "{body}");
    }
}

#[test]
fn words_are_bounded_and_masked() {
    let text = "w".repeat(ERROR_BODY_BYTES_MAX);
    assert_eq!(message(text.as_bytes()).len(), MESSAGE_CHARS_MAX);
    assert!(message(format!("{text}w").as_bytes()).starts_with("The model's provider"));
    let detail = json!({ "detail": vec![json!({ "loc": vec!["b"; 20], "msg": "m".repeat(900) }); 20] }).to_string();
    assert_eq!(message(detail.as_bytes()).chars().count(), MESSAGE_CHARS_MAX);
    let text = format!("the key {CREDENTIAL} is bad");
    let masked = redact(text.as_bytes(), CREDENTIAL).unwrap();
    assert_eq!(message(&masked), "the key *** is bad");
}

#[test]
fn what_cannot_be_read_names_the_status_only() {
    let long = vec![b' '; ERROR_BODY_BYTES_MAX + 1];
    for body in [
        b"<html>bad gateway</html>".as_slice(),
        b" \r\n<!DOCTYPE html><title>502</title>",
        b"Error: <HTML><body>bad gateway</body></HTML>",
        b"<?xml version=\"1.0\"?><Error/>",
        br#""<html>bad gateway</html>""#,
        br#"{"error":{"message":"cut in the mid"#,
        b"\x1f\x8b\x08\x00binary",
        b"caf\xe9",
        b"a\0b",
        br#"{"detail":[]}"#,
        br#"{"detail":null}"#,
        br#"{"detail":{"loc":["body"]}}"#,
        b"",
        b"null",
        b"7",
        b"{}",
        b"[]",
        &long,
    ] {
        let shaped: Value =
            serde_json::from_slice(&reshape_error(ErrorForm::Of(Protocol::Responses), 502, body, "req_1")).unwrap();
        assert_eq!(
            shaped["error"]["message"],
            "The model's provider answered with status 502."
        );
        assert_eq!(shaped["error"]["code"], "server_error");
    }
}

#[test]
fn a_failure_that_came_as_success_is_known() {
    assert_eq!(
        failure_in_success(br#"{"code":401,"msg":"token expired","success":false}"#),
        Some(401)
    );
    assert_eq!(
        failure_in_success(br#"{"code":"1302","msg":"busy","success":false}"#),
        Some(502)
    );
    assert_eq!(failure_in_success(br#"{"code":200,"success":true}"#), None);
    assert_eq!(failure_in_success(br#"{"code":500,"content":[]}"#), None);
    assert_eq!(failure_in_success(br#"{"error":{"message":"x"}}"#), Some(502));
    assert_eq!(failure_in_success(br#"{"output":[],"error":null}"#), None);
    for nothing in ["null", "false", "0", "0.0", "\"\"", "[]", "{}"] {
        let body = format!(r#"{{"success":true,"error":{nothing}}}"#);
        assert_eq!(failure_in_success(body.as_bytes()), None, "{nothing}");
    }
    for something in ["true", "1", "\"x\"", "[0]", "{\"code\":null}"] {
        let body = format!(r#"{{"success":true,"error":{something}}}"#);
        assert_eq!(failure_in_success(body.as_bytes()), Some(502), "{something}");
    }
    assert_eq!(failure_in_success(b"hello"), None);
}

const CREDENTIAL: &str = "sk-ab12CD34ef56GH78ij90KL12mn34OP56wxyz";

fn redacted(text: &str) -> Option<String> {
    redact(text.as_bytes(), CREDENTIAL).map(|clean| String::from_utf8(clean).unwrap())
}

#[test]
fn the_credential_and_its_parts_are_masked() {
    assert_eq!(
        redacted(&format!("key {CREDENTIAL} is bad")).as_deref(),
        Some("key *** is bad")
    );
    assert_eq!(
        redacted("it begins with sk-ab12CD34 and so on").as_deref(),
        Some("it begins with *** and so on")
    );
    assert_eq!(redacted("inside: 78ij90KL.").as_deref(), Some("inside: ***."));
}

#[test]
fn shortened_echoes_are_masked() {
    for echo in [
        "sk-ab***wxyz",
        "sk-ab**********************wxyz",
        "sk...yz",
        "sk-a\u{2026}wxyz",
        "sk-ab\u{2022}\u{2022}\u{2022}wxyz",
        "sk-ab\\u2026yz",
        "****wxyz",
        "sk-ab12...",
    ] {
        assert_eq!(
            redacted(&format!("Incorrect API key: {echo}. Sorry"))
                .as_deref()
                .map(|text| text.trim_end_matches('.')),
            Some("Incorrect API key: ***. Sorry"),
            "{echo}"
        );
    }
}

#[test]
fn other_texts_stay() {
    for text in [
        "",
        "nothing here",
        "2*3",
        "**bold** text",
        "wait... what",
        "other key zz-ab***1234",
        "78ij90K",
        "sk-",
    ] {
        assert_eq!(redacted(text), None, "{text}");
    }
    let shortest = "a".repeat(CREDENTIAL_CHARS_MIN);
    let (_, shorter) = shortest.split_at(1);
    assert_eq!(redact(b"a plain text", shorter), None);
    assert_eq!(redact(shortest.as_bytes(), shorter), None);
    assert_eq!(
        redact(shortest.as_bytes(), &shortest).as_deref(),
        Some(b"***".as_slice())
    );
}

proptest::proptest! {
    #[test]
    fn no_run_of_the_credential_survives(before in "[ -~]{0,40}", from in 0_usize..30, length in 8_usize..39, after in "[ -~]{0,40}") {
        let part: String = CREDENTIAL.chars().skip(from).take(length).collect();
        let clean = redacted(&format!("{before}{part}{after}")).unwrap();
        for window in CREDENTIAL.as_bytes().windows(8) {
            proptest::prop_assert!(!clean.as_bytes().windows(8).any(|found| found == window));
        }
    }
}
