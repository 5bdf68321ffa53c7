//! The memory in front of a store that is away, comes back, or is slow.

use async_trait::async_trait;
use futures_util::poll;
use tokio::sync::Semaphore;

use super::*;
use crate::{domain::wire::provider_state::StateId, store::StoreError};

const WAIT_MAX: Duration = Duration::from_secs(2);

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
    let (sessions, _writer) = StateRegistry::new(Arc::new(Away));
    let recalled = async |id| sessions.find(&[state(id)]).await;
    let unknown = FoundStates {
        served_by: vec![None],
        is_whole: false,
    };
    assert_eq!(recalled(1).await, unknown);
    let names = PendingWrites::default();
    for id in 0..RECENT_MAX * 3 {
        sessions.record(state(id), &served_by(), &names);
    }
    let last = RECENT_MAX * 3 - 1;
    let known = FoundStates {
        served_by: vec![Some(served_by())],
        is_whole: true,
    };
    assert_eq!(recalled(last).await, known);
    assert_eq!(recalled(0).await, unknown);
    let both = sessions.find(&[state(0), state(last)]).await;
    assert_eq!((both.served_by, both.is_whole), (vec![None, Some(served_by())], false));
    let recent = sessions.recent.lock();
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
        let mut written = self.written.lock();
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
    let (sessions, writer) = StateRegistry::new(Arc::clone(&store) as Arc<dyn SessionStore>);
    let names = PendingWrites::default();
    sessions.record(state(1), &served_by(), &names);
    sessions.record(state(2), &served_by(), &names);
    let (_stop, stopped) = watch::channel(false);
    // It ends when nobody can tell it anything more, and all is written.
    drop(sessions);
    writer.run(stopped).await;
    assert_eq!(*store.written.lock(), [state(1), state(2)]);
}

/// A store that writes as often as it is allowed to.
struct Slow {
    allowed: Semaphore,
}

#[async_trait]
impl SessionStore for Slow {
    async fn recall(&self, states: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError> {
        Ok(vec![None; states.len()])
    }

    async fn remember(&self, _: &[(StateKey, ServedBy)], _: i64) -> Result<(), StoreError> {
        self.allowed.acquire().await.expect("open").forget();
        Ok(())
    }
}

/// One name of each of several answers.
fn record_states(sessions: &StateRegistry, ids: std::ops::Range<usize>) -> PendingWrites {
    let names = PendingWrites::default();
    ids.for_each(|id| sessions.record(state(id), &served_by(), &names));
    names
}

#[tokio::test(start_paused = true)]
async fn an_answers_end_waits_until_what_it_has_made_is_written() {
    let store = Arc::new(Slow {
        allowed: Semaphore::new(0),
    });
    let (sessions, writer) = StateRegistry::new(Arc::clone(&store) as Arc<dyn SessionStore>);
    let (_stop, stopped) = watch::channel(false);
    let nothing = sessions.written(PendingWrites::default(), WAIT_MAX);
    assert!(nothing.is_none(), "nothing was made");
    let first = record_states(&sessions, 0..2);
    tokio::spawn(writer.run(stopped));
    tokio::task::yield_now().await;
    // The first is being written, the second waits its turn.
    let mut first = sessions.written(first, WAIT_MAX).expect("something to wait for");
    let mut second = sessions
        .written(record_states(&sessions, 2..4), WAIT_MAX)
        .expect("something to wait for");
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    store.allowed.add_permits(1);
    first.await;
    assert!(poll!(&mut second).is_pending());
    store.allowed.add_permits(1);
    second.await;
    let known = record_states(&sessions, 0..4);
    assert!(sessions.written(known, WAIT_MAX).is_none(), "all of it is written");
}

#[tokio::test(start_paused = true)]
async fn no_answers_end_waits_longer_than_it_may() {
    let store = Arc::new(Slow {
        allowed: Semaphore::new(0),
    });
    let (sessions, writer) = StateRegistry::new(store);
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(writer.run(stopped));
    let began = tokio::time::Instant::now();
    let written = sessions.written(record_states(&sessions, 0..1), WAIT_MAX);
    written.expect("something to wait for").await;
    assert_eq!(began.elapsed(), WAIT_MAX);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_store_that_is_away_until_it_is_back() {
    let store = Arc::new(Returning {
        refusals_left: AtomicU64::new(2),
        ..Returning::default()
    });
    let (sessions, writer) = StateRegistry::new(Arc::clone(&store) as Arc<dyn SessionStore>);
    let (_stop, stopped) = watch::channel(false);
    let began = tokio::time::Instant::now();
    let first = sessions.written(record_states(&sessions, 0..1), WAIT_MAX);
    tokio::spawn(writer.run(stopped));
    first.expect("nobody knows yet that it is away").await;
    assert!(sessions.written(record_states(&sessions, 1..2), WAIT_MAX).is_none());
    assert!(began.elapsed().is_zero());
    let mut fails = sessions.fails.clone();
    fails.wait_for(|fails| !fails).await.expect("it came back");
    let second = sessions.written(record_states(&sessions, 2..3), WAIT_MAX);
    second.expect("it has to be written").await;
    assert_eq!(store.written.lock().len(), 3);
}
