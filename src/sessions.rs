//! The memory of sessions in front of its store: what this node has served itself it knows at once, and requests never
//! wait for a write.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{mpsc, watch};

use crate::{
    clock,
    domain::session_hint::{ServedBy, StateKey},
    store::sessions::SessionStore,
};

/// How many sessions wait to be written; more are remembered by this node alone.
const QUEUE_MAX: usize = 4096;
/// How many of this node's own sessions are kept in memory; beyond it all but the newest generation is forgotten.
const RECENT_MAX: usize = 16_384;
/// How many are written at once.
const BATCH_MAX: usize = 128;

/// See the module.
pub struct Sessions {
    store: Arc<dyn SessionStore>,
    recent: Mutex<Recent>,
    queue: mpsc::Sender<(StateKey, ServedBy)>,
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

/// What [`Sessions::new`] leaves to be written; run it in the background.
pub struct Writer {
    store: Arc<dyn SessionStore>,
    queue: mpsc::Receiver<(StateKey, ServedBy)>,
}

impl Sessions {
    /// A memory in front of a store, and the task that writes.
    pub fn new(store: Arc<dyn SessionStore>) -> (Self, Writer) {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        let this = Self {
            store: Arc::clone(&store),
            recent: Mutex::default(),
            queue: sender,
            lost: AtomicU64::new(0),
        };
        (this, Writer { store, queue })
    }

    /// Who has the state, as far as anybody remembers. A store that is away remembers nothing: the request goes on, and at
    /// worst its provider does not know the state.
    pub async fn recall(&self, state: StateKey) -> Option<ServedBy> {
        if let Some(known) = self.lock().get(&state) {
            return Some(known.clone());
        }
        match self.store.recall(state).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "who served a session cannot be looked up");
                None
            }
        }
    }

    /// Remembers who has the state. Never waits.
    pub fn remember(&self, state: StateKey, served_by: ServedBy) {
        let known = self.lock().get(&state) == Some(&served_by);
        if known {
            return;
        }
        self.lock().put(state, served_by.clone());
        if self.queue.try_send((state, served_by)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many sessions other nodes will not hear of, for the metrics.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Writer {
    /// Writes until `stop` turns true, then what is left.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let stopping = async {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            let count = tokio::select! {
                count = self.queue.recv_many(&mut batch, BATCH_MAX) => count,
                () = stopping => {
                    // What waits already is still received; then there is nothing more.
                    self.queue.close();
                    self.queue.recv_many(&mut batch, QUEUE_MAX).await
                }
            };
            if count == 0 {
                return;
            }
            if let Err(error) = self.store.remember(&batch, clock::unix_seconds()).await {
                tracing::warn!(%error, sessions = batch.len(), "who served sessions could not be written");
            }
            batch.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::store::StoreError;

    /// A store that is away.
    struct Away;

    #[async_trait]
    impl SessionStore for Away {
        async fn recall(&self, _: StateKey) -> Result<Option<ServedBy>, StoreError> {
            Err(StoreError::Unavailable("away".to_owned()))
        }

        async fn remember(&self, _: &[(StateKey, ServedBy)], _: i64) -> Result<(), StoreError> {
            Err(StoreError::Unavailable("away".to_owned()))
        }
    }

    fn state(id: usize) -> StateKey {
        StateKey::new("k", &id.to_string())
    }

    fn served_by() -> ServedBy {
        ServedBy {
            provider: "p".to_owned(),
            credential: "c".to_owned(),
        }
    }

    #[tokio::test]
    async fn what_this_node_served_is_known_without_the_store_and_bounded() {
        let (sessions, _writer) = Sessions::new(Arc::new(Away));
        assert_eq!(sessions.recall(state(1)).await, None);
        for id in 0..RECENT_MAX * 3 {
            sessions.remember(state(id), served_by());
        }
        assert_eq!(sessions.recall(state(RECENT_MAX * 3 - 1)).await, Some(served_by()));
        assert_eq!(sessions.recall(state(0)).await, None);
        let recent = sessions.lock();
        assert!(recent.newer.len() + recent.older.len() <= RECENT_MAX);
        assert_eq!(
            sessions.lost(),
            (RECENT_MAX * 3 - QUEUE_MAX) as u64,
            "the queue is bounded"
        );
    }
}
