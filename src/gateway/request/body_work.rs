//! The time of the gateway's threads that the bodies of one key may take.
//!
//! What a body costs is up to its sender: a few kilobytes that arrive compressed can be work for most of a second, and a megabyte
//! of JSON for a hundred times of what another one is. So each key has an account of the time that its bodies took, which is paid
//! off at the pace of the key's share. A key that owes little is served as everybody is. Beyond that, and for large bodies always,
//! the work is done apart from the threads that carry requests, at low priority, on one body of the key at a time, when its debt
//! allows. So all bodies of a key together take no more than its share. The smallest are no concern of it.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    domain::{faults::refusal::Refusal, keys::secret::KeyDigest},
    edges::{clock, low_priority::LowPriority},
};

#[cfg(test)]
mod tests;

/// The largest body that costs its key nothing: a fraction of the work that the rest of a request is.
pub(crate) const FREE_BYTES_MAX: usize = 16 * 1024;

/// The most of one processor that the bodies of a key may take, in percent, however many threads there are.
const PROCESSOR_PERCENT_MAX: usize = 50;

/// The most that a key may owe while its bodies are worked on.
const DEBT_MAX: Duration = Duration::from_millis(100);

/// The most bodies of one key that have a turn or wait for one. Further ones are refused at once.
const LINE_MAX: usize = 64;

/// The longest wait for a turn.
pub(crate) const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Shorter pauses add up until the timer, which counts milliseconds, can keep them.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Keys that are known before those are forgotten that owe nothing and have no body under way.
const LINES_UNSWEPT: usize = 1024;

/// A key's share of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkShare {
    threads: usize,
    /// Of one thread.
    percent: usize,
}

impl WorkShare {
    /// `percent` of `threads`, both at least 1; at most [`PROCESSOR_PERCENT_MAX`] of one.
    pub(crate) fn new(threads: usize, percent: usize) -> Self {
        let threads = threads.max(1);
        Self {
            threads,
            percent: threads.saturating_mul(percent).clamp(1, PROCESSOR_PERCENT_MAX),
        }
    }

    /// How long it takes, from the beginning of so much work, until the share has paid for it.
    fn debt(self, worked: Duration) -> Duration {
        let nanos = worked.as_nanos().saturating_mul(100) / self.percent as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The work on all bodies. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct BodyWork {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    share: WorkShare,
    wait_max: Duration,
    lines: Mutex<Lines>,
    /// As many as there are threads that carry requests.
    apart: LowPriority,
}

/// The keys with a body under way or a debt, which ends by itself: so bounded by the running requests and those just ended.
#[derive(Debug, Default)]
struct Lines {
    by_key: HashMap<KeyDigest, Line>,
    /// How many were left when it was last looked for those that are over.
    swept: usize,
}

/// The bodies of one key.
#[derive(Debug)]
struct Line {
    /// One at a time.
    turns: Arc<Semaphore>,
    /// Those that have a turn or wait for one.
    bodies: usize,
    /// When the key has paid for all that was done.
    paid_at: Instant,
}

impl Line {
    fn is_over(&self, now: Instant) -> bool {
        self.bodies == 0 && self.paid_at <= now
    }
}

impl Lines {
    fn of(&mut self, key: KeyDigest, now: Instant) -> &mut Line {
        if self.by_key.len() >= LINES_UNSWEPT.max(2 * self.swept) {
            self.by_key.retain(|_, line| !line.is_over(now));
            self.swept = self.by_key.len();
        }
        self.by_key.entry(key).or_insert_with(|| Line {
            turns: Arc::new(Semaphore::new(1)),
            bodies: 0,
            paid_at: now,
        })
    }
}

impl BodyWork {
    /// Nothing is worked on yet. `wait_max` limits the wait for a turn.
    pub(crate) fn new(share: WorkShare, wait_max: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                share,
                wait_max,
                lines: Mutex::default(),
                apart: LowPriority::new(share.threads),
            }),
        }
    }

    /// The work on a body of this key.
    pub(crate) fn of(&self, key: KeyDigest) -> KeyWork {
        KeyWork {
            shared: Arc::clone(&self.shared),
            key,
        }
    }
}

/// The work on one body, whose key is charged with it.
#[derive(Debug)]
pub(crate) struct KeyWork {
    shared: Arc<Shared>,
    key: KeyDigest,
}

impl KeyWork {
    /// Whether the key owes so little that a body of it may be worked on at once.
    pub(crate) fn may_at_once(&self) -> bool {
        self.wait(clock::instant()).is_zero()
    }

    /// Charges the key with work that has just ended, by what it took of a processor.
    pub(crate) fn charge(&self, worked: Duration) {
        let now = clock::instant();
        let began = now.checked_sub(worked).unwrap_or(now);
        let mut lines = self.shared.lines.lock();
        let line = lines.of(self.key, began);
        line.paid_at = line.paid_at.max(began) + self.shared.share.debt(worked);
    }

    /// Does `work` here, and charges the key with it.
    pub(crate) fn charged<T>(&self, work: impl FnOnce() -> T) -> T {
        let (done, worked) = timed(work);
        self.charge(worked);
        done
    }

    /// Does `work` in a turn of the key, apart from the threads that carry requests, and charges the key with it.
    ///
    /// # Errors
    /// As [`Self::turn`] and [`Self::apart`].
    pub(crate) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let _turn = self.turn().await?;
        let (done, worked) = self.apart(move || timed(work)).await?;
        self.charge(worked);
        Ok(done)
    }

    /// Waits for the key's turn, first come first served, and until its debt allows further work.
    ///
    /// # Errors
    /// [`Refusal::BodyWorkLimited`]: too many wait already, or it has been or would be too long.
    pub(crate) async fn turn(&self) -> Result<Turn, Refusal> {
        let due = clock::instant() + self.shared.wait_max;
        let (place, turns) = self.line_up().ok_or(Refusal::BodyWorkLimited)?;
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
        Ok(Turn {
            _permit: permit,
            _place: place,
        })
    }

    /// Does `work` apart from the threads that carry requests, as soon as one of the few places for that is free.
    ///
    /// # Errors
    /// [`Refusal::Internal`]: it panicked.
    pub(crate) async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.shared.apart.run(work).await.map_err(|_| Refusal::Internal)
    }

    /// Lets other requests of the thread go on, and waits until the key's debt allows further work.
    pub(crate) async fn rest(&self) {
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

    fn line_up(&self) -> Option<(Place, Arc<Semaphore>)> {
        let mut lines = self.shared.lines.lock();
        let line = lines.of(self.key, clock::instant());
        if line.bodies >= LINE_MAX {
            return None;
        }
        line.bodies += 1;
        let place = Place {
            shared: Arc::clone(&self.shared),
            key: self.key,
        };
        Some((place, Arc::clone(&line.turns)))
    }
}

/// Does `work`, and tells what it took of a processor.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = clock::thread_time();
    let done = work();
    (done, clock::thread_time().saturating_sub(before))
}

/// A place in the key's line, left on drop.
#[derive(Debug)]
struct Place {
    shared: Arc<Shared>,
    key: KeyDigest,
}

impl Drop for Place {
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

/// A key's turn, given back on drop.
#[derive(Debug)]
#[must_use = "the turn is over as soon as it is dropped"]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
    _place: Place,
}
