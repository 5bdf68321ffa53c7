//! How many codes wait at this node, and how often each is asked about (RFC 8628, section 3.5).

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::domain::{keys::secret::KeyDigest, sign_in::device_request::REQUEST_SECONDS};

/// How many seconds an agent waits between two questions, at first.
pub(crate) const INTERVAL_SECONDS: u64 = 5;
/// By how much the wait grows each time that an agent comes too early.
const SLOWER: Duration = Duration::from_secs(5);
/// How much earlier a question may come: clocks and networks are not exact.
const EARLY: Duration = Duration::from_secs(1);

/// The codes that wait.
#[derive(Debug)]
pub(super) struct Pace {
    codes: Mutex<HashMap<KeyDigest, Code>>,
    codes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Code {
    until: Instant,
    interval: Duration,
    asked_at: Option<Instant>,
}

impl Pace {
    pub(super) fn new(codes_max: usize) -> Self {
        Self {
            codes: Mutex::default(),
            codes_max,
        }
    }

    /// A code begins to wait. False: as many wait as may.
    pub(super) fn begin(&self, code: &KeyDigest, now: Instant) -> bool {
        self.entered(code, now).is_some()
    }

    /// A code is asked about. False: too early; the wait is longer from now on. One that another node has begun counts here from
    /// its first question on; while there is no room for it, it is not slowed down.
    pub(super) fn poll(&self, code: &KeyDigest, now: Instant) -> bool {
        let Some(mut known) = self.entered(code, now) else {
            return true;
        };
        let is_early = known
            .asked_at
            .is_some_and(|at| now.saturating_duration_since(at) + EARLY < known.interval);
        if is_early {
            known.interval += SLOWER;
        }
        known.asked_at = Some(now);
        self.codes.lock().insert(*code, known);
        !is_early
    }

    /// A code waits no more.
    pub(super) fn end(&self, code: &KeyDigest) {
        self.codes.lock().remove(code);
    }

    fn entered(&self, code: &KeyDigest, now: Instant) -> Option<Code> {
        let mut codes = self.codes.lock();
        if let Some(known) = codes.get(code) {
            return Some(*known);
        }
        if codes.len() >= self.codes_max {
            codes.retain(|_, known| now < known.until);
        }
        let lifetime = Duration::from_secs(REQUEST_SECONDS.unsigned_abs());
        let known = Code {
            until: now + lifetime,
            interval: Duration::from_secs(INTERVAL_SECONDS),
            asked_at: None,
        };
        (codes.len() < self.codes_max).then(|| {
            codes.insert(*code, known);
            known
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    const CODES: [KeyDigest; 3] = [
        KeyDigest::from_bytes([1; 32]),
        KeyDigest::from_bytes([2; 32]),
        KeyDigest::from_bytes([3; 32]),
    ];

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn whoever_asks_too_early_waits_five_seconds_longer_each_time() {
        let (pace, start) = (Pace::new(10), clock::instant());
        assert!(pace.begin(&CODES[0], start));
        for (at, is_in_time) in [(0, true), (4, true), (7, false), (16, true), (24, false), (38, true)] {
            assert_eq!(pace.poll(&CODES[0], start + seconds(at)), is_in_time, "{at}");
        }
        assert!(pace.poll(&CODES[1], start), "another one has its own pace");
    }

    #[test]
    fn so_many_codes_wait_and_no_more_until_one_ends() {
        let (pace, start) = (Pace::new(2), clock::instant());
        assert!(pace.begin(&CODES[0], start) && pace.begin(&CODES[1], start));
        assert!(!pace.begin(&CODES[2], start + seconds(599)));
        assert!(
            pace.poll(&CODES[2], start) && pace.poll(&CODES[2], start),
            "of another node"
        );
        pace.end(&CODES[0]);
        assert!(pace.begin(&CODES[2], start));
        assert!(pace.begin(&CODES[0], start + seconds(600)), "the others' time is over");
    }
}
