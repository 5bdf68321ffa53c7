//! Handles signals in a process of weir's own: those that end it, and SIGHUP for a reload.

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::wiring::{phase::Phase, reload::ReloadTrigger};

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
