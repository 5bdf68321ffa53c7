//! Where the listeners of a process are, once they are.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use tokio::sync::watch;

use crate::{side::service::Bound, wiring::StartError};

/// How long listening sockets may take to be there.
const START_WAIT: Duration = Duration::from_secs(10);

/// Where a running weir listens.
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
    /// The listener that sends clients to the one with TLS.
    pub redirect: Option<SocketAddr>,
    /// The operators' console.
    pub console: Option<SocketAddr>,
}

/// What tells where each listener is bound.
pub(super) struct Bounds {
    pub(super) gateway: watch::Receiver<Bound>,
    pub(super) ops: watch::Receiver<Bound>,
    pub(super) stability: watch::Receiver<Bound>,
    pub(super) admin: watch::Receiver<Bound>,
    pub(super) admin_tcp: Option<watch::Receiver<Bound>>,
    pub(super) redirect: Option<watch::Receiver<Bound>>,
    pub(super) console: Option<watch::Receiver<Bound>>,
}

impl Bounds {
    /// Waits for all of them.
    ///
    /// # Errors
    /// One cannot listen, or does not in time.
    pub(super) async fn addresses(self) -> Result<Addresses, StartError> {
        let admin = match bound(self.admin).await? {
            Bound::Unix(path) => path,
            Bound::Failed(reason) => return Err(StartError::Listen(reason)),
            Bound::Waiting | Bound::Tcp(_) => return Err(of_the_wrong_kind()),
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

async fn optional(watch: Option<watch::Receiver<Bound>>) -> Result<Option<SocketAddr>, StartError> {
    match watch {
        Some(watch) => tcp(watch).await.map(Some),
        None => Ok(None),
    }
}

async fn tcp(watch: watch::Receiver<Bound>) -> Result<SocketAddr, StartError> {
    match bound(watch).await? {
        Bound::Tcp(address) => Ok(address),
        Bound::Failed(reason) => Err(StartError::Listen(reason)),
        Bound::Waiting | Bound::Unix(_) => Err(of_the_wrong_kind()),
    }
}

fn of_the_wrong_kind() -> StartError {
    StartError::Listen("a listener of the wrong kind".to_owned())
}

async fn bound(mut watch: watch::Receiver<Bound>) -> Result<Bound, StartError> {
    let waiting = watch.wait_for(|bound| *bound != Bound::Waiting);
    match tokio::time::timeout(START_WAIT, waiting).await {
        Ok(Ok(bound)) => Ok(bound.clone()),
        _ => Err(StartError::Listen("a listener did not start in time".to_owned())),
    }
}
