//! The memory of state at providers in front of its store: whose it is and who serves it. What this node has served itself it
//! knows at once, and requests never wait for a write.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{mpsc, watch};

use crate::{
    clock,
    domain::{provider_state::StateKey, session_hint::ServedBy},
    store::sessions::SessionStore,
};

/// How many names of state wait to be written, some 100 bytes each; more are remembered by this node alone.
const QUEUE_MAX: usize = 65_536;
/// How many of this node's own are kept in memory; beyond it all but the newest generation is forgotten.
const RECENT_MAX: usize = 65_536;
/// How many are written at once.
const BATCH_MAX: usize = 128;
/// After how long a write that failed is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

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

    /// Remembers who has the state. Never waits.
    pub fn remember(&self, state: StateKey, served_by: &ServedBy) {
        let known = self.lock().get(&state) == Some(served_by);
        if known {
            return;
        }
        self.lock().put(state, served_by.clone());
        if self.queue.try_send((state, served_by.clone())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
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

impl Writer {
    /// Writes until `stop` turns true, then what is left. What a store that is away did not take waits for it.
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
            while let Err(error) = self.store.remember(&batch, clock::unix_seconds()).await {
                tracing::warn!(%error, names = batch.len(), "whose state at providers is could not be written");
                let stopping = stop.wait_for(|stop| *stop);
                if tokio::time::timeout(WRITE_AGAIN, stopping).await.is_ok() {
                    break;
                }
            }
            batch.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::{domain::provider_state::StateId, store::StoreError};

    /// A store that is away.
    struct Away;

    #[async_trait]
    impl SessionStore for Away {
        async fn recall(&self, _: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError> {
            Err(StoreError::Unavailable("away".to_owned()))
        }

        async fn remember(&self, _: &[(StateKey, ServedBy)], _: i64) -> Result<(), StoreError> {
            Err(StoreError::Unavailable("away".to_owned()))
        }
    }

    fn state(id: usize) -> StateKey {
        StateKey::new("a", StateId::new(&id.to_string()))
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
        let recalled = async |id| sessions.recall(&[state(id)]).await;
        let unknown = Recalled {
            served_by: vec![None],
            is_whole: false,
        };
        assert_eq!(recalled(1).await, unknown);
        for id in 0..RECENT_MAX * 3 {
            sessions.remember(state(id), &served_by());
        }
        let last = RECENT_MAX * 3 - 1;
        let known = Recalled {
            served_by: vec![Some(served_by())],
            is_whole: true,
        };
        assert_eq!(recalled(last).await, known);
        assert_eq!(recalled(0).await, unknown);
        let both = sessions.recall(&[state(0), state(last)]).await;
        assert_eq!((both.served_by, both.is_whole), (vec![None, Some(served_by())], false));
        let recent = sessions.lock();
        assert!(recent.newer.len() + recent.older.len() <= RECENT_MAX);
        assert_eq!(
            sessions.lost(),
            (RECENT_MAX * 3 - QUEUE_MAX) as u64,
            "the queue is bounded"
        );
    }

    /// A store that comes back when it has been asked often enough.
    #[derive(Default)]
    struct Returning {
        refusals_left: AtomicU64,
        written: Mutex<Vec<StateKey>>,
    }

    #[async_trait]
    impl SessionStore for Returning {
        async fn recall(&self, states: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError> {
            Ok(vec![None; states.len()])
        }

        async fn remember(&self, served: &[(StateKey, ServedBy)], _: i64) -> Result<(), StoreError> {
            let left = self.refusals_left.load(Ordering::Relaxed);
            if left > 0 {
                self.refusals_left.store(left - 1, Ordering::Relaxed);
                return Err(StoreError::Unavailable("away".to_owned()));
            }
            let mut written = self.written.lock().unwrap();
            written.extend(served.iter().map(|(state, _)| *state));
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_store_that_is_away_did_not_take_waits_for_it() {
        let store = Arc::new(Returning {
            refusals_left: AtomicU64::new(3),
            ..Returning::default()
        });
        let (sessions, writer) = Sessions::new(Arc::clone(&store) as Arc<dyn SessionStore>);
        sessions.remember(state(1), &served_by());
        sessions.remember(state(2), &served_by());
        let (_stop, stopped) = watch::channel(false);
        // It ends when nobody can tell it anything more, and all is written.
        drop(sessions);
        writer.run(stopped).await;
        assert_eq!(*store.written.lock().unwrap(), [state(1), state(2)]);
    }
}
