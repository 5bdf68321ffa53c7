//! A running weir as a part of another program's server.

use std::{fmt, net::SocketAddr, sync::Arc, thread::JoinHandle};

use parking_lot::Mutex;

use crate::{
    telemetry::metrics::Metrics,
    wiring::{StartError, reload::ReloadTrigger, running::RunningWeir},
};

/// A weir that runs as a part of a server. It has weir's address and metrics, and can reload weir and wait for its end.
///
/// [`Services::add_to`](crate::Services::add_to) returns it. Clones are handles of the same weir, so that a service of the server
/// can have one. Dropping a node ends nothing.
#[derive(Clone)]
pub struct Node {
    gateway: SocketAddr,
    metrics: Arc<Metrics>,
    reload: ReloadTrigger,
    /// The thread that waits for the server's end and then ends weir. `None` once it was joined.
    end: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Node {
    /// Starts the thread that waits for the end of the server and then ends weir.
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

    /// Returns the address of the gateway. If port 0 is configured, the address has the actual port.
    #[must_use]
    pub fn gateway(&self) -> SocketAddr {
        self.gateway
    }

    /// Returns weir's metrics in Prometheus' text format 0.0.4. It is the same text that weir's own listener (`[ops] listen`)
    /// serves at `/metrics`.
    ///
    /// weir registers its metrics in a registry of its own, and none in the default registry of the `prometheus` crate
    /// (`prometheus::default_registry`). The text includes the `process_*` metrics of this process. If your own page already has
    /// them, serve this text at another path.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics.render()
    }

    /// Reloads the configuration and reopens the access log, like SIGHUP for `weir serve`. Returns at once. The result is logged
    /// and counted by `weir_config_reloads_total`. A changed file is also reloaded without this call.
    pub fn reload(&self) {
        self.reload.request();
    }

    /// Waits until weir has ended: every request is charged, and everything is written.
    ///
    /// Call this after `Server::run` has returned; before that, it waits for the end of the server. If the process ends before
    /// weir has ended, because this was not called (as with `Server::run_forever`), the next start completes the work from the
    /// journal, as after a crash.
    pub fn finish(&self) {
        let mut end = self.end.lock();
        if let Some(thread) = end.take()
            && thread.join().is_err()
        {
            tracing::error!(
                "weir did not end cleanly, because its thread panicked: the next start completes the work from the journal"
            );
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Node");
        shown.field("gateway", &self.gateway).finish_non_exhaustive()
    }
}
