//! Limits the processor time that the bodies of one key take.
//!
//! The sender decides how expensive a body is: a few kilobytes of compressed data can be work for most of a second, and one
//! megabyte of JSON a hundred times the work of another. So the time that its bodies took is a debt of the key, which decreases
//! at the pace of the key's share. While the debt is small, the work runs on the threads that carry requests. Beyond that, and
//! always for large bodies, it is offloaded to threads of low priority, for one body of the key at a time, when the debt allows.
//! So all bodies of a key together take no more than its share. The smallest bodies are free.

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

/// The largest body that costs its key nothing: its work is a fraction of that for the rest of the request.
pub(crate) const FREE_BYTES_MAX: usize = 16 * 1024;

/// The maximum share of one processor for the bodies of a key, in percent, whatever the number of threads.
const PROCESSOR_PERCENT_MAX: usize = 50;

/// The maximum debt at which a key's bodies are worked on.
const DEBT_MAX: Duration = Duration::from_millis(100);

/// The maximum number of a key's bodies that have a turn or wait for one. Further ones are refused at once.
const KEY_BODIES_MAX: usize = 64;

/// The longest wait for a turn.
pub(crate) const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// The shortest pause that the timer, which counts milliseconds, can keep. Shorter ones accumulate as debt.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The minimum number of keys at which those without debt and bodies are removed.
const WORKLOADS_UNSWEPT: usize = 1024;

/// A key's share of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkShare {
    threads: usize,
    /// In percent of one thread.
    percent: usize,
}

impl WorkShare {
    /// `percent` of `threads`, both at least 1; at most [`PROCESSOR_PERCENT_MAX`] of one thread.
    pub(crate) fn new(threads: usize, percent: usize) -> Self {
        let threads = threads.max(1);
        Self {
            threads,
            percent: threads.saturating_mul(percent).clamp(1, PROCESSOR_PERCENT_MAX),
        }
    }

    /// The time, from the beginning of the work, until the share has paid for `worked`.
    fn debt(self, worked: Duration) -> Duration {
        let nanos = worked.as_nanos().saturating_mul(100) / self.percent as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The work on all bodies. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct BodyWork {
    shared: Arc<BodyWorkState>,
}

#[derive(Debug)]
struct BodyWorkState {
    share: WorkShare,
    wait_max: Duration,
    lines: Mutex<KeyWorkloads>,
    /// Threads of low priority, as many as carry requests.
    apart: LowPriorityThreads,
}

/// The keys with bodies or debt. A debt ends by itself, so running and recently ended requests bound the number of keys.
#[derive(Debug, Default)]
struct KeyWorkloads {
    by_key: HashMap<KeyDigest, KeyWorkload>,
    /// The number of keys after the last removal of unused ones.
    swept: usize,
}

/// The bodies and the debt of one key.
#[derive(Debug)]
struct KeyWorkload {
    /// One permit: one body at a time.
    turns: Arc<Semaphore>,
    /// The number of bodies that have a turn or wait for one.
    bodies: usize,
    /// When the debt is paid.
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
    /// No work yet. `wait_max` limits the wait for a turn.
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

    /// The work on a body of this key.
    pub(crate) fn for_key(&self, key: KeyDigest) -> KeyWork {
        KeyWork {
            shared: Arc::clone(&self.shared),
            key,
        }
    }
}

/// The work on one body, which is charged to its key.
#[derive(Debug)]
pub(crate) struct KeyWork {
    shared: Arc<BodyWorkState>,
    key: KeyDigest,
}

impl KeyWork {
    /// Whether the key's debt is so small that its body may be worked on at once.
    pub(crate) fn can_run_now(&self) -> bool {
        self.wait(clock::instant()).is_zero()
    }

    /// Charges the key for work that has just ended. `worked` is its processor time.
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

    /// Runs `work` offloaded, in a turn of the key, and charges the key for it.
    ///
    /// # Errors
    /// Those of [`Self::acquire_turn`] and [`Self::run_offloaded`].
    pub(crate) async fn run_in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let _turn = self.acquire_turn().await?;
        let (done, worked) = self.run_offloaded(move || timed(work)).await?;
        self.charge(worked);
        Ok(done)
    }

    /// Waits for the key's turn, first come first served, and until its debt allows further work.
    ///
    /// # Errors
    /// [`Refusal::BodyWorkLimited`]: too many bodies of the key wait, or the wait is or would be too long.
    pub(crate) async fn acquire_turn(&self) -> Result<WorkTurn, Refusal> {
        let due = clock::instant() + self.shared.wait_max;
        let (place, turns) = self.enqueue().ok_or(Refusal::BodyWorkLimited)?;
        let permit = match Arc::clone(&turns).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = tokio::time::timeout_at(due.into(), turns.acquire_owned());
                let permit = waiting.await.map_err(|_| Refusal::BodyWorkLimited)?;
                // The semaphore is never closed.
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

    /// Runs `work` on a thread of low priority, apart from those that carry requests, as soon as one is free.
    ///
    /// # Errors
    /// [`Refusal::Internal`]: `work` panicked.
    pub(crate) async fn run_offloaded<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.shared.apart.run(work).await.map_err(|_| Refusal::Internal)
    }

    /// Yields to other requests of the thread, and waits until the key's debt allows further work.
    pub(crate) async fn pause(&self) {
        let wait = self.wait(clock::instant());
        match wait < PAUSE_MIN {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(wait).await,
        }
    }

    /// How long until the key's debt allows further work.
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

/// Runs `work`. Returns its result and its processor time.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = clock::thread_time();
    let done = work();
    (done, clock::thread_time().saturating_sub(before))
}

/// One body's slot among those of its key, returned on drop.
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

/// A key's turn, returned on drop.
#[derive(Debug)]
#[must_use = "the turn is over as soon as it is dropped"]
pub(crate) struct WorkTurn {
    _permit: OwnedSemaphorePermit,
    _place: WorkSlot,
}
