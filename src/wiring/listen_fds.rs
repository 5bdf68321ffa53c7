//! Listening sockets that a service manager hands over, as sd_listen_fds(3) has it: a port below 1024 then needs no
//! capability, and no connection is refused while weir is started again.

use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;

use crate::wiring::StartError;

/// Takes the sockets that this process was started with, for listeners at these addresses. To be called before there are
/// threads that read the environment: the variables are unset.
///
/// # Errors
/// A socket is of another kind, or at an address where nothing is configured to listen.
pub(super) fn take(listeners: &[SocketAddr]) -> Result<Vec<TcpListener>, StartError> {
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
        taken.push(socket);
    }
    Ok(taken)
}

fn nobodys(address: SocketAddr, listeners: &[SocketAddr]) -> String {
    let listeners: Vec<String> = listeners.iter().map(ToString::to_string).collect();
    format!(
        "the service manager hands over a socket at {address}, but the configuration listens at {}: set [gateway] listen \
         to \"{address}\", or correct ListenStream= of the socket unit",
        listeners.join(", ")
    )
}
