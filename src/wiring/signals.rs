//! Handles signals, in a process of weir's own: those that end it, and the one that has it reload.

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::wiring::{phase::Phase, reload::ReloadTrigger};

/// Listens for the signals that end the process, on the current runtime.
pub(crate) fn phase() -> std::io::Result<watch::Receiver<Phase>> {
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

/// Asks for a reload on each SIGHUP, on the current runtime.
pub(crate) fn reload_on_hangup(reload: ReloadTrigger) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            reload.ask();
        }
    });
    Ok(())
}

/// Ends Pingora when it is told to. That is not when the process is: the gateway closes long before the listeners beside it
/// do, so that whoever watches a node that drains goes on seeing it.
#[derive(Debug)]
pub(crate) struct TerminationWatch(pub watch::Receiver<bool>);

#[async_trait]
impl ShutdownSignalWatch for TerminationWatch {
    async fn recv(&self) -> ShutdownSignal {
        // A sender that is gone has nothing more to say.
        let _ = self.0.clone().wait_for(|end| *end).await;
        ShutdownSignal::GracefulTerminate
    }
}
