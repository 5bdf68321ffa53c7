//! Answers of a moment ago, which all who look at the console share: what their pages cost the store does not grow with their number.

use std::{
    any::Any,
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{admin::changes_seen::ChangesSeen, api::error::AdminError, edges::clock};

/// How long an answer is given again after it was made.
const FRESH: Duration = Duration::from_secs(1);
/// One that took long to make is given again for so many times as long, so that the store is busy with it for at most a
/// twentieth of the time.
const TIMES_ITS_WORK: u32 = 20;
/// The longest that an answer is given again, however long it took.
const FRESH_MAX: Duration = Duration::from_secs(30);
/// The most answers that are kept, some 200 KB at the most each. Others are made for who asks alone.
const ANSWERS_MAX: usize = 64;

/// An answer that is shared by all who look.
pub(super) type Shared = Result<Arc<dyn Any + Send + Sync>, AdminError>;

/// What was asked within the last moment, by its path.
pub(super) struct Recent<T> {
    answers: Mutex<HashMap<String, Arc<Answer<T>>>>,
}

/// An answer, or that it is being made.
struct Answer<T> {
    /// How many changes had been made through this node when it was asked for.
    changes: u64,
    made: OnceCell<Made<T>>,
}

struct Made<T> {
    answer: T,
    good_until: Instant,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self {
            answers: Mutex::default(),
        }
    }
}

impl<T: Clone> Recent<T> {
    /// What `make` answers, or has answered a moment ago for the same path, if nothing was changed through this node since.
    /// However many ask at one time, one of them asks the store.
    pub(super) async fn get(&self, path: &str, changes: &ChangesSeen, make: impl Future<Output = T>) -> T {
        let known = self.at(path, changes.count(), clock::instant());
        let made = known.made.get_or_init(|| async {
            let began = clock::instant();
            let answer = make.await;
            let now = clock::instant();
            let good_until = now + lasts(now.saturating_duration_since(began));
            Made { answer, good_until }
        });
        made.await.answer.clone()
    }

    fn at(&self, path: &str, changes: u64, now: Instant) -> Arc<Answer<T>> {
        let mut answers = self.answers.lock();
        if let Some(known) = answers.get(path).filter(|known| known.is_good(changes, now)) {
            return Arc::clone(known);
        }
        answers.retain(|_, known| known.is_good(changes, now));
        let made = OnceCell::new();
        let new = Arc::new(Answer { changes, made });
        if answers.len() < ANSWERS_MAX {
            answers.insert(path.to_owned(), Arc::clone(&new));
        }
        new
    }
}

impl<T> Answer<T> {
    fn is_good(&self, changes: u64, now: Instant) -> bool {
        self.changes == changes && self.made.get().is_none_or(|made| now < made.good_until)
    }
}

/// How long an answer is given again that took so long.
fn lasts(took: Duration) -> Duration {
    took.saturating_mul(TIMES_ITS_WORK).clamp(FRESH, FRESH_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// An answer that says how many were made.
    async fn ask(recent: &Recent<u64>, path: &str, changes: &ChangesSeen, made: &AtomicU64) -> u64 {
        let make = async { made.fetch_add(1, Ordering::SeqCst) + 1 };
        recent.get(path, changes, make).await
    }

    #[tokio::test]
    async fn who_asks_at_the_same_time_gets_one_answer() {
        let (recent, changes, made) = (Recent::default(), ChangesSeen::default(), AtomicU64::new(0));
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let first = recent.get("/a", &changes, async {
            wait.await.unwrap();
            100
        });
        let second = async {
            let other = ask(&recent, "/b", &changes, &made).await;
            assert_eq!(other, 1, "another path waits for nobody");
            let joined = recent.get("/a", &changes, async { panic!("it is being made already") });
            let (joined, ()) = tokio::join!(joined, async { go.send(()).unwrap() });
            joined
        };
        assert_eq!(tokio::join!(first, second), (100, 100));
    }

    #[tokio::test]
    async fn a_change_is_seen_at_once() {
        let (recent, changes, made) = (Recent::default(), ChangesSeen::default(), AtomicU64::new(0));
        for _ in 0..3 {
            assert_eq!(ask(&recent, "/a", &changes, &made).await, 1);
        }
        drop(changes.begin());
        assert_eq!(ask(&recent, "/a", &changes, &made).await, 2);
    }

    #[tokio::test]
    async fn an_answer_from_before_a_change_is_not_given_after_it() {
        let (recent, changes, made) = (Recent::default(), ChangesSeen::default(), AtomicU64::new(0));
        let old = recent.get("/a", &changes, async {
            drop(changes.begin());
            100
        });
        assert_eq!(old.await, 100);
        assert_eq!(ask(&recent, "/a", &changes, &made).await, 1);
    }

    #[test]
    fn answers_become_old_by_what_they_cost() {
        let recent = Recent::default();
        let now = clock::instant();
        let answer = recent.at("/a", 0, now);
        let good_until = now + lasts(Duration::ZERO);
        let answer_made = Made { answer: 1, good_until };
        assert!(answer.made.set(answer_made).is_ok());
        let is_same = |at: Instant| Arc::ptr_eq(&answer, &recent.at("/a", 0, at));
        assert!(is_same(good_until - Duration::from_millis(1)));
        assert!(!is_same(good_until));
        assert_eq!(lasts(Duration::from_millis(3)), FRESH);
        assert_eq!(lasts(Duration::from_millis(500)), Duration::from_secs(10));
        assert_eq!(lasts(Duration::from_secs(500)), FRESH_MAX);
    }

    #[test]
    fn so_many_answers_are_kept_and_no_more() {
        let recent = Recent::<u64>::default();
        let now = clock::instant();
        for path in 0..2 * ANSWERS_MAX {
            recent.at(&path.to_string(), 0, now);
        }
        assert_eq!(recent.answers.lock().len(), ANSWERS_MAX);
    }
}
