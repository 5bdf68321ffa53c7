//! Limits the processor time that the request bodies of one key take.
//!
//! The sender decides how expensive a body is. A few kilobytes of compressed data can take most of a second to decode, and one
//! megabyte of JSON can take a hundred times as long as another. So the time that a key's bodies took is recorded as the key's
//! debt. The debt decreases with time, at the rate of the key's share of the processor. While the debt is small, the work on a
//! body runs on the thread that carries the request. If the debt is higher, and always for a large body, the work is offloaded to
//! a thread of low priority. Such work is done for one body of the key at a time, and only when the debt allows it. So all bodies
//! of a key together take no more than the key's share. The smallest bodies are free.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    domain::{faults::refusal::Refusal, keys::secret::KeyDigest},
    edges::{clock, low_priority::LowPriorityThreads},
};

#[cfg(test)]
mod tests;

/// The maximum size in bytes of a body whose work is not charged to its key. The work on such a body is small compared with the
/// rest of the request.
pub(crate) const FREE_BYTES_MAX: usize = 16 * 1024;

/// The maximum share of one processor, in percent, for the bodies of a key, whatever the number of threads.
const PROCESSOR_PERCENT_MAX: usize = 50;

/// The maximum debt of a key at which work on its bodies is allowed.
const DEBT_MAX: Duration = Duration::from_millis(100);

/// The maximum number of a key's bodies that have a turn or wait for one. Further bodies are refused at once.
const KEY_BODIES_MAX: usize = 64;

/// The maximum time for which a body waits for a turn.
pub(crate) const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// The shortest pause that the timer supports, because its resolution is a millisecond. Shorter pauses accumulate as debt.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Keys that have no debt and no bodies are removed only if at least this number of keys is stored.
const WORKLOADS_UNSWEPT: usize = 1024;

/// A key's share of the processor time of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkShare {
    threads: usize,
    /// The share, in percent of one thread.
    percent: usize,
}

impl WorkShare {
    /// Creates a share of `percent` percent of `threads` threads: at least 1 and at most [`PROCESSOR_PERCENT_MAX`] percent of one
    /// thread.
    pub(crate) fn new(threads: usize, percent: usize) -> Self {
        let threads = threads.max(1);
        Self {
            threads,
            percent: threads.saturating_mul(percent).clamp(1, PROCESSOR_PERCENT_MAX),
        }
    }

    /// Returns the debt for work that took the processor time `worked`. The debt is a period that starts when the work starts. At
    /// the end of this period, the key has paid for the work at the rate of this share.
    fn debt(self, worked: Duration) -> Duration {
        let nanos = worked.as_nanos().saturating_mul(100) / self.percent as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The work on the bodies of all keys. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct BodyWork {
    shared: Arc<BodyWorkState>,
}

#[derive(Debug)]
struct BodyWorkState {
    share: WorkShare,
    wait_max: Duration,
    lines: Mutex<KeyWorkloads>,
    /// Low-priority threads, as many as there are threads that carry requests.
    apart: LowPriorityThreads,
}

/// The keys with a debt or with bodies that are worked on. A debt decreases to zero by itself, so the number of running and
/// recently ended requests bounds the number of keys.
#[derive(Debug, Default)]
struct KeyWorkloads {
    by_key: HashMap<KeyDigest, KeyWorkload>,
    /// The number of keys that remained after unused ones were last removed.
    swept: usize,
}

/// The bodies and the debt of one key.
#[derive(Debug)]
struct KeyWorkload {
    /// A semaphore with one permit, so that only one body of the key is worked on at a time.
    turns: Arc<Semaphore>,
    /// The number of bodies that have a turn or wait for one.
    bodies: usize,
    /// The time at which the debt is paid.
    paid_at: Instant,
}

impl KeyWorkload {
    fn is_over(&self, now: Instant) -> bool {
        self.bodies == 0 && self.paid_at <= now
    }
}

impl KeyWorkloads {
    fn get_or_insert(&mut self, key: KeyDigest, now: Instant) -> &mut KeyWorkload {
        if self.by_key.len() >= WORKLOADS_UNSWEPT.max(2 * self.swept) {
            self.by_key.retain(|_, line| !line.is_over(now));
            self.swept = self.by_key.len();
        }
        self.by_key.entry(key).or_insert_with(|| KeyWorkload {
            turns: Arc::new(Semaphore::new(1)),
            bodies: 0,
            paid_at: now,
        })
    }
}

impl BodyWork {
    /// Creates the shared state of the work. At first, no key has a debt or a body. A body waits at most `wait_max` for a turn.
    pub(crate) fn new(share: WorkShare, wait_max: Duration) -> Self {
        Self {
            shared: Arc::new(BodyWorkState {
                share,
                wait_max,
                lines: Mutex::default(),
                apart: LowPriorityThreads::new(share.threads),
            }),
        }
    }

    /// Returns the handle for the work on one body of this key.
    pub(crate) fn for_key(&self, key: KeyDigest) -> KeyWork {
        KeyWork {
            shared: Arc::clone(&self.shared),
            key,
        }
    }
}

/// The work on one body. Its processor time is charged to the body's key.
#[derive(Debug)]
pub(crate) struct KeyWork {
    shared: Arc<BodyWorkState>,
    key: KeyDigest,
}

impl KeyWork {
    /// Whether the key's debt is so small that the work on its body can run at once, on this thread.
    pub(crate) fn can_run_now(&self) -> bool {
        self.wait(clock::instant()).is_zero()
    }

    /// Charges the key for work that has just ended. `worked` is the processor time of the work.
    pub(crate) fn charge(&self, worked: Duration) {
        let now = clock::instant();
        let began = now.checked_sub(worked).unwrap_or(now);
        let mut lines = self.shared.lines.lock();
        let line = lines.get_or_insert(self.key, began);
        line.paid_at = line.paid_at.max(began) + self.shared.share.debt(worked);
    }

    /// Runs `work` on this thread, and charges the key for it.
    pub(crate) fn run_charged<T>(&self, work: impl FnOnce() -> T) -> T {
        let (done, worked) = timed(work);
        self.charge(worked);
        done
    }

    /// Runs `work` on a thread of low priority, in a turn of the key, and charges the key for it.
    ///
    /// # Errors
    /// The errors of [`Self::acquire_turn`] and [`Self::run_offloaded`].
    pub(crate) async fn run_in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let _turn = self.acquire_turn().await?;
        let (done, worked) = self.run_offloaded(move || timed(work)).await?;
        self.charge(worked);
        Ok(done)
    }

    /// Waits until this body has its turn among the key's bodies, in the order of arrival, and until the key's debt allows
    /// further work.
    ///
    /// # Errors
    /// [`Refusal::BodyWorkLimited`], if too many bodies of the key wait, or if the wait takes or would take too long.
    pub(crate) async fn acquire_turn(&self) -> Result<WorkTurn, Refusal> {
        let due = clock::instant() + self.shared.wait_max;
        let (place, turns) = self.enqueue().ok_or(Refusal::BodyWorkLimited)?;
        let permit = match Arc::clone(&turns).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = tokio::time::timeout_at(due.into(), turns.acquire_owned());
                let permit = waiting.await.map_err(|_| Refusal::BodyWorkLimited)?;
                // This error cannot occur, because the semaphore is never closed.
                permit.map_err(|_| Refusal::Internal)?
            }
        };
        let now = clock::instant();
        let wait = self.wait(now);
        if now + wait > due {
            return Err(Refusal::BodyWorkLimited);
        }
        if wait >= PAUSE_MIN {
            tokio::time::sleep(wait).await;
        }
        Ok(WorkTurn {
            _permit: permit,
            _place: place,
        })
    }

    /// Runs `work` on a thread of low priority, which carries no requests, as soon as such a thread is free.
    ///
    /// # Errors
    /// [`Refusal::Internal`]: `work` panicked.
    pub(crate) async fn run_offloaded<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.shared.apart.run(work).await.map_err(|_| Refusal::Internal)
    }

    /// Yields to other requests on this thread, and waits until the key's debt allows further work.
    pub(crate) async fn pause(&self) {
        let wait = self.wait(clock::instant());
        match wait < PAUSE_MIN {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(wait).await,
        }
    }

    /// Returns the time until the key's debt allows further work.
    fn wait(&self, now: Instant) -> Duration {
        let lines = self.shared.lines.lock();
        let debt = lines
            .by_key
            .get(&self.key)
            .map(|line| line.paid_at.saturating_duration_since(now));
        debt.unwrap_or_default().saturating_sub(DEBT_MAX)
    }

    fn enqueue(&self) -> Option<(WorkSlot, Arc<Semaphore>)> {
        let mut lines = self.shared.lines.lock();
        let line = lines.get_or_insert(self.key, clock::instant());
        if line.bodies >= KEY_BODIES_MAX {
            return None;
        }
        line.bodies += 1;
        let place = WorkSlot {
            shared: Arc::clone(&self.shared),
            key: self.key,
        };
        Some((place, Arc::clone(&line.turns)))
    }
}

/// Runs `work`. Returns the result of `work` and the processor time that it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = clock::thread_time();
    let done = work();
    (done, clock::thread_time().saturating_sub(before))
}

/// One of the [`KEY_BODIES_MAX`] slots that a key has for its bodies; returned on drop.
#[derive(Debug)]
struct WorkSlot {
    shared: Arc<BodyWorkState>,
    key: KeyDigest,
}

impl Drop for WorkSlot {
    fn drop(&mut self) {
        let lines = &mut self.shared.lines.lock().by_key;
        if let Some(line) = lines.get_mut(&self.key) {
            line.bodies = line.bodies.saturating_sub(1);
            if line.is_over(clock::instant()) {
                lines.remove(&self.key);
            }
        }
    }
}

/// The right to work on one of the key's bodies. The turn ends on drop.
#[derive(Debug)]
#[must_use = "the turn is over as soon as it is dropped"]
pub(crate) struct WorkTurn {
    _permit: OwnedSemaphorePermit,
    _place: WorkSlot,
}
