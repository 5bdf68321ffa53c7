//! Takes clients' connections: every one is wrapped before Pingora's parsers get it.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::{
    apps::{HttpServerOptions, ServerApp},
    protocols::Stream,
    server::{ShutdownWatch, configuration::ServerConf},
};
use pingora_proxy::{HttpProxy, http_proxy};

use crate::gateway::{Gateway, client_stream::ClientStream};

/// The application that the listening service hands connections to.
pub struct Front {
    proxy: Arc<HttpProxy<Gateway>>,
}

impl Front {
    /// In front of the gateway.
    pub fn new(conf: &Arc<ServerConf>, gateway: Gateway, options: HttpServerOptions) -> Self {
        let mut proxy = http_proxy(conf, gateway);
        proxy.server_options = Some(options);
        Self { proxy: Arc::new(proxy) }
    }
}

#[async_trait]
impl ServerApp for Front {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let stream = Box::new(ClientStream::new(stream));
        self.proxy.process_new(stream, shutdown).await
    }

    async fn cleanup(&self) {
        self.proxy.cleanup().await;
    }
}
