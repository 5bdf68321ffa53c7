//! The connection to one master, behind a breaker, as calls see it. [`super::supervisor`] establishes it.
//!
//! A call never connects. While the lane is up, a call is sent at once. During the first connect, or a reconnect after
//! a drop, it waits within its budget. While the server is known to be unreachable, it fails at once. So a dead server
//! costs callers nothing, and only the supervisor's next attempt probes it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{ErrorKind, RedisError, RedisResult, ScriptInvocation, ServerErrorKind};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore, SemaphorePermit, watch};

use super::connecting::CALLS_MAX;
use super::epochs::Epochs;
use super::last_answer::LastAnswer;
use super::live_connection::{LiveConnection, Wire};
use super::report::Identity;
use super::request::{Request, Verdict};
use super::runtime_connections::RuntimeConnections;
use crate::edges::clock;
use crate::store::redis::dialer::Dialer;
use crate::store::{StoreError, StoreMemory, StoreTrouble, StoreWarning};

/// The connection to one master, with its breaker.
pub(super) struct Lane {
    pub(super) state: Arc<watch::Sender<LaneState>>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) epochs: Epochs,
    /// How long calls wait for the first attempt after a drop.
    pub(super) call_budget: Duration,
    pub(super) status: Mutex<ServerStatus>,
    /// Numbers connections, those that are looked at and not taken too.
    pub(super) dialed: AtomicU64,
    /// Whether the server is suspected of being dead: one suspicion at a time.
    pub(super) is_suspected: AtomicBool,
    /// When the server last answered, on whichever connection.
    pub(super) last_answer: LastAnswer,
    pub(super) runtime_connections: RuntimeConnections,
    permits: Semaphore,
    /// Held while scripts are given again, so that one call does it for all that wait.
    reload: AsyncMutex<()>,
    /// A call was refused because a right is missing.
    pub(super) denied: Notify,
}

/// Whether the lane can be used.
#[derive(Clone)]
pub(super) enum LaneState {
    Connecting,
    Up(LiveConnection),
    Down { reason: String },
}

/// What is known of the lane's server.
#[derive(Default)]
pub(super) struct ServerStatus {
    pub(super) connected: bool,
    pub(super) identity: Option<Identity>,
    pub(super) warnings: BTreeSet<StoreWarning>,
    pub(super) memory: Option<StoreMemory>,
    /// How many keys it has evicted.
    pub(super) evicted: u64,
    /// Why a reachable server is not used.
    pub(super) refusal: Option<String>,
    /// The rights that are missing at the server in use.
    pub(super) complaint: Option<String>,
    /// The user lacks rights without which the server is not used.
    pub(super) denied: bool,
}

impl Lane {
    pub(super) fn new(dialer: &Arc<Dialer>, epochs: &Epochs, call_budget: Duration) -> Self {
        let (state, _) = watch::channel(LaneState::Connecting);
        Self {
            state: Arc::new(state),
            dialer: Arc::clone(dialer),
            epochs: epochs.clone(),
            call_budget,
            status: Mutex::default(),
            dialed: AtomicU64::new(0),
            is_suspected: AtomicBool::new(false),
            last_answer: LastAnswer::new(clock::instant()),
            runtime_connections: RuntimeConnections::default(),
            permits: Semaphore::new(CALLS_MAX),
            reload: AsyncMutex::default(),
            denied: Notify::new(),
        }
    }

    /// The live connection; waits while one is being established.
    pub(super) async fn live(&self) -> Result<LiveConnection, StoreError> {
        let mut states = self.state.subscribe();
        let gone = || StoreError::Unavailable("the store has been closed".to_owned());
        let state = states
            .wait_for(|state| !matches!(state, LaneState::Connecting))
            .await
            .map_err(|_| gone())?;
        match &*state {
            LaneState::Up(live) => Ok(live.clone()),
            LaneState::Down { reason } => Err(StoreError::Unavailable(reason.clone())),
            LaneState::Connecting => Err(gone()),
        }
    }

    /// The live connection, if there is one.
    pub(super) fn live_now(&self) -> Option<LiveConnection> {
        match &*self.state.borrow() {
            LaneState::Up(live) => Some(live.clone()),
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

    /// What keeps the lane from being used.
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

    /// A slot among the concurrent calls.
    pub(super) fn permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        self.permits
            .try_acquire()
            .map_err(|_| StoreError::Busy(format!("{CALLS_MAX} calls to one redis are under way")))
    }

    /// The connection that a call from this runtime uses.
    pub(super) fn wire(&self, live: &LiveConnection) -> Wire {
        self.runtime_connections.wire(live)
    }

    /// Sends a call. `asking` is for a server that is importing the slot.
    pub(super) async fn send(
        &self,
        wire: &mut Wire,
        call: &ScriptInvocation<'_>,
        request: &Request,
        asking: bool,
    ) -> RedisResult<Vec<String>> {
        let mut answer = self.ask(wire, request, asking).await;
        if is_unknown_script(&answer) {
            let _alone = self.reload.lock().await;
            answer = self.ask(wire, request, asking).await;
            if is_unknown_script(&answer) {
                call.load_async(&mut wire.connection).await?;
                answer = self.ask(wire, request, asking).await;
            }
        }
        answer
    }

    async fn ask(&self, wire: &mut Wire, request: &Request, asking: bool) -> RedisResult<Vec<String>> {
        let answer = ask(&mut wire.connection, request, asking).await;
        let is_broken = answer.as_ref().err().map(Verdict::of) == Some(Verdict::Broken);
        if !is_broken {
            let now = clock::instant();
            wire.last_answer.note(now);
            self.last_answer.note(now);
        }
        answer
    }

    /// Drops a connection, if it is still the one in use.
    pub(super) fn leave(&self, number: u64, next: LaneState) {
        leave(&self.state, number, next);
    }
}

pub(super) fn leave(state: &watch::Sender<LaneState>, number: u64, next: LaneState) {
    state.send_if_modified(|state| {
        let current = matches!(state, LaneState::Up(live) if live.number == number);
        if current {
            *state = next;
        }
        current
    });
}

/// Waits until something is so that can only become so with a change of what is watched.
pub(super) async fn until<T>(mut watched: watch::Receiver<T>, mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        if watched.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

pub(super) fn unavailable(error: &RedisError) -> StoreError {
    StoreError::Unavailable(format!("redis: {error}"))
}

async fn ask(connection: &mut MultiplexedConnection, request: &Request, asking: bool) -> RedisResult<Vec<String>> {
    if !asking {
        return request.command.query_async(connection).await;
    }
    // In one write: ASKING counts for the very next command of the connection.
    let mut both = ::redis::pipe();
    both.cmd("ASKING").ignore().add_command(request.command.clone());
    let (answer,) = both.query_async(connection).await?;
    Ok(answer)
}

fn is_unknown_script(answer: &RedisResult<Vec<String>>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}
