//! The connection to one master, behind a breaker, as calls see it. [`super::supervisor`] establishes it.
//!
//! A call never connects. While the lane is up, a call is sent at once. During the first connect, or a reconnect after
//! a drop, it waits within its budget. While the server is known to be unreachable, it fails at once. So a dead server
//! costs callers nothing, and only the supervisor's next attempt probes it.

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

/// The connection to one master, with its breaker.
pub(super) struct MasterLane {
    pub(super) state: watch::Sender<LaneState>,
    pub(super) dialer: Arc<RedisDialer>,
    /// Changes when acknowledged changes may be lost; shared by all lanes.
    pub(super) epochs: watch::Sender<u64>,
    /// The master that the sentinels name, if there are any.
    pub(super) announced: watch::Sender<Option<RedisAddress>>,
    /// How long calls wait for the first attempt after a drop.
    pub(super) call_budget: Duration,
    pub(super) status: Mutex<ServerStatus>,
    /// Numbers the connections, including those that were inspected and not used.
    pub(super) dialed: AtomicU64,
    /// Whether the server is suspected of being dead; only one suspicion at a time.
    pub(super) is_suspected: AtomicBool,
    /// When the server last answered, on any connection.
    pub(super) last_answer: LastAnswer,
    pub(super) runtime_connections: RuntimeConnections,
    permits: Semaphore,
    /// Held while a script is loaded again, so that one call does it for all that wait.
    reload: AsyncMutex<()>,
    /// Signals that a call was refused because a right is missing.
    pub(super) denied: Notify,
    /// Signals that the server has left its cluster.
    pub(super) ended: Notify,
}

/// Whether the lane can be used.
#[derive(Clone)]
pub(super) enum LaneState {
    Connecting,
    Up(Arc<LiveConnection>),
    Down { reason: String },
}

/// The known state of the lane's server.
#[derive(Default)]
pub(super) struct ServerStatus {
    pub(super) connected: bool,
    pub(super) identity: Option<DataIdentity>,
    pub(super) warnings: BTreeSet<StoreWarning>,
    pub(super) memory: Option<StoreMemory>,
    /// The number of keys that it has evicted.
    pub(super) evicted: u64,
    /// Why a reachable server is not used.
    pub(super) refusal: Option<String>,
    /// The missing rights at the server in use.
    pub(super) complaint: Option<String>,
    /// Whether the user lacks rights without which the server is not used.
    pub(super) denied: bool,
}

impl MasterLane {
    pub(super) fn new(dialer: &Arc<RedisDialer>, epochs: &watch::Sender<u64>, call_budget: Duration) -> Self {
        Self {
            state: watch::Sender::new(LaneState::Connecting),
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

    /// The live connection; waits while one is being established.
    pub(super) async fn live(&self) -> Result<Arc<LiveConnection>, StoreError> {
        let mut states = self.state.subscribe();
        let gone = || StoreError::Unavailable("the store has been closed".to_owned());
        let state = states
            .wait_for(|state| !matches!(state, LaneState::Connecting))
            .await
            .map_err(|_| gone())?;
        match &*state {
            LaneState::Up(live) => Ok(Arc::clone(live)),
            LaneState::Down { reason } => Err(StoreError::Unavailable(reason.clone())),
            LaneState::Connecting => Err(gone()),
        }
    }

    /// The live connection, if there is one.
    pub(super) fn live_now(&self) -> Option<Arc<LiveConnection>> {
        match &*self.state.borrow() {
            LaneState::Up(live) => Some(Arc::clone(live)),
            LaneState::Connecting | LaneState::Down { .. } => None,
        }
    }

    /// Faults in the server's configuration that do not stop its use.
    pub(super) fn warnings(&self) -> BTreeSet<StoreWarning> {
        let status = self.status.lock();
        let mut warnings = status.warnings.clone();
        if status.complaint.is_some() || status.denied {
            warnings.insert(StoreWarning::MissingRights);
        }
        warnings
    }

    /// The problems that keep the lane from being used.
    pub(super) fn trouble(&self) -> StoreTrouble {
        let (down, server) = match &*self.state.borrow() {
            LaneState::Down { reason } => (Some(reason.clone()), None),
            LaneState::Up(live) => (None, Some(live.address.clone())),
            LaneState::Connecting => (None, None),
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

    /// A permit for one of the concurrent calls.
    pub(super) fn permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        self.permits
            .try_acquire()
            .map_err(|_| StoreError::Busy(format!("{CALLS_MAX} calls to one redis server are already running")))
    }

    /// Sends a call as `command`. `asking` is for a server that is importing the slot.
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
            // In one write: ASKING applies only to the next command of the connection.
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

    /// Drops a connection, if it is still the one in use.
    pub(super) fn give_up(&self, number: u64, next: LaneState) {
        self.transition(
            next,
            |state| matches!(state, LaneState::Up(live) if live.number == number),
        );
    }

    /// Makes calls that wait for a connection fail at once.
    pub(super) fn fail_waiting(&self, reason: &str) {
        let reason = reason.to_owned();
        self.transition(LaneState::Down { reason }, |state| {
            matches!(state, LaneState::Connecting)
        });
    }

    fn transition(&self, next: LaneState, is_from: impl Fn(&LaneState) -> bool) {
        self.state.send_if_modified(|state| {
            let changes = is_from(state);
            if changes {
                *state = next;
            }
            changes
        });
    }
}

/// Waits until a condition holds that can change only with `watched`.
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
