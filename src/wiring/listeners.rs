//! The listening TCP sockets of this process: those that a service manager or the process before has handed over, and new
//! ones. They are kept beside Pingora's, so that the next process can have them.

use std::{
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, IntoRawFd, OwnedFd},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::{
    server::{ListenFds, Server, ShutdownWatch},
    services::{ServiceHandle, ServiceReadyNotifier, ServiceWithDependents},
};

use crate::{config::Config, side::service, wiring::StartError};

/// A listener as the configuration has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What listens: the gateway, the operator's page...
    pub(super) name: &'static str,
    /// The configured address; port 0 takes a free one.
    pub(super) at: SocketAddr,
}

/// The name of the gateway's listener.
pub(super) const GATEWAY: &str = "gateway";
/// That of metrics and health.
pub(super) const OPS: &str = "ops";
/// That of the public stability service.
pub(super) const STABILITY: &str = "stability";
/// That of the admin API over TCP.
pub(super) const ADMIN: &str = "admin over TCP";
/// That of the listener that sends clients to the one with TLS.
pub(super) const REDIRECT: &str = "redirect";
/// That of the operators' console.
pub(super) const CONSOLE: &str = "console";

/// The listeners of a configuration.
pub(super) fn wanted(config: &Config) -> Vec<Wanted> {
    let all = [
        (GATEWAY, Some(config.gateway.listen)),
        (OPS, Some(config.ops.listen)),
        (STABILITY, Some(config.stability.listen)),
        (ADMIN, config.admin.listen),
        (REDIRECT, config.gateway.tls.redirect_listen),
        (CONSOLE, config.console.listen),
    ];
    all.into_iter()
        .filter_map(|(name, at)| Some(Wanted { name, at: at? }))
        .collect()
}

/// A socket of the process before, with the listener that it was for there.
pub(super) struct Inherited {
    pub(super) name: String,
    pub(super) at: SocketAddr,
    pub(super) socket: TcpListener,
}

/// The sockets of a running process.
pub(super) struct Listeners {
    /// Empty once nothing new is taken.
    open: Mutex<Vec<(Wanted, TcpListener)>>,
    bound: Vec<(Wanted, SocketAddr)>,
}

impl Listeners {
    /// A socket for each listener: one that was handed over, or else a new one. To be called on a runtime. Sockets that were
    /// handed over and are not wanted any more are closed here.
    ///
    /// # Errors
    /// An address cannot be had.
    pub(super) fn open(
        wanted: Vec<Wanted>,
        mut activated: Vec<TcpListener>,
        mut inherited: Vec<Inherited>,
    ) -> Result<Self, StartError> {
        let (mut open, mut bound) = (Vec::new(), Vec::new());
        for listener in wanted {
            let at = listener.at;
            let unusable = |error: std::io::Error| {
                StartError::Listen(format!("{at}: {error}; free the address or configure another one"))
            };
            let own = |one: &Inherited| one.name == listener.name && one.at == at;
            let here = |one: &TcpListener| one.local_addr().is_ok_and(|address| address == at);
            let socket = if let Some(place) = inherited.iter().position(own) {
                inherited.swap_remove(place).socket
            } else if let Some(place) = activated.iter().position(here) {
                activated.swap_remove(place)
            } else {
                service::bind(at).map_err(unusable)?
            };
            bound.push((listener, socket.local_addr().map_err(unusable)?));
            open.push((listener, socket));
        }
        let open = Mutex::new(open);
        Ok(Self { open, bound })
    }

    /// Where a listener is; the configured address of one that is not among them.
    pub(super) fn address(&self, name: &str, configured: SocketAddr) -> SocketAddr {
        let found = self.bound.iter().find(|(listener, _)| listener.name == name);
        found.map_or(configured, |(_, address)| *address)
    }

    /// Another handle of a listener's socket: who has it accepts beside the others.
    ///
    /// # Errors
    /// There is no such listener, or there are no descriptors left.
    pub(super) fn twin(&self, name: &str) -> Result<TcpListener, StartError> {
        let open = self.open.lock();
        let found = open.iter().find(|(listener, _)| listener.name == name);
        let (_, socket) = found.ok_or_else(|| StartError::Listen(format!("there is no listener for the {name}")))?;
        socket
            .try_clone()
            .map_err(|error| StartError::failed("the listening sockets", error))
    }

    /// Adds services to the server that find these sockets where Pingora looks for those of an upgrade.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn before(
        &self,
        server: &mut Server,
        add: impl FnOnce(&mut Server) -> Vec<ServiceHandle>,
    ) -> Result<(), StartError> {
        let open = self.open.lock();
        let twins = open
            .iter()
            .map(|(_, socket)| Ok((socket.local_addr()?, socket.try_clone()?)));
        let twins: std::io::Result<Vec<_>> = twins.collect();
        let twins = twins.map_err(|error| StartError::failed("the listening sockets", error))?;
        let services = add(server);
        let sockets = server.add_service(Table(twins));
        services.iter().for_each(|service| service.add_dependency(&sockets));
        Ok(())
    }

    /// The sockets for the process that comes next.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn offered(&self) -> std::io::Result<Vec<(Wanted, OwnedFd)>> {
        let open = self.open.lock();
        let twins = open
            .iter()
            .map(|(listener, socket)| Ok((*listener, socket.as_fd().try_clone_to_owned()?)));
        twins.collect()
    }

    /// Lets go of them: who connects is refused, unless another process has them too. Services close their own.
    pub(super) fn close(&self) {
        self.open.lock().clear();
    }
}

/// Puts the sockets where services look for theirs.
struct Table(Vec<(SocketAddr, TcpListener)>);

#[async_trait]
impl ServiceWithDependents for Table {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        _shutdown: ShutdownWatch,
        _listeners_per_fd: usize,
        ready: ServiceReadyNotifier,
    ) {
        if let Some(fds) = fds {
            let mut table = fds.lock();
            for (address, socket) in self.0.drain(..) {
                // From here on the table's user owns the descriptor.
                table.add(address.to_string(), socket.into_raw_fd());
            }
        }
        ready.notify_ready();
    }

    fn name(&self) -> &str {
        "listening sockets"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}
