//! Remembers state at providers: which account owns it, and which provider and credential serve it. What this node has
//! served is in memory at once; it is written to the store for the other nodes while the answer passes. Requests never
//! wait for a write, but the end of an answer does.

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

use self::writer::{QUEUE_MAX, Waiting};
use crate::{
    domain::wire::{provider_state::StateKey, session_hint::ServedBy},
    store::sessions::SessionStore,
};

pub(crate) use self::{on_the_way::OnTheWay, writer::Writer};

/// The most entries kept in memory. Beyond it the older of two generations is dropped.
const RECENT_MAX: usize = 65_536;

/// Completes when an answer's new state is written, or cannot be written for now.
pub(crate) type Written = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The memory in front of the store. Shared by all requests.
pub(crate) struct Sessions {
    store: Arc<dyn SessionStore>,
    recent: Mutex<Recent>,
    queue: mpsc::Sender<Waiting>,
    /// Whether the last write failed.
    fails: watch::Receiver<bool>,
    lost: AtomicU64,
}

/// Two generations: when the newer one is full it replaces the older one.
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
    /// The memory in front of a store, and the task that writes to it.
    pub(crate) fn new(store: Arc<dyn SessionStore>) -> (Self, Writer) {
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

    /// Who serves each of these states, in their order. Asks the store once, and only for what is not in memory.
    pub(crate) async fn recall(&self, states: &[StateKey]) -> Recalled {
        let mut served_by: Vec<Option<ServedBy>> = {
            let recent = self.recent.lock();
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

    /// Remembers who serves the state. Never waits: until the name is written, it counts among `on_the_way`.
    pub(crate) fn remember(&self, state: StateKey, served_by: &ServedBy, on_the_way: &OnTheWay) {
        let known = self.recent.lock().get(&state) == Some(served_by);
        if known {
            return;
        }
        self.recent.lock().put(state, served_by.clone());
        let waiting = Waiting {
            name: (state, served_by.clone()),
            receipt: on_the_way.receipt(),
        };
        if self.queue.try_send(waiting).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A future that completes when these names are written, so that every node knows them, also after this one has
    /// ended. It completes at the latest after `timeout`, and at once while writes fail. `None` if there is nothing to
    /// wait for.
    pub(crate) fn written(&self, names: OnTheWay, timeout: Duration) -> Option<Written> {
        let rest = names.rest().filter(|_| !*self.fails.borrow())?;
        let mut fails = self.fails.clone();
        Some(Box::pin(async move {
            tokio::select! {
                () = rest => {}
                _ = fails.wait_for(|fails| *fails) => {}
                () = tokio::time::sleep(timeout) => {}
            }
        }))
    }

    /// How many names were not queued for the store, so that other nodes do not learn of them; for the metrics.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The result of [`Sessions::recall`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recalled {
    /// Who serves each state, in the order of the question; `None` if nobody is known.
    pub served_by: Vec<Option<ServedBy>>,
    /// The store could be asked. Otherwise a `None` may be wrong.
    pub is_whole: bool,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Sessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
