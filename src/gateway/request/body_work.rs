//! The time of the gateway's threads that large bodies of one key may take.
//!
//! A few kilobytes that arrive compressed can be work for most of a second. So large bodies are worked on apart from the
//! threads that carry requests, at low priority; those of one key take turns, few at a time; and compressed ones pay for
//! their work with a pause, so that all of them together take no more than the key's share of the threads. Small bodies are
//! no concern of it: they need no turn.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    domain::{faults::refusal::Refusal, keys::secret::KeyDigest},
    edges::low_priority::LowPriority,
};

#[cfg(test)]
mod tests;

/// The most bodies of one key that have a turn or wait for one. Further ones are refused at once.
const LINE_MAX: usize = 64;

/// The longest wait for a turn.
pub(crate) const TURN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Shorter pauses add up until the timer, which counts milliseconds, can keep them.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// A key's share of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkShare {
    threads: usize,
    percent: usize,
}

impl WorkShare {
    /// `percent` of `threads`; both are at least 1.
    pub(crate) fn new(threads: usize, percent: usize) -> Self {
        Self {
            threads: threads.max(1),
            percent: percent.clamp(1, 100),
        }
    }

    /// How many bodies are worked on at one time: as many as whole threads are in the share, at least 1.
    fn turns(self) -> usize {
        (self.threads * self.percent / 100).max(1)
    }

    /// How long a turn rests after so much work, so that it takes no more than the share where that is less than a thread.
    fn pause(self, worked: Duration) -> Duration {
        let share = self.threads * self.percent;
        let too_much = (self.turns() * 100).saturating_sub(share);
        let nanos = worked.as_nanos().saturating_mul(too_much as u128) / share as u128;
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
    /// Only keys with a large body under way, so bounded by the running requests.
    lines: Mutex<HashMap<KeyDigest, Line>>,
    /// As many as there are threads that carry requests.
    apart: LowPriority,
}

/// The large bodies of one key.
#[derive(Debug)]
struct Line {
    turns: Arc<Semaphore>,
    /// Those that have a turn or wait for one.
    bodies: usize,
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
    /// Waits for one of the key's turns, first come first served.
    ///
    /// # Errors
    /// [`Refusal::BodyWorkLimited`]: too many wait already, or it has been too long.
    pub(crate) async fn turn(&self) -> Result<Turn, Refusal> {
        let (place, turns) = self.line_up().ok_or(Refusal::BodyWorkLimited)?;
        let permit = match Arc::clone(&turns).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let waiting = tokio::time::timeout(self.shared.wait_max, turns.acquire_owned());
                let permit = waiting.await.map_err(|_| Refusal::BodyWorkLimited)?;
                // The semaphore is never closed.
                permit.map_err(|_| Refusal::Internal)?
            }
        };
        Ok(Turn { _permit: permit, place })
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

    fn line_up(&self) -> Option<(Place, Arc<Semaphore>)> {
        let mut lines = self.shared.lines.lock();
        let line = lines.entry(self.key).or_insert_with(|| Line {
            turns: Arc::new(Semaphore::new(self.shared.share.turns())),
            bodies: 0,
        });
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

/// A place in the key's line, left on drop.
#[derive(Debug)]
struct Place {
    shared: Arc<Shared>,
    key: KeyDigest,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.shared.lines.lock();
        if let Some(line) = lines.get_mut(&self.key) {
            line.bodies = line.bodies.saturating_sub(1);
            if line.bodies == 0 {
                lines.remove(&self.key);
            }
        }
    }
}

/// One of a key's turns, given back on drop.
#[derive(Debug)]
#[must_use = "the turn is over as soon as it is dropped"]
pub(crate) struct Turn {
    _permit: OwnedSemaphorePermit,
    place: Place,
}

impl Turn {
    /// Lets other requests of the thread go on, and the key pay for what it has `worked` since its last pause.
    pub(crate) async fn rest(&self, worked: &mut Duration) {
        let pause = self.place.shared.share.pause(*worked);
        if pause < PAUSE_MIN {
            return tokio::task::yield_now().await;
        }
        *worked = Duration::ZERO;
        tokio::time::sleep(pause).await;
    }
}
