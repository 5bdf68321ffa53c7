//! Answers of the service, for any listener.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// The methods of every public path.
pub(super) const ALLOW: &str = "GET, HEAD, OPTIONS";

/// A response. The writer adds `content-length`, except for 204 and 304, and omits the body for HEAD.
#[derive(Clone, Debug)]
pub(crate) struct PublicResponse {
    /// The status.
    pub status: StatusCode,
    /// All headers but `content-length` and `date`.
    pub headers: HeaderMap,
    /// The body; for HEAD, the body that GET would have.
    pub body: Bytes,
}

impl PublicResponse {
    /// Whether it has a body for other methods than HEAD.
    pub(crate) fn has_body(&self) -> bool {
        !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }
}

/// The headers of every answer, which scripts of any site may read.
pub(super) fn open_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("etag, retry-after"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
}
