//! The gateway: implements Pingora's hooks. Each hook is a few lines that call a function of a module below. ARCHITECTURE.md
//! follows one request through the hooks.

pub(crate) mod admission;
pub(crate) mod answer;
pub(crate) mod attempt;
pub(crate) mod caller;
pub(crate) mod client;
pub(crate) mod client_h2;
pub(crate) mod client_stream;
pub(crate) mod coding;
pub(crate) mod conversations;
pub(crate) mod drain;
pub(crate) mod end;
pub(crate) mod exchange;
pub(crate) mod forward;
pub(crate) mod handshake;
pub(crate) mod held_head;
pub(crate) mod key_slots;
pub(crate) mod lines;
pub(crate) mod log_entry;
pub(crate) mod meter;
pub(crate) mod outlet;
pub(crate) mod parts;
pub(crate) mod presence;
pub(crate) mod provider_state;
pub(crate) mod receive;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod socket;
pub(crate) mod ticket;
pub(crate) mod turn_link;
pub(crate) mod upstream;
pub(crate) mod usage_estimate;

use std::{any::Any, future::Future, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use http::HeaderMap;
use pingora::{
    Error, ErrorType, Result,
    apps::HttpServerApp,
    http::{RequestHeader, ResponseHeader},
    protocols::Digest,
    server::{ShutdownWatch, configuration::ServerConf},
    upstreams::peer::HttpPeer,
};
use pingora_proxy::{FailToProxy, HttpProxy, ProxyHttp, ProxyWarnLogContext, Session, http_proxy};

use crate::{
    front::{CheckedRequest, Handler, connection::ClientConnection},
    gateway::{
        client_stream::{ClientStream, ConnectionParking},
        drain::OpenConnection,
        exchange::Exchange,
        lines::LineHost,
        socket::SocketHost,
        upstream::{connect, line_peer},
    },
    telemetry::metrics::Metrics,
};

pub(crate) use self::parts::{Gateway, GatewayLimits, LocalServices};

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Exchange;

    fn new_ctx(&self) -> Exchange {
        Exchange::begin(self.live.get(), &self.reporters, self.drain.enter())
    }

    // weir does not compress answers, so it leaves out Pingora's compression module.
    fn init_downstream_modules(&self, _modules: &mut pingora::modules::http::HttpModules) {}

    async fn early_request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<()> {
        catch_panic(self.metrics(), || {
            receive::receive_head(self, session, exchange);
            Ok(())
        })
    }

    async fn request_filter(&self, session: &mut Session, exchange: &mut Exchange) -> Result<bool> {
        // Pinned here, because moving such a large future would copy it.
        let handled = pin!(receive::respond(self, session, exchange));
        catch_async_panic(self.metrics(), handled).await
    }

    async fn upstream_peer(&self, session: &mut Session, exchange: &mut Exchange) -> Result<Box<HttpPeer>> {
        let forward = exchange.forward()?;
        connect::pause(forward, &self.drain).await;
        let chosen = catch_panic(self.metrics(), || connect::choose_peer(self, session, forward))?;
        catch_async_panic(self.metrics(), line_peer::connect(chosen)).await
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
        catch_panic(self.metrics(), || {
            connect::on_connected(session, forward, digest, &self.limits.deadlines);
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
        catch_panic(self.metrics(), || upstream::head(forward, head))
    }

    async fn request_body_filter(
        &self,
        session: &mut Session,
        piece: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward()?;
        catch_panic(self.metrics(), || upstream::body(session, forward, piece, end))
    }

    fn fail_to_connect(
        &self,
        session: &mut Session,
        _peer: &HttpPeer,
        exchange: &mut Exchange,
        error: Box<Error>,
    ) -> Box<Error> {
        match exchange.forward() {
            Ok(forward) => connect::on_connect_failed(self, session, forward, error),
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
            Ok(forward) => end::on_attempt_failed(self.metrics(), session, forward, error, reused),
            Err(_) => error,
        }
    }

    async fn adjust_upstream_modules(
        &self,
        _session: &mut Session,
        head: &ResponseHeader,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<()> {
        // Only this hook gets `end`, which says whether the answer consists of its head.
        let attempt = &mut exchange.forward()?.attempt;
        attempt.set_bodiless(end && !head.status.is_informational());
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        let forward = exchange.forward()?;
        catch_panic(self.metrics(), || answer::accept(self.metrics(), forward, head))
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        head: &mut ResponseHeader,
        exchange: &mut Exchange,
    ) -> Result<()> {
        client_stream::withdraw_keepalive(session, &self.drain);
        let forward = exchange.forward()?;
        catch_panic(self.metrics(), || answer::prepare(session, forward, head))
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        piece: &mut Option<Bytes>,
        end: bool,
        exchange: &mut Exchange,
    ) -> Result<Option<Duration>> {
        let forward = exchange.forward()?;
        catch_panic(self.metrics(), || {
            answer::body::pass(self, session, forward, piece, end)
        })?;
        Ok(None)
    }

    /// Handles the trailers that end an answer over HTTP/2. The client gets the end of the body, but no trailers.
    async fn response_trailer_filter(
        &self,
        session: &mut Session,
        _trailers: &mut HeaderMap,
        exchange: &mut Exchange,
    ) -> Result<Option<Bytes>> {
        let mut piece = None;
        self.response_body_filter(session, &mut piece, true, exchange)?;
        Ok(Some(piece.unwrap_or_default()))
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, exchange: &mut Exchange) -> FailToProxy {
        client_stream::withdraw_keepalive(session, &self.drain);
        FailToProxy {
            error_code: end::fail(&self.sessions, session, error, exchange).await,
            // Pingora reads this value after some failures only; the session's keep-alive setting covers all of them.
            can_reuse_downstream: false,
        }
    }

    async fn logging(&self, session: &mut Session, _error: Option<&Error>, exchange: &mut Exchange) {
        end::finish(&self.sessions, session, exchange).await;
    }

    // Pingora's own log lines are switched off, because they quote providers and report a disconnected client as an error.
    // `log_entry` writes weir's lines.

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

    /// Describes a request by its method, path and request id only. The query may contain a key, and Pingora's default would
    /// write the query to the error log.
    fn request_summary(&self, session: &Session, exchange: &Exchange) -> String {
        let head = session.req_header();
        format!("{} {}, {}", head.method, head.uri.path(), exchange.request_id)
    }
}

/// The gateway's data about one client connection.
pub(crate) struct GatewayConnection {
    /// Keeps the connection while the session of a failed request ends.
    parking: Arc<ConnectionParking>,
    #[expect(dead_code, reason = "held until the connection ends")]
    connected: OpenConnection,
}

/// The gateway as the [`Handler`] of the connections that the front accepts.
pub(crate) struct GatewayHandler {
    proxy: Arc<HttpProxy<Gateway>>,
    /// The gateway that `proxy` runs. WebSockets use it directly.
    gateway: Gateway,
    lines: Arc<LineHost>,
}

impl GatewayHandler {
    /// Wraps Pingora's proxy for this gateway.
    pub(crate) fn new(conf: &Arc<ServerConf>, gateway: Gateway) -> Self {
        let refusals = Arc::clone(&gateway.limits.line_refusals);
        let reporting = (Arc::clone(&gateway.reporters.metrics), gateway.drain.clone());
        Self {
            gateway: gateway.clone(),
            lines: Arc::new(LineHost::new(conf, refusals, reporting)),
            proxy: Arc::new(http_proxy(conf, gateway)),
        }
    }
}

impl Handler for GatewayHandler {
    type App = HttpProxy<Gateway>;
    type Visit = GatewayConnection;

    fn app(&self) -> &Arc<HttpProxy<Gateway>> {
        &self.proxy
    }

    fn on_connection(&self) -> GatewayConnection {
        GatewayConnection {
            parking: Arc::default(),
            connected: self.gateway.drain.connect(),
        }
    }

    fn request<'a>(
        &'a self,
        visit: &'a GatewayConnection,
        arrived: CheckedRequest,
        over: Box<ClientConnection>,
        shutdown: &'a ShutdownWatch,
    ) -> impl Future<Output = Option<Box<ClientConnection>>> + Send {
        let stream = ClientStream::new(over, visit.parking.weak());
        let answering = self.proxy.process_new_http(arrived.session(Box::new(stream)), shutdown);
        async move {
            // If Pingora drops a connection that can carry further requests, `park_connection` has saved it.
            let reused = answering.await.map(|reused| reused.consume().0);
            let stream = reused.or_else(|| visit.parking.take())?;
            let connection = stream.into_any().downcast::<ClientStream>().ok()?.into_connection()?;
            let Some(handshake) = visit.parking.take_handshake() else {
                return Some(connection);
            };
            let host = SocketHost {
                proxy: &self.proxy,
                gateway: &self.gateway,
                lines: &self.lines,
            };
            // Boxed: otherwise the future of every connection would reserve memory for the few that become sockets.
            Box::pin(socket::serve(host, connection, handshake, shutdown)).await;
            None
        }
    }
}

/// Pingora's error type for a panic that weir has caught.
pub(crate) const PANICKED: ErrorType = ErrorType::Custom(log_entry::PANICKED);

/// Runs an async hook and turns a panic into an error, so that the panic ends one request instead of the process.
pub(crate) async fn catch_async_panic<T>(metrics: &Metrics, hook: impl Future<Output = Result<T>>) -> Result<T> {
    // The request's state may be inconsistent after a panic, so it is only used to answer and to settle.
    match AssertUnwindSafe(hook).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(record_panic(metrics, &panic)),
    }
}

/// Runs a synchronous hook and turns a panic into an error, so that the panic ends one request instead of the process.
pub(crate) fn catch_panic<T>(metrics: &Metrics, hook: impl FnOnce() -> Result<T>) -> Result<T> {
    match std::panic::catch_unwind(AssertUnwindSafe(hook)) {
        Ok(result) => result,
        Err(panic) => Err(record_panic(metrics, &panic)),
    }
}

/// Counts the panic and returns Pingora's error for it. The panic's message is not logged, because it may quote a request; the
/// panic hook logs where the panic happened.
fn record_panic(metrics: &Metrics, _panic: &Box<dyn Any + Send>) -> Box<Error> {
    metrics.program.panics.inc();
    Error::new_in(PANICKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that `f` returns.
    fn future_size<A, F>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_request_carries_is_small() {
        type Arriving<'a> = (&'a Gateway, &'a mut Session, &'a mut Exchange);
        let handle =
            future_size(|(gateway, session, exchange): Arriving<'static>| receive::respond(gateway, session, exchange));
        let (context, stage) = (size_of::<Exchange>(), size_of::<forward::Forward>());
        println!("context {context}, boxed stage {stage}, future of request_filter {handle} bytes");
        assert!(context <= 72 && stage <= 4352 && handle <= 6144);
    }
}

#[cfg(test)]
mod front_tests {
    use pingora::protocols::Stream;

    use super::*;
    use crate::front::Front;

    /// The size of the future that `f` returns.
    fn future_size<A, F>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Every open connection occupies this memory, even while it waits for its next request.
    #[test]
    fn what_a_connection_carries_is_small() {
        type Visit = <GatewayHandler as Handler>::Visit;
        type Accepted = (
            &'static Front<GatewayHandler>,
            &'static Visit,
            Stream,
            &'static ShutdownWatch,
        );
        let keep =
            future_size(|(front, visit, stream, shutdown): Accepted| front.serve_connection(visit, stream, shutdown));
        assert!(keep <= 2432, "{keep}");
    }
}
