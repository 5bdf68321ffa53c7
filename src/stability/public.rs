//! The public stability service. Anybody may read how the models behave; nobody learns how much they are used.
//!
//! Pure except for rendered answers and rate limits: time and request come in as a [`PublicRequest`], the answer goes out as a
//! [`PublicResponse`], whichever listener serves it. `openapi.json` describes it for users.
//!
//! A model named `summary` cannot be requested by itself, because that path is the summary of all models. It is listed
//! there, and on the status page.

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
    edges::limiter::{Allowance, Limiter, client::Client},
    stability::{
        Snapshot,
        public::{
            answer::{ALLOW, open_headers},
            document::Document,
            edition::{Edition, Shelf},
            path::PublicPath,
            refusal::PublicRefusal,
        },
    },
};

#[cfg(test)]
mod tests;

/// How long a browser may keep the answer to a CORS preflight, in seconds.
const PREFLIGHT_SECONDS: &str = "86400";
/// The description of the service, as it is served.
const OPENAPI: &str = include_str!("public/openapi.json");

/// One request, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublicRequest<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// Its path, still percent-encoded.
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

/// Where the service reads; neither may wait.
pub(crate) trait Source: Send + Sync {
    /// The models that there are.
    fn catalogue(&self) -> Arc<Catalogue>;
    /// What was counted of them; `None` before the store was read for the first time.
    fn snapshot(&self) -> Option<Arc<Snapshot>>;
}

/// `[stability]`, as far as it says how requests are answered.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long an answer may be kept: as long as a snapshot lives.
    pub refresh: Duration,
    /// Requests that one client may make.
    pub allowance: Allowance,
    /// The peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

/// The service. One for all listeners, so that they share the limit and the rendered answers.
pub(crate) struct Public {
    source: Box<dyn Source>,
    limiter: Limiter<Client>,
    trusted: Vec<IpNet>,
    cache_control: HeaderValue,
    shelf: Shelf,
    openapi: Document,
}

impl fmt::Debug for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Public")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

impl Public {
    /// The service on what it reads. `start` is a moment before the first request.
    pub(crate) fn new(settings: Settings, source: Box<dyn Source>, start: Instant) -> Self {
        let max_age = format!("public, max-age={}", settings.refresh.as_secs());
        Self {
            source,
            limiter: Limiter::new(settings.allowance, start),
            trusted: settings.trusted_proxies,
            cache_control: HeaderValue::from_str(&max_age).unwrap_or(HeaderValue::from_static("no-cache")),
            shelf: Shelf::default(),
            openapi: Document::json(OPENAPI.as_bytes().to_vec()),
        }
    }

    /// The answer to a request; `None` if its path is none of the service's.
    pub(crate) fn answer(&self, ask: &PublicRequest<'_>) -> Option<PublicResponse> {
        let path = PublicPath::of(ask.path)?;
        Some(self.answer_at(&path, ask).unwrap_or_else(PublicRefusal::answer))
    }

    /// The answer to a path that is neither the service's nor anybody else's.
    pub(crate) fn not_found() -> PublicResponse {
        PublicRefusal::PathNotFound.answer()
    }

    fn answer_at(&self, path: &PublicPath<'_>, ask: &PublicRequest<'_>) -> Result<PublicResponse, PublicRefusal> {
        let client = Client::of(ask.peer, ask.headers, &self.trusted);
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
        let document = |document: &Document| document.answer(ask.headers, &self.cache_control);
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
            .shelf
            .edition(snapshot, self.source.catalogue(), Hour::of_ms(ask.now_ms)))
    }
}

/// What a browser asks before it sends headers that scripts may not send unasked (Fetch standard, CORS preflight).
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
