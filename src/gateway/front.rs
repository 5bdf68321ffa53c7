//! Answers the requests that [`crate::front`] lets in, with Pingora's proxy.

use std::sync::Arc;

use pingora::{apps::HttpServerApp, server::ShutdownWatch, server::configuration::ServerConf};
use pingora_proxy::{HttpProxy, http_proxy};

use crate::{
    front::{
        guarded::ClientConnection,
        handler::{CheckedRequest, Handler},
    },
    gateway::{
        Gateway,
        client_stream::ClientStream,
        drain::{Drain, OpenConnection},
        parking::ConnectionParking,
    },
};

/// The gateway's state of one connection.
pub(crate) struct GatewayConnection {
    /// Holds the connection while the session of a failed request ends.
    parking: Arc<ConnectionParking>,
    #[expect(dead_code, reason = "held until the connection ends")]
    connected: OpenConnection,
}

/// The gateway behind its front.
pub(crate) struct GatewayHandler {
    proxy: Arc<HttpProxy<Gateway>>,
    drain: Drain,
}

impl GatewayHandler {
    /// Wraps Pingora's proxy for this gateway.
    pub(crate) fn new(conf: &Arc<ServerConf>, gateway: Gateway) -> Self {
        Self {
            drain: gateway.drain.clone(),
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
            connected: self.drain.connect(),
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
            // Pingora may drop a connection that can go on: then it is parked.
            let reused = answering.await.map(|reused| reused.consume().0);
            let stream = reused.or_else(|| visit.parking.take())?;
            stream.into_any().downcast::<ClientStream>().ok()?.into_connection()
        }
    }
}

#[cfg(test)]
mod tests {
    use pingora::protocols::Stream;

    use super::*;
    use crate::front::Front;

    /// The size of the future that `f` returns.
    fn future_size<A, F>(_: fn(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Each open connection has it, also one that waits for its next request.
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
