//! Stores recent answers of the admin API, which all users of the console share. So the load on the store does not grow with
//! their number.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{api::error::AdminError, edges::clock};

/// The minimum time for which an answer is reused.
const REUSE_MIN: Duration = Duration::from_secs(1);
/// An answer is reused for this multiple of the time that it took. So answering one call takes at most a twentieth of the store's
/// time.
const REUSE_FACTOR: u32 = 20;
/// The maximum time for which an answer is reused.
const REUSE_MAX: Duration = Duration::from_secs(30);
/// The maximum number of stored answers, each of at most about 200 KB. Further answers are not shared.
const ANSWERS_MAX: usize = 64;

/// An answer of the admin API that several callers share.
pub(super) type SharedAnswer = Result<Arc<dyn Any + Send + Sync>, AdminError>;

/// The recent answers, by the path and query of the call.
pub(super) struct ResponseCache<T> {
    answers: Mutex<HashMap<String, Arc<CachedAnswer<T>>>>,
}

/// An answer that is ready or is being prepared.
struct CachedAnswer<T> {
    /// The number of changes that had been made through this node when the answer was requested.
    changes: u64,
    made: OnceCell<TimedAnswer<T>>,
}

struct TimedAnswer<T> {
    answer: T,
    good_until: Instant,
}

impl<T> Default for ResponseCache<T> {
    fn default() -> Self {
        Self {
            answers: Mutex::default(),
        }
    }
}

impl<T: Clone> ResponseCache<T> {
    /// Returns the result of `make`. Instead returns a recent result for the same path if no change was made through this node
    /// since. Concurrent callers share one call of `make`.
    pub(super) async fn get(&self, path: &str, changes: &ChangeCounter, make: impl Future<Output = T>) -> T {
        let known = self.entry(path, changes.count(), clock::instant());
        let made = known.made.get_or_init(|| async {
            let began = clock::instant();
            let answer = make.await;
            let now = clock::instant();
            let good_until = now + reuse_time(now.saturating_duration_since(began));
            TimedAnswer { answer, good_until }
        });
        made.await.answer.clone()
    }

    fn entry(&self, path: &str, changes: u64, now: Instant) -> Arc<CachedAnswer<T>> {
        let mut answers = self.answers.lock();
        if let Some(known) = answers.get(path).filter(|known| known.is_good(changes, now)) {
            return Arc::clone(known);
        }
        answers.retain(|_, known| known.is_good(changes, now));
        let made = OnceCell::new();
        let new = Arc::new(CachedAnswer { changes, made });
        if answers.len() < ANSWERS_MAX {
            answers.insert(path.to_owned(), Arc::clone(&new));
        }
        new
    }
}

impl<T> CachedAnswer<T> {
    fn is_good(&self, changes: u64, now: Instant) -> bool {
        self.changes == changes && self.made.get().is_none_or(|made| now < made.good_until)
    }
}

/// Returns how long an answer can be reused that took this long to prepare.
fn reuse_time(took: Duration) -> Duration {
    took.saturating_mul(REUSE_FACTOR).clamp(REUSE_MIN, REUSE_MAX)
}

/// Counts the changes that were made through this node. All parts of the admin API share it.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeCounter(Arc<AtomicU64>);

/// A change that is being made. When this is dropped, the change is counted, whether it succeeded or not.
#[must_use = "the change counts as made when this is dropped"]
pub(super) struct PendingChange<'a>(&'a AtomicU64);

impl ChangeCounter {
    /// Returns the number of changes so far.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Begins a change, which is counted when the returned value is dropped.
    pub(super) fn begin(&self) -> PendingChange<'_> {
        PendingChange(&self.0)
    }
}

impl Drop for PendingChange<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Requests an answer, which contains the number of answers that were prepared.
    async fn ask(recent: &ResponseCache<u64>, path: &str, changes: &ChangeCounter, made: &AtomicU64) -> u64 {
        let make = async { made.fetch_add(1, Ordering::SeqCst) + 1 };
        recent.get(path, changes, make).await
    }

    #[tokio::test]
    async fn who_asks_at_the_same_time_gets_one_answer() {
        let (recent, changes, made) = (ResponseCache::default(), ChangeCounter::default(), AtomicU64::new(0));
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
        let (recent, changes, made) = (ResponseCache::default(), ChangeCounter::default(), AtomicU64::new(0));
        for _ in 0..3 {
            assert_eq!(ask(&recent, "/a", &changes, &made).await, 1);
        }
        drop(changes.begin());
        assert_eq!(ask(&recent, "/a", &changes, &made).await, 2);
    }

    #[tokio::test]
    async fn an_answer_from_before_a_change_is_not_given_after_it() {
        let (recent, changes, made) = (ResponseCache::default(), ChangeCounter::default(), AtomicU64::new(0));
        let old = recent.get("/a", &changes, async {
            drop(changes.begin());
            100
        });
        assert_eq!(old.await, 100);
        assert_eq!(ask(&recent, "/a", &changes, &made).await, 1);
    }

    #[test]
    fn answers_become_old_by_what_they_cost() {
        let recent = ResponseCache::default();
        let now = clock::instant();
        let answer = recent.entry("/a", 0, now);
        let good_until = now + reuse_time(Duration::ZERO);
        let answer_made = TimedAnswer { answer: 1, good_until };
        assert!(answer.made.set(answer_made).is_ok());
        let is_same = |at: Instant| Arc::ptr_eq(&answer, &recent.entry("/a", 0, at));
        assert!(is_same(good_until - Duration::from_millis(1)));
        assert!(!is_same(good_until));
        assert_eq!(reuse_time(Duration::from_millis(3)), REUSE_MIN);
        assert_eq!(reuse_time(Duration::from_millis(500)), Duration::from_secs(10));
        assert_eq!(reuse_time(Duration::from_secs(500)), REUSE_MAX);
    }

    #[test]
    fn so_many_answers_are_kept_and_no_more() {
        let recent = ResponseCache::<u64>::default();
        let now = clock::instant();
        for path in 0..2 * ANSWERS_MAX {
            recent.entry(&path.to_string(), 0, now);
        }
        assert_eq!(recent.answers.lock().len(), ANSWERS_MAX);
    }
}
