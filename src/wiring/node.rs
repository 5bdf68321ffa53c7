//! weir as a part of somebody else's server.

use std::{fmt, net::SocketAddr, sync::Arc, thread::JoinHandle};

use parking_lot::Mutex;

use crate::{
    telemetry::metrics::Metrics,
    wiring::{StartError, reload::ReloadTrigger, running::Running},
};

/// weir as a part of a server: where it listens, its metrics, its reload and its end.
///
/// [`Services::add_to`](crate::Services::add_to) makes it. Clones are of the same weir, so that a service of the server's own can have
/// one. Dropping it ends nothing.
#[derive(Clone)]
pub struct Node {
    gateway: SocketAddr,
    metrics: Arc<Metrics>,
    reload: ReloadTrigger,
    /// The thread that waits for the end and brings it about; `None` once it was waited for.
    end: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Node {
    /// Has a thread wait for the end of the server, and end weir with it.
    pub(super) fn start(running: Running, gateway: SocketAddr) -> Result<Self, StartError> {
        let metrics = Arc::clone(&running.parts.sinks.metrics);
        let reload = running.parts.reload.clone();
        let end = std::thread::Builder::new()
            .name("weir".to_owned())
            .spawn(move || running.until_stopped())
            .map_err(|error| StartError::failed("the thread that ends weir", error))?;
        Ok(Self {
            gateway,
            metrics,
            reload,
            end: Arc::new(Mutex::new(Some(end))),
        })
    }

    /// The address at which clients are served. Where the configuration has port 0, this is the port that was free.
    #[must_use]
    pub fn gateway(&self) -> SocketAddr {
        self.gateway
    }

    /// weir's metrics in Prometheus' text format 0.0.4, as its own listener for them (`[ops] listen`) serves them at `/metrics`.
    ///
    /// weir has a registry of its own, and registers nothing in that of the `prometheus` crate (`prometheus::default_registry`). The text
    /// has the `process_*` metrics of this process: a page that has them from another registry serves this text at a path of its own.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics.render()
    }

    /// Has the configuration read again, and the access log go on in the file that is at its path, as SIGHUP does to `weir serve`.
    /// Returns at once; the outcome is logged, and counted by `weir_config_reloads_total`. A changed file is loaded without it.
    pub fn reload(&self) {
        self.reload.ask();
    }

    /// Waits until weir has ended: every request is charged, and everything is written.
    ///
    /// To be called when `Server::run` has returned; before, it waits for the end of the server. Where the process ends without it (as
    /// `Server::run_forever` does), and weir has not ended within the server's grace period, the next start does the rest from the
    /// journal, as after a crash.
    pub fn finish(&self) {
        let mut end = self.end.lock();
        if let Some(thread) = end.take()
            && thread.join().is_err()
        {
            tracing::error!("weir has not ended as it should: the next start does the rest from the journal");
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Node");
        shown.field("gateway", &self.gateway).finish_non_exhaustive()
    }
}
