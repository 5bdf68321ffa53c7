//! Records state at providers: which account owns it, and which provider and credential serve it. This node has the state of its
//! own answers in memory at once; it is written to the store for the other nodes while the answer passes. Requests never wait for
//! a write, but the end of an answer does.

mod on_the_way;
mod writer;

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use self::writer::{QUEUE_MAX, QueuedWrite};
use crate::{
    domain::wire::{provider_state::StateKey, session_hint::ServedBy},
    store::sessions::SessionStore,
};

pub(crate) use self::{on_the_way::PendingWrites, writer::StateWriter};

/// The maximum number of entries in memory. Beyond it the older of two generations is dropped.
const RECENT_MAX: usize = 65_536;

/// Completes when an answer's new state is written, or cannot be written for now.
pub(crate) type WriteCompletion = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state known to this node, in front of the store. Shared by all requests.
pub(crate) struct StateRegistry {
    store: Arc<dyn SessionStore>,
    recent: Mutex<RecentStates>,
    queue: mpsc::Sender<QueuedWrite>,
    /// Whether the last write failed.
    fails: watch::Receiver<bool>,
    lost: AtomicU64,
}

/// Recently used entries in two generations: when the newer one is full it replaces the older one.
#[derive(Default)]
struct RecentStates {
    newer: HashMap<StateKey, ServedBy>,
    older: HashMap<StateKey, ServedBy>,
}

impl RecentStates {
    fn get(&self, state: &StateKey) -> Option<&ServedBy> {
        self.newer.get(state).or_else(|| self.older.get(state))
    }

    fn insert(&mut self, state: StateKey, served_by: ServedBy) {
        if self.newer.len() >= RECENT_MAX / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(state, served_by);
    }
}

impl StateRegistry {
    /// An empty registry in front of a store, and the task that writes to it.
    pub(crate) fn new(store: Arc<dyn SessionStore>) -> (Self, StateWriter) {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        let (failing, fails) = watch::channel(false);
        let this = Self {
            store: Arc::clone(&store),
            recent: Mutex::default(),
            queue: sender,
            fails,
            lost: AtomicU64::new(0),
        };
        let writer = StateWriter {
            store,
            queue,
            fails: failing,
        };
        (this, writer)
    }

    /// The provider and credential that serve each of these states, in their order. Calls the store at most once, for the states
    /// that are not in memory.
    pub(crate) async fn find(&self, states: &[StateKey]) -> FoundStates {
        let mut served_by: Vec<Option<ServedBy>> = {
            let recent = self.recent.lock();
            states.iter().map(|state| recent.get(state).cloned()).collect()
        };
        let places = || states.iter().zip(&served_by).filter(|(_, known)| known.is_none());
        let unknown: Vec<StateKey> = places().map(|(state, _)| *state).collect();
        if unknown.is_empty() {
            return FoundStates {
                served_by,
                is_whole: true,
            };
        }
        let found = match self.store.recall(&unknown).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "cannot look up who owns state at a provider");
                return FoundStates {
                    served_by,
                    is_whole: false,
                };
            }
        };
        let missing = served_by.iter_mut().filter(|known| known.is_none());
        missing.zip(found).for_each(|(place, found)| *place = found);
        FoundStates {
            served_by,
            is_whole: true,
        }
    }

    /// Records the provider and credential that serve the state. Never waits: until the name is written, it counts in
    /// `on_the_way`.
    pub(crate) fn record(&self, state: StateKey, served_by: &ServedBy, on_the_way: &PendingWrites) {
        let known = self.recent.lock().get(&state) == Some(served_by);
        if known {
            return;
        }
        self.recent.lock().insert(state, served_by.clone());
        let waiting = QueuedWrite {
            name: (state, served_by.clone()),
            receipt: on_the_way.receipt(),
        };
        if self.queue.try_send(waiting).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A future that completes when these names are written, so that every node knows them, even if this one ends. It completes
    /// after `timeout` at the latest, and at once while writes fail. `None` if there is nothing to wait for.
    pub(crate) fn written(&self, names: PendingWrites, timeout: Duration) -> Option<WriteCompletion> {
        let rest = names.completion().filter(|_| !*self.fails.borrow())?;
        let mut fails = self.fails.clone();
        Some(Box::pin(async move {
            tokio::select! {
                () = rest => {}
                _ = fails.wait_for(|fails| *fails) => {}
                () = tokio::time::sleep(timeout) => {}
            }
        }))
    }

    /// The number of names that were not queued for the store, so that other nodes do not learn of them; for the metrics.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The result of [`Sessions::recall`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundStates {
    /// The provider and credential that serve each state, in the order of the argument; `None` for an unknown state.
    pub served_by: Vec<Option<ServedBy>>,
    /// Whether the store answered, if it was needed. Otherwise a `None` may be wrong.
    pub is_whole: bool,
}

impl std::fmt::Debug for StateRegistry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("StateRegistry").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
