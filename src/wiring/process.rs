//! The process that weir runs in: its owner, its signals, its service manager and its file descriptors.

use std::time::Duration;

use pingora::server::ExecutionPhase;
use sd_notify::NotifyState;
use tokio::{
    runtime::Handle,
    sync::{
        broadcast::{Receiver, error::RecvError},
        watch,
    },
};

use crate::config::Config;

/// The owner of the process that weir runs in. The owner handles signals, notifies the service manager and ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessOwner {
    /// weir owns the process: `weir serve` or `weir demo`.
    Own,
    /// Another program owns the process, and has added weir's services to its server.
    Foreign,
}

/// The number of reserved file descriptors. They are for the process's own files, the store, the ops and admin listeners (which
/// must always respond), and connections that were accepted but not counted yet.
const RESERVED: u64 = 200;
/// The number of file descriptors that each gateway worker needs for its scheduler and its handle of the listening socket.
const PER_WORKER: u64 = 8;

/// The number of file descriptors for one client connection with a running request: one for the connection itself, two for a
/// connection to a provider, and one as a share of the pool of idle connections.
const PER_CLIENT: u64 = 4;

/// The maximum number of concurrent connections to the redirect listener.
const REDIRECT_CONNECTIONS_MAX: usize = 64;
/// The maximum number of concurrent connections to the operators' console.
const CONSOLE_CONNECTIONS_MAX: usize = 256;

/// The maximum number of each kind of connection. Together, the connections stay within the process's limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// The maximum number of client connections to the gateway.
    pub(super) clients: usize,
    /// The maximum number of running requests. With HTTP/2, there can be more of them than connections.
    pub(super) running: usize,
    /// The maximum number of idle connections to providers.
    pub(super) pool: usize,
    /// The maximum number of connections to the public stability service.
    pub(super) stability: usize,
    /// The maximum number of connections to the redirect listener.
    pub(super) redirect: usize,
    /// The maximum number of connections to the operators' console.
    pub(super) console: usize,
}

impl Descriptors {
    /// Returns the configured maximums, or lower ones if the process's limit of open files is too low for them.
    pub(super) fn share(config: &Config) -> Self {
        let wanted = Self {
            clients: config.connections.max,
            running: config.connections.running_max,
            pool: config.upstream.pool_size,
            stability: config.stability.connections_max,
            redirect: REDIRECT_CONNECTIONS_MAX,
            console: CONSOLE_CONNECTIONS_MAX,
        };
        let workers = PER_WORKER.saturating_mul(config.gateway.threads as u64);
        open_files_max().map_or(wanted, |limit| wanted.within(limit.saturating_sub(workers)))
    }

    fn within(self, open_files_max: u64) -> Self {
        let left = open_files_max.saturating_sub(RESERVED);
        let part = |files: u64| usize::try_from(files).unwrap_or(usize::MAX).max(1);
        let (eighth, sixteenth) = (left / 8, left / 16);
        let clients = part((left - eighth - 2 * sixteenth) / PER_CLIENT);
        Self {
            clients: self.clients.min(clients),
            running: self.running.min(clients),
            pool: self.pool.min((clients / 2).max(1)),
            stability: self.stability.min(part(eighth)),
            redirect: self.redirect.min(part(sixteenth)),
            console: self.console.min(part(sixteenth)),
        }
    }
}

/// Returns this process's soft limit of open files. `None` if it is unlimited or cannot be read.
fn open_files_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Notifies the service manager that the process serves, or that a reload has ended.
pub(super) fn notify_ready() {
    notify_manager(&[NotifyState::Ready]);
}

/// Notifies the service manager that a reload begins. [`notify_ready`] reports its end.
pub(super) fn reloading() {
    // The service type `notify-reload` needs the time.
    match NotifyState::monotonic_usec_now() {
        Ok(since) => notify_manager(&[NotifyState::Reloading, since]),
        Err(_) => notify_manager(&[NotifyState::Reloading]),
    }
}

/// Notifies the service manager that the successor serves and is the main process from now on. This also ends a reload.
pub(super) fn succeeded_by(pid: u32) {
    notify_manager(&[NotifyState::MainPid(pid), NotifyState::Ready]);
}

/// Notifies the service manager that the process stops within `time`. Therefore `TimeoutStopSec=` need not be adjusted to
/// `drain_seconds`.
pub(super) fn stopping(time: Duration) {
    let extended = format!("EXTEND_TIMEOUT_USEC={}", time.as_micros());
    notify_manager(&[NotifyState::Stopping, NotifyState::Custom(&extended)]);
}

/// Notifies the service manager that background tasks still run, twice in each period of `WatchdogSec=`. Returns at once if
/// `WatchdogSec=` is not set. Otherwise, returns when the successor is the main process.
pub(super) async fn watchdog(mut handed_over: watch::Receiver<bool>) {
    // A timer's interval must not be zero.
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return;
    };
    let mut turns = tokio::time::interval(limit / 2);
    loop {
        tokio::select! {
            _ = turns.tick() => {}
            _ = handed_over.wait_for(|handed_over| *handed_over) => return,
        }
        notify_manager(&[NotifyState::Watchdog]);
    }
}

fn notify_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager at $NOTIFY_SOCKET; the service manager may consider weir dead");
    }
}

/// The phase of the process's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// No further requests are accepted, and running requests may finish. Begins with SIGTERM, or when the server shuts down.
    Draining,
    /// Everything ends at once. Begins with SIGINT or a second SIGTERM, or when the server drops its services.
    Stopping,
}

/// Receivers that follow the phases of a Pingora server.
pub(super) struct ServerPhases {
    /// The phase of weir that results from the server's phase. Used if the server's owner decides when the server ends.
    pub(super) phase: watch::Receiver<Phase>,
    /// Turns true when the server has dropped everything that ran in it.
    pub(super) ended: watch::Receiver<bool>,
}

impl ServerPhases {
    /// Follows the phases of a server until the server ends, in a task on the runtime `on`.
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
                    // A server that is dropped without having run announces no phase.
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
    use super::*;
    use tokio::sync::broadcast;

    #[test]
    fn few_files_mean_few_connections_and_many_leave_the_settings_as_they_are() {
        let wanted = Descriptors {
            clients: 16_384,
            running: 16_384,
            pool: 256,
            stability: 256,
            redirect: 64,
            console: 256,
        };
        let few = Descriptors {
            clients: 75,
            running: 75,
            pool: 37,
            stability: 50,
            redirect: 25,
            console: 25,
        };
        assert_eq!(wanted.within(600), few);
        assert_eq!(wanted.within(1 << 20), wanted);
        let least = Descriptors {
            clients: 1,
            running: 1,
            pool: 1,
            stability: 1,
            redirect: 1,
            console: 1,
        };
        assert_eq!(wanted.within(10), least);
    }

    #[test]
    fn all_that_may_be_open_fits() {
        for limit in [250_u64, 600, 1024, 4096, 65_536] {
            let all = Descriptors {
                clients: usize::MAX,
                running: usize::MAX,
                pool: usize::MAX,
                stability: usize::MAX,
                redirect: usize::MAX,
                console: usize::MAX,
            };
            let share = all.within(limit);
            let most =
                share.clients + 2 * share.running + 2 * share.pool + share.stability + share.redirect + share.console;
            assert!(most as u64 + RESERVED <= limit.max(RESERVED + 8), "{limit}: {share:?}");
        }
    }

    async fn reached(phases: &mut ServerPhases, wanted: Phase) {
        phases.phase.wait_for(|phase| *phase == wanted).await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_shuts_down_drains_then_stops_then_has_ended() {
        let (server, announced) = broadcast::channel(16);
        let mut phases = ServerPhases::follow(announced, &Handle::current());
        let say = |phase| assert!(server.send(phase).is_ok());
        say(ExecutionPhase::Running);
        // The successor gets the sockets. This process serves until the successor has had time to begin.
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
