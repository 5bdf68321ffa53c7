//! The refusals of the public service, as JSON in the format that `openapi.json` describes.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::stability::public::{ALLOW, PublicResponse, open_headers};

/// A refusal. Its text contains nothing of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicRefusal {
    /// The query parameter `hours` is given, but is not exactly 24, or is given twice.
    HoursNotSupported,
    /// No model has the requested name.
    ModelNotFound,
    /// The path does not exist.
    PathNotFound,
    /// The method is not GET or HEAD.
    MethodNotAllowed,
    /// The client accepts none of the content codings.
    EncodingNotAvailable,
    /// The client's address sends too many requests.
    RateLimited {
        /// The exact time until its next request is accepted.
        wait: Duration,
    },
    /// The stability record has not been read from the store yet.
    NotReady,
}

/// The `retry-after` before the first read, in seconds. The store is read every few seconds.
const NOT_READY_SECONDS: u64 = 5;

impl PublicRefusal {
    fn status(self) -> StatusCode {
        match self {
            Self::HoursNotSupported => StatusCode::BAD_REQUEST,
            Self::ModelNotFound | Self::PathNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::EncodingNotAvailable => StatusCode::NOT_ACCEPTABLE,
            Self::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::NotReady => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::HoursNotSupported => "hours_not_supported",
            Self::ModelNotFound => "model_not_found",
            Self::PathNotFound => "path_not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::EncodingNotAvailable => "encoding_not_available",
            Self::RateLimited { .. } => "rate_limited",
            Self::NotReady => "not_ready",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::HoursNotSupported => "only a window of 24 hours is supported: omit `hours`, or use hours=24 once",
            Self::ModelNotFound => {
                "no model has that name: GET /web/v1/model-stability/summary lists all names; percent-encode the name in the path"
            }
            Self::PathNotFound => {
                "this path does not exist: the page is /status, the API's description is /web/v1/openapi.json"
            }
            Self::MethodNotAllowed => "this path is read-only: use GET or HEAD",
            Self::EncodingNotAvailable => "Accept-Encoding refuses every available coding: allow identity, gzip or br",
            Self::RateLimited { .. } => {
                "too many requests from your address: wait for the seconds in retry-after; an answer stays valid for the seconds in max-age"
            }
            Self::NotReady => "the stability record has not been read yet: try again after the seconds in retry-after",
        }
    }

    /// Returns the answer. It must not be cached, because the next answer may differ.
    pub(super) fn answer(self) -> PublicResponse {
        let mut headers = open_headers();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=utf-8"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self == Self::MethodNotAllowed {
            headers.insert(header::ALLOW, HeaderValue::from_static(ALLOW));
        }
        let body = json!({ "success": false, "error": { "code": self.code(), "message": self.message() } });
        PublicResponse {
            status: self.status(),
            headers,
            body: Bytes::from(body.to_string()),
        }
    }

    /// Returns the seconds for `retry-after`, rounded up so that a client that waits that long is not too early. `None` for
    /// refusals that a repetition does not change.
    fn retry_after(self) -> Option<u64> {
        match self {
            Self::RateLimited { wait } => {
                Some(wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1))
            }
            Self::NotReady => Some(NOT_READY_SECONDS),
            _ => None,
        }
    }
}
