//! Listening sockets from a service manager, by sd_listen_fds(3): a port below 1024 then needs no capability, and no connection
//! is refused while weir restarts.

use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;

use crate::wiring::StartError;

/// Takes the sockets that a service manager has passed to this process, for listeners at these addresses: a port below 1024 then
/// needs no capability, and no connection is refused while weir restarts. Must be called before threads read the environment,
/// because it unsets the variables.
///
/// # Errors
/// A socket is of another kind, or at an address without a configured listener.
pub(super) fn take_activated(listeners: &[SocketAddr]) -> Result<Vec<TcpListener>, StartError> {
    let mut sockets = ListenFd::from_env();
    let mut taken = Vec::new();
    for place in 0..sockets.len() {
        let unusable = |error: std::io::Error| {
            StartError::Listen(format!(
                "socket {place} of the service manager: {error}; each ListenStream= of the socket unit must be IP:PORT"
            ))
        };
        let Some(socket) = sockets.take_tcp_listener(place).map_err(unusable)? else {
            continue;
        };
        let address = socket.local_addr().map_err(unusable)?;
        if !listeners.contains(&address) {
            return Err(StartError::Listen(no_listener_text(address, listeners)));
        }
        socket.set_nonblocking(true).map_err(unusable)?;
        taken.push(socket);
    }
    Ok(taken)
}

fn no_listener_text(address: SocketAddr, listeners: &[SocketAddr]) -> String {
    let listeners: Vec<String> = listeners.iter().map(ToString::to_string).collect();
    format!(
        "the service manager passes a socket at {address}, but the configuration listens at {}: set [gateway] listen \
         to \"{address}\", or correct ListenStream= of the socket unit",
        listeners.join(", ")
    )
}
