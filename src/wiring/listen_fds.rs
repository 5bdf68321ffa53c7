//! Listening sockets that a service manager hands over, as sd_listen_fds(3) has it: a port below 1024 then needs no
//! capability, and no connection is refused while weir is started again.

use std::{
    net::{SocketAddr, TcpListener},
    os::fd::IntoRawFd,
};

use async_trait::async_trait;
use listenfd::ListenFd;
use pingora::{
    server::{ListenFds, Server, ShutdownWatch},
    services::{ServiceHandle, ServiceReadyNotifier, ServiceWithDependents},
};

use crate::wiring::StartError;

/// The sockets that this process was started with. Each takes the place of the listener with its address.
pub(super) struct HandedOver(Vec<(SocketAddr, TcpListener)>);

impl HandedOver {
    /// Takes them, for listeners at these addresses. To be called before there are threads: the variables are unset.
    ///
    /// # Errors
    /// A socket is of another kind, or at an address where nothing is configured to listen.
    pub(super) fn take(listeners: &[SocketAddr]) -> Result<Self, StartError> {
        let mut sockets = ListenFd::from_env();
        let mut taken = Vec::new();
        for place in 0..sockets.len() {
            let unusable = |error: std::io::Error| {
                StartError::Listen(format!(
                    "socket {place} of the service manager: {error}; each ListenStream= of the socket unit has to be IP:PORT"
                ))
            };
            let Some(socket) = sockets.take_tcp_listener(place).map_err(unusable)? else {
                continue;
            };
            let address = socket.local_addr().map_err(unusable)?;
            if !listeners.contains(&address) {
                return Err(StartError::Listen(nobodys(address, listeners)));
            }
            socket.set_nonblocking(true).map_err(unusable)?;
            taken.push((address, socket));
        }
        Ok(Self(taken))
    }

    /// Adds services to the server that find these sockets where Pingora looks for those of an upgrade.
    pub(super) fn before(self, server: &mut Server, add: impl FnOnce(&mut Server) -> Vec<ServiceHandle>) {
        let services = add(server);
        if !self.0.is_empty() {
            let sockets = server.add_service(self);
            services.iter().for_each(|service| service.add_dependency(&sockets));
        }
    }
}

fn nobodys(address: SocketAddr, listeners: &[SocketAddr]) -> String {
    let listeners: Vec<String> = listeners.iter().map(ToString::to_string).collect();
    format!(
        "the service manager hands over a socket at {address}, but the configuration listens at {}: set [gateway] listen \
         to \"{address}\", or correct ListenStream= of the socket unit",
        listeners.join(", ")
    )
}

#[async_trait]
impl ServiceWithDependents for HandedOver {
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
        "sockets handed over"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}
