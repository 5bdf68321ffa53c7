//! Records which account owns a state that a provider stores, and which provider and credential serve it. This node immediately
//! has the records for its own answers in memory. For other nodes, it writes the records to the store while it relays the answer.
//! Requests never wait for such a write, but the end of an answer waits for the writes of that answer.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{
    mpsc,
    oneshot::{self, error::TryRecvError},
    watch,
};

use crate::{
    domain::wire::{provider_state::StateKey, session_hint::ServedBy},
    edges::clock,
    store::sessions::SessionStore,
};

/// The maximum number of entries in memory. When it is reached, the older of two generations is dropped.
const RECENT_MAX: usize = 65_536;

/// A future that completes when an answer's new state has been written, or cannot be written at present.
pub(crate) type WriteCompletion = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The records of provider state that this node has in memory as a cache of the store. All requests share them.
pub(crate) struct StateRegistry {
    store: Arc<dyn SessionStore>,
    recent: Mutex<RecentStates>,
    queue: mpsc::Sender<QueuedWrite>,
    /// Whether the most recent write failed.
    fails: watch::Receiver<bool>,
    lost: AtomicU64,
}

/// Recently used entries in two generations. When the newer generation is full, it replaces the older one.
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
    /// Creates an empty registry that caches a store. Returns the registry and the task that writes to the store.
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

    /// Finds the provider and credential that serve each of these states. Calls the store at most once, for the states that are
    /// not in memory.
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
                tracing::warn!(%error, "cannot look up in the store which provider has the objects that a request names; the request may be refused with status 503");
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

    /// Records the provider and credential that serve a state. Never waits. The record is in `on_the_way` until it is written to
    /// the store.
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

    /// Returns a future that completes when these records are written. From that point, every node can read the records, even if
    /// this node ends. The future completes after `timeout` at the latest, and earlier if a write fails. Returns `None` if all
    /// records are already written, or if writes to the store fail at present.
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

    /// The number of records that could not be queued for the store, so other nodes do not get them. A metric reports the number.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// The result of [`StateRegistry::find`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundStates {
    /// The provider and credential that serve each state, in the order of the requested states; `None` for an unknown state.
    pub served_by: Vec<Option<ServedBy>>,
    /// Whether the result is complete. False if the store was needed and did not answer. In that case, an entry can be `None`
    /// although the store has a record of the state.
    pub is_whole: bool,
}

impl std::fmt::Debug for StateRegistry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("StateRegistry").finish_non_exhaustive()
    }
}

/// A token for one record. It is dropped when the record has been written, or when it is certain that the record will never be
/// written.
#[derive(Clone, Debug)]
struct Receipt {
    _sender: Arc<oneshot::Sender<Infallible>>,
}

/// The records of one answer's state that are being written to the store. Each record has a receipt until it is written.
#[derive(Debug)]
pub(crate) struct PendingWrites {
    receipt: Receipt,
    arrived: oneshot::Receiver<Infallible>,
}

impl Default for PendingWrites {
    fn default() -> Self {
        let (sender, arrived) = oneshot::channel();
        Self {
            receipt: Receipt {
                _sender: Arc::new(sender),
            },
            arrived,
        }
    }
}

impl PendingWrites {
    /// Returns a receipt for one more record.
    fn receipt(&self) -> Receipt {
        self.receipt.clone()
    }

    /// Returns a future that completes when all records are written; `None` if they already are. No further record can be added.
    fn completion(self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let Self { receipt, mut arrived } = self;
        drop(receipt);
        // No value is ever sent: receiving ends when the last receipt is dropped.
        matches!(arrived.try_recv(), Err(TryRecvError::Empty)).then(|| async move {
            let _ = arrived.await;
        })
    }
}

/// The maximum number of records that wait to be written, about 100 bytes each. Further records stay on this node.
const QUEUE_MAX: usize = 65_536;
/// The maximum number of records in one write.
const BATCH_MAX: usize = 128;
/// The pause between a failed write and the next try.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// A record that waits to be written, with its receipt.
struct QueuedWrite {
    name: (StateKey, ServedBy),
    receipt: Receipt,
}

/// The background task that writes recorded state to the store, in order and in batches.
pub(crate) struct StateWriter {
    store: Arc<dyn SessionStore>,
    queue: mpsc::Receiver<QueuedWrite>,
    /// Whether the most recent write failed.
    fails: watch::Sender<bool>,
}

impl StateWriter {
    /// Writes records until `stop` becomes true, and then writes the records that are still queued. Records wait while the store
    /// is unreachable.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let stopping = async {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            let count = tokio::select! {
                count = self.queue.recv_many(&mut batch, BATCH_MAX) => count,
                () = stopping => {
                    // Only records that are already queued are received.
                    self.queue.close();
                    self.queue.recv_many(&mut batch, QUEUE_MAX).await
                }
            };
            if count == 0 {
                return;
            }
            let (names, receipts): (Vec<_>, Vec<_>) =
                batch.drain(..).map(|waiting| (waiting.name, waiting.receipt)).unzip();
            self.write(&names, &mut stop).await;
            drop(receipts);
        }
    }

    /// Repeats a write until it succeeds or `stop` becomes true.
    async fn write(&self, names: &[(StateKey, ServedBy)], stop: &mut watch::Receiver<bool>) {
        while let Err(error) = self.store.remember(names, clock::unix_seconds()).await {
            self.fails.send_replace(true);
            tracing::warn!(
                %error, names = names.len(),
                "cannot record in the store which account owns provider state; weir repeats the write"
            );
            let stopping = stop.wait_for(|stop| *stop);
            if tokio::time::timeout(WRITE_AGAIN, stopping).await.is_ok() {
                return;
            }
        }
        self.fails.send_if_modified(std::mem::take);
    }
}
