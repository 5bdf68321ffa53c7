//! A running weir, with everything that is needed to end it. A [`Node`] is a weir that runs in another program's server.
//!
//! The process ends in this order: it accepts no further requests, running requests get time to finish, requests that have not
//! finished by then get an error, and everything is charged.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tempfile::NamedTempFile;
use tokio::{
    io::AsyncReadExt,
    net::UnixStream,
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};

use crate::{
    front::FIRST_REQUEST_WAIT,
    gateway::drain::Drain,
    telemetry::metrics::Metrics,
    wiring::{
        StartError,
        listeners::ListeningSockets,
        parts::NodeParts,
        process::{self, Phase, ProcessOwner},
        reload::ReloadTrigger,
        upgrade::handover::Predecessor,
    },
};

/// A running weir. [`RunningWeir::until_stopped`] waits until it ends.
pub(crate) struct RunningWeir {
    /// The parts of weir.
    pub parts: NodeParts,
    /// The runtime of the background tasks.
    pub background: Runtime,
    /// The owner of the process.
    pub(super) process: ProcessOwner,
    pub(super) phase: watch::Receiver<Phase>,
    /// The maximum time for which running requests continue after the gateway has stopped accepting requests.
    pub(super) drain_time: Duration,
    /// Turns true when the successor serves.
    pub(super) handed_over: watch::Receiver<bool>,
    pub(super) listeners: Arc<ListeningSockets>,
    /// Is turned true to close the listeners other than the gateway's.
    pub(super) side_closing: watch::Sender<bool>,
    /// The task that handles the predecessor's calls of the store. It ends when the predecessor has ended. `None` without a
    /// predecessor.
    pub(super) predecessor: Option<JoinHandle<()>>,
    pub(super) server: ServerEnd,
    /// The file with CA certificates for providers, which must exist as long as the server runs. `None` if the platform's CA
    /// certificates are used.
    pub(super) _roots: Option<NamedTempFile>,
}

/// The control over the end of the server that weir's services belong to.
pub(super) struct ServerEnd {
    /// Is turned true to end the server. `None` if the server's owner ends the server.
    pub(super) order: Option<watch::Sender<bool>>,
    /// Turns true when the server has dropped everything that ran in it.
    pub(super) ended: watch::Receiver<bool>,
}

impl RunningWeir {
    /// Notifies the predecessor that this process serves. Then handles the predecessor's calls of the store in the background,
    /// until the predecessor ends.
    pub(super) fn announce_to(mut self, predecessor: Predecessor) -> Result<Self, StartError> {
        let line = predecessor.report_serving()?;
        let unheard = |error| StartError::failed("cannot use the connection to the predecessor", error);
        let mut line = self
            .background
            .block_on(async { UnixStream::from_std(line) })
            .map_err(unheard)?;
        self.predecessor = Some(match self.parts.money.embedded() {
            Some(store) => self.background.spawn(store.serve_predecessor(line)),
            // The predecessor sends nothing on the connection, and closes it when it ends.
            None => self.background.spawn(async move { drop(line.read_u8().await) }),
        });
        Ok(self)
    }
}

/// Starts to listen for the signals that end the process, on the current runtime. Returns a receiver of the phase that results
/// from the signals.
pub(crate) fn watch_phase() -> std::io::Result<watch::Receiver<Phase>> {
    let phase = watch::Sender::new(Phase::Serving);
    let watch = phase.subscribe();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                _ = terminate.recv() => {
                    if *phase.borrow() == Phase::Serving { Phase::Draining } else { Phase::Stopping }
                }
                _ = interrupt.recv() => Phase::Stopping,
            };
            phase.send_replace(next);
        }
    });
    Ok(watch)
}

/// Starts to listen for SIGHUP on the current runtime. Each SIGHUP triggers a reload.
pub(crate) fn reload_on_hangup(reload: ReloadTrigger) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload.request();
        }
    });
    Ok(())
}

/// Ends Pingora when the watched value turns true. The value turns true some time after the signal that ends the process. The
/// gateway stops soon after the signal, but the other listeners are still needed to monitor the draining node.
#[derive(Debug)]
pub(crate) struct TerminationWatch(pub watch::Receiver<bool>);

#[async_trait]
impl ShutdownSignalWatch for TerminationWatch {
    async fn recv(&self) -> ShutdownSignal {
        // A dropped sender means that the server must end.
        let _ = self.0.clone().wait_for(|end| *end).await;
        ShutdownSignal::GracefulTerminate
    }
}

/// The time for which requests can still begin on connections that were accepted just before the gateway closed.
const BEGIN_WAIT: Duration = Duration::from_millis(250);

/// The maximum time for which connections without requests stay open. weir closes HTTP/1.1 connections; HTTP/2 connections are
/// closed by their clients.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The time for sending an error to the clients of requests that have not finished within the drain time.
pub(super) const CUT_WAIT: Duration = Duration::from_secs(5);

/// The time in which Pingora must drop all running tasks and end.
const END_WAIT: Duration = Duration::from_secs(5);

/// The timeout of each of the last writes, to the store and to the access log.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// The maximum time from the end of the drain to the end of the process. It covers the timeouts above and the work between them.
const AFTER_DRAIN: Duration = Duration::from_secs(60);

impl RunningWeir {
    /// Serves until the [`Phase`] changes or a successor serves, and then ends.
    ///
    /// In [`Phase::Draining`], and after a handover, no further requests are accepted. The process ends when the last running
    /// request has ended, or after `[gateway] drain_seconds`. Requests that have not finished by then get an error in the form of
    /// their protocol. In [`Phase::Stopping`], requests end at once. The other listeners respond until the last request has
    /// ended. Every request is charged.
    pub(crate) fn until_stopped(self) {
        let Self {
            parts,
            background,
            process,
            mut phase,
            drain_time,
            handed_over,
            listeners,
            side_closing,
            predecessor,
            server,
            ..
        } = self;
        let why = background.block_on(wait_for_stop(&mut phase, handed_over));
        parts.drain.close();
        listeners.close();
        parts.money.hurry();
        let close = match why {
            StopReason::Ordered => {
                if process == ProcessOwner::Own {
                    process::stopping(drain_time + AFTER_DRAIN);
                }
                CLOSE_WAIT
            }
            StopReason::HandedOver => {
                // The other listeners are closed at once, because the successor serves them now.
                side_closing.send_replace(true);
                FIRST_REQUEST_WAIT + CLOSE_WAIT
            }
        };
        let waits = StopTimeouts {
            time: drain_time,
            close,
        };
        background.block_on(drain_requests(phase, &parts.drain, waits, predecessor));
        // From now on, requests that arrive on open connections are refused, because the server may end much later.
        parts.drain.expire();
        side_closing.send_replace(true);
        background.block_on(end_server(server, &parts.drain));
        background.block_on(parts.money.settle());
        parts.stop.send_replace(true);
        background.block_on(async {
            // Counts that are not published in time remain in the journal and are published at the next start.
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.stability.end()).await;
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.money.end()).await;
            // The timeouts of the store also limit these waits.
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.cache_task).await;
            let _ = tokio::time::timeout(FLUSH_WAIT, parts.session_task).await;
        });
        if !parts.sinks.access_log.close(FLUSH_WAIT) {
            tracing::warn!("cannot write the last lines of the access log in time; these lines are lost");
        }
        background.shutdown_timeout(FLUSH_WAIT);
        tracing::info!("stopped");
    }
}

/// The maximum time for running requests to finish, and for connections without requests to close.
struct StopTimeouts {
    time: Duration,
    close: Duration,
}

/// The reason why the process accepts no further requests.
enum StopReason {
    /// A signal was received, or the server shuts down.
    Ordered,
    /// The successor serves.
    HandedOver,
}

/// Waits until the process must end, and returns why.
async fn wait_for_stop(phase: &mut watch::Receiver<Phase>, mut handed_over: watch::Receiver<bool>) -> StopReason {
    tokio::select! {
        // The wait cannot fail, because a background task owns the sender.
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => StopReason::Ordered,
        Ok(_) = handed_over.wait_for(|handed_over| *handed_over) => StopReason::HandedOver,
    }
}

/// Waits until no request runs in this process or its predecessor, or until the remaining requests have to be ended. This process
/// must not end before its predecessor: the predecessor may still call this process's store, and a service manager would kill the
/// predecessor when this process ends.
async fn drain_requests(
    mut phase: watch::Receiver<Phase>,
    drain: &Drain,
    waits: StopTimeouts,
    predecessor: Option<JoinHandle<()>>,
) {
    let StopTimeouts { time, close } = waits;
    tracing::info!(
        running = drain.running(),
        drain_seconds = time.as_secs(),
        "stopping: no new requests are accepted"
    );
    let stopping = async {
        let _ = phase.wait_for(|phase| *phase == Phase::Stopping).await;
    };
    let all_ended = async {
        wait_until_idle(drain, close).await;
        if let Some(predecessor) = predecessor {
            // The wait needs no timeout, because the predecessor ends within its own drain time.
            let _ = predecessor.await;
        }
    };
    tokio::select! {
        () = all_ended => return,
        () = stopping => {}
        () = tokio::time::sleep(time) => {}
    }
    let running = drain.running();
    if running > 0 {
        tracing::warn!(
            running,
            "the drain time is over; weir now ends the running requests, and sends each client an error in the client's protocol"
        );
    }
    drain.expire();
    if tokio::time::timeout(CUT_WAIT, wait_until_idle(drain, CLOSE_WAIT))
        .await
        .is_err()
    {
        let running = drain.running();
        tracing::warn!(
            running,
            "cannot send errors to the clients of the remaining requests, because the clients do not read; weir ends these requests without an error"
        );
    }
}

/// Waits until the last request has ended and its bytes were sent.
async fn wait_until_idle(drain: &Drain, close: Duration) {
    tokio::time::sleep(BEGIN_WAIT).await;
    drain.requests_ended().await;
    let _ = tokio::time::timeout(close, drain.connections_ended()).await;
    // An HTTP/2 client may have sent a request before it received the notice that the connection ends.
    drain.requests_ended().await;
}

/// Ends the server, and waits until its runtimes have ended. This drops all running requests, and dropping a request settles its
/// ticket. If the server's owner decides when the server ends, only waits until no request runs.
async fn end_server(server: ServerEnd, drain: &Drain) {
    let ServerEnd { order, mut ended } = server;
    let has_ended = async {
        // A dropped sender means that the server has ended.
        let _ = ended.wait_for(|ended| *ended).await;
    };
    match order {
        Some(order) => {
            order.send_replace(true);
            if tokio::time::timeout(END_WAIT, has_ended).await.is_err() {
                tracing::warn!(
                    "the server did not end in time, so some requests were stopped before their end was recorded"
                );
            }
        }
        None => tokio::select! {
            () = has_ended => {}
            () = drain.requests_ended() => {}
        },
    }
}

/// A handle of a weir that runs as a part of a server. It returns weir's address and metrics, reloads weir, and waits for weir's
/// end.
///
/// [`Services::add_to`](crate::Services::add_to) returns it. Clones are handles of the same weir, for example for use in another
/// service of the server. Dropping a handle does not end weir.
#[derive(Clone)]
pub struct Node {
    gateway: SocketAddr,
    metrics: Arc<Metrics>,
    reload: ReloadTrigger,
    /// The thread that waits for the server's end and then ends weir. `None` after the thread was joined.
    end: Arc<Mutex<Option<std::thread::JoinHandle<()>>>>,
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

    /// Returns weir's metrics in Prometheus' text format 0.0.4, the same text that weir's own listener (`[ops] listen`) serves at
    /// `/metrics`.
    ///
    /// weir registers its metrics in its own registry, not in the default registry of the `prometheus` crate
    /// (`prometheus::default_registry`). The text includes the `process_*` metrics of this process. If your program's metrics
    /// page already has these metrics, serve this text at another path.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics.render()
    }

    /// Reloads the configuration and reopens the access log, like SIGHUP for `weir serve`. Returns at once. The result is logged
    /// and counted by `weir_config_reloads_total`. Changed files are also reloaded without this call.
    pub fn reload(&self) {
        self.reload.request();
    }

    /// Waits until weir has ended, with every request charged and everything written.
    ///
    /// Call this after `Server::run` has returned; an earlier call waits for the end of the server. Without this call (for
    /// example with `Server::run_forever`), the process may end before weir. The next start then completes the work from the
    /// journal, as after a crash.
    pub fn finish(&self) {
        let mut end = self.end.lock();
        if let Some(thread) = end.take()
            && thread.join().is_err()
        {
            tracing::error!(
                "weir did not end cleanly, because its thread panicked; at the next start, weir completes the work from the journal"
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
