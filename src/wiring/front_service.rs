//! The listeners for clients as Pingora services that report their addresses: the listeners of the gateway, the public stability
//! service and the console, and the listener that redirects from plain HTTP to HTTPS.

use std::{
    net::{SocketAddr, TcpListener},
    os::fd::IntoRawFd,
    sync::Arc,
};

use async_trait::async_trait;
use ipnet::IpNet;
use pingora::{
    listeners::{L4BufferSettings, ListenerConfig},
    server::{Fds, ListenFds, ShutdownWatch, configuration::ServerConf},
    services::{Service, ServiceReadyNotifier, ServiceWithDependents},
};
use tokio::sync::watch;

use crate::{
    console::{ConsoleHandler, portal::Portal},
    edges::low_priority,
    front::{Front, Handler, Layers, head_budget::HeadBudget, permits::ConnectionPermits},
    gateway::{GatewayHandler, reply::own_usage::LastRows},
    providers::CurrentConfig,
    side::{
        PublicHandler,
        service::{BoundAddress, RedirectHandler, bind_or_inherit},
    },
    telemetry::metrics::ListenerFigures,
    wiring::{
        StartError,
        listeners::{CONSOLE, GATEWAY, ListeningSockets, REDIRECT, STABILITY},
        parts::NodeParts,
        process::Descriptors,
    },
};

/// A listener for clients. It is built before the server runs, so errors in the configuration are found before requests arrive.
pub(crate) struct FrontService<H> {
    name: &'static str,
    listen: SocketAddr,
    /// The listening socket of the service. `None` if the service uses the socket in Pingora's table.
    socket: Option<TcpListener>,
    /// Whether the service's thread has low priority.
    gives_way: bool,
    /// Turns true when the service must accept no further connections. `None` if it accepts them until Pingora stops.
    closing: Option<ShutdownWatch>,
    service: pingora::services::listening::Service<Front<H>>,
    bound: watch::Sender<BoundAddress>,
}

/// Builds the gateway's workers, and returns them with the receiver of their address. Each worker has its own thread, scheduler
/// and connections to providers, so events of one thread never wake another thread.
///
/// # Errors
/// No file descriptors are left.
pub(super) fn gateway(
    conf: &Arc<ServerConf>,
    parts: &NodeParts,
    (portal, last_rows): (Option<Arc<Portal>>, Arc<dyn LastRows>),
    listeners: &ListeningSockets,
) -> Result<(Vec<FrontService<GatewayHandler>>, watch::Receiver<BoundAddress>), StartError> {
    let settings = &parts.config.gateway;
    let wanted = parts.config.connections.max;
    let connections_max = Descriptors::share(&parts.config).clients;
    if connections_max < wanted {
        tracing::info!(
            connections_max,
            "the limit of open files allows fewer connections than [connections] max: raise the limit (LimitNOFILE=, ulimit -n)"
        );
    }
    let layers = Layers {
        announced_by: settings.proxy_protocol_from.clone(),
        tls: parts.tls.gateway.clone(),
    };
    let gateway = parts.gateway(portal, last_rows);
    let handler = || GatewayHandler::new(conf, gateway.clone());
    let fronts = FrontParts::new("gateway", (ConnectionPermits::fixed, connections_max), layers, parts);
    let listen = listeners.address(GATEWAY, settings.listen);
    let worker = |socket| {
        let (mut service, bound) = FrontService::new(GATEWAY, listen, fronts.front(handler()));
        service.socket = socket;
        service.closing = Some(parts.drain.closing());
        (service, bound)
    };
    let (first, bound) = worker(None);
    let mut workers = vec![first];
    for _ in 1..settings.threads {
        workers.push(worker(Some(listeners.duplicate_socket(GATEWAY)?)).0);
    }
    Ok((workers, bound))
}

/// Builds the listener of the public stability service, and returns it with the receiver of its address.
pub(super) fn stability(
    parts: &NodeParts,
    listeners: &ListeningSockets,
    closing: ShutdownWatch,
) -> (FrontService<PublicHandler>, watch::Receiver<BoundAddress>) {
    let handler = PublicHandler::new(Arc::clone(&parts.public), Arc::clone(parts.money.billing.time()));
    let layers = Layers {
        announced_by: parts.config.stability.proxy_protocol_from.clone(),
        tls: parts.tls.stability.clone(),
    };
    let connections_max = Descriptors::share(&parts.config).stability;
    let front = FrontParts::new(
        "stability",
        (ConnectionPermits::revocable, connections_max),
        layers,
        parts,
    )
    .front(handler);
    let listen = listeners.address(STABILITY, parts.config.stability.listen);
    let (mut service, bound) = FrontService::new(STABILITY, listen, front);
    service.closing = Some(closing);
    (service, bound)
}

/// Builds the listener that redirects to the HTTPS address of `gateway`, and returns it with the receiver of its own address.
/// `None` if the redirect is not configured.
pub(super) fn redirect(
    parts: &NodeParts,
    gateway: watch::Receiver<BoundAddress>,
    listeners: &ListeningSockets,
    closing: ShutdownWatch,
) -> Option<(FrontService<RedirectHandler>, watch::Receiver<BoundAddress>)> {
    let settings = &parts.config.gateway;
    let listen = listeners.address(REDIRECT, settings.tls.redirect_listen?);
    let handler = RedirectHandler::new(parts.tls.gateway.clone()?, gateway);
    let layers = Layers {
        announced_by: settings.proxy_protocol_from.clone(),
        tls: None,
    };
    let connections_max = Descriptors::share(&parts.config).redirect;
    let front = FrontParts::new(
        "redirect",
        (ConnectionPermits::revocable, connections_max),
        layers,
        parts,
    )
    .front(handler);
    let (mut service, bound) = FrontService::new(REDIRECT, listen, front);
    service.closing = Some(closing);
    Some((service, bound))
}

/// Builds the listener of the console, and returns it with the receiver of its address.
pub(super) fn console(
    parts: &NodeParts,
    listen: SocketAddr,
    handler: ConsoleHandler,
    layers: Layers,
    closing: ShutdownWatch,
) -> (FrontService<ConsoleHandler>, watch::Receiver<BoundAddress>) {
    let connections_max = Descriptors::share(&parts.config).console;
    let front = FrontParts::new(
        "console",
        (ConnectionPermits::revocable, connections_max),
        layers,
        parts,
    )
    .front(handler);
    let (mut service, bound) = FrontService::new(CONSOLE, listen, front);
    // The thread has low priority, because pages of the console must not delay requests.
    service.gives_way = true;
    service.closing = Some(closing);
    (service, bound)
}

/// A function that creates a listener's connection permits. Its parameters are the number of permits, the maximum for one client
/// address, and the networks that are exempt from that maximum.
type MakeSlots = fn(usize, usize, Vec<IpNet>) -> Arc<ConnectionPermits>;

/// The state that all workers of one listener share.
struct FrontParts {
    live: Arc<CurrentConfig>,
    places: Arc<ConnectionPermits>,
    heads: HeadBudget,
    layers: Arc<Layers>,
    figures: ListenerFigures,
}

impl FrontParts {
    /// Creates the state of a listener with `connections_max` connection permits, which `places` creates.
    fn new(
        name: &'static str,
        (places, connections_max): (MakeSlots, usize),
        layers: Layers,
        parts: &NodeParts,
    ) -> Self {
        let config = &parts.config;
        // One client address can never get all permits.
        let per_address_max = config.connections.per_address_max.min(connections_max.div_ceil(2));
        let trusted = config.stability.trusted_proxies.clone();
        Self {
            live: Arc::clone(&parts.live),
            places: places(connections_max, per_address_max, trusted),
            heads: parts.heads.clone(),
            layers: Arc::new(layers),
            figures: parts.sinks.metrics.listener(name),
        }
    }

    fn front<H: Handler>(&self, handler: H) -> Front<H> {
        let (live, places) = (Arc::clone(&self.live), Arc::clone(&self.places));
        Front::new(
            handler,
            live,
            (places, self.heads.clone()),
            Arc::clone(&self.layers) as _,
            self.figures.clone(),
        )
    }
}

impl<H: Handler> FrontService<H> {
    fn new(name: &'static str, listen: SocketAddr, front: Front<H>) -> (Self, watch::Receiver<BoundAddress>) {
        let service = pingora::services::listening::Service::new(name.to_owned(), front);
        let (bound, watch) = watch::channel(BoundAddress::Waiting);
        let service = Self {
            name,
            listen,
            socket: None,
            gives_way: false,
            closing: None,
            service,
            bound,
        };
        (service, watch)
    }
}

#[async_trait]
impl<H: Handler> ServiceWithDependents for FrontService<H> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
        ready: ServiceReadyNotifier,
    ) {
        if self.gives_way {
            low_priority::lower_this_thread();
        }
        let is_first = self.socket.is_none();
        let fds = fds.filter(|_| is_first).unwrap_or_else(|| Arc::new(Fds::new().into()));
        if let Some(socket) = self.socket.take() {
            // Pingora's table owns the descriptor from now on.
            fds.lock().add(self.listen.to_string(), socket.into_raw_fd());
        }
        let address = match bind_or_inherit(self.listen, &fds) {
            Ok(address) => address,
            Err(error) => {
                let listen = self.listen;
                let reason = format!("{listen}: {error}; free the address, or configure another address");
                self.bound.send_replace(BoundAddress::Failed(reason));
                return;
            }
        };
        // The connection has no read buffer: bytes are processed as they are read, and buffers of idle connections would waste
        // memory.
        let buffers = L4BufferSettings::default().read(0);
        self.service
            .add_listener(ListenerConfig::tcp(address.to_string()).l4_buffer(buffers));
        if is_first {
            tracing::info!(service = %self.name, at = %address, "listening");
        }
        self.bound.send_replace(BoundAddress::Tcp(address));
        ready.notify_ready();
        let closing = self.closing.clone().unwrap_or(shutdown);
        Service::start_service(&mut self.service, Some(fds), closing, listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        self.name
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }

    /// Returns the addresses that must stay open while Pingora hands over to a new process.
    fn listen_addresses(&self) -> Option<Vec<String>> {
        Some(vec![self.listen.to_string()])
    }
}
