//! What ends the process.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// How far the end of the process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Serving.
    Serving,
    /// SIGTERM: nothing new is accepted, what runs may end.
    Draining,
    /// SIGINT, or a second SIGTERM: at once.
    Stopping,
}

/// Listens for signals and tells the rest of the process. Pingora waits on it too.
#[derive(Debug)]
pub struct Signals {
    phase: Arc<watch::Sender<Phase>>,
}

impl Signals {
    /// Starts listening, on the current runtime.
    pub fn listen() -> std::io::Result<(Self, watch::Receiver<Phase>)> {
        let phase = Arc::new(watch::Sender::new(Phase::Serving));
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let told = Arc::clone(&phase);
        tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    _ = terminate.recv() => {
                        if *told.borrow() == Phase::Serving { Phase::Draining } else { Phase::Stopping }
                    }
                    _ = interrupt.recv() => Phase::Stopping,
                };
                told.send_replace(next);
            }
        });
        let watch = phase.subscribe();
        Ok((Self { phase }, watch))
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let mut phase = self.phase.subscribe();
        // The sender is part of this value, so waiting cannot fail.
        match phase
            .wait_for(|phase| *phase != Phase::Serving)
            .await
            .map(|phase| *phase)
        {
            Ok(Phase::Draining) => ShutdownSignal::GracefulTerminate,
            _ => ShutdownSignal::FastShutdown,
        }
    }
}
