//! The gateway as a Pingora service that knows where it listens.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::{
    apps::HttpServerOptions,
    server::{Fds, ListenFds, ShutdownWatch, configuration::ServerConf},
    services::{Service, ServiceReadyNotifier, ServiceWithDependents},
};
use tokio::sync::watch;

use crate::{
    config::GatewayConfig,
    gateway::{Gateway, front::Front},
    side::service::{Bound, bind_or_inherit},
};

/// Listens for clients. Built before the server runs, so that a broken configuration is found in time.
pub struct GatewayService {
    settings: GatewayConfig,
    /// Turns true when it is to take nothing new, long before Pingora ends.
    closing: ShutdownWatch,
    service: pingora::services::listening::Service<Front>,
    bound: watch::Sender<Bound>,
}

impl GatewayService {
    /// The service, and the watch that tells where it listens.
    pub fn new(conf: &Arc<ServerConf>, gateway: Gateway) -> (Self, watch::Receiver<Bound>) {
        let settings = gateway.live.get().config.gateway.clone();
        let closing = gateway.drain.closing();
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        options.h2_idle_timeout = Some(settings.keepalive);
        let front = Front::new(conf, gateway, options);
        let service = pingora::services::listening::Service::new("gateway".to_owned(), front);
        let (bound, watch) = watch::channel(Bound::Waiting);
        (
            Self {
                settings,
                closing,
                service,
                bound,
            },
            watch,
        )
    }
}

#[async_trait]
impl ServiceWithDependents for GatewayService {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        _shutdown: ShutdownWatch,
        listeners_per_fd: usize,
        ready: ServiceReadyNotifier,
    ) {
        let fds = fds.unwrap_or_else(|| Arc::new(Fds::new().into()));
        let address = match bind_or_inherit(self.settings.listen, &fds) {
            Ok(address) => address,
            Err(error) => {
                let listen = self.settings.listen;
                let reason = format!("{listen}: {error}; free the address or configure another one");
                self.bound.send_replace(Bound::Failed(reason));
                return;
            }
        };
        self.service.add_tcp(&address.to_string());
        tracing::info!(service = "gateway", at = %address, "listening");
        self.bound.send_replace(Bound::Tcp(address));
        ready.notify_ready();
        let closing = self.closing.clone();
        Service::start_service(&mut self.service, Some(fds), closing, listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        "gateway"
    }

    fn threads(&self) -> Option<usize> {
        Some(self.settings.threads)
    }
}
