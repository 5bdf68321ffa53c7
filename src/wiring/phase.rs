//! The phases of weir's end, and of the end of the server that its services are part of.

use pingora::server::ExecutionPhase;
use tokio::{
    runtime::Handle,
    sync::{
        broadcast::{Receiver, error::RecvError},
        watch,
    },
};

/// The phase of weir's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// After SIGTERM, or when the server shuts down: nothing new is accepted, running requests may end.
    Draining,
    /// After SIGINT or a second SIGTERM, or when the server drops its services: everything ends at once.
    Stopping,
}

/// The phases that a server announces.
pub(super) struct ServerPhases {
    /// The resulting phase of weir, if the server's owner decides about the end.
    pub(super) phase: watch::Receiver<Phase>,
    /// Turns true when the server has dropped everything that ran in it.
    pub(super) ended: watch::Receiver<bool>,
}

impl ServerPhases {
    /// Follows a server on this runtime, to its end.
    pub(super) fn follow(mut announced: Receiver<ExecutionPhase>, on: &Handle) -> Self {
        let (phase, ended) = (watch::Sender::new(Phase::Serving), watch::Sender::new(false));
        let this = Self {
            phase: phase.subscribe(),
            ended: ended.subscribe(),
        };
        on.spawn(async move {
            loop {
                match announced.recv().await {
                    Ok(ExecutionPhase::ShutdownStarted) => {
                        phase.send_replace(Phase::Draining);
                    }
                    Ok(ExecutionPhase::ShutdownRuntimes) => {
                        phase.send_replace(Phase::Stopping);
                    }
                    // A server that is dropped without having run announces nothing.
                    Ok(ExecutionPhase::Terminated) | Err(RecvError::Closed) => break,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                }
            }
            phase.send_replace(Phase::Stopping);
            ended.send_replace(true);
        });
        this
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;

    async fn reached(phases: &mut ServerPhases, wanted: Phase) {
        phases.phase.wait_for(|phase| *phase == wanted).await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_shuts_down_drains_then_stops_then_has_ended() {
        let (server, announced) = broadcast::channel(16);
        let mut phases = ServerPhases::follow(announced, &Handle::current());
        let say = |phase| assert!(server.send(phase).is_ok());
        say(ExecutionPhase::Running);
        // The next process is given its sockets: this one serves until that one has had time to begin.
        say(ExecutionPhase::GracefulUpgradeTransferringFds);
        say(ExecutionPhase::GracefulUpgradeCloseTimeout);
        tokio::task::yield_now().await;
        assert_eq!(*phases.phase.borrow(), Phase::Serving);
        say(ExecutionPhase::ShutdownStarted);
        say(ExecutionPhase::ShutdownGracePeriod);
        reached(&mut phases, Phase::Draining).await;
        say(ExecutionPhase::ShutdownRuntimes);
        reached(&mut phases, Phase::Stopping).await;
        assert!(!*phases.ended.borrow());
        say(ExecutionPhase::Terminated);
        phases.ended.wait_for(|ended| *ended).await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_is_dropped_has_ended() {
        let (server, announced) = broadcast::channel(16);
        let mut phases = ServerPhases::follow(announced, &Handle::current());
        drop(server);
        phases.ended.wait_for(|ended| *ended).await.unwrap();
        assert_eq!(*phases.phase.borrow(), Phase::Stopping);
    }
}
