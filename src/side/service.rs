//! Runs what weir serves beside the gateway as a Pingora service, so that it starts, stops and is upgraded with it.
//!
//! Pingora hands every service the listening sockets of a process that is being upgraded, as bare descriptors. Only
//! Pingora's own listener turns one back into a socket, so HTTP is accepted by Pingora and its connections are given to
//! hyper; a socket bound here is put into the table first, which also tells the port behind `:0` at once.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::{Fds, ListenFds, ShutdownWatch};
use pingora::services::listening::Service as Listening;
use pingora::services::{Service, ServiceReadyNotifier, ServiceWithDependents};
use tokio::net::{TcpSocket, UnixListener};
use tokio::sync::watch;

use crate::edges::connection_slots::ConnectionSlots;
use crate::side::connection::{self, ClientWaits};
use crate::side::unix_socket;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// Connections served at once per listener. Beyond it those that have not asked for anything give way to new ones.
const CONNECTIONS_MAX: usize = 256;
/// How long their clients may take.
const CLIENT_WAITS: ClientWaits = ClientWaits {
    head: Duration::from_secs(30),
    answer: Duration::from_secs(30),
};

/// Where a service listens, once it does. A failure is for whoever starts the process to act on: a Pingora service
/// has no way to return one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Not started yet.
    Waiting,
    /// On TCP; the real port, also if 0 was configured.
    Tcp(SocketAddr),
    /// On a unix socket.
    Unix(PathBuf),
    /// It cannot listen; says why and what to do.
    Failed(String),
}

/// Serves a unix socket until the watch turns true.
pub(crate) type UnixServe = Box<dyn Fn(UnixListener, watch::Receiver<bool>) -> ServeFuture + Send + Sync>;

/// Serves one connection of a TCP listener to its end.
pub(crate) type TcpServe = Box<dyn Fn(Stream) -> ServeFuture + Send + Sync>;

/// What [`UnixServe`] and [`TcpServe`] return.
pub(crate) type ServeFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A listener and what is behind it, for `Server::add_service`.
pub(crate) struct SideService {
    name: String,
    kind: Kind,
    bound: watch::Sender<Bound>,
    /// Turns true when it is to take nothing new, if that is before Pingora ends.
    closing: Option<ShutdownWatch>,
}

enum Kind {
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
        claims: watch::Receiver<unix_socket::Claim>,
    },
}

impl SideService {
    /// HTTP/1.1 on a TCP address; port 0 takes a free one. The watch tells where.
    pub(crate) fn http(name: &str, address: SocketAddr, router: Router) -> (Self, watch::Receiver<Bound>) {
        Self::new(name, Kind::Http { address, router })
    }

    /// A TCP address whose connections are given to `serve`; port 0 takes a free one. The watch tells where.
    pub(crate) fn tcp(name: &str, address: SocketAddr, serve: TcpServe) -> (Self, watch::Receiver<Bound>) {
        let serve = Arc::new(serve);
        Self::new(name, Kind::Tcp { address, serve })
    }

    /// A unix socket, mode 0660, given to `serve`. The watch tells when. It is claimed as `claims` says, and again when that
    /// changes and somebody else has the path.
    pub(crate) fn unix<F>(
        name: &str,
        path: PathBuf,
        claims: watch::Receiver<unix_socket::Claim>,
        serve: impl Fn(UnixListener, watch::Receiver<bool>) -> F + Send + Sync + 'static,
    ) -> (Self, watch::Receiver<Bound>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let serve: UnixServe = Box::new(move |listener, shutdown| Box::pin(serve(listener, shutdown)));
        Self::new(name, Kind::Unix { path, serve, claims })
    }

    fn new(name: &str, kind: Kind) -> (Self, watch::Receiver<Bound>) {
        let (bound, watch) = watch::channel(Bound::Waiting);
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

    /// Takes nothing new from when `closing` turns true, also before Pingora ends.
    #[must_use]
    pub(crate) fn until(mut self, closing: ShutdownWatch) -> Self {
        self.closing = Some(closing);
        self
    }

    fn fail(&self, reason: String) {
        tracing::error!(service = %self.name, %reason, "cannot listen");
        self.bound.send_replace(Bound::Failed(reason));
    }

    fn is_bound(&self, to: Bound, ready: ServiceReadyNotifier) {
        tracing::info!(service = %self.name, at = ?to, "listening");
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
        self.is_bound(Bound::Tcp(bound), shared.ready);
        Service::start_service(&mut service, Some(fds), shared.shutdown, shared.listeners_per_fd).await;
    }

    async fn serve_unix(
        &self,
        path: &Path,
        serve: &UnixServe,
        mut claims: watch::Receiver<unix_socket::Claim>,
        shared: ServiceStart,
    ) {
        let mut ready = Some(shared.ready);
        loop {
            let claim = *claims.borrow_and_update();
            let (listener, file) = match unix_socket::claim(path, claim) {
                Ok(claimed) => claimed,
                Err(error) => return self.fail(error.to_string()),
            };
            if let Some(ready) = ready.take() {
                self.is_bound(Bound::Unix(path.to_owned()), ready);
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

/// What Pingora gives a service to start with.
struct ServiceStart {
    fds: Option<ListenFds>,
    shutdown: ShutdownWatch,
    listeners_per_fd: usize,
    ready: ServiceReadyNotifier,
}

/// A new socket that listens there. To be called on a runtime.
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

/// The socket of that address is in the table afterwards, inherited or new; the new one already listens.
pub(crate) fn bind_or_inherit(address: SocketAddr, fds: &ListenFds) -> io::Result<SocketAddr> {
    if fds.lock().get(&address.to_string()).is_some() {
        return Ok(address);
    }
    let listener = bind(address)?;
    let bound = listener.local_addr()?;
    // From here on the table's user owns the descriptor, as with those that Pingora binds.
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
            Kind::Http { address, router } => {
                let app = HttpApp {
                    router: router.clone(),
                    slots: ConnectionSlots::new(CONNECTIONS_MAX),
                    waits: CLIENT_WAITS,
                };
                self.serve_tcp(*address, app, shared).await;
            }
            Kind::Tcp { address, serve } => {
                let app = TcpApp {
                    serve: Arc::clone(serve),
                };
                self.serve_tcp(*address, app, shared).await;
            }
            Kind::Unix { path, serve, claims } => self.serve_unix(path, serve, claims.clone(), shared).await,
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// None of these is on the request path.
    fn threads(&self) -> Option<usize> {
        Some(1)
    }

    /// What an upgrade must keep open for this service; unix sockets are taken over by path instead.
    fn listen_addresses(&self) -> Option<Vec<String>> {
        match &self.kind {
            Kind::Http { address, .. } | Kind::Tcp { address, .. } => Some(vec![address.to_string()]),
            Kind::Unix { .. } => Some(Vec::new()),
        }
    }
}

/// Gives Pingora's connections to whoever serves them.
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

/// Gives Pingora's connections to hyper.
struct HttpApp {
    router: Router,
    slots: Arc<ConnectionSlots>,
    waits: ClientWaits,
}

#[async_trait]
impl ServerApp for HttpApp {
    async fn process_new(self: &Arc<Self>, session: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        // Closed unanswered where all are at work: whoever keeps it so must not make weir hold more.
        let slot = self.slots.take()?;
        let mut shutdown = shutdown.clone();
        connection::serve(session, slot, self.router.clone(), self.waits, stopped(&mut shutdown)).await;
        None
    }
}

/// The server stops, or is gone.
async fn stopped(shutdown: &mut ShutdownWatch) {
    let _seen = shutdown.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests;
