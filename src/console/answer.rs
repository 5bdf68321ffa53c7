//! Answers of the console and the portal, with the headers that keep pages from being kept, framed or added to.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::Markup;
use serde_json::Value;

use super::cookie::Way;
use crate::stability::public::PublicResponse;

/// What a page may do: have the door's style sheet and the icon within it, and send its forms to where it came from.
const CSP: &str = "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'";

/// A complete answer. The writer adds `content-length`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The answer's status.
    pub(crate) status: StatusCode,
    /// All headers but `content-length`.
    pub(crate) headers: HeaderMap,
    /// The body; that of GET, if HEAD was asked.
    pub(crate) body: Bytes,
}

impl Answer {
    /// A page.
    pub(super) fn page(status: StatusCode, page: Markup) -> Self {
        Self::new(status, "text/html; charset=utf-8", page.into_string().into())
    }

    /// A text of one line.
    pub(super) fn text(status: StatusCode, text: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{text}\n").into())
    }

    /// A JSON object, for a program.
    pub(super) fn json(status: StatusCode, body: &Value) -> Self {
        Self::new(status, "application/json", body.to_string().into())
    }

    /// A file, to be kept under a name of plain letters.
    pub(super) fn download(name: &str, kind: &'static str, bytes: Vec<u8>) -> Self {
        let mut answer = Self::new(StatusCode::OK, kind, bytes.into());
        let kept = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
        let kept = kept.unwrap_or(HeaderValue::from_static("attachment"));
        answer.headers.insert(header::CONTENT_DISPOSITION, kept);
        answer
    }

    /// The style sheet, the one thing that a browser may keep.
    pub(super) fn style(sheet: &'static str) -> Self {
        let mut answer = Self::new(
            StatusCode::OK,
            "text/css; charset=utf-8",
            Bytes::from_static(sheet.as_bytes()),
        );
        let kept = HeaderValue::from_static("private, max-age=300");
        answer.headers.insert(header::CACHE_CONTROL, kept);
        answer
    }

    /// To another page of the same door, to be read with GET.
    pub(super) fn see(path: &str) -> Self {
        let mut answer = Self::new(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", Bytes::new());
        let to = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
        answer.headers.insert(header::LOCATION, to);
        answer
    }

    /// The same with a cookie set.
    pub(super) fn with_cookie(mut self, cookie: HeaderValue) -> Self {
        self.headers.append(header::SET_COOKIE, cookie);
        self
    }

    /// The same, and the browser goes on from it: `0; url=...`, as HTML's `meta` of that name.
    pub(super) fn going_on(mut self, refresh: HeaderValue) -> Self {
        self.headers.insert(header::REFRESH, refresh);
        self
    }

    /// The same with the methods that its path has.
    pub(super) fn allowing(mut self, methods: &'static str) -> Self {
        self.headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        self
    }

    /// The same as it goes to a client that is connected this way: one that came by TLS is to come by TLS only, for a year
    /// (RFC 6797). Over plain HTTP browsers do not heed that.
    pub(super) fn over(mut self, way: Way) -> Self {
        if way == Way::Encrypted {
            let a_year = HeaderValue::from_static("max-age=31536000");
            self.headers.insert(header::STRICT_TRANSPORT_SECURITY, a_year);
        }
        self
    }

    /// As the listeners for clients write it.
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
            // With `no-referrer` browsers would say `Origin: null` of the door's own forms (Fetch standard, section 3.2).
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
