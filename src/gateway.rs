//! The gateway: Pingora's hooks, each a few lines that call one function. ARCHITECTURE.md walks one request through.

pub mod admission;
pub mod attempts;
pub mod beside;
pub mod body;
pub mod broken_off;
pub mod client_h2;
pub mod client_stream;
pub mod coding;
pub mod complaint;
pub mod connector;
pub mod deadline;
pub mod doubtful;
pub mod drain;
pub mod entry;
pub mod error_answer;
pub mod estimate;
pub mod exchange;
pub mod front;
pub mod funds;
pub mod gate;
pub mod guard;
pub mod held;
pub mod hello;
pub mod intake;
pub mod keepalive;
pub mod key_slots;
pub mod lately;
pub mod listing;
pub mod owner;
pub mod peer;
pub mod permits;
pub mod presence;
pub mod published;
pub mod redirect;
pub mod relay;
pub mod reply;
pub mod spend_limit;
pub mod state;
pub mod ticket;
pub mod unpacked;
pub mod unseen;
pub mod upstream;
pub mod verdict;

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
        body::GatherError,
        drain::Drain,
        entry::{Entry, Sinks},
        exchange::{Exchange, Forward, Stage},
        intake::QueryKeys,
        key_slots::KeySlots,
        lately::Lately,
    },
    key_cache::KeyCache,
    live::{Live, LiveCell},
    metrics::Metrics,
    public::Public,
    sessions::Sessions,
    switches::Switches,
    usual::Learnt,
};

/// Everything a request needs, shared by all of them.
#[derive(Debug)]
pub struct Gateway {
    /// Configuration, catalogue and what is known of the providers; replaced by a reload.
    pub live: Arc<LiveCell>,
    /// Providers that an operator has switched off.
    pub switches: Arc<Switches>,
    /// The keys, through the local cache.
    pub keys: Arc<KeyCache>,
    /// The peers whose `X-Forwarded-For` says who asks.
    pub trusted_proxies: Vec<IpNet>,
    /// Whose state at a provider is, and who serves it.
    pub sessions: Arc<Sessions>,
    /// What was learnt of models and keys from finished requests.
    pub learnt: Arc<Learnt>,
    /// The money of requests.
    pub billing: Billing,
    /// Memory for request bodies.
    pub budget: BodyBudget,
    /// What anybody may read without a key.
    pub public: Arc<Public>,
    /// Metrics and access log.
    pub sinks: Arc<Sinks>,
    /// Counts what runs.
    pub drain: Drain,
    /// Places for answers that are read to their end although their clients have left.
    pub finishing: Arc<Semaphore>,
    /// Who counts tokens, and how often at once.
    pub count_slots: KeySlots,
    /// Keys that were refused a moment ago.
    pub lately: Lately,
}

impl Gateway {
    fn metrics(&self) -> &Metrics {
        &self.sinks.metrics
    }

    /// The head is here: limits for this connection, a record, no key in the query any more.
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

    /// Reads and checks the request. True when it has been answered here.
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

    /// Method and path only: the query may hold a key, and the default would put it into the error log.
    fn request_summary(&self, session: &Session, exchange: &Exchange) -> String {
        let head = session.req_header();
        format!("{} {}, {}", head.method, head.uri.path(), exchange.request_id)
    }
}
