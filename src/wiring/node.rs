//! A running weir: as a part of another program's server, and with all that its end needs.

use std::{fmt, net::SocketAddr, sync::Arc, thread::JoinHandle};

use parking_lot::Mutex;

use crate::{
    telemetry::metrics::Metrics,
    wiring::{StartError, reload::ReloadTrigger, running::RunningWeir},
};

/// weir as a part of a server: its address, its metrics, its reload and its end.
///
/// [`Services::add_to`](crate::Services::add_to) returns it. Clones belong to the same weir, so that a service of the server
/// can have one. Dropping it ends nothing.
#[derive(Clone)]
pub struct Node {
    gateway: SocketAddr,
    metrics: Arc<Metrics>,
    reload: ReloadTrigger,
    /// The thread that waits for the server's end and ends weir; `None` once it was joined.
    end: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Node {
    /// Starts a thread that waits for the end of the server, and ends weir with it.
    pub(super) fn start(running: RunningWeir, gateway: SocketAddr) -> Result<Self, StartError> {
        let metrics = Arc::clone(&running.parts.sinks.metrics);
        let reload = running.parts.reload.clone();
        let end = std::thread::Builder::new()
            .name("weir".to_owned())
            .spawn(move || running.until_stopped())
            .map_err(|error| StartError::failed("cannot start the thread that ends weir", error))?;
        Ok(Self {
            gateway,
            metrics,
            reload,
            end: Arc::new(Mutex::new(Some(end))),
        })
    }

    /// The gateway's address. If the configuration has port 0, this has the actual port.
    #[must_use]
    pub fn gateway(&self) -> SocketAddr {
        self.gateway
    }

    /// weir's metrics in Prometheus' text format 0.0.4, as its own listener (`[ops] listen`) serves them at `/metrics`.
    ///
    /// weir has its own registry, and registers nothing in the default one of the `prometheus` crate
    /// (`prometheus::default_registry`). The text includes the `process_*` metrics of this process: if your own page already has
    /// them, serve this text at another path.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics.render()
    }

    /// Reloads the configuration and reopens the access log, like SIGHUP for `weir serve`. Returns at once; the result is logged,
    /// and counted by `weir_config_reloads_total`. A changed file is reloaded even without this call.
    pub fn reload(&self) {
        self.reload.request();
    }

    /// Waits until weir has ended: every request is charged, and everything is written.
    ///
    /// Call it after `Server::run` has returned; earlier, it waits for the end of the server. If the process ends without this
    /// call (as with `Server::run_forever`) before weir has ended, the next start completes the work from the journal, as after
    /// a crash.
    pub fn finish(&self) {
        let mut end = self.end.lock();
        if let Some(thread) = end.take()
            && thread.join().is_err()
        {
            tracing::error!("weir has not ended cleanly: the next start completes the work from the journal");
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Node");
        shown.field("gateway", &self.gateway).finish_non_exhaustive()
    }
}
