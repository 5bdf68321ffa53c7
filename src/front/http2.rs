//! Configures and serves one client's HTTP/2 connection, and ends it after `requests_max` requests.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use h2::ext::PathFragment;
use pingora::{
    apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp},
    protocols::http::{
        ServerSession,
        v2::server::{H2Options, default_h2_options},
    },
    server::ShutdownWatch,
};
use tokio::sync::watch;

use crate::{
    config::Config,
    domain::{faults::refusal::Refusal, wire::http1::head::HeadFault},
    edges::connection_slots::ConnectionSlot,
    front::{connection::ClientConnection, head_reader},
    telemetry::metrics::{CloseReason, ListenerFigures},
};

/// The number of bytes that HTTP/2 adds for each field when it measures a header list (RFC 9113 section 6.5.2).
const FIELD_OVERHEAD_BYTES: usize = 32;

/// The limits of an HTTP/2 connection.
pub(crate) struct Http2Settings {
    options: H2Options,
    server: HttpServerOptions,
    requests_max: u32,
}

impl Http2Settings {
    pub(crate) fn new(config: &Config) -> Self {
        let (gateway, connections) = (&config.gateway, &config.connections);
        let mut options = default_h2_options();
        // Large enough for all heads within the gateway's limits, so that the gateway itself refuses larger heads.
        let list = gateway.header_bytes_max + gateway.header_count_max * FIELD_OVERHEAD_BYTES;
        options.max_header_list_size(u32::try_from(list).unwrap_or(u32::MAX));
        options.max_concurrent_streams(connections.h2_streams_max);
        options.max_pending_accept_reset_streams(connections.h2_resets_max);
        let mut server = HttpServerOptions::default();
        server.h2c = true;
        server.h2_idle_timeout = Some(gateway.keepalive);
        Self {
            options,
            server,
            requests_max: connections.requests_max,
        }
    }
}

/// Pingora's application for one HTTP/2 connection.
struct Http2App<A> {
    app: Arc<A>,
    settings: Http2Settings,
    figures: ListenerFigures,
    /// The connection's slot, which the connection may have to give up while it carries no request; `None` if the connection
    /// never gives way.
    slot: Option<Arc<ConnectionSlot>>,
    requests: AtomicU32,
    /// Becomes true when the connection accepts no further requests. Pingora then sends GOAWAY.
    end: watch::Sender<bool>,
}

/// Serves an HTTP/2 connection until it ends. The connection's preface has already arrived.
pub(crate) async fn serve<A>(
    app: &Arc<A>,
    connection: Box<ClientConnection>,
    settings: Http2Settings,
    mut closing: ShutdownWatch,
) where
    A: HttpServerApp + Send + Sync + 'static,
{
    let end = watch::Sender::new(false);
    let told = end.subscribe();
    let served = Arc::new(Http2App {
        app: Arc::clone(app),
        settings,
        figures: connection.figures().clone(),
        slot: connection.slot().cloned(),
        requests: AtomicU32::new(0),
        end,
    });
    let mut serving = std::pin::pin!(served.process_new(connection, &told));
    tokio::select! {
        _ = &mut serving => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    served.end.send_replace(true);
    serving.await;
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> HttpServerApp for Http2App<A> {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        if before + 1 == self.settings.requests_max {
            self.figures.record_close(CloseReason::Requests);
            self.end.send_replace(true);
        }
        if session.req_header().extensions.get::<PathFragment>().is_some() {
            // Over HTTP/1.1, `domain/wire/http1/head.rs` refuses a head with such a target.
            head_reader::refuse_http2(session, &Refusal::HeadInvalid(HeadFault::Target)).await;
            return None;
        }
        let _request = self.slot.as_ref().map(ConnectionSlot::begin_request);
        self.app.process_new_http(session, shutdown).await
    }

    fn h2_options(&self) -> Option<H2Options> {
        Some(self.settings.options.clone())
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.settings.server)
    }
}
