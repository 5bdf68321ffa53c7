//! A listener for clients as a Pingora service that knows where it listens: the gateway's, the public stability service's,
//! the console's, and the one that sends clients from the plain port to the one with TLS.

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
    console::{listener::ConsoleHandler, portal::Portal},
    edges::low_priority,
    front::{Front, handler::Handler, head_budget::HeadBudget, layers::Layers, places::Places},
    gateway::{front::GatewayHandler, reply::own_usage::LastRows},
    providers::live::LiveCell,
    side::{
        public::PublicHandler,
        redirect::RedirectHandler,
        service::{Bound, bind_or_inherit},
    },
    telemetry::metrics::ListenerFigures,
    wiring::{
        StartError,
        descriptors::Descriptors,
        listeners::{CONSOLE, GATEWAY, Listeners, REDIRECT, STABILITY},
        parts::Parts,
    },
};

/// Listens for clients. Built before the server runs, so that a broken configuration is found in time.
pub(crate) struct FrontService<H> {
    name: &'static str,
    listen: SocketAddr,
    /// The socket it accepts at; `None`: the one in Pingora's table.
    socket: Option<TcpListener>,
    /// Whether its thread leaves the processors to others.
    gives_way: bool,
    /// Turns true when it is to take nothing new, if that is before Pingora ends.
    closing: Option<ShutdownWatch>,
    service: pingora::services::listening::Service<Front<H>>,
    bound: watch::Sender<Bound>,
}

/// The gateway's workers, and the watch that tells where they listen. Each has a thread with a scheduler of its own, and connections to
/// providers of its own: what one thread waits for never wakes another.
///
/// # Errors
/// There are no descriptors left.
pub(super) fn gateway(
    conf: &Arc<ServerConf>,
    parts: &Parts,
    (portal, last_rows): (Option<Arc<Portal>>, Arc<dyn LastRows>),
    listeners: &Listeners,
) -> Result<(Vec<FrontService<GatewayHandler>>, watch::Receiver<Bound>), StartError> {
    let settings = &parts.config.gateway;
    let wanted = parts.config.connections.max;
    let connections_max = Descriptors::share(&parts.config).clients;
    if connections_max < wanted {
        tracing::info!(
            connections_max,
            "fewer connections than [connections] max: raise the limit of open files (LimitNOFILE=, ulimit -n)"
        );
    }
    let layers = Layers {
        announced_by: settings.proxy_protocol_from.clone(),
        tls: parts.tls.gateway.clone(),
    };
    let gateway = parts.gateway(portal, last_rows);
    let handler = || GatewayHandler::new(conf, gateway.clone());
    let fronts = Fronts::new("gateway", (Places::kept, connections_max), layers, parts);
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
        workers.push(worker(Some(listeners.twin(GATEWAY)?)).0);
    }
    Ok((workers, bound))
}

/// The public stability service's, and the watch that tells where it listens.
pub(super) fn stability(
    parts: &Parts,
    listeners: &Listeners,
    closing: ShutdownWatch,
) -> (FrontService<PublicHandler>, watch::Receiver<Bound>) {
    let handler = PublicHandler::new(Arc::clone(&parts.public), Arc::clone(parts.money.billing.time()));
    let layers = Layers {
        announced_by: parts.config.stability.proxy_protocol_from.clone(),
        tls: parts.tls.stability.clone(),
    };
    let connections_max = Descriptors::share(&parts.config).stability;
    let front = Fronts::new("stability", (Places::given_up, connections_max), layers, parts).front(handler);
    let listen = listeners.address(STABILITY, parts.config.stability.listen);
    let (mut service, bound) = FrontService::new(STABILITY, listen, front);
    service.closing = Some(closing);
    (service, bound)
}

/// The redirect's, if it is configured, and the watch that tells where it listens. `gateway` tells where it sends clients.
pub(super) fn redirect(
    parts: &Parts,
    gateway: watch::Receiver<Bound>,
    listeners: &Listeners,
    closing: ShutdownWatch,
) -> Option<(FrontService<RedirectHandler>, watch::Receiver<Bound>)> {
    let settings = &parts.config.gateway;
    let listen = listeners.address(REDIRECT, settings.tls.redirect_listen?);
    let handler = RedirectHandler::new(parts.tls.gateway.clone()?, gateway);
    let layers = Layers {
        announced_by: settings.proxy_protocol_from.clone(),
        tls: None,
    };
    let connections_max = Descriptors::share(&parts.config).redirect;
    let front = Fronts::new("redirect", (Places::given_up, connections_max), layers, parts).front(handler);
    let (mut service, bound) = FrontService::new(REDIRECT, listen, front);
    service.closing = Some(closing);
    Some((service, bound))
}

/// The console's, and the watch that tells where it listens.
pub(super) fn console(
    parts: &Parts,
    listen: SocketAddr,
    handler: ConsoleHandler,
    layers: Layers,
    closing: ShutdownWatch,
) -> (FrontService<ConsoleHandler>, watch::Receiver<Bound>) {
    let connections_max = Descriptors::share(&parts.config).console;
    let front = Fronts::new("console", (Places::given_up, connections_max), layers, parts).front(handler);
    let (mut service, bound) = FrontService::new(CONSOLE, listen, front);
    // Nobody's request waits for somebody's look at a page.
    service.gives_way = true;
    service.closing = Some(closing);
    (service, bound)
}

/// Places by how many there are, how many of them are for one client, and who is not counted.
type PlacesOf = fn(usize, usize, Vec<IpNet>) -> Arc<Places>;

/// What the fronts of one listener share.
struct Fronts {
    live: Arc<LiveCell>,
    places: Arc<Places>,
    heads: HeadBudget,
    layers: Arc<Layers>,
    figures: ListenerFigures,
}

impl Fronts {
    /// `places` makes the places of the listener, of which there are `connections_max`.
    fn new(name: &'static str, (places, connections_max): (PlacesOf, usize), layers: Layers, parts: &Parts) -> Self {
        let config = &parts.config;
        // One address never has all of them.
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
    fn new(name: &'static str, listen: SocketAddr, front: Front<H>) -> (Self, watch::Receiver<Bound>) {
        let service = pingora::services::listening::Service::new(name.to_owned(), front);
        let (bound, watch) = watch::channel(Bound::Waiting);
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
            // From here on the table's user owns the descriptor.
            fds.lock().add(self.listen.to_string(), socket.into_raw_fd());
        }
        let address = match bind_or_inherit(self.listen, &fds) {
            Ok(address) => address,
            Err(error) => {
                let listen = self.listen;
                let reason = format!("{listen}: {error}; free the address or configure another one");
                self.bound.send_replace(Bound::Failed(reason));
                return;
            }
        };
        // What is read goes where it belongs at once; a buffer of each idle connection would only take memory.
        let buffers = L4BufferSettings::default().read(0);
        self.service
            .add_listener(ListenerConfig::tcp(address.to_string()).l4_buffer(buffers));
        if is_first {
            tracing::info!(service = self.name, at = %address, "listening");
        }
        self.bound.send_replace(Bound::Tcp(address));
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

    /// What an upgrade must keep open for this service.
    fn listen_addresses(&self) -> Option<Vec<String>> {
        Some(vec![self.listen.to_string()])
    }
}
