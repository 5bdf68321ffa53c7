//! The least speed of a peer that is waited for, so that nobody holds a place by sending or taking a byte now and then.

use std::time::{Duration, Instant};

/// The least speed: so many bytes within so much waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaceLimit {
    /// The longest wait for bytes; waits add up until enough has moved.
    pub wait_max: Duration,
    /// The least bytes for each second of it; 0 asks for any byte.
    pub bytes_per_second_min: u64,
}

/// How long one peer has been waited for. Only waiting counts: a peer that has nothing to move is not slow.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: PaceLimit,
    waiting_since: Option<Instant>,
    waited: Duration,
    moved: u64,
}

impl Pace {
    /// Nothing has moved, and nothing is waited for.
    pub(crate) fn new(limit: PaceLimit) -> Self {
        Self {
            limit,
            waiting_since: None,
            waited: Duration::ZERO,
            moved: 0,
        }
    }

    /// The peer is waited for, from `now` on or since the first call in a row; returns when that has been too long.
    pub(crate) fn wait(&mut self, now: Instant) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        since + self.limit.wait_max.saturating_sub(self.waited)
    }

    /// Forgets what has been: something else is to be moved from now on.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.limit);
    }

    /// `bytes` have moved; `now` matters only if the peer was waited for.
    pub(crate) fn moved(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += now().saturating_duration_since(since);
        } else if self.waited.is_zero() {
            return;
        }
        self.moved = self.moved.saturating_add(bytes as u64);
        let enough = self
            .limit
            .bytes_per_second_min
            .saturating_mul(self.limit.wait_max.as_secs());
        if self.moved >= enough.max(1) {
            (self.waited, self.moved) = (Duration::ZERO, 0);
        }
    }
}

/// How long a body may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyTimeLimit {
    /// Its least speed.
    pub pace: PaceLimit,
    /// The longest time from its beginning to its end.
    pub total: Duration,
}

/// The time that one body takes, to the last byte that belongs to it.
#[derive(Debug)]
pub(crate) struct BodyTime {
    pace: Pace,
    end: Instant,
}

impl BodyTime {
    /// For a body that begins now.
    pub(crate) fn new(limit: BodyTimeLimit, now: Instant) -> Self {
        Self {
            pace: Pace::new(limit.pace),
            end: now + limit.total,
        }
    }

    /// More of the body is waited for; returns when that has been too long.
    pub(crate) fn wait(&mut self, now: Instant) -> Instant {
        self.pace.wait(now).min(self.end)
    }

    /// `bytes` of it have come; `now` matters only if they were waited for.
    pub(crate) fn moved(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        self.pace.moved(bytes, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: PaceLimit = PaceLimit {
        wait_max: Duration::from_secs(10),
        bytes_per_second_min: 5,
    };

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn waits_add_up_until_enough_has_moved() {
        let start = crate::edges::clock::instant();
        let mut pace = Pace::new(LIMIT);
        assert_eq!(pace.wait(start), after(start, 10));
        assert_eq!(pace.wait(after(start, 3)), after(start, 10), "one wait");
        pace.moved(49, || after(start, 4));
        assert_eq!(
            pace.wait(after(start, 100)),
            after(start, 106),
            "four of ten seconds are gone"
        );
        pace.moved(1, || after(start, 105));
        assert_eq!(pace.wait(after(start, 200)), after(start, 210), "50 bytes in 9 seconds");
    }

    #[test]
    fn who_moves_a_byte_now_and_then_is_too_slow_at_the_limit() {
        let start = crate::edges::clock::instant();
        let mut pace = Pace::new(LIMIT);
        for second in (0..9).step_by(3) {
            assert_eq!(pace.wait(after(start, second)), after(start, 10));
            pace.moved(1, || after(start, second + 3));
        }
        assert_eq!(pace.wait(after(start, 9)), after(start, 10));
    }

    #[test]
    fn who_is_not_waited_for_is_never_late() {
        let start = crate::edges::clock::instant();
        let mut pace = Pace::new(LIMIT);
        for _ in 0..100 {
            pace.moved(0, || unreachable!("nobody waited"));
        }
        assert_eq!(pace.wait(start), after(start, 10));
        pace.moved(1, || after(start, 9));
        pace.restart();
        assert_eq!(pace.wait(after(start, 9)), after(start, 19));
    }

    #[test]
    fn a_body_has_its_pace_and_an_end() {
        let start = crate::edges::clock::instant();
        let limit = BodyTimeLimit {
            pace: LIMIT,
            total: Duration::from_secs(25),
        };
        let mut time = BodyTime::new(limit, start);
        assert_eq!(time.wait(start), after(start, 10));
        time.moved(50, || after(start, 9));
        assert_eq!(time.wait(after(start, 9)), after(start, 19));
        time.moved(50, || after(start, 18));
        assert_eq!(
            time.wait(after(start, 18)),
            after(start, 25),
            "it has come fast enough, but all of it takes too long"
        );
    }

    #[test]
    fn without_a_rate_any_byte_will_do() {
        let start = crate::edges::clock::instant();
        let mut pace = Pace::new(PaceLimit {
            bytes_per_second_min: 0,
            ..LIMIT
        });
        assert_eq!(pace.wait(start), after(start, 10));
        pace.moved(1, || after(start, 9));
        assert_eq!(pace.wait(after(start, 9)), after(start, 19));
    }
}
