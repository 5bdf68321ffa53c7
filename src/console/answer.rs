//! Responses of the console and the portal. Their headers forbid caching and framing, and restrict what a page may load.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::Markup;
use serde_json::Value;

use super::cookie::ConnectionSecurity;
use crate::stability::public::PublicResponse;

/// A page may load its site's style sheet and the inline icon, and send its forms to its own site.
const CSP: &str = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'";

/// A complete response. The writer adds `content-length`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageResponse {
    /// The status.
    pub(crate) status: StatusCode,
    /// All headers but `content-length`.
    pub(crate) headers: HeaderMap,
    /// The body; for HEAD, the body that GET would have.
    pub(crate) body: Bytes,
}

impl PageResponse {
    /// A page.
    pub(super) fn page(status: StatusCode, page: Markup) -> Self {
        Self::new(status, "text/html; charset=utf-8", page.into_string().into())
    }

    /// One line of text.
    pub(super) fn text(status: StatusCode, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{text}\n").into())
    }

    /// A JSON object, for a program.
    pub(super) fn json(status: StatusCode, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string().into())
    }

    /// A file to download. `name` needs no quoting.
    pub(super) fn download(name: &str, kind: &'static str, bytes: Vec<u8>) -> Self {
        let mut answer = Self::new(StatusCode::OK, kind, bytes.into());
        let kept = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
        let kept = kept.unwrap_or(HeaderValue::from_static("attachment"));
        answer.headers.insert(header::CONTENT_DISPOSITION, kept);
        answer
    }

    /// The style sheet, the only response that a browser may cache.
    pub(super) fn style_sheet(sheet: &'static str) -> Self {
        let mut answer = Self::new(
            StatusCode::OK,
            "text/css; charset=utf-8",
            Bytes::from_static(sheet.as_bytes()),
        );
        let kept = HeaderValue::from_static("private, max-age=300");
        answer.headers.insert(header::CACHE_CONTROL, kept);
        answer
    }

    /// Redirects to another page of the same site, to be read with GET.
    pub(super) fn redirect(path: &str) -> Self {
        let mut answer = Self::new(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", Bytes::new());
        let to = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
        answer.headers.insert(header::LOCATION, to);
        answer
    }

    /// Adds a cookie.
    pub(super) fn with_cookie(mut self, cookie: HeaderValue) -> Self {
        self.headers.append(header::SET_COOKIE, cookie);
        self
    }

    /// Makes the browser go on to another address: `0; url=...`, as in HTML's `meta http-equiv="refresh"`.
    pub(super) fn with_refresh(mut self, refresh: HeaderValue) -> Self {
        self.headers.insert(header::REFRESH, refresh);
        self
    }

    /// Names the methods that the path supports.
    pub(super) fn with_allow(mut self, methods: &'static str) -> Self {
        self.headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        self
    }

    /// Over TLS, tells the browser to use only TLS for a year (RFC 6797). Browsers ignore that over plain HTTP.
    pub(super) fn with_transport_security(mut self, way: ConnectionSecurity) -> Self {
        if way == ConnectionSecurity::Encrypted {
            let a_year = HeaderValue::from_static("max-age=31536000");
            self.headers.insert(header::STRICT_TRANSPORT_SECURITY, a_year);
        }
        self
    }

    /// Converts to the type that the listeners for clients write.
    pub(crate) fn into_response(self) -> PublicResponse {
        PublicResponse {
            status: self.status,
            headers: self.headers,
            body: self.body,
        }
    }

    fn new(status: StatusCode, kind: &'static str, body: Bytes) -> Self {
        let fixed = [
            (header::CONTENT_TYPE, kind),
            (header::CACHE_CONTROL, "no-store"),
            (header::CONTENT_SECURITY_POLICY, CSP),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            // With `no-referrer`, browsers would send `Origin: null` with the site's own forms (Fetch standard, section 3.2).
            (header::REFERRER_POLICY, "same-origin"),
        ];
        let mut headers = HeaderMap::with_capacity(11);
        for (name, value) in fixed {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let own = HeaderValue::from_static("same-origin");
        headers.insert("cross-origin-opener-policy", own.clone());
        headers.insert("cross-origin-resource-policy", own);
        Self { status, headers, body }
    }
}
