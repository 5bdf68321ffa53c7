//! The public stability service. It publishes how well the models perform, but not how much they are used.
//!
//! The service does no I/O: a listener passes a [`PublicRequest`] with the current time, and gets a [`PublicResponse`]. The
//! service's only state is rendered documents and rate limits. `openapi.json` describes the service for users.
//!
//! A model named `summary` has no JSON document of its own, because the path of that document leads to the summary of all models.
//! The model is listed in the summary and on the status page.

mod document;
pub mod page;
mod record;

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    fmt,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use ipnet::IpNet;
use percent_encoding::percent_decode_str;

use crate::{
    domain::{catalogue::Catalogue, faults::stability::Hour},
    edges::limiter::{ClientAddress, Limiter, RateAllowance},
    stability::{
        Snapshot,
        public::{
            document::{Edition, EditionCache, RenderedDocument},
            record::PublicRefusal,
        },
    },
};

/// The maximum time for which a browser caches the answer to a CORS preflight request, in seconds.
const PREFLIGHT_SECONDS: &str = "86400";
/// The OpenAPI description of the service, as it is served.
const OPENAPI: &str = include_str!("public/openapi.json");

/// The parts of an HTTP request that the service needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicRequest<'a> {
    /// The HTTP method.
    pub method: &'a Method,
    /// The path of the URL, in percent-encoded form.
    pub path: &'a str,
    /// The query of the URL, without `?`; `None` if the URL has no query.
    pub query: Option<&'a str>,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The IP address of the connection's peer.
    pub peer: IpAddr,
    /// The time of the request by the wall clock, in milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// The time of the request by the monotonic clock.
    pub now: Instant,
}

/// The source of the service's data. Its methods must not block.
pub(crate) trait StabilitySource: Send + Sync {
    /// Returns the current catalogue of models.
    fn catalogue(&self) -> Arc<Catalogue>;
    /// Returns the counts of all nodes; `None` before the first successful read from the store.
    fn snapshot(&self) -> Option<Arc<Snapshot>>;
}

/// The settings of the section `[stability]` that concern requests.
#[derive(Clone, Debug)]
pub(crate) struct PublicSettings {
    /// The maximum time for which an answer is cached, which is also the interval at which snapshots are read.
    pub refresh: Duration,
    /// The rate limit for each client.
    pub allowance: RateAllowance,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
}

/// The public stability service. All listeners share it, with its rate limits and rendered documents.
pub(crate) struct PublicService {
    source: Box<dyn StabilitySource>,
    limiter: Limiter<ClientAddress>,
    trusted: Vec<IpNet>,
    cache_control: HeaderValue,
    editions: EditionCache,
    openapi: RenderedDocument,
}

impl fmt::Debug for PublicService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Public")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

impl PublicService {
    /// Creates the service with the data of `source`. `start` must be before the first request.
    pub(crate) fn new(settings: PublicSettings, source: Box<dyn StabilitySource>, start: Instant) -> Self {
        let max_age = format!("public, max-age={}", settings.refresh.as_secs());
        Self {
            source,
            limiter: Limiter::new(settings.allowance, start),
            trusted: settings.trusted_proxies,
            cache_control: HeaderValue::from_str(&max_age).unwrap_or(HeaderValue::from_static("no-cache")),
            editions: EditionCache::default(),
            openapi: RenderedDocument::json(OPENAPI.as_bytes().to_vec()),
        }
    }

    /// Answers a request; returns `None` if the path does not belong to the service.
    pub(crate) fn answer(&self, ask: &PublicRequest<'_>) -> Option<PublicResponse> {
        let path = PublicPath::parse(ask.path)?;
        Some(self.answer_at(&path, ask).unwrap_or_else(PublicRefusal::answer))
    }

    /// Returns the answer for an unknown path.
    pub(crate) fn not_found() -> PublicResponse {
        PublicRefusal::PathNotFound.answer()
    }

    fn answer_at(&self, path: &PublicPath<'_>, ask: &PublicRequest<'_>) -> Result<PublicResponse, PublicRefusal> {
        let client = ClientAddress::from_headers(ask.peer, ask.headers, &self.trusted);
        self.limiter
            .try_acquire(client, ask.now)
            .map_err(|wait| PublicRefusal::RateLimited { wait })?;
        match *ask.method {
            Method::OPTIONS => return Ok(preflight()),
            Method::GET | Method::HEAD => {}
            _ => return Err(PublicRefusal::MethodNotAllowed),
        }
        if path.takes_hours() {
            check_hours(ask.query)?;
        }
        let document = |document: &RenderedDocument| document.answer(ask.headers, &self.cache_control);
        match path {
            PublicPath::OpenApi => document(&self.openapi),
            PublicPath::Summary => document(self.edition(ask)?.summary()),
            PublicPath::Index => document(self.edition(ask)?.index()),
            PublicPath::Detail(key) => document(self.edition(ask)?.detail(key).ok_or(PublicRefusal::ModelNotFound)?),
            PublicPath::Model(key) => document(self.edition(ask)?.model(key).ok_or(PublicRefusal::ModelNotFound)?),
        }
    }

    fn edition(&self, ask: &PublicRequest<'_>) -> Result<Arc<Edition>, PublicRefusal> {
        let snapshot = self.source.snapshot().ok_or(PublicRefusal::NotReady)?;
        Ok(self
            .editions
            .edition(snapshot, self.source.catalogue(), Hour::from_unix_ms(ask.now_ms)))
    }
}

/// Answers a CORS preflight request, which a browser sends before it lets a script send unusual headers (Fetch standard).
fn preflight() -> PublicResponse {
    let mut headers = open_headers();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, HEAD"),
    );
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static(PREFLIGHT_SECONDS),
    );
    headers.insert(header::ALLOW, HeaderValue::from_static(ALLOW));
    PublicResponse {
        status: StatusCode::NO_CONTENT,
        headers,
        body: Bytes::new(),
    }
}

/// The methods that every public path allows, for the `allow` header.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// An answer of the service. The code that writes an answer adds `content-length`, except for the statuses 204 and 304, and omits
/// the body for HEAD.
#[derive(Clone, Debug)]
pub(crate) struct PublicResponse {
    /// The HTTP status.
    pub status: StatusCode,
    /// All headers except `content-length` and `date`.
    pub headers: HeaderMap,
    /// The body; for HEAD, the body that GET would have.
    pub body: Bytes,
}

impl PublicResponse {
    /// Returns whether an answer with this status has a body, if the method is not HEAD.
    pub(crate) fn has_body(&self) -> bool {
        !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }
}

/// Returns the headers that every answer has. They allow scripts of any website to read the answer.
fn open_headers() -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("etag, retry-after"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
}

/// Returns whether the header `if-none-match` contains this entity tag, its weak form, or `*`.
fn names_tag(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(header::IF_NONE_MATCH).iter();
    // A list of tags can be split at commas, because the service's tags do not contain commas.
    let mut tags = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim);
    tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

const SUMMARY: &str = "summary";

#[derive(Clone, Debug, PartialEq, Eq)]
enum PublicPath<'a> {
    /// `/web/v1/model-stability/summary`: the JSON document about all models.
    Summary,
    /// `/web/v1/model-stability/{modelKey}`: the JSON document about one model. The name is empty if it is not UTF-8.
    Detail(Cow<'a, str>),
    /// `/status`: the page about all models.
    Index,
    /// `/status/{modelKey}`: the page about one model.
    Model(Cow<'a, str>),
    /// `/web/v1/openapi.json`: the OpenAPI description.
    OpenApi,
}

impl<'a> PublicPath<'a> {
    /// Parses a percent-encoded path; returns `None` for a path that does not belong to the service. Slashes in a model's name
    /// need not be encoded.
    fn parse(path: &'a str) -> Option<Self> {
        if let Some(key) = path.strip_prefix("/web/v1/model-stability/") {
            let key = decoded(key);
            return Some(if key == SUMMARY {
                Self::Summary
            } else {
                Self::Detail(key)
            });
        }
        match path {
            "/web/v1/openapi.json" => Some(Self::OpenApi),
            "/status" => Some(Self::Index),
            _ => path.strip_prefix("/status/").map(|key| Self::Model(decoded(key))),
        }
    }

    /// Returns whether the path accepts the query parameter `hours`.
    fn takes_hours(&self) -> bool {
        matches!(self, Self::Summary | Self::Detail(_))
    }
}

/// Returns the decoded model name. If it cannot be decoded, returns an empty string, which is not the name of any model.
fn decoded(key: &str) -> Cow<'_, str> {
    percent_decode_str(key).decode_utf8().unwrap_or_default()
}

/// Checks the query: `hours` is allowed only once and only as 24 (docs/interface.md, The public record). Other parameters are
/// ignored.
fn check_hours(query: Option<&str>) -> Result<(), PublicRefusal> {
    let pairs = query.unwrap_or_default().split('&');
    let mut hours = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(name, _)| percent_decode_str(name).eq("hours".bytes()))
        .map(|(_, value)| value);
    match (hours.next(), hours.next()) {
        (None, _) => Ok(()),
        (Some(value), None) if percent_decode_str(value).eq("24".bytes()) => Ok(()),
        _ => Err(PublicRefusal::HoursNotSupported),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptedCoding {
    Identity,
    /// The coding `gzip` (RFC 1952).
    Gzip,
    /// The coding `br` (RFC 7932).
    Brotli,
}

/// The weights that a client gives to content codings, in thousandths; `None` for a coding that the client does not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodingWeights {
    identity: Option<u16>,
    gzip: Option<u16>,
    brotli: Option<u16>,
}

impl CodingWeights {
    /// Reads the header `accept-encoding`. Several header lines form one list. An invalid member is ignored.
    fn from_headers(headers: &HeaderMap) -> Self {
        let (mut identity, mut gzip, mut brotli, mut rest) = (None, None, None, None);
        let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
        let members = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','));
        for (name, weight) in members.filter_map(member) {
            let place = match name.to_ascii_lowercase().as_str() {
                "identity" => &mut identity,
                "gzip" | "x-gzip" => &mut gzip,
                "br" => &mut brotli,
                "*" => &mut rest,
                _ => continue,
            };
            *place = Some(weight);
        }
        let wanted = |weight: Option<u16>| weight.or(rest).filter(|weight| *weight > 0);
        let identity = match identity.or(rest) {
            // A coding that is not mentioned is acceptable, but with the lowest weight.
            None => Some(0),
            Some(0) => None,
            Some(weight) => Some(weight),
        };
        Self {
            identity,
            gzip: wanted(gzip),
            brotli: wanted(brotli),
        }
    }

    /// Returns the coding with the highest weight. Among codings with the same weight, returns the coding that compresses most. A
    /// `small` body is compressed only if the client refuses the identity coding. Returns `None` if the client accepts no coding.
    fn choose(self, small: bool) -> Option<AcceptedCoding> {
        if small && self.identity.is_some() {
            return Some(AcceptedCoding::Identity);
        }
        let mut best: Option<(u16, AcceptedCoding)> = None;
        for (weight, coding) in [
            (self.brotli, AcceptedCoding::Brotli),
            (self.gzip, AcceptedCoding::Gzip),
            (self.identity, AcceptedCoding::Identity),
        ] {
            match (weight, best) {
                (Some(weight), None) => best = Some((weight, coding)),
                (Some(weight), Some((most, _))) if weight > most => best = Some((weight, coding)),
                (Some(_) | None, _) => {}
            }
        }
        best.map(|(_, coding)| coding)
    }
}

/// Parses a member of `accept-encoding`. Returns the coding and its weight in thousandths (1000 by default); `None` if the member
/// is invalid.
fn member(text: &str) -> Option<(&str, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let weight = match parts.next() {
        None => 1000,
        Some(parameter) => {
            let (key, value) = parameter.split_once('=')?;
            if !key.trim().eq_ignore_ascii_case("q") {
                return None;
            }
            weight(value.trim())?
        }
    };
    Some((name, weight))
}

/// Parses a weight, which is a number from 0 to 1 with up to three decimals (RFC 9110, section 12.4.2). Returns the weight in
/// thousandths; `None` if the weight is invalid.
fn weight(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{decimals:0<3}").parse().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod conditional_tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_lists_and_in_its_weak_form() {
        for (line, known) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("\"b,c\" ,W/\"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
            ("", false),
            ("\"a\"x", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, line.parse().unwrap());
            assert_eq!(names_tag(&headers, "\"a\""), known, "{line}");
        }
        assert!(!names_tag(&HeaderMap::new(), "\"a\""));
    }
}

#[cfg(test)]
mod path_tests {
    use super::*;

    fn detail(key: &str) -> Option<PublicPath<'_>> {
        Some(PublicPath::Detail(Cow::Borrowed(key)))
    }

    #[test]
    fn names_are_decoded_and_may_have_slashes_in_both_forms() {
        let at = |key: &str| format!("/web/v1/model-stability/{key}");
        for (path, key) in [
            ("house-model", "house-model"),
            ("org%2Fmodel%3Afree", "org/model:free"),
            ("org/model:free", "org/model:free"),
            ("org%2fmodel%20x", "org/model x"),
            ("%E6%A8%A1%E5%9E%8B", "\u{6a21}\u{578b}"),
            ("a+b", "a+b"),
            ("a%2", "a%2"),
            ("%ff", ""),
            ("", ""),
            ("summary/", "summary/"),
        ] {
            assert_eq!(PublicPath::parse(&at(path)), detail(key), "{path}");
        }
        assert_eq!(
            PublicPath::parse("/status/org%2Fm"),
            Some(PublicPath::Model(Cow::Borrowed("org/m")))
        );
    }

    #[test]
    fn the_other_paths_are_exact() {
        assert_eq!(
            PublicPath::parse("/web/v1/model-stability/summary"),
            Some(PublicPath::Summary)
        );
        assert_eq!(
            PublicPath::parse("/web/v1/model-stability/%73ummary"),
            Some(PublicPath::Summary)
        );
        assert_eq!(PublicPath::parse("/web/v1/openapi.json"), Some(PublicPath::OpenApi));
        assert_eq!(PublicPath::parse("/status"), Some(PublicPath::Index));
        for path in [
            "/",
            "*",
            "",
            "/web/v1/model-stability",
            "/web/v1/",
            "/statuspage",
            "/v1/models",
            "/Status",
        ] {
            assert_eq!(PublicPath::parse(path), None, "{path}");
        }
    }

    #[test]
    fn only_one_window_is_supported() {
        for fine in [
            None,
            Some(""),
            Some("x=1"),
            Some("hours=24"),
            Some("a&hours=24&b=48"),
            Some("hours=%324"),
            Some("Hours=1"),
        ] {
            assert_eq!(check_hours(fine), Ok(()), "{fine:?}");
        }
        for wrong in [
            "hours",
            "hours=",
            "hours=0",
            "hours=48",
            "hours=-24",
            "hours=24.0",
            "hours=024",
            "hours=24+",
            "hours=24&hours=24",
            "hours=x",
            "%68ours=1",
            "hours=99999999999999999999",
        ] {
            assert_eq!(
                check_hours(Some(wrong)),
                Err(PublicRefusal::HoursNotSupported),
                "{wrong}"
            );
        }
    }
}

#[cfg(test)]
mod accept_tests {
    use proptest::prelude::*;

    use super::*;

    fn wishes(lines: &[&str]) -> CodingWeights {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::ACCEPT_ENCODING, line.parse().unwrap());
        }
        CodingWeights::from_headers(&headers)
    }

    #[test]
    fn the_most_wanted_coding_is_chosen_and_none_that_is_refused() {
        use AcceptedCoding::{Brotli, Gzip, Identity};
        for (accept, chosen) in [
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("BR", Some(Brotli)),
            ("", Some(Identity)),
            ("deflate", Some(Identity)),
            ("*", Some(Brotli)),
            ("br;q=0, *", Some(Gzip)),
            ("br;q=0.5, gzip;q=0.8", Some(Gzip)),
            ("br;q=0.001", Some(Brotli)),
            ("gzip;q=0.5, identity", Some(Identity)),
            ("gzip;q=0", Some(Identity)),
            ("identity;q=0, gzip", Some(Gzip)),
            ("identity;q=0", None),
            ("*;q=0", None),
            ("*;q=0, gzip ; q=0.3", Some(Gzip)),
            ("br;q=2, gzip", Some(Gzip)),
            ("br;q=, gzip;q=0.1234", Some(Identity)),
            ("br;level=3", Some(Identity)),
        ] {
            assert_eq!(wishes(&[accept]).choose(false), chosen, "{accept}");
        }
        assert_eq!(wishes(&[]).choose(false), Some(Identity));
        assert_eq!(wishes(&["gzip", "br"]).choose(false), Some(Brotli));
    }

    #[test]
    fn a_small_body_stays_plain_unless_the_client_insists() {
        assert_eq!(wishes(&["br, gzip"]).choose(true), Some(AcceptedCoding::Identity));
        assert_eq!(wishes(&["identity;q=0, gzip"]).choose(true), Some(AcceptedCoding::Gzip));
        assert_eq!(wishes(&["*;q=0"]).choose(true), None);
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "[ -~]{0,60}") {
            let _ = wishes(&[&text]).choose(false);
        }
    }
}
