//! Takes clients' connections: every one is wrapped before Pingora's parsers get it.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::{
    apps::{HttpServerOptions, ServerApp},
    protocols::Stream,
    server::{ShutdownWatch, configuration::ServerConf},
};
use pingora_proxy::{HttpProxy, http_proxy};

use crate::gateway::{Gateway, client_stream::ClientStream, drain::Drain};

/// The application that the listening service hands connections to.
pub struct Front {
    proxy: Arc<HttpProxy<Gateway>>,
    drain: Drain,
}

impl Front {
    /// In front of the gateway.
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
        let stream = Box::new(ClientStream::new(stream, shutdown.clone()));
        self.proxy.process_new(stream, shutdown).await
    }

    async fn cleanup(&self) {
        self.proxy.cleanup().await;
    }
}
