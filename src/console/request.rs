//! A complete request to the console or the portal, and the checks of its origin.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, Method, StatusCode, Uri, header,
    uri::{Authority, Scheme},
};
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use pingora::{http::RequestHeader, protocols::http::ServerSession};

use crate::{
    api::{AdminError, AdminQuestion, wire},
    console::{layout::PageResponse, session::ConnectionSecurity},
    edges::clock,
};

/// A complete request to the console or the portal.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    /// The method of the request. HEAD is handled like GET.
    pub(crate) method: Method,
    /// The path of the request, in percent-encoded form.
    pub(crate) path: String,
    /// The query of the request, without the `?`. `None` if the request has no query.
    pub(crate) query: Option<String>,
    /// The host that the browser addressed, with its port.
    pub(crate) host: String,
    /// The headers of the request.
    pub(crate) headers: HeaderMap,
    /// The body of the request.
    pub(crate) body: Bytes,
    /// The address of the connection's peer, which is the client or a proxy in front of weir.
    pub(crate) peer: IpAddr,
    /// Whether the client's connection is encrypted. This is the connection to the listener, or to the proxy in front of the
    /// listener if there is one.
    pub(crate) encrypted: bool,
    /// The time of the request by the monotonic clock.
    pub(crate) now: Instant,
}

/// Returns the URL of a host, with the scheme `https` or `http`.
pub(super) fn base(encrypted: bool, host: &str) -> String {
    let scheme = if encrypted { "https" } else { "http" };
    format!("{scheme}://{host}")
}

impl PageRequest {
    /// Returns the decoded segments of the path below `root`. `None` if the path is not below `root`.
    pub(super) fn segments(&self, root: &str) -> Option<Vec<String>> {
        let rest = self.path.strip_prefix(root)?;
        if !(rest.is_empty() || rest.starts_with('/')) {
            return None;
        }
        let decoded = |segment: &str| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        Some(rest.split('/').filter(|one| !one.is_empty()).map(decoded).collect())
    }

    pub(super) fn connection_security(&self) -> ConnectionSecurity {
        if self.encrypted {
            ConnectionSecurity::Encrypted
        } else {
            ConnectionSecurity::Plain
        }
    }

    /// Returns the URL at which the client reaches this listener.
    pub(super) fn base(&self) -> String {
        base(self.encrypted, &self.host)
    }

    pub(super) fn is_same_origin(&self) -> bool {
        let (headers, host) = (&self.headers, self.host.as_str());
        let encrypted = self.encrypted;
        let origin = RequestOrigin {
            headers,
            host,
            encrypted,
        };
        origin.is_same_origin()
    }

    /// Parses the query of the request.
    pub(super) fn query(&self) -> FormFields {
        FormFields::read(self.query.as_deref().unwrap_or_default().as_bytes())
    }

    /// Parses the body of the request as a form.
    pub(super) fn form(&self) -> FormFields {
        FormFields::read(&self.body)
    }
}

/// The timeout for receiving a form.
const FORM_WAIT: Duration = Duration::from_secs(30);

/// The settings with which a listener reads requests to the console or the portal.
#[derive(Clone, Debug)]
pub(crate) struct ListenerContext {
    /// The way in which browsers reach the listener.
    pub(crate) site: Site,
    /// The maximum size of a form, in bytes. One connection has at most one form in memory.
    pub(crate) form_bytes_max: usize,
}

/// Reads a complete request from a session of Pingora.
///
/// # Errors
/// The request is too large, arrives too slowly, or has no host. The error contains the response to be sent.
pub(crate) async fn read(
    session: &mut ServerSession,
    entrance: &ListenerContext,
) -> Result<PageRequest, Box<PageResponse>> {
    let now = clock::instant();
    let body = match tokio::time::timeout(FORM_WAIT, read_body(session, entrance.form_bytes_max)).await {
        Ok(body) => body?,
        Err(_) => {
            return Err(refuse_and_close(
                session,
                StatusCode::REQUEST_TIMEOUT,
                "the form did not arrive within 30 seconds",
            ));
        }
    };
    let peer = session.client_addr().and_then(|address| address.as_inet());
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    let head = session.req_header();
    let Some(SiteAddress { host, encrypted }) = entrance.site.address_for(head, peer) else {
        return Err(refuse_and_close(
            session,
            StatusCode::BAD_REQUEST,
            "the request has no valid host",
        ));
    };
    let method = match &head.method {
        &Method::HEAD => Method::GET,
        other => other.clone(),
    };
    Ok(PageRequest {
        method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        host,
        encrypted,
        headers: head.headers.clone(),
        body,
        peer,
        now,
    })
}

async fn read_body(session: &mut ServerSession, bytes_max: usize) -> Result<Bytes, Box<PageResponse>> {
    let mut body = BytesMut::new();
    loop {
        match session.read_request_body().await {
            Ok(Some(bytes)) if body.len() + bytes.len() <= bytes_max => body.extend_from_slice(&bytes),
            Ok(Some(_)) => {
                let why = format!("a form is limited to {bytes_max} bytes here");
                return Err(refuse_and_close(session, StatusCode::PAYLOAD_TOO_LARGE, &why));
            }
            Ok(None) => return Ok(body.freeze()),
            // The client has disconnected. The response only ends the connection.
            Err(_) => {
                return Err(refuse_and_close(
                    session,
                    StatusCode::BAD_REQUEST,
                    "the form arrived incomplete",
                ));
            }
        }
    }
}

/// Creates a refusal. The connection is closed after it, because the rest of the body is not read.
fn refuse_and_close(session: &mut ServerSession, status: StatusCode, why: &str) -> Box<PageResponse> {
    session.set_keepalive(None);
    Box::new(PageResponse::text(status, why))
}

/// The maximum number of fields of a form or query. Further fields are ignored.
const FIELDS_MAX: usize = 64;

/// The names and values of a form's or query's fields, in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Parses the body of a form, or a query.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(bytes).take(FIELDS_MAX);
        Self(
            pairs
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// Returns the first value with this name, trimmed. Empty if no field has this name.
    pub(super) fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.trim())
    }

    /// Returns the first value with this name, trimmed. `None` if no field has this name or the value is empty.
    pub(super) fn non_empty(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }
}

/// Creates a call of the admin API from fields. Fields without a value are left out.
///
/// # Errors
/// A field is not valid. The message names the field and its fault.
pub(super) fn read_question<Q: AdminQuestion>(pairs: &[(&str, &str)]) -> Result<Q, AdminError> {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    wire::read(given.collect(), "", serde_json::Map::new())
}

/// Returns a query that begins with `?` and contains the fields that have a value. Empty if no field has a value.
pub(super) fn to_query(pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

/// The parts of a request that identify the page that sent the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestOrigin<'a> {
    /// The headers of the request.
    pub(super) headers: &'a HeaderMap,
    /// The host that was addressed, with its port.
    pub(super) host: &'a str,
    /// Whether the client's connection is known to be encrypted. This is false if no address is configured for the site and a
    /// proxy in front of weir does not report whether the connection is encrypted.
    pub(super) encrypted: bool,
}

impl RequestOrigin<'_> {
    /// Returns whether, according to the browser, a page of the same site sent this request. Browsers report this in the header
    /// `Sec-Fetch-Site` (Fetch Metadata) on encrypted and local sites, and in `Origin` (RFC 6454) on all sites. If both headers
    /// are present, both must confirm that the site is the same. A request with neither header was not sent by a browser's form,
    /// so the result is false. An unencrypted page of the same host does not belong to an encrypted site, because an attacker in
    /// the network may have written the page.
    pub(super) fn is_same_origin(&self) -> bool {
        let text = |name: &str| self.headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let site = text("sec-fetch-site").map(|site| site == "same-origin");
        let origin = text(header::ORIGIN.as_str()).map(|origin| self.is_host(origin));
        match (site, origin) {
            (None, None) => false,
            (site, origin) => site != Some(false) && origin != Some(false),
        }
    }

    fn is_host(&self, origin: &str) -> bool {
        let Ok(origin) = origin.parse::<Uri>() else {
            return false;
        };
        let is_encrypted = origin.scheme() == Some(&Scheme::HTTPS);
        let authority = origin.authority().map(Authority::as_str);
        (is_encrypted || !self.encrypted) && authority.is_some_and(|host| host.eq_ignore_ascii_case(self.host))
    }
}

/// The way in which browsers reach the console or the portal.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The configured address. `None` if no address is configured.
    configured: Option<SiteAddress>,
    /// Whether the listener uses TLS.
    tls: bool,
    /// The networks of trusted proxies. A trusted proxy reports its client's address and whether the client's connection is
    /// encrypted.
    pub(super) trusted: Vec<IpNet>,
}

/// The address of a site: the scheme and the host of a page's origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteAddress {
    /// The host. It includes the port unless the port is the scheme's default.
    pub(super) host: String,
    /// Whether the scheme is `https`.
    pub(super) encrypted: bool,
}

impl Site {
    /// Describes how browsers reach a site. `tls` says whether the listener uses TLS. `url` is the configured address, which must
    /// be valid. It takes precedence over the headers that proxies in front of weir set.
    pub(crate) fn new(tls: bool, trusted: Vec<IpNet>, url: Option<&str>) -> Self {
        let configured = url.and_then(|url| SiteAddress::from_url(&url.parse().ok()?));
        Self {
            configured,
            tls,
            trusted,
        }
    }

    /// Returns the URL at which a request's client reaches the site. `None` if the request has no host.
    pub(crate) fn base(&self, head: &RequestHeader, peer: IpAddr) -> Option<String> {
        let SiteAddress { host, encrypted } = self.address_for(head, peer)?;
        Some(base(encrypted, &host))
    }

    pub(super) fn address_for(&self, head: &RequestHeader, peer: IpAddr) -> Option<SiteAddress> {
        let (host, encrypted) = match &self.configured {
            Some(address) => (address.host.clone(), address.encrypted),
            None => {
                let encrypted = is_forwarded_encrypted(peer, &head.headers, &self.trusted);
                (host(head)?.as_str().to_owned(), encrypted)
            }
        };
        Some(SiteAddress {
            host,
            encrypted: encrypted || self.tls,
        })
    }
}

impl SiteAddress {
    fn from_url(url: &Uri) -> Option<Self> {
        let authority = url.authority()?;
        let encrypted = url.scheme() == Some(&Scheme::HTTPS);
        let usual = if encrypted { 443 } else { 80 };
        let is_usual = authority.port_u16().is_none_or(|port| port == usual);
        let host = if is_usual { authority.host() } else { authority.as_str() };
        Some(Self {
            host: host.to_owned(),
            encrypted,
        })
    }
}

fn host(head: &RequestHeader) -> Option<Authority> {
    let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = head.uri.authority().cloned();
    authority.or_else(|| named?.parse().ok())
}

/// Returns whether a trusted proxy reports that its client's connection is encrypted. If several header fields report this, the
/// last one is used, because the nearest proxy has set it.
fn is_forwarded_encrypted(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> bool {
    let peer = peer.to_canonical();
    let said = headers.get_all("x-forwarded-proto").iter().next_back();
    trusted.iter().any(|network| network.contains(&peer)) && said.is_some_and(|said| said == "https")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    #[test]
    fn fields_are_read_as_browsers_write_them() {
        let fields = FormFields::read("name=a+b%26%E2%82%AC&empty=&name=second&reason=%20x%20".as_bytes());
        assert_eq!(fields.text("name"), "a b&\u{20ac}");
        assert_eq!(fields.non_empty("empty"), None);
        assert_eq!(fields.non_empty("missing"), None);
        assert_eq!(fields.non_empty("reason"), Some("x"));
        let many = "x=1&".repeat(FIELDS_MAX) + "late=1";
        assert_eq!(FormFields::read(many.as_bytes()).non_empty("late"), None);
        assert_eq!(FormFields::read(b"%ff=%ff").text("\u{fffd}"), "\u{fffd}");
    }

    #[test]
    fn a_query_leaves_out_what_is_empty() {
        assert_eq!(to_query(&[("a", ""), ("b", "")]), "");
        assert_eq!(to_query(&[("a", "x y"), ("b", ""), ("c", "&")]), "?a=x+y&c=%26");
    }

    fn is_own(lines: &[(&'static str, &str)]) -> bool {
        is_own_over(false, lines)
    }

    fn is_own_over(encrypted: bool, lines: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let host = "127.0.0.1:8082";
        RequestOrigin {
            headers: &headers,
            host,
            encrypted,
        }
        .is_same_origin()
    }

    #[test]
    fn only_a_form_of_the_same_site_is_its_own() {
        let (own, same) = (("origin", "http://127.0.0.1:8082"), ("sec-fetch-site", "same-origin"));
        assert!(is_own(&[own, same]) && is_own(&[own]) && is_own(&[same]));
        for forged in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:8083")],
            &[("origin", "http://evil.example")],
            &[("origin", "http://127.0.0.1:8082.evil.example")],
            &[own, ("sec-fetch-site", "cross-site")],
            &[own, ("sec-fetch-site", "same-site")],
            &[own, ("sec-fetch-site", "none")],
            &[same, ("origin", "http://evil.example")],
        ] {
            assert!(!is_own(forged), "{forged:?}");
        }
    }

    #[test]
    fn an_unencrypted_page_of_the_same_host_is_not_the_encrypted_sites() {
        let (plain, safe) = (
            ("origin", "http://127.0.0.1:8082"),
            ("origin", "https://127.0.0.1:8082"),
        );
        assert!(is_own_over(true, &[safe]) && !is_own_over(true, &[plain]));
        assert!(!is_own_over(true, &[plain, ("sec-fetch-site", "same-origin")]));
        assert!(
            is_own_over(false, &[safe]),
            "a proxy in front may not say that it has TLS"
        );
    }

    const PROXY: &str = "10.1.2.3";

    fn trusted() -> Vec<IpNet> {
        vec!["10.0.0.0/8".parse().unwrap()]
    }

    #[test]
    fn only_a_trusted_proxy_says_that_a_connection_is_encrypted() {
        let trusted = trusted();
        let (proxy, other) = (PROXY.parse().unwrap(), "192.0.2.1".parse().unwrap());
        let mut headers = HeaderMap::new();
        assert!(!is_forwarded_encrypted(proxy, &headers, &trusted));
        headers.append("x-forwarded-proto", HeaderValue::from_static("https"));
        assert!(is_forwarded_encrypted(proxy, &headers, &trusted));
        assert!(!is_forwarded_encrypted(other, &headers, &trusted));
        headers.append("x-forwarded-proto", HeaderValue::from_static("http"));
        assert!(!is_forwarded_encrypted(proxy, &headers, &trusted));
    }

    #[test]
    fn the_configured_address_decides_and_else_the_request() {
        let mut head = RequestHeader::build("GET", b"/portal", None).unwrap();
        head.insert_header("host", "127.0.0.1:8080").unwrap();
        let proxy = PROXY.parse().unwrap();
        let base = |tls, url: Option<&str>, head: &RequestHeader| Site::new(tls, trusted(), url).base(head, proxy);
        assert_eq!(base(false, None, &head).unwrap(), "http://127.0.0.1:8080");
        assert_eq!(base(true, None, &head).unwrap(), "https://127.0.0.1:8080");
        for (url, reached) in [
            ("https://weir.example", "https://weir.example"),
            ("https://weir.example:443", "https://weir.example"),
            ("http://weir.example:80", "http://weir.example"),
            ("http://weir.example:443", "http://weir.example:443"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ] {
            assert_eq!(base(false, Some(url), &head).unwrap(), reached, "{url}");
        }
        assert_eq!(
            base(true, Some("http://weir.example"), &head).unwrap(),
            "https://weir.example",
            "what speaks TLS sets no cookie without it"
        );
        head.insert_header("x-forwarded-proto", "https").unwrap();
        assert_eq!(base(false, None, &head).unwrap(), "https://127.0.0.1:8080");
        let url = Some("http://weir.example");
        assert_eq!(base(false, url, &head).unwrap(), "http://weir.example");
        head.remove_header("host");
        assert_eq!(base(false, url, &head).unwrap(), "http://weir.example");
        assert_eq!(base(false, None, &head), None);
    }
}
