//! The service's errors, in the shape that `openapi.json` describes.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::stability::public::answer::{ALLOW, PublicResponse, open_headers};

/// A refusal. Nothing of the request is repeated in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicRefusal {
    /// `hours` is something else than 24.
    HoursNotSupported,
    /// No model is known by that name.
    ModelNotFound,
    /// Nothing is served at that path.
    PathNotFound,
    /// The path is read only.
    MethodNotAllowed,
    /// The client takes no content coding that there is.
    EncodingNotAvailable,
    /// The client asks too often; it may ask again after so long.
    RateLimited {
        /// How long, exactly.
        wait: Duration,
    },
    /// Nothing was read from the store yet.
    NotReady,
}

/// What `retry-after` says while nothing was read: the store is asked each few seconds.
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
            Self::HoursNotSupported => {
                "only a window of 24 hours is supported: leave `hours` out, or give hours=24 once"
            }
            Self::ModelNotFound => {
                "no model has that name: GET /web/v1/model-stability/summary lists them; encode a name for the path"
            }
            Self::PathNotFound => "nothing is served here: the page is /status, the description /web/v1/openapi.json",
            Self::MethodNotAllowed => "this path is only read: use GET or HEAD",
            Self::EncodingNotAvailable => "Accept-Encoding refuses all that there is: allow identity, gzip or br",
            Self::RateLimited { .. } => {
                "too many requests from your address: wait for the seconds of retry-after; an answer holds for those of max-age"
            }
            Self::NotReady => "the record is not read yet: ask again after the seconds of retry-after",
        }
    }

    /// The answer that says so. Not to be kept: the next may be another.
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

    /// Whole seconds, rounded up: who waits that long is not too early.
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
