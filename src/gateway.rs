//! The gateway: Pingora's hooks. Each hook is a few lines that call one function of a module below. ARCHITECTURE.md
//! follows one request through them.

pub mod admission;
pub mod answer;
pub mod attempt;
pub mod client_h2;
pub mod client_stream;
pub mod coding;
pub mod drain;
pub mod entry;
pub mod estimate;
pub mod exchange;
pub mod failure_log;
pub mod front;
pub mod gate;
pub mod keepalive;
pub mod panics;
pub mod peer;
pub mod presence;
pub mod reply;
pub mod request;
pub mod ticket;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use ipnet::IpNet;
use pingora::{
    Error, ErrorType, Result,
    http::{RequestHeader, ResponseHeader},
    protocols::Digest,
    upstreams::peer::HttpPeer,
};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use tokio::sync::Semaphore;

use crate::{
    billing::Billing,
    body_budget::BodyBudget,
    clock,
    domain::{operation::Target, outcome::Outcome, protocol::Protocol},
    gateway::{
        admission::key_slots::KeySlots,
        admission::recent_refusals::Lately,
        answer::hidden_head as unseen,
        answer::relay,
        answer::withheld_error as error_answer,
        attempt::connect as upstream,
        drain::Drain,
        entry::{Entry, Sinks},
        exchange::{Exchange, Forward, Stage},
        panics as guard,
        reply::greeting as hello,
        reply::listing,
        reply::published,
        request::gather::GatherError,
        request::head as intake,
        request::head::QueryKeys,
    },
    key_cache::KeyCache,
    live::{Live, LiveCell},
    metrics::Metrics,
    public::Public,
    sessions::Sessions,
    switches::Switches,
    usual::Learnt,
};

/// What all requests share. Built once by `wiring`; Pingora holds it as the proxy application.
#[derive(Debug)]
pub struct Gateway {
    /// Configuration, catalogue and pools. A reload replaces them as a whole; a running request keeps the version it
    /// began with.
    pub live: Arc<LiveCell>,
    /// Providers that an operator has switched off on this node.
    pub switches: Arc<Switches>,
    /// Looks up API keys: in the local cache first, then in the store.
    pub keys: Arc<KeyCache>,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Which account owns state at a provider, and which provider and credential serve it.
    pub sessions: Arc<Sessions>,
    /// Estimation factors per model and typical usage per key, learnt from finished requests.
    pub learnt: Arc<Learnt>,
    /// Admits requests against balance, quota and rates, and charges them.
    pub billing: Billing,
    /// The process-wide memory limit for request bodies.
    pub budget: BodyBudget,
    /// The public stability service, which asks for no key.
    pub public: Arc<Public>,
    /// Metrics and access log.
    pub sinks: Arc<Sinks>,
    /// Counts running requests and connections, and stops them at shutdown.
    pub drain: Drain,
    /// Limits the answers that are read to their end after the client has disconnected.
    pub finishing: Arc<Semaphore>,
    /// Limits concurrent token counts per key.
    pub count_slots: KeySlots,
    /// Recent refusals by key.
    pub lately: Lately,
}

impl Gateway {
    fn metrics(&self) -> &Metrics {
        &self.sinks.metrics
    }

    /// First look at a request's head: sets the connection's timeouts, opens the log entry and takes keys out of the
    /// query.
    fn arrive(&self, session: &mut Session, exchange: &mut Exchange) {
        let limits = &exchange.live.config.gateway;
        keepalive::offer(session, limits.keepalive);
        keepalive::withdraw(session, &self.drain);
        session.set_write_timeout(Some(limits.write));
        session.set_total_drain_timeout(Some(Duration::from_secs(1)));
        unseen::keep_from_client(session);
        exchange.query_keys = intake::strip_query_keys(session.req_header_mut());
        exchange.shape = intake::shape(session.req_header(), &exchange.query_keys);
        let request_id = exchange.request_id.to_string();
        let mut entry = Entry::open(
            Arc::clone(&self.sinks),
            request_id,
            clock::instant(),
            clock::unix_millis(),
        );
        entry.record.protocol = Some(exchange.shape.as_str());
        entry.record.client_version = if session.is_http2() { 2 } else { 1 };
        exchange.stage = Stage::Arrived(Box::new(entry));
    }

    /// Reads and checks the request. Returns true if weir has answered it here and nothing is forwarded.
    async fn handle(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        fail::fail_point!("request_filter");
        let Stage::Arrived(entry) = std::mem::replace(&mut exchange.stage, Stage::Answered) else {
            return Error::e_explain(ErrorType::InternalError, "a request without a beginning");
        };
        let shape = exchange.shape;
        let live = Arc::clone(&exchange.live);
        let admitted = self.admit(session, &live, shape, &exchange.query_keys, *entry).await;
        keepalive::withdraw(session, &self.drain);
        match admitted {
            Ok(Some(forward)) => {
                exchange.stage = Stage::Forwarding(Box::new(forward));
                Ok(false)
            }
            Ok(None) => Ok(true),
            Err((entry, GatherError::Refused(refusal))) => {
                reply::refuse(session, &live, shape, entry, &refusal).await?;
                Ok(true)
            }
            Err((mut entry, GatherError::ClientGone)) => {
                entry.close(Outcome::ClientGone);
                Err(Error::explain(ErrorType::ConnectionClosed, "the client left while sending").into_down())
            }
        }
    }

    async fn admit(
        &self,
        session: &mut Session,
        live: &Arc<Live>,
        shape: Protocol,
        keys: &QueryKeys,
        mut entry: Entry,
    ) -> Result<Option<Forward>, (Entry, GatherError)> {
        if let Err(refusal) = intake::check_size(session.req_header(), &live.config.gateway) {
            return Err((entry, refusal.into()));
        }
        if let Some(answer) = published::find(&self.public, self.billing.time(), session) {
            published::send(session, answer, entry).await;
            return Ok(None);
        }
        let target = match intake::target(session.req_header()) {
            Ok(target) => target,
            Err(refusal) => return Err((entry, refusal.into())),
        };
        entry.record.operation = match &target {
            Target::Forward { operation, .. } => Some(operation.as_str()),
            Target::ListModels | Target::ShowModel { .. } => Some("models"),
            Target::Hello => Some("hello"),
        };
        if target == Target::Hello {
            return reply::give(session, shape, entry, Ok(hello::reply())).await;
        }
        let prefix = &live.config.gateway.key_prefix;
        let caller = match admission::authenticate(self, session, prefix, shape, keys, &mut entry).await {
            Ok(caller) => caller,
            Err(refusal) => return Err((entry, refusal.into())),
        };
        let wanted = match target {
            Target::Forward { operation, model } => {
                return admission::admit(self, session, live, caller, operation, model, entry)
                    .await
                    .map(Some);
            }
            Target::ListModels | Target::Hello => None,
            Target::ShowModel { model } => Some(model),
        };
        let query = session.req_header().uri.query();
        let is_off = |provider: &str| self.switches.is_off(provider);
        let reply = listing::reply(&live.catalogue, is_off, &caller.key, shape, wanted.as_deref(), query);
        reply::give(session, shape, entry, reply).await
    }
}

fn not_admitted() -> Box<Error> {
    Error::explain(ErrorType::InternalError, "a request that was not admitted")
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange::begin(self.live.get(), self.drain.enter())
    }

    // weir compresses nothing, so Pingora's compression module stays out.
    fn init_downstream_modules(&self, _modules: &mut pingora::modules::http::HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<()> {
        guard::immediate(self.metrics(), || {
            self.arrive(session, exchange);
            Ok(())
        })
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        guard::waiting(self.metrics(), self.handle(session, exchange)).await
    }

    async fn upstream_peer(&self, session: &mut Session, exchange: &mut Exchange) -> Result<Box<HttpPeer>> {
        let forward = exchange.forward().ok_or_else(not_admitted)?;
        upstream::pause(forward, &self.drain).await;
        guard::immediate(self.metrics(), || upstream::peer(self, session, forward))
    }

    async fn connected_to_upstream(
        &self,
        session: &mut Session,
        _reused: bool,
        _peer: &HttpPeer,
        _fd: std::os::unix::io::RawFd,
        digest: Option<&Digest>,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward().ok_or_else(not_admitted)?;
        guard::immediate(self.metrics(), || {
            upstream::connected(session, forward, digest, &self.drain);
            Ok(())
        })
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        head: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward().ok_or_else(not_admitted)?;
        guard::immediate(self.metrics(), || upstream::edit_head(forward, head))
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        piece: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward().ok_or_else(not_admitted)?;
        guard::immediate(self.metrics(), || upstream::send_body(session, forward, piece, end))
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        exchange: &mut Exchange,
        error: Box<Error>,
    ) -> Box<Error> {
        match exchange.forward() {
            Some(forward) => upstream::connect_failed(forward, error, &self.drain),
            None => error,
        }
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        exchange: &mut Exchange,
        reused: bool,
    ) -> Box<Error> {
        match exchange.forward() {
            Some(forward) => upstream::attempt_failed(session, forward, error, reused),
            None => error,
        }
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward().ok_or_else(not_admitted)?;
        guard::immediate(self.metrics(), || relay::accept_head(self.metrics(), forward, head))
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        keepalive::withdraw(session, &self.drain);
        let forward = exchange.forward().ok_or_else(not_admitted)?;
        guard::immediate(self.metrics(), || relay::edit_head(session, forward, head))
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        piece: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<Option<Duration>> {
        let forward = exchange.forward().ok_or_else(not_admitted)?;
        guard::immediate(self.metrics(), || {
            relay::pass(self.metrics(), forward, piece, end)?;
            forward.remember(&self.sessions, end);
            if end {
                forward.ticket.charge_now();
            }
            Ok(None)
        })
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, exchange: &mut Exchange) -> FailToProxy {
        keepalive::withdraw(session, &self.drain);
        reply::fail(session, error, exchange).await
    }

    async fn logging(&self, session: &mut Session, _error: Option<&Error>, exchange: &mut Exchange) {
        if let Some(forward) = exchange.forward() {
            error_answer::release(session, forward).await;
            forward.remember_rest(&self.sessions);
            forward.ticket.settle();
            if let Some(presence) = &forward.presence {
                presence.close(forward.ticket.meter.is_complete());
            }
        }
        if exchange.answered_whole {
            keepalive::park(session).await;
        }
    }

    // Pingora's lines quote what a provider sent and call a client that leaves an error: see `complaint`.

    fn suppress_error_log(&self, _session: &Session, _exchange: &Exchange, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _exchange: &Exchange,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    /// Method, path and request id only. The query may hold a key, and Pingora's default would put it into the error
    /// log.
    fn request_summary(&self, session: &Session, exchange: &Exchange) -> String {
        let head = session.req_header();
        format!("{} {}, {}", head.method, head.uri.path(), exchange.request_id)
    }
}
