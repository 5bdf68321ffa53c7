//! The listening TCP sockets of this process. A socket is opened by this process, or received from a service manager
//! (sd_listen_fds(3)) or from the predecessor. weir retains its own handles of the sockets, to pass them to its successor.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, IntoRawFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use listenfd::ListenFd;
use parking_lot::Mutex;
use pingora::{
    server::{ListenFds, Server, ShutdownWatch},
    services::{ServiceHandle, ServiceReadyNotifier, ServiceWithDependents},
};
use tokio::sync::watch;

use crate::{
    config::Config,
    side::service::{self, BoundAddress},
    wiring::StartError,
};

/// A listener that the configuration requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedListener {
    /// The name of the listener, one of the constants below.
    pub(super) name: &'static str,
    /// The configured address. Port 0 selects a free port.
    pub(super) at: SocketAddr,
}

/// The name of the gateway's listener.
pub(super) const GATEWAY: &str = "gateway";
/// The name of the listener for metrics and health.
pub(super) const OPS: &str = "ops";
/// The name of the listener of the public stability service.
pub(super) const STABILITY: &str = "stability";
/// The name of the listener of the admin API over TCP.
pub(super) const ADMIN: &str = "admin over TCP";
/// The name of the listener that redirects from plain HTTP to HTTPS.
pub(super) const REDIRECT: &str = "redirect";
/// The name of the console's listener.
pub(super) const CONSOLE: &str = "console";

/// Returns the listeners that a configuration requests.
pub(super) fn configured_listeners(config: &Config) -> Vec<RequestedListener> {
    let all = [
        (GATEWAY, Some(config.gateway.listen)),
        (OPS, Some(config.ops.listen)),
        (STABILITY, Some(config.stability.listen)),
        (ADMIN, config.admin.listen),
        (REDIRECT, config.gateway.tls.redirect_listen),
        (CONSOLE, config.console.listen),
    ];
    all.into_iter()
        .filter_map(|(name, at)| Some(RequestedListener { name, at: at? }))
        .collect()
}

/// A socket of the predecessor, with the name and the address that its listener has in the predecessor.
pub(super) struct InheritedSocket {
    pub(super) name: String,
    pub(super) at: SocketAddr,
    pub(super) socket: TcpListener,
}

/// Builds the error for a listener whose address cannot be used. The message advises the operator what to change.
fn unusable_address(listener: &RequestedListener, error: &std::io::Error) -> StartError {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => {
            "use systemd/weir.socket or CAP_NET_BIND_SERVICE for a port below 1024, or configure another address"
        }
        ErrorKind::AddrNotAvailable => "this machine does not have the address: configure another address",
        _ => "free the address, or configure another address",
    };
    StartError::Listen(format!("{} at {}: {error}; {advice}", listener.name, listener.at))
}

/// The sockets of a running process.
pub(super) struct ListeningSockets {
    /// The sockets, by listener. Empty once no further connections are accepted.
    open: Mutex<Vec<(RequestedListener, TcpListener)>>,
    bound: Vec<(RequestedListener, SocketAddr)>,
}

impl ListeningSockets {
    /// Opens a socket for each listener, or uses the socket that was handed over for it. Closes handed-over sockets that have no
    /// listener. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// An address cannot be used.
    pub(super) fn open(
        wanted: Vec<RequestedListener>,
        mut activated: Vec<TcpListener>,
        mut inherited: Vec<InheritedSocket>,
    ) -> Result<Self, StartError> {
        let (mut open, mut bound) = (Vec::new(), Vec::new());
        for listener in wanted {
            let at = listener.at;
            let unusable = |error: std::io::Error| unusable_address(&listener, &error);
            let own = |one: &InheritedSocket| one.name == listener.name && one.at == at;
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

    /// Returns the address that the socket of a listener is bound to. Returns `configured` if the listener has no socket.
    pub(super) fn address(&self, name: &str, configured: SocketAddr) -> SocketAddr {
        let found = self.bound.iter().find(|(listener, _)| listener.name == name);
        found.map_or(configured, |(_, address)| *address)
    }

    /// Returns another handle of a listener's socket, which can accept connections in parallel.
    ///
    /// # Errors
    /// There is no such listener, or no file descriptors are left.
    pub(super) fn duplicate_socket(&self, name: &str) -> Result<TcpListener, StartError> {
        let open = self.open.lock();
        let found = open.iter().find(|(listener, _)| listener.name == name);
        let (_, socket) =
            found.ok_or_else(|| StartError::Listen(format!("the configuration has no listener `{name}`")))?;
        socket
            .try_clone()
            .map_err(|error| StartError::failed("cannot duplicate a listening socket", error))
    }

    /// Calls `add`, which adds services to the server. The services find the listening sockets in Pingora's table of sockets,
    /// which Pingora itself uses for its own upgrades.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub(super) fn add_services(
        &self,
        server: &mut Server,
        add: impl FnOnce(&mut Server) -> Vec<ServiceHandle>,
    ) -> Result<(), StartError> {
        let open = self.open.lock();
        let twins = open
            .iter()
            .map(|(_, socket)| Ok((socket.local_addr()?, socket.try_clone()?)));
        let twins: std::io::Result<Vec<_>> = twins.collect();
        let twins = twins.map_err(|error| StartError::failed("cannot duplicate a listening socket", error))?;
        let services = add(server);
        let sockets = server.add_service(SocketTable(twins));
        services.iter().for_each(|service| service.add_dependency(&sockets));
        Ok(())
    }

    /// Returns handles of all sockets, for the successor.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub(super) fn sockets_for_successor(&self) -> std::io::Result<Vec<(RequestedListener, OwnedFd)>> {
        let open = self.open.lock();
        let twins = open
            .iter()
            .map(|(listener, socket)| Ok((*listener, socket.as_fd().try_clone_to_owned()?)));
        twins.collect()
    }

    /// Closes this value's handles of the sockets. Services close their own handles. When all handles are closed, new connections
    /// are refused, unless another process also has the sockets.
    pub(super) fn close(&self) {
        self.open.lock().clear();
    }
}

/// A service that puts sockets into Pingora's table, where other services look up their sockets.
struct SocketTable(Vec<(SocketAddr, TcpListener)>);

#[async_trait]
impl ServiceWithDependents for SocketTable {
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
                // From here on, Pingora's table owns the descriptor.
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

/// Takes the sockets that a service manager has passed to this process. `listeners` are the addresses of all configured
/// listeners. With sockets from a service manager, a port below 1024 needs no capability, and no connection is refused while weir
/// restarts. This function must be called before other threads read the environment, because it removes the environment variables
/// that the service manager has set.
///
/// # Errors
/// A socket has the wrong type, or no listener is configured for its address.
pub(super) fn take_activated(listeners: &[SocketAddr]) -> Result<Vec<TcpListener>, StartError> {
    let mut sockets = ListenFd::from_env();
    let mut taken = Vec::new();
    for place in 0..sockets.len() {
        let unusable = |error: std::io::Error| {
            StartError::Listen(format!(
                "cannot use socket {place} of the service manager: {error}; each ListenStream= of the socket unit must be IP:PORT"
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
        "the service manager passes a socket at {address}, but the configured addresses are {}: set [gateway] listen \
         to \"{address}\", or correct ListenStream= of the socket unit",
        listeners.join(", ")
    )
}

/// The timeout for opening all listeners.
const START_WAIT: Duration = Duration::from_secs(10);

/// The addresses on which a running weir listens.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The address of the gateway, for clients.
    pub gateway: SocketAddr,
    /// The address for metrics and health.
    pub ops: SocketAddr,
    /// The address of the public stability service.
    pub stability: SocketAddr,
    /// The path of the admin API's Unix socket.
    pub admin: PathBuf,
    /// The address of the admin API over TCP. `None` if it is not configured.
    pub admin_tcp: Option<SocketAddr>,
    /// The address of the listener that redirects to HTTPS. `None` if it is not configured.
    pub redirect: Option<SocketAddr>,
    /// The address of the operators' console. `None` if it is not configured.
    pub console: Option<SocketAddr>,
}

/// The receivers of the listeners' addresses. Each receiver gets the address of its listener when that listener is open.
pub(super) struct BoundAddresses {
    pub(super) gateway: watch::Receiver<BoundAddress>,
    pub(super) ops: watch::Receiver<BoundAddress>,
    pub(super) stability: watch::Receiver<BoundAddress>,
    pub(super) admin: watch::Receiver<BoundAddress>,
    pub(super) admin_tcp: Option<watch::Receiver<BoundAddress>>,
    pub(super) redirect: Option<watch::Receiver<BoundAddress>>,
    pub(super) console: Option<watch::Receiver<BoundAddress>>,
}

impl BoundAddresses {
    /// Waits until all listeners are open, and returns their addresses.
    ///
    /// # Errors
    /// A listener cannot be opened, or was not opened in time.
    pub(super) async fn addresses(self) -> Result<Addresses, StartError> {
        let admin = match wait_for_address(self.admin).await? {
            BoundAddress::Unix(path) => path,
            BoundAddress::Failed(reason) => return Err(StartError::Listen(reason)),
            BoundAddress::Waiting | BoundAddress::Tcp(_) => return Err(wrong_kind_error()),
        };
        Ok(Addresses {
            gateway: tcp(self.gateway).await?,
            ops: tcp(self.ops).await?,
            stability: tcp(self.stability).await?,
            admin,
            admin_tcp: optional(self.admin_tcp).await?,
            redirect: optional(self.redirect).await?,
            console: optional(self.console).await?,
        })
    }
}

async fn optional(watch: Option<watch::Receiver<BoundAddress>>) -> Result<Option<SocketAddr>, StartError> {
    match watch {
        Some(watch) => tcp(watch).await.map(Some),
        None => Ok(None),
    }
}

async fn tcp(watch: watch::Receiver<BoundAddress>) -> Result<SocketAddr, StartError> {
    match wait_for_address(watch).await? {
        BoundAddress::Tcp(address) => Ok(address),
        BoundAddress::Failed(reason) => Err(StartError::Listen(reason)),
        BoundAddress::Waiting | BoundAddress::Unix(_) => Err(wrong_kind_error()),
    }
}

fn wrong_kind_error() -> StartError {
    StartError::Listen("a listener has an address of the wrong kind, which is a bug".to_owned())
}

async fn wait_for_address(mut watch: watch::Receiver<BoundAddress>) -> Result<BoundAddress, StartError> {
    let waiting = watch.wait_for(|bound| *bound != BoundAddress::Waiting);
    match tokio::time::timeout(START_WAIT, waiting).await {
        Ok(Ok(bound)) => Ok(bound.clone()),
        _ => Err(StartError::Listen(
            "a listener was not opened in time; see the earlier messages in the log".to_owned(),
        )),
    }
}

/// Returns the name with which this program was called, quoted for a shell. A user can call the program again with this name,
/// even if the program is not in `PATH`.
pub(super) fn program() -> String {
    let called = std::env::args_os().next().filter(|called| !called.is_empty());
    let called = called.map_or_else(|| "weir".to_owned(), |called| called.to_string_lossy().into_owned());
    if called.contains(|c: char| c.is_whitespace() || "'\"$`\\".contains(c)) {
        format!("'{}'", called.replace('\'', r"'\''"))
    } else {
        called
    }
}

/// Returns the message of a successful start: the address for clients, and the next commands if there is no account yet.
pub(super) fn ready_text(addresses: &Addresses, tls: bool, conf: &Path, is_first: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    let ready = format!("ready at {scheme}://{}", addresses.gateway);
    if !is_first {
        return ready;
    }
    let (conf, weir) = (conf.display(), program());
    format!(
        "{ready}, next: `{weir} account create --conf {conf} --id me --balance-usd 10`, then \
         `{weir} key create --conf {conf} --account me --name laptop`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_where_and_with_which_file() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let addresses = Addresses {
            gateway: at(8080),
            ops: at(9464),
            stability: at(8081),
            admin: "admin.sock".into(),
            admin_tcp: None,
            redirect: None,
            console: None,
        };
        let tls = ready_text(&addresses, true, Path::new("conf/weir.toml"), true);
        assert!(tls.starts_with("ready at https://127.0.0.1:8080, next: "), "{tls}");
        let later = ready_text(&addresses, true, Path::new("conf/weir.toml"), false);
        assert_eq!(later, "ready at https://127.0.0.1:8080");
        let line = ready_text(&addresses, false, Path::new("conf/weir.toml"), true);
        assert!(line.starts_with("ready at http://127.0.0.1:8080, next: "), "{line}");
        assert!(line.contains("--conf conf/weir.toml --id me"), "{line}");
        assert!(line.contains(&format!("`{} key create --conf", program())), "{line}");
    }
}
