//! A running weir, with everything that is needed to end it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
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

use crate::wiring::{
    StartError,
    listeners::ListeningSockets,
    parts::NodeParts,
    process::{Phase, ProcessOwner},
    reload::ReloadTrigger,
    upgrade::handover::Predecessor,
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
    /// How long running requests may continue after the gateway has stopped accepting requests.
    pub(super) drain_time: Duration,
    /// Turns true when the successor serves.
    pub(super) handed_over: watch::Receiver<bool>,
    pub(super) listeners: Arc<ListeningSockets>,
    /// Is turned true to close the listeners beside the gateway's.
    pub(super) side_closing: watch::Sender<bool>,
    /// The task that handles the predecessor's calls of the store. It ends when the predecessor has ended. `None` without a
    /// predecessor.
    pub(super) predecessor: Option<JoinHandle<()>>,
    pub(super) server: ServerEnd,
    /// The file with CA certificates for providers, which must exist as long as the server. `None` if the platform's own are
    /// used.
    pub(super) _roots: Option<NamedTempFile>,
}

/// The end of the server that weir's services are part of.
pub(super) struct ServerEnd {
    /// Is turned true to end the server. `None` if the server's owner ends it.
    pub(super) order: Option<watch::Sender<bool>>,
    /// Turns true when the server has dropped everything that ran in it.
    pub(super) ended: watch::Receiver<bool>,
}

impl RunningWeir {
    /// Notifies the predecessor that this process serves. Then handles the predecessor's calls of the store in the background,
    /// until it ends.
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

/// Starts to listen for the signals that end the process. Runs on the current runtime. Returns the phase that follows from them.
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

/// Starts to listen for SIGHUP, each of which triggers a reload. Runs on the current runtime.
pub(crate) fn reload_on_hangup(reload: ReloadTrigger) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload.request();
        }
    });
    Ok(())
}

/// Ends Pingora when the value turns true. That is later than the signal: the gateway stops long before the other listeners, so
/// that a draining node can still be monitored.
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
