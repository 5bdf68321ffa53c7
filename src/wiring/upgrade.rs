//! An upgrade: the serving process starts its successor, hands over the listening sockets and the embedded store, and ends after
//! its last request. Until the successor serves, the upgrade can be undone at any step.

pub(super) mod handover;

use std::{
    ffi::OsString,
    io,
    os::{fd::AsFd, fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    process::{Child, Command},
    runtime::Handle,
    sync::{Mutex, watch},
    time::timeout,
};

use crate::{
    admin::Upgrades,
    api::node::UpgradedProcess,
    config::{Config, StoreConfig},
    gateway::drain::Drain,
    journal::Journal,
    side::connection::SocketClaim,
    store::embedded::{
        handover::{ClosedFiles, EmbeddedFiles},
        ownership::Successor,
    },
    wiring::{
        listeners::ListeningSockets,
        orphaned_journals::OrphanedJournals,
        process::{self, Phase},
        upgrade::handover::{PROTOCOL, StoreHandover, SuccessorMessage, UpgradeOffer},
    },
};

/// The timeout for the successor to read everything that it needs. Reading a large journal takes minutes.
const PREPARE_WAIT: Duration = Duration::from_secs(600);
/// The maximum time from the handover of the store until the successor serves. Requests wait during this time.
const TAKE_WAIT: Duration = Duration::from_secs(30);
/// The maximum time to wait for a successor to end after it has closed its connection.
const END_WAIT: Duration = Duration::from_secs(1);

/// The data for starting a successor.
pub(super) struct Launch {
    /// The path with which the program was called. A newer program may have this path by now.
    pub(super) program: OsString,
    pub(super) conf: PathBuf,
    pub(super) ready_file: Option<PathBuf>,
}

/// Upgrades the serving process. Contains the parts of the process that an upgrade needs.
pub(super) struct Upgrader {
    pub(super) launch: Launch,
    pub(super) kept_in: String,
    pub(super) listeners: Arc<ListeningSockets>,
    pub(super) left: Arc<OrphanedJournals>,
    pub(super) journal: Arc<Journal>,
    /// The embedded store. `None` if the store is Redis.
    pub(super) store: Option<Arc<EmbeddedFiles>>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) drain: Drain,
    /// Is turned true when the successor serves.
    pub(super) handed_over: watch::Sender<bool>,
    /// Makes this process claim the admin socket again.
    pub(super) claims: watch::Sender<SocketClaim>,
    pub(super) background: Handle,
    pub(super) turn: Mutex<()>,
    /// The connection to the successor. The connection stays open until this process ends. `None` if there is no successor, or if
    /// the embedded store uses the connection for its calls.
    pub(super) line: Mutex<Option<tokio::net::UnixStream>>,
}

/// Describes the locations of the store and the journal in a configuration.
pub(super) fn kept_in(config: &Config) -> String {
    let store = match &config.store {
        StoreConfig::Embedded(embedded) => format!("[store.embedded] path {}", embedded.path.display()),
        StoreConfig::Redis(redis) => format!(
            "[store.redis] namespace {} database {}",
            redis.namespace, redis.database
        ),
    };
    format!("{store}, [journal] path {}", config.journal.path.display())
}

#[async_trait]
impl Upgrades for Upgrader {
    async fn upgrade(self: Arc<Self>) -> Result<UpgradedProcess, String> {
        // The upgrade runs in its own task, so it continues if the caller of the admin API disconnects.
        let background = self.background.clone();
        let done = background.spawn(async move { self.run_upgrade().await });
        done.await.map_err(|error| error.to_string())?
    }
}

impl Upgrader {
    async fn run_upgrade(&self) -> Result<UpgradedProcess, String> {
        let Ok(_turn) = self.turn.try_lock() else {
            return Err("cannot begin an upgrade: another upgrade is running".to_owned());
        };
        if *self.handed_over.borrow() {
            return Err("cannot begin an upgrade: this process has already been replaced by a new one".to_owned());
        }
        self.check_serving()?;
        process::reloading();
        tracing::info!(program = %self.launch.program.to_string_lossy(), "upgrade: starting the new process");
        match self.start_successor().await {
            Ok(pid) => {
                process::succeeded_by(pid);
                if let Err(error) = self.journal.mark_draining() {
                    tracing::warn!(%error, "cannot mark the journal as draining; a weir process that starts before this process ends will find the journal in use");
                }
                let running = self.drain.running();
                self.handed_over.send_replace(true);
                tracing::info!(
                    pid,
                    running,
                    "upgrade: the new process now serves requests, and this process ends after its last request"
                );
                Ok(UpgradedProcess { pid, running })
            }
            Err(why) => {
                self.left.resume_looking().await;
                // The socket is claimed again, because the successor may already have replaced it.
                self.claims.send_replace(SocketClaim::FromServingProcess);
                process::notify_ready();
                tracing::error!(%why, "the upgrade failed; this process continues to serve");
                Err(why)
            }
        }
    }

    /// Starts a successor. Returns its process id once it serves, or the reason why it does not serve.
    async fn start_successor(&self) -> Result<u32, String> {
        self.left.close_all().await;
        let told = |error: io::Error| format!("cannot create a connection to the new process: {error}");
        let (here, there) = UnixStream::pair().map_err(told)?;
        let here = Arc::new(here);
        let mut child = self.launch.start(there).map_err(|error| {
            let program = self.launch.program.to_string_lossy();
            format!("{program} cannot be started: {error}")
        })?;
        let pid = child.id().unwrap_or_default();
        let mut closed = None;
        let serving = tokio::select! {
            serving = self.exchange(&here, &mut closed) => serving,
            () = self.wait_for_stop() => Err(UpgradeFailure::Said("the upgrade was abandoned, because weir is stopping".to_owned())),
        };
        let serving = match serving {
            Ok(()) => self.give_store(&mut closed, &here).await.map_err(UpgradeFailure::from),
            Err(failure) => Err(failure),
        };
        let Err(failure) = serving else {
            tokio::spawn(async move { child.wait().await });
            return Ok(pid);
        };
        let why = failure.into_reason(&mut child).await;
        if let Some(closed) = closed {
            closed
                .take_back()
                .map_err(|error| format!("{why}; in addition, this process cannot open the store again: {error}"))?;
        }
        Err(why)
    }

    /// Exchanges all messages of the upgrade, until the successor reports that it serves.
    async fn exchange<'s>(
        &'s self,
        here: &Arc<UnixStream>,
        closed: &mut Option<ClosedFiles<'s>>,
    ) -> Result<(), UpgradeFailure> {
        let sockets = self.listeners.sockets_for_successor()?;
        let offer = UpgradeOffer {
            protocol: PROTOCOL,
            sockets: sockets
                .iter()
                .map(|(wanted, _)| (wanted.name.to_owned(), wanted.at))
                .collect(),
            kept_in: self.kept_in.clone(),
        };
        let descriptors: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
        handover::send_offer(here, &offer, &descriptors)?;
        wait_for_message(here, PREPARE_WAIT).await?;
        let carried = match &self.store {
            Some(store) => {
                let (files, carried) = store
                    .close()
                    .await
                    .map_err(|error| UpgradeFailure::Said(error.to_string()))?;
                *closed = Some(files);
                Some(carried)
            }
            None => None,
        };
        let line = handover::message_line(&StoreHandover { carried })?;
        let sent = blocking(here, move |stream| {
            stream.set_write_timeout(Some(TAKE_WAIT))?;
            handover::send_line(stream, &line)
        });
        sent.await?;
        wait_for_message(here, TAKE_WAIT).await
    }

    /// Makes this process call the store through its successor from now on. The connection `here` stays open until this process
    /// ends. The successor waits for that.
    async fn give_store(&self, closed: &mut Option<ClosedFiles<'_>>, here: &UnixStream) -> io::Result<()> {
        let line = here.try_clone()?;
        line.set_nonblocking(true)?;
        let line = tokio::net::UnixStream::from_std(line)?;
        match closed.take() {
            Some(closed) => closed.give_to(Successor::new(line)),
            None => *self.line.lock().await = Some(line),
        }
        Ok(())
    }

    fn check_serving(&self) -> Result<(), String> {
        match *self.phase.borrow() {
            Phase::Serving => Ok(()),
            Phase::Draining | Phase::Stopping => Err("cannot begin an upgrade: weir is stopping".to_owned()),
        }
    }

    async fn wait_for_stop(&self) {
        let mut phase = self.phase.clone();
        let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
    }
}

/// The reason why the successor does not serve.
#[derive(Debug)]
enum UpgradeFailure {
    /// The reason for the failure, as the successor reported it or as this process determined it.
    Said(String),
    /// The connection was closed, so the successor has probably ended.
    Ended,
    /// The successor has sent no message in time, or has sent an invalid message.
    Unheard(String),
}

impl UpgradeFailure {
    /// Makes sure that the successor has ended, and returns the reason why it does not serve.
    async fn into_reason(self, child: &mut Child) -> String {
        let why = match self {
            Self::Said(why) => why,
            Self::Ended => match timeout(END_WAIT, child.wait()).await {
                Ok(Ok(status)) => {
                    return format!(
                        "the new process ended ({status}) before it served; its messages are in weir's log"
                    );
                }
                Ok(Err(_)) | Err(_) => {
                    "the new process closed the connection to this process before it served".to_owned()
                }
            },
            Self::Unheard(why) => format!("the new process did not start: {why}"),
        };
        // The process is killed, because it may still try to serve. Killing a process that has ended does nothing.
        let _ = child.kill().await;
        why
    }
}

impl From<io::Error> for UpgradeFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Ended,
            _ => Self::Unheard(error.to_string()),
        }
    }
}

/// Waits for the successor's next message. Returns an error if the message reports a failure.
async fn wait_for_message(here: &Arc<UnixStream>, wait: Duration) -> Result<(), UpgradeFailure> {
    let word = blocking(here, move |stream| {
        stream.set_read_timeout(Some(wait))?;
        handover::receive::<SuccessorMessage>(stream)
    });
    match word.await? {
        SuccessorMessage::Prepared | SuccessorMessage::Serving => Ok(()),
        SuccessorMessage::Failed(why) => Err(UpgradeFailure::Said(why)),
    }
}

async fn blocking<T: Send + 'static>(
    here: &Arc<UnixStream>,
    work: impl FnOnce(&UnixStream) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let here = Arc::clone(here);
    tokio::task::spawn_blocking(move || work(&here))
        .await
        .map_err(io::Error::other)?
}

impl Launch {
    fn start(&self, line: UnixStream) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--successor", "--conf"]).arg(&self.conf);
        if let Some(file) = &self.ready_file {
            command.arg("--ready-file").arg(file);
        }
        // The service manager's variable is removed, because the new process becomes the main process and must send watchdog
        // messages too.
        command.env_remove("WATCHDOG_PID");
        command.stdin(Stdio::from(OwnedFd::from(line))).spawn()
    }
}
