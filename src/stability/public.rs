//! The public stability service. Anybody may read how the models perform; nobody learns how much they are used.
//!
//! It does no I/O: a [`PublicRequest`] comes in with its time, and a [`PublicResponse`] goes out, on whichever listener. Its only
//! state is rendered answers and rate limits. `openapi.json` describes it for users.
//!
//! A model named `summary` has no record of its own, because that path is the summary of all models. It is listed there, and on
//! the status page.

mod accept;
mod answer;
mod conditional;
mod document;
mod edition;
pub(crate) mod look;
pub mod page;
mod path;
mod record;
mod refusal;

use std::{
    fmt,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use ipnet::IpNet;

pub(crate) use answer::PublicResponse;

use crate::{
    domain::{catalogue::Catalogue, faults::stability::Hour},
    edges::limiter::{Limiter, RateAllowance, client::ClientAddress},
    stability::{
        Snapshot,
        public::{
            answer::{ALLOW, open_headers},
            document::RenderedDocument,
            edition::{Edition, EditionCache},
            path::PublicPath,
            refusal::PublicRefusal,
        },
    },
};

#[cfg(test)]
mod tests;

/// How long a browser may cache the answer to a CORS preflight, in seconds.
const PREFLIGHT_SECONDS: &str = "86400";
/// The description of the service, as served.
const OPENAPI: &str = include_str!("public/openapi.json");

/// The relevant parts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path, still percent-encoded.
    pub path: &'a str,
    /// The query, without `?`.
    pub query: Option<&'a str>,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The other end of the connection.
    pub peer: IpAddr,
    /// The wall clock, in milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// The time by the monotonic clock.
    pub now: Instant,
}

/// The data of the service. No method may block.
pub(crate) trait StabilitySource: Send + Sync {
    /// The catalogue of models.
    fn catalogue(&self) -> Arc<Catalogue>;
    /// The counts of all nodes; `None` before the first read from the store.
    fn snapshot(&self) -> Option<Arc<Snapshot>>;
}

/// The settings of `[stability]` that concern requests.
#[derive(Clone, Debug)]
pub(crate) struct PublicSettings {
    /// How long an answer may be cached: the lifetime of a snapshot.
    pub refresh: Duration,
    /// The rate limit of one client.
    pub allowance: RateAllowance,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
}

/// The service, shared by all listeners with its rate limits and rendered answers.
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
    /// The service on `source`. `start` must be before the first request.
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

    /// Answers a request; `None` if the path is not the service's.
    pub(crate) fn answer(&self, ask: &PublicRequest<'_>) -> Option<PublicResponse> {
        let path = PublicPath::parse(ask.path)?;
        Some(self.answer_at(&path, ask).unwrap_or_else(PublicRefusal::answer))
    }

    /// The answer for an unknown path.
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
            path::check_hours(ask.query)?;
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

/// Answers a CORS preflight, which browsers send before a script may send unusual headers (Fetch standard).
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
