//! The gateway: Pingora's hooks. Each hook is a few lines that call one function of a module below. ARCHITECTURE.md
//! follows one request through them.

pub mod admission;
pub mod answer;
pub mod arrival;
pub mod attempt;
pub mod client_h2;
pub mod client_stream;
pub mod coding;
pub mod drain;
pub mod end;
pub mod entry;
pub mod estimate;
pub mod exchange;
pub mod failure_log;
pub mod forward;
pub mod front;
pub mod gate;
pub mod keepalive;
pub mod panics;
pub mod parts;
pub mod peer;
pub mod presence;
pub mod recipient;
pub mod reply;
pub mod request;
pub mod ticket;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::{
    Error, Result,
    http::{RequestHeader, ResponseHeader},
    protocols::Digest,
    upstreams::peer::HttpPeer,
};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};

pub use self::parts::Gateway;
use self::{
    attempt::{connect, failure},
    exchange::Exchange,
};

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange::begin(self.live.get(), &self.sinks, self.drain.enter())
    }

    // weir compresses nothing, so Pingora's compression module stays out.
    fn init_downstream_modules(&self, _modules: &mut pingora::modules::http::HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<()> {
        panics::immediate(self.metrics(), || {
            arrival::arrive(self, session, exchange);
            Ok(())
        })
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        panics::waiting(self.metrics(), arrival::handle(self, session, exchange)).await
    }

    async fn upstream_peer(&self, session: &mut Session, exchange: &mut Exchange) -> Result<Box<HttpPeer>> {
        let forward = exchange.forward()?;
        connect::pause(forward, &self.drain).await;
        panics::immediate(self.metrics(), || connect::peer(self, session, forward))
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
        let forward = exchange.forward()?;
        panics::immediate(self.metrics(), || {
            connect::connected(session, forward, digest, &self.drain);
            Ok(())
        })
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        head: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward()?;
        panics::immediate(self.metrics(), || attempt::head::edit(forward, head))
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        piece: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward()?;
        panics::immediate(self.metrics(), || attempt::body::send(session, forward, piece, end))
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        exchange: &mut Exchange,
        error: Box<Error>,
    ) -> Box<Error> {
        match exchange.forward() {
            Ok(forward) => connect::failed(forward, error, &self.drain),
            Err(_) => error,
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
            Ok(forward) => failure::decide(session, forward, error, reused),
            Err(_) => error,
        }
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward()?;
        panics::immediate(self.metrics(), || answer::head::accept(self.metrics(), forward, head))
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        keepalive::withdraw(session, &self.drain);
        let forward = exchange.forward()?;
        panics::immediate(self.metrics(), || answer::head::pass(session, forward, head))
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        piece: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<Option<Duration>> {
        let forward = exchange.forward()?;
        panics::immediate(self.metrics(), || {
            answer::body::pass(self.metrics(), forward, piece, end)?;
            forward.remember(&self.sessions, end);
            if end {
                forward.ticket.charge_now();
            }
            Ok(None)
        })
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, exchange: &mut Exchange) -> FailToProxy {
        keepalive::withdraw(session, &self.drain);
        FailToProxy {
            error_code: end::fail(&self.sessions, session, error, exchange).await,
            // Pingora uses this for some failures only; `keepalive` handles all of them.
            can_reuse_downstream: false,
        }
    }

    async fn logging(&self, session: &mut Session, _error: Option<&Error>, exchange: &mut Exchange) {
        end::finish(&self.sessions, session, exchange).await;
    }

    // Pingora's lines quote what a provider sent and call a client that leaves an error: see `failure_log`.

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
