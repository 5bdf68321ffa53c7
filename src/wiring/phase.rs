//! How far the end of weir has come, and how far that of the server which its services are part of.

use pingora::server::ExecutionPhase;
use tokio::{
    runtime::Handle,
    sync::{
        broadcast::{Receiver, error::RecvError},
        watch,
    },
};

/// How far the end of weir has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// SIGTERM, or a server that shuts down: nothing new is accepted, what runs may end.
    Draining,
    /// SIGINT, a second SIGTERM, or a server that drops its services: at once.
    Stopping,
}

/// How far a server has come, by its own account.
pub(super) struct ServerPhases {
    /// The phase that follows for weir where the server's owner decides about the end.
    pub(super) phase: watch::Receiver<Phase>,
    /// Turns true when the server has dropped all that ran in it.
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
                    // A server that is dropped without having run says nothing more.
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
