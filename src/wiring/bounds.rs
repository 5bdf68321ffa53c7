//! The addresses of a process's listeners, once they are open.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use tokio::sync::watch;

use crate::{side::service::BoundAddress, wiring::StartError};

/// The timeout for opening the listeners.
const START_WAIT: Duration = Duration::from_secs(10);

/// The addresses of a running weir.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// The listener for clients.
    pub gateway: SocketAddr,
    /// The listener for metrics and health.
    pub ops: SocketAddr,
    /// The public stability service.
    pub stability: SocketAddr,
    /// The admin API's unix socket.
    pub admin: PathBuf,
    /// The admin API over TCP.
    pub admin_tcp: Option<SocketAddr>,
    /// The listener that redirects clients to the one with TLS.
    pub redirect: Option<SocketAddr>,
    /// The operators' console.
    pub console: Option<SocketAddr>,
}

/// Reports the address of each listener once it is open.
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
    /// Waits for all addresses.
    ///
    /// # Errors
    /// A listener cannot be opened, or not in time.
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
    StartError::Listen("a listener of the wrong kind".to_owned())
}

async fn wait_for_address(mut watch: watch::Receiver<BoundAddress>) -> Result<BoundAddress, StartError> {
    let waiting = watch.wait_for(|bound| *bound != BoundAddress::Waiting);
    match tokio::time::timeout(START_WAIT, waiting).await {
        Ok(Ok(bound)) => Ok(bound.clone()),
        _ => Err(StartError::Listen("a listener did not start in time".to_owned())),
    }
}
