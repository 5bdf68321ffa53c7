//! The error shapes of the three protocols, checked the same way everywhere.

use serde_json::Value as Json;

use super::client::Response;
use super::request::Wire;

/// Checks that `answer` is a refusal of weir's own: status, the protocol's shape, a request id, nothing of the provider.
/// `kind` is Messages' `error.type`, Responses' `error.code` or Gemini's `error.status`.
#[track_caller]
pub(crate) fn assert_refusal(wire: Wire, answer: &Response, status: u16, kind: &str) {
    assert_eq!(answer.status, status, "{wire:?}: {}", answer.text());
    assert!(answer.complete, "{wire:?}: a refusal that is cut");
    assert_eq!(answer.header("content-type"), Some("application/json"), "{wire:?}");
    let body = answer.json();
    let error = &body["error"];
    assert!(
        error["message"].as_str().is_some_and(|text| !text.is_empty()),
        "{wire:?}: {body}"
    );
    let id = answer
        .header(request_id_header(wire))
        .unwrap_or_else(|| panic!("{wire:?}: no request id header"));
    assert!(!id.is_empty());
    match wire {
        Wire::Messages => {
            assert_eq!(body["type"], "error", "{body}");
            assert_eq!(error["type"], kind, "{body}");
            assert_eq!(body["request_id"], id, "{body}");
        }
        Wire::Responses => {
            assert_eq!(error["code"], kind, "{body}");
            assert!(error["type"].is_string(), "{body}");
            assert!(error.get("param").is_some(), "{body}");
        }
        Wire::Gemini => {
            assert_eq!(error["code"], Json::from(status), "{body}");
            assert_eq!(error["status"], kind, "{body}");
        }
    }
}

/// Checks that `answer` refuses the credential, in words that make no client try again.
#[track_caller]
pub(crate) fn assert_unauthorized(wire: Wire, answer: &Response) {
    let kind = match wire {
        Wire::Messages => "authentication_error",
        Wire::Responses => "invalid_api_key",
        Wire::Gemini => "UNAUTHENTICATED",
    };
    assert_refusal(wire, answer, 401, kind);
    assert_eq!(answer.header("x-should-retry"), Some("false"), "{wire:?}");
}

/// Checks a 400 of weir's own.
#[track_caller]
pub(crate) fn assert_bad_request(wire: Wire, answer: &Response) {
    let kind = match wire {
        Wire::Messages => "invalid_request_error",
        Wire::Responses => "body_invalid",
        Wire::Gemini => "INVALID_ARGUMENT",
    };
    assert_refusal(wire, answer, 400, kind);
}

/// The response header that carries the request id.
pub(crate) fn request_id_header(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "request-id",
        Wire::Responses | Wire::Gemini => "x-request-id",
    }
}

/// The error object of an in-band failure at the end of a stream, when the last event is one.
pub(crate) fn in_band_error(wire: Wire, stream: &str) -> Option<Json> {
    let last = stream.trim_end().rsplit("\n\n").next()?.rsplit("\r\n\r\n").next()?;
    let data = last.lines().find_map(|line| line.strip_prefix("data:"))?;
    let event: Json = serde_json::from_str(data.trim()).ok()?;
    match wire {
        Wire::Messages => (event["type"] == "error" && last.contains("event: error")).then(|| event["error"].clone()),
        Wire::Responses => {
            let failed = event["type"] == "response.failed" && event["response"]["status"] == "failed";
            let told = event["response"]["error"].is_object() && event["sequence_number"].is_number();
            (failed && told).then(|| event["error"].clone()).filter(Json::is_object)
        }
        Wire::Gemini => event.get("error").cloned(),
    }
}
