//! Runs the services other than the gateway as services of Pingora, which starts, stops and upgrades them with the gateway.
//!
//! During an upgrade, Pingora passes the listening sockets of the old process to every service as file descriptors. Only
//! Pingora's own listener converts a descriptor back to a socket. Therefore Pingora accepts HTTP connections and passes them to
//! hyper. If no socket was passed for an address, this module binds one and puts it into Pingora's table of sockets. As a result,
//! the actual port is known at once if port 0 is configured.

#[cfg(test)]
mod tests;

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    os::fd::IntoRawFd,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use axum::Router;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header, uri::Authority};
use pingora::{
    Result,
    apps::{HttpServerApp, ReusedHttpStream, ServerApp},
    http::{RequestHeader, ResponseHeader},
    protocols::{
        Stream,
        http::{HttpTask, ServerSession},
    },
    server::{Fds, ListenFds, ShutdownWatch},
    services::{Service, ServiceReadyNotifier, ServiceWithDependents, listening::Service as Listening},
};
use tokio::{
    net::{TcpSocket, UnixListener},
    sync::watch,
};

use crate::{
    edges::connection_slots::ConnectionSlots,
    front::{Handler, tls::TlsListener},
    side::connection::{self, ClientWaits},
};

/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// The maximum number of concurrent connections of a listener. When it is reached, a new connection replaces a connection without
/// a request.
const CONNECTIONS_MAX: usize = 256;
/// The timeouts of HTTP clients.
const CLIENT_WAITS: ClientWaits = ClientWaits {
    head: Duration::from_secs(30),
    answer: Duration::from_secs(30),
};

/// The address on which a service listens, or the reason why it does not listen. A Pingora service cannot return an error, so the
/// code that starts the service watches this value and handles a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoundAddress {
    /// The service has not started yet.
    Waiting,
    /// A TCP address. It has the actual port if port 0 was configured.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// The service cannot listen. Contains the reason and the remedy.
    Failed(String),
}

/// A function that serves the connections of a Unix socket until the receiver turns true.
pub(crate) type UnixServe = Box<dyn Fn(UnixListener, watch::Receiver<bool>) -> ServeFuture + Send + Sync>;

/// A function that serves one connection of a TCP listener until the connection ends.
pub(crate) type TcpServe = Box<dyn Fn(Stream) -> ServeFuture + Send + Sync>;

/// The future that [`UnixServe`] and [`TcpServe`] return.
pub(crate) type ServeFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A listener and its service, for Pingora's `Server::add_service`.
pub(crate) struct SideService {
    name: String,
    kind: ServiceKind,
    bound: watch::Sender<BoundAddress>,
    /// Turns true when the service must accept no further connections, even if Pingora does not stop yet. `None` if the service
    /// accepts connections until Pingora stops.
    closing: Option<ShutdownWatch>,
}

enum ServiceKind {
    Http {
        address: SocketAddr,
        router: Router,
    },
    Tcp {
        address: SocketAddr,
        serve: Arc<TcpServe>,
    },
    Unix {
        path: PathBuf,
        serve: UnixServe,
        claims: watch::Receiver<connection::SocketClaim>,
    },
}

impl SideService {
    /// Creates an HTTP/1.1 service on a TCP address. Port 0 selects a free port. The receiver gets the bound address.
    pub(crate) fn http(name: &str, address: SocketAddr, router: Router) -> (Self, watch::Receiver<BoundAddress>) {
        Self::new(name, ServiceKind::Http { address, router })
    }

    /// Creates a service on a TCP address that passes each connection to `serve`. Port 0 selects a free port. The receiver gets
    /// the bound address.
    pub(crate) fn tcp(name: &str, address: SocketAddr, serve: TcpServe) -> (Self, watch::Receiver<BoundAddress>) {
        let serve = Arc::new(serve);
        Self::new(name, ServiceKind::Tcp { address, serve })
    }

    /// Creates a service on a Unix socket with the mode 0660. The bound socket is passed to `serve`. The receiver gets the
    /// socket's path once the socket is bound. The current value of `claims` says from which processes the path can be taken.
    /// When `claims` changes and another process has taken the path, the path is claimed again.
    pub(crate) fn unix<F>(
        name: &str,
        path: PathBuf,
        claims: watch::Receiver<connection::SocketClaim>,
        serve: impl Fn(UnixListener, watch::Receiver<bool>) -> F + Send + Sync + 'static,
    ) -> (Self, watch::Receiver<BoundAddress>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let serve: UnixServe = Box::new(move |listener, shutdown| Box::pin(serve(listener, shutdown)));
        Self::new(name, ServiceKind::Unix { path, serve, claims })
    }

    fn new(name: &str, kind: ServiceKind) -> (Self, watch::Receiver<BoundAddress>) {
        let (bound, watch) = watch::channel(BoundAddress::Waiting);
        let name = name.to_owned();
        let closing = None;
        let service = Self {
            name,
            kind,
            bound,
            closing,
        };
        (service, watch)
    }

    /// Makes the service accept no further connections once `closing` turns true, even if Pingora does not stop yet.
    #[must_use]
    pub(crate) fn closing_on(mut self, closing: ShutdownWatch) -> Self {
        self.closing = Some(closing);
        self
    }

    fn fail(&self, reason: String) {
        tracing::error!(service = %self.name, %reason, "cannot listen");
        self.bound.send_replace(BoundAddress::Failed(reason));
    }

    fn set_bound(&self, to: BoundAddress, ready: ServiceReadyNotifier) {
        let at = match &to {
            BoundAddress::Tcp(address) => address.to_string(),
            BoundAddress::Unix(path) => path.display().to_string(),
            BoundAddress::Waiting | BoundAddress::Failed(_) => String::new(),
        };
        tracing::info!(service = %self.name, %at, "listening");
        self.bound.send_replace(to);
        ready.notify_ready();
    }

    async fn serve_tcp<A>(&self, address: SocketAddr, app: A, shared: ServiceStart)
    where
        A: ServerApp + Send + Sync + 'static,
    {
        let fds = shared.fds.unwrap_or_else(|| Arc::new(Fds::new().into()));
        let bound = match bind_or_inherit(address, &fds) {
            Ok(bound) => bound,
            Err(error) => {
                return self.fail(format!("{address}: {error}; free the address or configure another one"));
            }
        };
        let mut service = Listening::new(self.name.clone(), app);
        service.add_tcp(&bound.to_string());
        self.set_bound(BoundAddress::Tcp(bound), shared.ready);
        Service::start_service(&mut service, Some(fds), shared.shutdown, shared.listeners_per_fd).await;
    }

    async fn serve_unix(
        &self,
        path: &Path,
        serve: &UnixServe,
        mut claims: watch::Receiver<connection::SocketClaim>,
        shared: ServiceStart,
    ) {
        let mut ready = Some(shared.ready);
        loop {
            let claim = *claims.borrow_and_update();
            let (listener, file) = match connection::claim(path, claim) {
                Ok(claimed) => claimed,
                Err(error) => return self.fail(error.to_string()),
            };
            if let Some(ready) = ready.take() {
                self.set_bound(BoundAddress::Unix(path.to_owned()), ready);
            }
            let mut serving = serve(listener, shared.shutdown.clone());
            while file.is_in_place() {
                tokio::select! {
                    () = &mut serving => return,
                    Ok(()) = claims.changed() => {}
                }
            }
        }
    }
}

/// The arguments with which Pingora starts a service.
struct ServiceStart {
    fds: Option<ListenFds>,
    shutdown: ShutdownWatch,
    listeners_per_fd: usize,
    ready: ServiceReadyNotifier,
}

/// Binds a listening socket to an address. Must be called inside a Tokio runtime.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Makes sure that Pingora's table has a listening socket for the address, either an inherited or a new one. Returns the bound
/// address.
pub(crate) fn bind_or_inherit(address: SocketAddr, fds: &ListenFds) -> io::Result<SocketAddr> {
    if fds.lock().get(&address.to_string()).is_some() {
        return Ok(address);
    }
    let listener = bind(address)?;
    let bound = listener.local_addr()?;
    // The table owns the descriptor from now on, like the descriptors of sockets that Pingora binds.
    fds.lock().add(bound.to_string(), listener.into_raw_fd());
    Ok(bound)
}

#[async_trait]
impl ServiceWithDependents for SideService {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
        ready: ServiceReadyNotifier,
    ) {
        let shared = ServiceStart {
            fds,
            shutdown: self.closing.clone().unwrap_or(shutdown),
            listeners_per_fd,
            ready,
        };
        match &self.kind {
            ServiceKind::Http { address, router } => {
                let app = HttpApp {
                    router: router.clone(),
                    slots: ConnectionSlots::new(CONNECTIONS_MAX),
                    waits: CLIENT_WAITS,
                };
                self.serve_tcp(*address, app, shared).await;
            }
            ServiceKind::Tcp { address, serve } => {
                let app = TcpApp {
                    serve: Arc::clone(serve),
                };
                self.serve_tcp(*address, app, shared).await;
            }
            ServiceKind::Unix { path, serve, claims } => self.serve_unix(path, serve, claims.clone(), shared).await,
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Returns one thread, because none of these services is on the path of requests.
    fn threads(&self) -> Option<usize> {
        Some(1)
    }

    /// Returns the TCP addresses that must stay open during an upgrade. Unix sockets are left out, because a new process takes
    /// over their path instead of the open socket.
    fn listen_addresses(&self) -> Option<Vec<String>> {
        match &self.kind {
            ServiceKind::Http { address, .. } | ServiceKind::Tcp { address, .. } => Some(vec![address.to_string()]),
            ServiceKind::Unix { .. } => Some(Vec::new()),
        }
    }
}

/// Calls a function with each connection that Pingora has accepted.
struct TcpApp {
    serve: Arc<TcpServe>,
}

#[async_trait]
impl ServerApp for TcpApp {
    async fn process_new(self: &Arc<Self>, session: Stream, _shutdown: &ShutdownWatch) -> Option<Stream> {
        (self.serve)(session).await;
        None
    }
}

/// Passes connections that Pingora has accepted to hyper.
struct HttpApp {
    router: Router,
    slots: Arc<ConnectionSlots>,
    waits: ClientWaits,
}

#[async_trait]
impl ServerApp for HttpApp {
    async fn process_new(self: &Arc<Self>, session: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        // If all slots are busy, the connection is closed without an answer, because further connections would take memory.
        let slot = self.slots.acquire()?;
        let mut shutdown = shutdown.clone();
        connection::serve(
            session,
            slot,
            self.router.clone(),
            self.waits,
            wait_until_stopped(&mut shutdown),
        )
        .await;
        None
    }
}

/// Waits until the server stops or the sender is dropped.
async fn wait_until_stopped(shutdown: &mut ShutdownWatch) {
    let _seen = shutdown.wait_for(|stop| *stop).await;
}

/// The default port of HTTPS, which is left out in URLs.
const HTTPS_PORT: u16 = 443;

/// Redirects clients to the same URL at the listener with TLS.
pub(crate) struct RedirectHandler {
    app: Arc<RedirectApp>,
}

impl RedirectHandler {
    /// Creates the handler, which redirects to the listener `tls` at the address `bound`. It redirects only to hosts that the
    /// listener's certificates cover, so a client is never redirected to another server.
    pub(crate) fn new(tls: Arc<TlsListener>, bound: watch::Receiver<BoundAddress>) -> Self {
        Self {
            app: Arc::new(RedirectApp { tls, bound }),
        }
    }
}

impl Handler for RedirectHandler {
    type App = RedirectApp;
    type Visit = ();

    fn app(&self) -> &Arc<RedirectApp> {
        &self.app
    }

    fn on_connection(&self) {}
}

/// Answers the requests that Pingora has read.
pub(crate) struct RedirectApp {
    tls: Arc<TlsListener>,
    bound: watch::Receiver<BoundAddress>,
}

#[async_trait]
impl HttpServerApp for RedirectApp {
    // Errors of a connection are ignored, because the client notices them and they say nothing about weir.
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if session.read_request().await.ok()? {
            // The connection is not reused, because the request's body is not read.
            session.set_keepalive(None);
            let target = self.target(session.req_header());
            write(&mut session, target).await.ok()?;
            session.finish().await.ok()?;
        }
        None
    }
}

impl RedirectApp {
    /// Returns the URL to redirect to. `None` if no certificate covers the request's host.
    fn target(&self, head: &RequestHeader) -> Option<HeaderValue> {
        let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let authority = head
            .uri
            .authority()
            .cloned()
            .or_else(|| named?.parse::<Authority>().ok())?;
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = match &*self.bound.borrow() {
            BoundAddress::Tcp(address) if address.port() != HTTPS_PORT => format!(":{}", address.port()),
            _ => String::new(),
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let url = self.tls.covers(bare).then(|| format!("https://{host}{port}{path}"))?;
        HeaderValue::from_str(&url).ok()
    }
}

async fn write(session: &mut ServerSession, target: Option<HeaderValue>) -> Result<()> {
    let (status, text) = match target {
        Some(_) => (StatusCode::PERMANENT_REDIRECT, "Use HTTPS.\n"),
        None => (
            StatusCode::MISDIRECTED_REQUEST,
            "Use HTTPS, and a host that the certificate covers.\n",
        ),
    };
    let mut head = ResponseHeader::build(status, Some(3))?;
    head.insert_header(header::CONTENT_TYPE, "text/plain")?;
    head.insert_header(header::CONTENT_LENGTH, text.len())?;
    if let Some(target) = target {
        head.insert_header(header::LOCATION, target)?;
    }
    let is_head = session.req_header().method == Method::HEAD;
    let mut tasks = vec![HttpTask::Header(Box::new(head), is_head)];
    if !is_head {
        tasks.push(HttpTask::Body(Some(Bytes::from_static(text.as_bytes())), true));
    }
    session.response_duplex_vec(tasks).await?;
    Ok(())
}
