//! A running weir, and all that its end needs.

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

/// A running weir; [`RunningWeir::until_stopped`] waits for its end.
pub(crate) struct RunningWeir {
    /// Its parts.
    pub parts: NodeParts,
    /// The runtime of its background tasks.
    pub background: Runtime,
    /// The owner of its process.
    pub(super) process: ProcessOwner,
    pub(super) phase: watch::Receiver<Phase>,
    /// How long running requests may go on after the gateway has closed.
    pub(super) drain_time: Duration,
    /// Turns true when the successor serves.
    pub(super) handed_over: watch::Receiver<bool>,
    pub(super) listeners: Arc<ListeningSockets>,
    /// Turned true to close the listeners other than the gateway's.
    pub(super) side_closing: watch::Sender<bool>,
    /// Ends with the predecessor.
    pub(super) predecessor: Option<JoinHandle<()>>,
    pub(super) server: ServerEnd,
    /// Must exist as long as the server.
    pub(super) _roots: Option<NamedTempFile>,
}

/// The end of the server that weir's services are part of.
pub(super) struct ServerEnd {
    /// Ends the server; `None` if its owner does.
    pub(super) order: Option<watch::Sender<bool>>,
    /// Turns true when the server has dropped everything that ran in it.
    pub(super) ended: watch::Receiver<bool>,
}

impl RunningWeir {
    /// Tells the predecessor that this process serves, then handles its calls to the store until it ends.
    pub(super) fn announce_to(mut self, predecessor: Predecessor) -> Result<Self, StartError> {
        let line = predecessor.report_serving()?;
        let unheard = |error| StartError::failed("cannot use the connection to the predecessor", error);
        let mut line = self
            .background
            .block_on(async { UnixStream::from_std(line) })
            .map_err(unheard)?;
        self.predecessor = Some(match self.parts.money.embedded() {
            Some(store) => self.background.spawn(store.serve_predecessor(line)),
            // The predecessor only closes it when it ends.
            None => self.background.spawn(async move { drop(line.read_u8().await) }),
        });
        Ok(self)
    }
}

/// Listens for the signals that end the process, on the current runtime.
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

/// Triggers a reload on each SIGHUP, on the current runtime.
pub(crate) fn reload_on_hangup(reload: ReloadTrigger) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload.request();
        }
    });
    Ok(())
}

/// Ends Pingora when the value turns true. That is later than the signal: the gateway closes long before the other listeners,
/// so that a draining node can still be monitored.
#[derive(Debug)]
pub(crate) struct TerminationWatch(pub watch::Receiver<bool>);

#[async_trait]
impl ShutdownSignalWatch for TerminationWatch {
    async fn recv(&self) -> ShutdownSignal {
        // A dropped sender counts as the end.
        let _ = self.0.clone().wait_for(|end| *end).await;
        ShutdownSignal::GracefulTerminate
    }
}
