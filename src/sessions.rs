//! The memory of state at providers in front of its store: whose it is and who serves it. What this node has served itself it
//! knows at once, for the others it is written while the answer passes. Requests never wait for a write, answers' ends do.

mod on_the_way;
mod writer;

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, watch};

use self::writer::{QUEUE_MAX, Waiting};
use crate::{
    domain::{provider_state::StateKey, session_hint::ServedBy},
    store::sessions::SessionStore,
};

pub use self::{on_the_way::OnTheWay, writer::Writer};

/// How many of this node's own are kept in memory; beyond it all but the newest generation is forgotten.
const RECENT_MAX: usize = 65_536;

/// Returns when what an answer has made is written, or will not be for now.
pub type Written = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module.
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    recent: Mutex<Recent>,
    queue: mpsc::Sender<Waiting>,
    /// Whether the store takes nothing at present.
    fails: watch::Receiver<bool>,
    lost: AtomicU64,
}

/// Two generations: when the newer is full it becomes the older, and the older goes.
#[derive(Default)]
struct Recent {
    newer: HashMap<StateKey, ServedBy>,
    older: HashMap<StateKey, ServedBy>,
}

impl Recent {
    fn get(&self, state: &StateKey) -> Option<&ServedBy> {
        self.newer.get(state).or_else(|| self.older.get(state))
    }

    fn put(&mut self, state: StateKey, served_by: ServedBy) {
        if self.newer.len() >= RECENT_MAX / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(state, served_by);
    }
}

impl Sessions {
    /// A memory in front of a store, and the task that writes.
    pub fn new(store: Arc<dyn SessionStore>) -> (Self, Writer) {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        let (failing, fails) = watch::channel(false);
        let this = Self {
            store: Arc::clone(&store),
            recent: Mutex::default(),
            queue: sender,
            fails,
            lost: AtomicU64::new(0),
        };
        let writer = Writer {
            store,
            queue,
            fails: failing,
        };
        (this, writer)
    }

    /// Who has each of these, in their order. The store is asked once, and only for what this node does not know itself.
    pub async fn recall(&self, states: &[StateKey]) -> Recalled {
        let mut served_by: Vec<Option<ServedBy>> = {
            let recent = self.lock();
            states.iter().map(|state| recent.get(state).cloned()).collect()
        };
        let places = || states.iter().zip(&served_by).filter(|(_, known)| known.is_none());
        let unknown: Vec<StateKey> = places().map(|(state, _)| *state).collect();
        if unknown.is_empty() {
            return Recalled {
                served_by,
                is_whole: true,
            };
        }
        let found = match self.store.recall(&unknown).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "whose state at a provider is cannot be looked up");
                return Recalled {
                    served_by,
                    is_whole: false,
                };
            }
        };
        let missing = served_by.iter_mut().filter(|known| known.is_none());
        missing.zip(found).for_each(|(place, found)| *place = found);
        Recalled {
            served_by,
            is_whole: true,
        }
    }

    /// Remembers who has the state. Never waits: the name is among those that are `on_the_way` until it is written.
    pub fn remember(&self, state: StateKey, served_by: &ServedBy, on_the_way: &OnTheWay) {
        let known = self.lock().get(&state) == Some(served_by);
        if known {
            return;
        }
        self.lock().put(state, served_by.clone());
        let waiting = Waiting {
            name: (state, served_by.clone()),
            receipt: on_the_way.receipt(),
        };
        if self.queue.try_send(waiting).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What returns when these names are written, and so known to every node and after the end of this one: at the latest
    /// after `patience`, and at once when the store takes nothing. `None`: there is nothing to wait for.
    pub fn written(&self, names: OnTheWay, patience: Duration) -> Option<Written> {
        let rest = names.rest().filter(|_| !*self.fails.borrow())?;
        let mut fails = self.fails.clone();
        Some(Box::pin(async move {
            tokio::select! {
                () = rest => {}
                _ = fails.wait_for(|fails| *fails) => {}
                () = tokio::time::sleep(patience) => {}
            }
        }))
    }

    /// How many names of state other nodes will not hear of, for the metrics.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is remembered of state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recalled {
    /// Who has each, in the order in which they were asked for; `None`: nobody remembers.
    pub served_by: Vec<Option<ServedBy>>,
    /// Whether the store was heard: without it, what this node does not know may be there all the same.
    pub is_whole: bool,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Sessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
