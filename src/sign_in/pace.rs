//! Limits the number of codes that wait at this node, and how often agents poll for each code (RFC 8628, section 3.5).

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::domain::{keys::secret::KeyDigest, sign_in::device_request::REQUEST_SECONDS};

/// The initial polling interval of an agent, in seconds.
pub(crate) const INTERVAL_SECONDS: u64 = 5;
/// The time by which the interval grows each time an agent polls too early.
const INTERVAL_GROWTH: Duration = Duration::from_secs(5);
/// The time by which an agent may poll too early, because clocks and networks are not exact.
const EARLY_TOLERANCE: Duration = Duration::from_secs(1);

/// The codes that wait for a decision, with the polling interval of each.
#[derive(Debug)]
pub(super) struct CodePolling {
    codes: Mutex<HashMap<KeyDigest, PolledCode>>,
    codes_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct PolledCode {
    until: Instant,
    interval: Duration,
    asked_at: Option<Instant>,
}

impl CodePolling {
    pub(super) fn new(codes_max: usize) -> Self {
        Self {
            codes: Mutex::default(),
            codes_max,
        }
    }

    /// Adds a waiting code. Returns false if the maximum number of codes waits.
    pub(super) fn begin(&self, code: &KeyDigest, now: Instant) -> bool {
        self.get_or_insert(code, now).is_some()
    }

    /// Records a poll for a code. Returns false if the poll came too early; the interval is longer from then on. A code that was
    /// created at another node is added at its first poll; if the maximum is reached, its polls are not limited.
    pub(super) fn poll(&self, code: &KeyDigest, now: Instant) -> bool {
        let Some(mut known) = self.get_or_insert(code, now) else {
            return true;
        };
        let is_early = known
            .asked_at
            .is_some_and(|at| now.saturating_duration_since(at) + EARLY_TOLERANCE < known.interval);
        if is_early {
            known.interval += INTERVAL_GROWTH;
        }
        known.asked_at = Some(now);
        self.codes.lock().insert(*code, known);
        !is_early
    }

    /// Removes a code that no longer waits for a decision.
    pub(super) fn end(&self, code: &KeyDigest) {
        self.codes.lock().remove(code);
    }

    fn get_or_insert(&self, code: &KeyDigest, now: Instant) -> Option<PolledCode> {
        let mut codes = self.codes.lock();
        if let Some(known) = codes.get(code) {
            return Some(*known);
        }
        if codes.len() >= self.codes_max {
            codes.retain(|_, known| now < known.until);
        }
        let lifetime = Duration::from_secs(REQUEST_SECONDS.unsigned_abs());
        let known = PolledCode {
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
        let (pace, start) = (CodePolling::new(10), clock::instant());
        assert!(pace.begin(&CODES[0], start));
        for (at, is_in_time) in [(0, true), (4, true), (7, false), (16, true), (24, false), (38, true)] {
            assert_eq!(pace.poll(&CODES[0], start + seconds(at)), is_in_time, "{at}");
        }
        assert!(pace.poll(&CODES[1], start), "another one has its own pace");
    }

    #[test]
    fn so_many_codes_wait_and_no_more_until_one_ends() {
        let (pace, start) = (CodePolling::new(2), clock::instant());
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
