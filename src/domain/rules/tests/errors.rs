//! What the errors of each shipped provider mean: whose business they are, and the form in which clients get them.

use super::*;
use crate::domain::wire::protocol::{ErrorForm, Protocol, provider_error::reshape_error};

fn provider(name: &str) -> Provider {
    let file = format!("lua-free-rules/{name}.toml");
    let file = shipped().into_iter().find(|shipped| shipped.name == file).unwrap();
    compile::compile(&file).unwrap().provider
}

/// Who has to do something about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// The operator: it is the credential or its account.
    Credential,
    /// The client: it is something that the request names or holds.
    Request,
}

use About::{Credential, Request};

/// As the vendors document them, or as they were reported from their services.
const ERRORS: [(&str, u16, &str, About); 54] = [
    // https://platform.claude.com/docs/en/api/errors
    (
        "anthropic",
        401,
        r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
        Credential,
    ),
    (
        "anthropic",
        402,
        r#"{"type":"error","error":{"type":"billing_error","message":"m"}}"#,
        Credential,
    ),
    (
        "anthropic",
        403,
        r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}"#,
        Credential,
    ),
    (
        "anthropic",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#,
        Credential,
    ),
    (
        "anthropic",
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"messages: Your credit balance is too low to access the Anthropic API"}}"#,
        Request,
    ),
    (
        "anthropic",
        404,
        r#"{"type":"error","error":{"type":"not_found_error","message":"File not found: file_1"}}"#,
        Request,
    ),
    (
        "anthropic",
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
        Credential,
    ),
    (
        "anthropic",
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"ramp_limit_exceeded"}}}"#,
        Request,
    ),
    // https://api-docs.deepseek.com/quick_start/error_codes
    (
        "deepseek",
        402,
        r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}"#,
        Credential,
    ),
    (
        "deepseek",
        422,
        r#"{"error":{"message":"Failed to deserialize the JSON body","type":"invalid_request_error"}}"#,
        Request,
    ),
    // https://platform.xiaomimimo.com/docs/en-US/quick-start/error-codes
    (
        "mimo",
        401,
        r#"{"code":"401","message":"Invalid API Key","param":"Please provide valid API Key","type":"invalid_key"}"#,
        Credential,
    ),
    (
        "mimo",
        403,
        r#"{"code":"403","message":"Forbidden Access","param":"","type":"forbidden"}"#,
        Credential,
    ),
    (
        "mimo",
        421,
        r#"{"code":"421","message":"Content Filter","param":"","type":"content_filter"}"#,
        Request,
    ),
    // https://platform.minimax.io/docs/api-reference/errorcode
    (
        "minimax",
        401,
        r#"{"type":"error","error":{"type":"authentication_error","message":"login fail (1004)","http_code":"401"},"request_id":"r"}"#,
        Credential,
    ),
    (
        "minimax",
        400,
        r#"{"type":"error","error":{"type":"bad_request_error","message":"invalid params (2013)","http_code":"400"}}"#,
        Request,
    ),
    // https://platform.moonshot.ai/docs/api/errors, https://www.kimi.com/help/kimi-api/api-error-codes
    (
        "moonshot",
        403,
        r#"{"error":{"type":"permission_denied_error","message":"The API you are accessing is not open"}}"#,
        Credential,
    ),
    (
        "moonshot",
        429,
        r#"{"error":{"type":"exceeded_current_quota_error","message":"Your account is suspended"}}"#,
        Credential,
    ),
    (
        "moonshot",
        429,
        r#"{"error":{"type":"rate_limit_reached_error","message":"m"}}"#,
        Request,
    ),
    (
        "moonshot",
        400,
        r#"{"error":{"type":"content_filter","message":"The request was rejected because it was considered high risk"}}"#,
        Request,
    ),
    // https://developers.openai.com/api/docs/guides/error-codes
    (
        "openai",
        403,
        r#"{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}"#,
        Credential,
    ),
    (
        "openai",
        404,
        r#"{"error":{"message":"The vector store does not exist","type":"invalid_request_error","param":null,"code":null}}"#,
        Request,
    ),
    (
        "openai",
        429,
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
        Credential,
    ),
    (
        "openai",
        429,
        r#"{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}"#,
        Request,
    ),
    // https://www.alibabacloud.com/help/en/model-studio/error-code
    (
        "qwen",
        400,
        r#"{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing.","request_id":"r"}"#,
        Credential,
    ),
    (
        "qwen",
        400,
        r#"{"code":"DataInspectionFailed","message":"Input data may contain inappropriate content.","request_id":"r"}"#,
        Request,
    ),
    (
        "qwen",
        403,
        r#"{"code":"AccessDenied.Unpurchased","message":"Access to model denied.","request_id":"r"}"#,
        Credential,
    ),
    // https://docs.z.ai/api-reference/api-code
    (
        "zai",
        429,
        r#"{"error":{"code":"1113","message":"Insufficient balance or no resource package."}}"#,
        Credential,
    ),
    (
        "zai",
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"High concurrency, not 1113","code":"1302"},"request_id":"r"}"#,
        Request,
    ),
    // https://ai.google.dev/gemini-api/docs/troubleshooting, https://github.com/googleapis/python-genai/issues/1218
    (
        "gemini",
        400,
        r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}]}}"#,
        Credential,
    ),
    (
        "gemini",
        400,
        r#"{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"API_KEY_INVALID\": Cannot find field.","status":"INVALID_ARGUMENT"}}"#,
        Request,
    ),
    (
        "gemini",
        400,
        r#"{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}"#,
        Credential,
    ),
    (
        "gemini",
        403,
        r#"{"error":{"code":403,"message":"Permission denied: Consumer 'api_key:x' has been suspended.","status":"PERMISSION_DENIED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"CONSUMER_SUSPENDED"}]}}"#,
        Credential,
    ),
    (
        "gemini",
        403,
        r#"{"error":{"code":403,"message":"You do not have permission to access the File abc or it may not exist.","status":"PERMISSION_DENIED"}}"#,
        Request,
    ),
    (
        "gemini",
        403,
        r#"[{"error":{"code":403,"message":"CachedContent not found (or permission denied)","status":"PERMISSION_DENIED"}}]"#,
        Request,
    ),
    ("gemini", 403, "<html>Forbidden</html>", Credential),
    // https://inference-docs.cerebras.ai/support/error, https://github.com/Cerebras/cerebras-cloud-sdk-python
    (
        "cerebras",
        402,
        r#"{"message":"Payment required to access this resource.","type":"payment_required_error","param":"quota","code":"payment_required"}"#,
        Credential,
    ),
    (
        "cerebras",
        400,
        r#"{"message":"body.messages.1.assistant.reasoning_content: property is unsupported","type":"invalid_request_error","param":"validation_error","code":"wrong_api_format"}"#,
        Request,
    ),
    // https://docs.fireworks.ai/guides/inference-error-codes
    (
        "fireworks",
        412,
        r#"{"error":{"object":"error","type":"invalid_request_error","code":"PRECONDITION_FAILED","message":"Account me is suspended, possibly due to reaching the monthly spending limit or failure to pay past invoices."}}"#,
        Credential,
    ),
    (
        "fireworks",
        400,
        r#"{"error":{"object":"error","type":"invalid_request_error","code":"invalid_request_error","message":"Extra inputs are not permitted"}}"#,
        Request,
    ),
    // https://console.groq.com/docs/errors
    (
        "groq",
        401,
        r#"{"error":{"message":"Invalid API Key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
        Credential,
    ),
    (
        "groq",
        400,
        r#"{"error":{"message":"Failed to call a function. Please adjust your prompt.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"x"}}"#,
        Request,
    ),
    // https://docs.mistral.ai/api, https://github.com/BerriAI/litellm/issues/17761
    ("mistral", 401, r#"{"detail":"Unauthorized"}"#, Credential),
    (
        "mistral",
        400,
        r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","type":"invalid_request_message_order","param":null,"code":"3230"}"#,
        Request,
    ),
    (
        "mistral",
        429,
        r#"{"object":"error","message":"Rate limit exceeded","type":"rate_limited","param":null,"code":"1300"}"#,
        Request,
    ),
    // https://openrouter.ai/docs/api-reference/errors
    (
        "openrouter",
        402,
        r#"{"error":{"code":402,"message":"Insufficient credits. Add more using https://openrouter.ai/settings/credits"}}"#,
        Credential,
    ),
    (
        "openrouter",
        403,
        r#"{"error":{"code":403,"message":"Key limit exceeded (total limit)"}}"#,
        Credential,
    ),
    (
        "openrouter",
        403,
        r#"{"error":{"code":403,"message":"openai/gpt-oss-120b requires moderation on this host. Your input was flagged for \"violence\".","metadata":{"reasons":["violence"]}}}"#,
        Request,
    ),
    // https://docs.together.ai/docs/error-codes
    (
        "together",
        402,
        r#"{"error":{"message":"Credit limit exceeded","type":"credit_limit","param":null,"code":null}}"#,
        Credential,
    ),
    (
        "together",
        400,
        r#"{"id":"r","error":{"message":"Input validation error","type":"invalid_request_error","param":null,"code":null}}"#,
        Request,
    ),
    // https://docs.x.ai/docs/key-information/debugging, and reports of users
    (
        "xai",
        403,
        r#"{"code":"The caller does not have permission to execute the specified operation","error":"Your team t has either used all available credits or reached its monthly spending limit."}"#,
        Credential,
    ),
    (
        "xai",
        429,
        r#"{"code":"Some resource has been exhausted","error":"Your team t has either used all available credits or reached its monthly spending limit."}"#,
        Credential,
    ),
    (
        "xai",
        429,
        r#"{"code":"Some resource has been exhausted","error":"Too many requests for team t and model grok-4.7."}"#,
        Request,
    ),
    (
        "xai",
        403,
        r#"{"code":"The caller does not have permission to execute the specified operation","error":"Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}"#,
        Request,
    ),
    (
        "xai",
        400,
        r#"{"code":"Client specified an invalid argument","error":"Argument not supported on this model: stop"}"#,
        Request,
    ),
];

#[test]
fn the_errors_of_each_provider_are_told_apart() {
    for (name, status, body, about) in ERRORS {
        let refuses = provider(name).refuses_credential(status, Some(body.as_bytes()));
        assert_eq!(refuses, about == Credential, "{name} {status}: {body}");
    }
    for file in shipped() {
        let name = compile::compile(&file).unwrap().provider.name;
        assert!(
            ERRORS.iter().any(|(provider, ..)| *provider == name),
            "{name} has no error here"
        );
    }
}

#[test]
fn what_cannot_be_read_means_what_its_status_says() {
    for (name, status, refuses) in [
        ("gemini", 403, true),
        ("gemini", 400, false),
        ("zai", 429, false),
        ("mimo", 401, true),
    ] {
        assert_eq!(
            provider(name).refuses_credential(status, None),
            refuses,
            "{name} {status}"
        );
    }
}

#[test]
fn only_the_third_messages_provider_has_errors_without_a_wrapper() {
    for file in shipped() {
        let provider = compile::compile(&file).unwrap().provider;
        let form = provider.error_form(Protocol::Messages);
        let own = if provider.name == "mimo" {
            ErrorForm::NativeRoot
        } else {
            Protocol::Messages.into()
        };
        assert_eq!(form, own, "{}", provider.name);
        assert_eq!(provider.error_form(Protocol::Responses), Protocol::Responses.into());
        // Its errors keep what it says, whichever form they come in.
        for body in [
            r#"{"code":"9","message":"said","type":"t"}"#,
            r#"{"error":{"code":"9","message":"said","type":"t"}}"#,
        ] {
            let shaped = reshape_error(form, 500, body.as_bytes(), "req_1");
            assert!(
                form.is_form_of(&shaped) && String::from_utf8(shaped).unwrap().contains("said"),
                "{body}"
            );
        }
    }
}
