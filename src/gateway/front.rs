//! Accepts clients' connections and wraps each before Pingora's parsers get it.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::{
    apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp},
    protocols::{Stream, http::ServerSession},
    server::{ShutdownWatch, configuration::ServerConf},
};
use pingora_proxy::{HttpProxy, http_proxy};

use crate::gateway::{Gateway, client_stream::ClientStream, drain::Drain, keepalive::Parking};

/// The application that the listening service passes connections to.
pub struct Front {
    proxy: Arc<HttpProxy<Gateway>>,
    drain: Drain,
}

impl Front {
    /// Wraps Pingora's proxy for this gateway.
    pub fn new(conf: &Arc<ServerConf>, gateway: Gateway, options: HttpServerOptions) -> Self {
        let drain = gateway.drain.clone();
        let mut proxy = http_proxy(conf, gateway);
        proxy.server_options = Some(options);
        Self {
            proxy: Arc::new(proxy),
            drain,
        }
    }
}

#[async_trait]
impl ServerApp for Front {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let _connected = self.drain.connect();
        let parking = Arc::new(Parking::default());
        let stream = Box::new(ClientStream::new(stream, parking.sign(), shutdown.clone()));
        let left = self.proxy.process_new(stream, shutdown).await;
        // Pingora is done with the connection, but a parked one can go on. Only HTTP/1.1 connections are parked.
        let mut next = parking.take();
        while let Some((stream, settings)) = next.map(ReusedHttpStream::consume) {
            let mut session = ServerSession::new_http1(stream);
            if let Some(settings) = settings {
                settings.apply_to_session(&mut session);
            }
            let reused = self.proxy.process_new_http(session, shutdown).await;
            next = reused.or_else(|| parking.take());
        }
        left
    }

    async fn cleanup(&self) {
        self.proxy.cleanup().await;
    }
}
