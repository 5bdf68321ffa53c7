//! An upgrade: the process that serves starts the next one, hands it the listening sockets and the embedded store, and ends
//! with its last request. Until the next one serves, it can go back at any step.

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
    api::node::Upgraded,
    config::{Config, StoreConfig},
    gateway::drain::Drain,
    journal::Journal,
    side::unix_socket::Claim,
    store::embedded::{
        handover::{Closed, EmbeddedFiles},
        ownership::successor::Successor,
    },
    wiring::{
        lanes::LeftLanes,
        listeners::Listeners,
        notify,
        phase::Phase,
        upgrade::message::{Offer, PROTOCOL, Take, Word},
    },
};

mod message;
pub(super) mod predecessor;

/// How long the next process may take to read all that it needs: a large journal takes minutes.
const PREPARE_WAIT: Duration = Duration::from_secs(600);
/// How long it may take from the store to serving. Requests wait meanwhile.
const TAKE_WAIT: Duration = Duration::from_secs(30);
/// How long a process that has said nothing more may take to end by itself.
const END_WAIT: Duration = Duration::from_secs(1);

/// How a process like this one is started.
pub(super) struct Launch {
    /// The program as it was called: another file may be there by now.
    pub(super) program: OsString,
    pub(super) conf: PathBuf,
    pub(super) ready_file: Option<PathBuf>,
}

/// What an upgrade needs of the process that serves.
pub(super) struct Upgrader {
    pub(super) launch: Launch,
    pub(super) kept_in: String,
    pub(super) listeners: Arc<Listeners>,
    pub(super) left: Arc<LeftLanes>,
    pub(super) journal: Arc<Journal>,
    /// The embedded store, if it is one.
    pub(super) store: Option<Arc<EmbeddedFiles>>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) drain: Drain,
    /// Turns true when the next process serves.
    pub(super) handed_over: watch::Sender<bool>,
    /// Has the admin socket claimed again.
    pub(super) claims: watch::Sender<Claim>,
    pub(super) background: Handle,
    pub(super) turn: Mutex<()>,
    /// The line to the next process, where the store is not asked over it.
    pub(super) line: Mutex<Option<tokio::net::UnixStream>>,
}

/// Where a configuration keeps keys, accounts and what this node owes.
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
    async fn upgrade(self: Arc<Self>) -> Result<Upgraded, String> {
        // It goes on also when nobody waits for the answer.
        let background = self.background.clone();
        let done = background.spawn(async move { self.once().await });
        done.await.map_err(|error| error.to_string())?
    }
}

impl Upgrader {
    async fn once(&self) -> Result<Upgraded, String> {
        let Ok(_turn) = self.turn.try_lock() else {
            return Err("an upgrade is under way already".to_owned());
        };
        if *self.handed_over.borrow() {
            return Err("another process has taken this one's place already".to_owned());
        }
        self.still_serving()?;
        notify::reloading();
        tracing::info!(program = %self.launch.program.to_string_lossy(), "starting the process that is to take this one's place");
        match self.attempt().await {
            Ok(pid) => {
                notify::succeeded_by(pid);
                if let Err(error) = self.journal.note_draining() {
                    tracing::warn!(%error, "a start while this process ends will find the journal in use");
                }
                let running = self.drain.running();
                self.handed_over.send_replace(true);
                tracing::info!(
                    pid,
                    running,
                    "the next process serves, this one ends with its last request"
                );
                Ok(Upgraded { pid, running })
            }
            Err(why) => {
                self.left.look_again().await;
                // The next one may have had its path already.
                self.claims.send_replace(Claim::Handed);
                notify::ready();
                tracing::error!(%why, "the upgrade has failed, this process goes on serving");
                Err(why)
            }
        }
    }

    /// The id of the process that serves now.
    async fn attempt(&self) -> Result<u32, String> {
        self.left.leave().await;
        let told = |error: io::Error| format!("the next process cannot be told anything: {error}");
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
            () = self.stopping() => Err(Failure::Said("weir is being stopped".to_owned())),
        };
        let serving = match serving {
            Ok(()) => self.give(&mut closed, &here).await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        let Err(failure) = serving else {
            tokio::spawn(async move { child.wait().await });
            return Ok(pid);
        };
        let why = failure.why(&mut child).await;
        if let Some(closed) = closed {
            closed
                .take_back()
                .map_err(|error| format!("{why}; and then the store was not opened again: {error}"))?;
        }
        Err(why)
    }

    /// All that is said, up to the word that the next one serves.
    async fn exchange<'s>(&'s self, here: &Arc<UnixStream>, closed: &mut Option<Closed<'s>>) -> Result<(), Failure> {
        let sockets = self.listeners.offered()?;
        let offer = Offer {
            protocol: PROTOCOL,
            sockets: sockets
                .iter()
                .map(|(wanted, _)| (wanted.name.to_owned(), wanted.at))
                .collect(),
            kept_in: self.kept_in.clone(),
        };
        let descriptors: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_fd()).collect();
        message::send_offer(here, &offer, &descriptors)?;
        heard(here, PREPARE_WAIT).await?;
        let carried = match &self.store {
            Some(store) => {
                let (files, carried) = store.close().await.map_err(|error| Failure::Said(error.to_string()))?;
                *closed = Some(files);
                Some(carried)
            }
            None => None,
        };
        let line = message::text(&Take { carried })?;
        let sent = blocking(here, move |stream| {
            stream.set_write_timeout(Some(TAKE_WAIT))?;
            message::send_line(stream, &line)
        });
        sent.await?;
        heard(here, TAKE_WAIT).await
    }

    /// What this process needs of the store from now on it asks the next one. That waits for this one as long as the line is
    /// open.
    async fn give(&self, closed: &mut Option<Closed<'_>>, here: &UnixStream) -> io::Result<()> {
        let line = here.try_clone()?;
        line.set_nonblocking(true)?;
        let line = tokio::net::UnixStream::from_std(line)?;
        match closed.take() {
            Some(closed) => closed.give_to(Successor::on(line)),
            None => *self.line.lock().await = Some(line),
        }
        Ok(())
    }

    fn still_serving(&self) -> Result<(), String> {
        match *self.phase.borrow() {
            Phase::Serving => Ok(()),
            Phase::Draining | Phase::Stopping => Err("weir is being stopped".to_owned()),
        }
    }

    async fn stopping(&self) {
        let mut phase = self.phase.clone();
        let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
    }
}

/// Why the next process has not said that it serves.
#[derive(Debug)]
enum Failure {
    /// It has said why, or this process knows.
    Said(String),
    /// The line is at its end, and so is the process.
    Ended,
    /// It has said nothing in time, or nothing that can be understood.
    Unheard(String),
}

impl Failure {
    /// Sees to it that the process has ended, and says why it does not serve.
    async fn why(self, child: &mut Child) -> String {
        let why = match self {
            Self::Said(why) => why,
            Self::Ended => match timeout(END_WAIT, child.wait()).await {
                Ok(Ok(status)) => {
                    return format!(
                        "the new process has ended ({status}) before it served; what it said is in weir's log"
                    );
                }
                Ok(Err(_)) | Err(_) => "the new process has closed its standard input".to_owned(),
            },
            Self::Unheard(why) => format!("the new process did not come up: {why}"),
        };
        // It may still think that it is to serve. One that has ended cannot be killed.
        let _ = child.kill().await;
        why
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Ended,
            _ => Self::Unheard(error.to_string()),
        }
    }
}

/// Waits for the next good word.
async fn heard(here: &Arc<UnixStream>, wait: Duration) -> Result<(), Failure> {
    let word = blocking(here, move |stream| {
        stream.set_read_timeout(Some(wait))?;
        message::receive::<Word>(stream)
    });
    match word.await? {
        Word::Prepared | Word::Serving => Ok(()),
        Word::Failed(why) => Err(Failure::Said(why)),
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
        // It is the service manager's main process from then on, and has to be heard.
        command.env_remove("WATCHDOG_PID");
        command.stdin(Stdio::from(OwnedFd::from(line))).spawn()
    }
}
