//! The connection to one master, with its circuit breaker, and the way in which calls use it. [`super::supervisor`] establishes
//! the connection.
//!
//! A call never connects. While the link is up, a call is sent at once. While the link connects for the first time, or reconnects
//! after a lost connection, a call waits within its budget. While the server is known to be unreachable, a call fails at once. So
//! callers lose no time to a dead server. Only the supervisor tries to reach it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use ::redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore, SemaphorePermit, watch};

use crate::edges::clock;
use crate::store::redis::dialer::{CALLS_MAX, RedisDialer};
use crate::store::redis::link::RedisErrorMeaning;
use crate::store::redis::link::connection::{DataIdentity, LastAnswer, LiveConnection, RuntimeConnections, Wire};
use crate::store::redis::scripts::ScriptCall;
use crate::store::redis::settings::RedisAddress;
use crate::store::{StoreError, StoreMemory, StoreTrouble, StoreWarning};

/// The link to one master: the connection to it, with a circuit breaker.
pub(super) struct MasterLink {
    pub(super) state: watch::Sender<MasterLinkState>,
    pub(super) dialer: Arc<RedisDialer>,
    /// The epoch, which all links share. It changes when acknowledged writes may have been lost.
    pub(super) epochs: watch::Sender<u64>,
    /// The master that the sentinels name; `None` if there are no sentinels, or none has answered yet.
    pub(super) announced: watch::Sender<Option<RedisAddress>>,
    /// The maximum time for which calls wait for the first attempt to reconnect after a connection is lost.
    pub(super) call_budget: Duration,
    pub(super) status: Mutex<ServerStatus>,
    /// The number of connections so far, including those that were inspected and not used.
    pub(super) dialed: AtomicU64,
    /// Whether the server is suspected to be dead. Only one suspicion is checked at a time.
    pub(super) is_suspected: AtomicBool,
    /// The time of the server's last answer on any connection.
    pub(super) last_answer: LastAnswer,
    pub(super) runtime_connections: RuntimeConnections,
    permits: Semaphore,
    /// Locked while a script is loaded again, so that one call loads the script for all calls that wait for it.
    reload: AsyncMutex<()>,
    /// Signals that a call was refused because a right is missing.
    pub(super) denied: Notify,
    /// Signals that the server has left its cluster.
    pub(super) ended: Notify,
}

/// Whether the link can be used for calls.
#[derive(Clone)]
pub(super) enum MasterLinkState {
    Connecting,
    Up(Arc<LiveConnection>),
    Down { reason: String },
}

/// The last known state of the link's server.
#[derive(Default)]
pub(super) struct ServerStatus {
    pub(super) connected: bool,
    pub(super) identity: Option<DataIdentity>,
    pub(super) warnings: BTreeSet<StoreWarning>,
    pub(super) memory: Option<StoreMemory>,
    /// The number of keys that the server has evicted.
    pub(super) evicted: u64,
    /// The reason why a reachable server is not used; `None` if it is used.
    pub(super) refusal: Option<String>,
    /// The missing rights at the server in use; `None` if there are none.
    pub(super) complaint: Option<String>,
    /// Whether the server is not used because the user lacks vital rights.
    pub(super) denied: bool,
}

impl MasterLink {
    pub(super) fn new(dialer: &Arc<RedisDialer>, epochs: &watch::Sender<u64>, call_budget: Duration) -> Self {
        Self {
            state: watch::Sender::new(MasterLinkState::Connecting),
            dialer: Arc::clone(dialer),
            epochs: epochs.clone(),
            announced: watch::Sender::default(),
            call_budget,
            status: Mutex::default(),
            dialed: AtomicU64::new(0),
            is_suspected: AtomicBool::new(false),
            last_answer: LastAnswer::new(clock::instant()),
            runtime_connections: RuntimeConnections::default(),
            permits: Semaphore::new(CALLS_MAX),
            reload: AsyncMutex::default(),
            denied: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Returns the connection in use. Waits while one is being established.
    pub(super) async fn live(&self) -> Result<Arc<LiveConnection>, StoreError> {
        let mut states = self.state.subscribe();
        let gone = || StoreError::Unavailable("the store is closed".to_owned());
        let state = states
            .wait_for(|state| !matches!(state, MasterLinkState::Connecting))
            .await
            .map_err(|_| gone())?;
        match &*state {
            MasterLinkState::Up(live) => Ok(Arc::clone(live)),
            MasterLinkState::Down { reason } => Err(StoreError::Unavailable(reason.clone())),
            MasterLinkState::Connecting => Err(gone()),
        }
    }

    /// Returns the connection in use; `None` if there is none.
    pub(super) fn live_now(&self) -> Option<Arc<LiveConnection>> {
        match &*self.state.borrow() {
            MasterLinkState::Up(live) => Some(Arc::clone(live)),
            MasterLinkState::Connecting | MasterLinkState::Down { .. } => None,
        }
    }

    /// The faults in the server's configuration that do not keep it from being used.
    pub(super) fn warnings(&self) -> BTreeSet<StoreWarning> {
        let status = self.status.lock();
        let mut warnings = status.warnings.clone();
        if status.complaint.is_some() || status.denied {
            warnings.insert(StoreWarning::MissingRights);
        }
        warnings
    }

    /// The problems that keep the link from being used.
    pub(super) fn trouble(&self) -> StoreTrouble {
        let (down, server) = match &*self.state.borrow() {
            MasterLinkState::Down { reason } => (Some(reason.clone()), None),
            MasterLinkState::Up(live) => (None, Some(live.address.clone())),
            MasterLinkState::Connecting => (None, None),
        };
        let status = self.status.lock();
        let mut details: Vec<String> = [&down, &status.refusal, &status.complaint]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        details.dedup();
        if let Some(server) = server.filter(|_| status.evicted > 0) {
            let (count, advice) = (status.evicted, StoreWarning::Evicted.advice());
            details.push(format!("redis at {server}, evicted_keys {count}: {advice}"));
        }
        StoreTrouble {
            refused: status.refusal.is_some(),
            details,
        }
    }

    /// Returns a permit to run one call. The number of permits limits the number of concurrent calls.
    pub(super) fn permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        self.permits
            .try_acquire()
            .map_err(|_| StoreError::Busy(format!("{CALLS_MAX} calls to one redis server are already running")))
    }

    /// Sends a call as `command`. If the server does not have the script, loads it and sends the call again. If `asking` is true,
    /// sends ASKING before the call, which a server requires while it imports the hash slot.
    pub(super) async fn send(
        &self,
        wire: &Wire,
        call: &ScriptCall<'_>,
        command: &Cmd,
        asking: bool,
    ) -> RedisResult<Vec<String>> {
        let mut answer = self.query(wire, command, asking).await;
        if is_unknown_script(&answer) {
            let _alone = self.reload.lock().await;
            answer = self.query(wire, command, asking).await;
            if is_unknown_script(&answer) {
                call.script.load().exec_async(&mut wire.connection.clone()).await?;
                answer = self.query(wire, command, asking).await;
            }
        }
        answer
    }

    async fn query(&self, wire: &Wire, command: &Cmd, asking: bool) -> RedisResult<Vec<String>> {
        let connection = &mut wire.connection.clone();
        let answer: RedisResult<Vec<String>> = if asking {
            // Both commands are sent in one write, because ASKING applies only to the next command of the connection.
            let mut both = ::redis::pipe();
            both.cmd("ASKING").ignore().add_command(command.clone());
            both.query_async(connection).await.map(|(answer,)| answer)
        } else {
            command.query_async(connection).await
        };
        let is_broken = answer.as_ref().err().map(RedisErrorMeaning::of) == Some(RedisErrorMeaning::Broken);
        if !is_broken {
            self.record_answer(wire);
        }
        answer
    }

    /// Records that the server has answered on this connection.
    pub(super) fn record_answer(&self, wire: &Wire) {
        let now = clock::instant();
        wire.last_answer.record(now);
        self.last_answer.record(now);
    }

    /// Stops using a connection and changes to the state `next`, if the connection is still the one in use.
    pub(super) fn give_up(&self, number: u64, next: MasterLinkState) {
        self.transition(
            next,
            |state| matches!(state, MasterLinkState::Up(live) if live.number == number),
        );
    }

    /// Makes calls that wait for a connection fail at once.
    pub(super) fn fail_waiting(&self, reason: &str) {
        let reason = reason.to_owned();
        self.transition(MasterLinkState::Down { reason }, |state| {
            matches!(state, MasterLinkState::Connecting)
        });
    }

    fn transition(&self, next: MasterLinkState, is_from: impl Fn(&MasterLinkState) -> bool) {
        self.state.send_if_modified(|state| {
            let changes = is_from(state);
            if changes {
                *state = next;
            }
            changes
        });
    }
}

/// Waits until a condition is true. The condition is checked again whenever `watched` changes.
pub(super) async fn wait_until<T>(mut watched: watch::Receiver<T>, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        if watched.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

pub(super) fn unavailable(error: &RedisError) -> StoreError {
    StoreError::Unavailable(format!("redis: {error}"))
}

fn is_unknown_script(answer: &RedisResult<Vec<String>>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}
