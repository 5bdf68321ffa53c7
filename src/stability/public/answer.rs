//! What the service answers with, whichever listener sends it.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// The methods of every public path.
pub(super) const ALLOW: &str = "GET, HEAD, OPTIONS";

/// What is sent. The writer adds `content-length` (not to 204 and 304), and leaves the body out for HEAD.
#[derive(Clone, Debug)]
pub(crate) struct PublicResponse {
    /// The answer's status.
    pub status: StatusCode,
    /// All headers but `content-length` and `date`.
    pub headers: HeaderMap,
    /// The body; that of GET, if HEAD was asked.
    pub body: Bytes,
}

impl PublicResponse {
    /// Whether it has a body at all, when asked with another method than HEAD.
    pub(crate) fn has_body(&self) -> bool {
        !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }
}

/// The headers of every answer: scripts of every site may read it.
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
