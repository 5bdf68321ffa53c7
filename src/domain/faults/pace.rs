//! The minimum speed of a peer, so that nobody can keep a connection by sending or reading a byte now and then.

use std::time::{Duration, Instant};

/// The minimum speed of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MinimumSpeed {
    /// Maximum total time to wait for the peer until enough bytes have moved.
    pub wait_max: Duration,
    /// Minimum number of bytes per second of `wait_max`; 0: any byte is enough.
    pub bytes_per_second_min: u64,
}

/// Measures how long weir has waited for one peer. Only waiting counts: a peer with nothing to send or read is not slow.
#[derive(Debug)]
pub(crate) struct PeerPace {
    limit: MinimumSpeed,
    waiting_since: Option<Instant>,
    waited: Duration,
    moved: u64,
}

impl PeerPace {
    /// Starts without any waiting.
    pub(crate) fn new(limit: MinimumSpeed) -> Self {
        Self {
            limit,
            waiting_since: None,
            waited: Duration::ZERO,
            moved: 0,
        }
    }

    /// Records that weir waits for the peer, from `now` or since an earlier call without bytes in between. Returns the
    /// deadline.
    pub(crate) fn begin_wait(&mut self, now: Instant) -> Instant {
        let since = *self.waiting_since.get_or_insert(now);
        since + self.limit.wait_max.saturating_sub(self.waited)
    }

    /// Starts over, for the next thing to be moved.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Records that `bytes` have moved. `now` is called only if weir was waiting.
    pub(crate) fn on_moved(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
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

/// The time limits of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyTimeLimit {
    /// The minimum speed.
    pub pace: MinimumSpeed,
    /// Maximum time from its beginning to its end.
    pub total: Duration,
}

/// Measures the time of one body, up to its last byte.
#[derive(Debug)]
pub(crate) struct BodyTime {
    pace: PeerPace,
    end: Instant,
}

impl BodyTime {
    /// Starts for a body that begins at `now`.
    pub(crate) fn new(limit: BodyTimeLimit, now: Instant) -> Self {
        Self {
            pace: PeerPace::new(limit.pace),
            end: now + limit.total,
        }
    }

    /// Records that weir waits for more of the body. Returns the deadline.
    pub(crate) fn begin_wait(&mut self, now: Instant) -> Instant {
        self.pace.begin_wait(now).min(self.end)
    }

    /// Records that `bytes` of it have arrived. `now` is called only if weir was waiting.
    pub(crate) fn on_moved(&mut self, bytes: usize, now: impl FnOnce() -> Instant) {
        self.pace.on_moved(bytes, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: MinimumSpeed = MinimumSpeed {
        wait_max: Duration::from_secs(10),
        bytes_per_second_min: 5,
    };

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn waits_add_up_until_enough_has_moved() {
        let start = crate::edges::clock::instant();
        let mut pace = PeerPace::new(LIMIT);
        assert_eq!(pace.begin_wait(start), after(start, 10));
        assert_eq!(pace.begin_wait(after(start, 3)), after(start, 10), "one wait");
        pace.on_moved(49, || after(start, 4));
        assert_eq!(
            pace.begin_wait(after(start, 100)),
            after(start, 106),
            "four of ten seconds are gone"
        );
        pace.on_moved(1, || after(start, 105));
        assert_eq!(
            pace.begin_wait(after(start, 200)),
            after(start, 210),
            "50 bytes in 9 seconds"
        );
    }

    #[test]
    fn who_moves_a_byte_now_and_then_is_too_slow_at_the_limit() {
        let start = crate::edges::clock::instant();
        let mut pace = PeerPace::new(LIMIT);
        for second in (0..9).step_by(3) {
            assert_eq!(pace.begin_wait(after(start, second)), after(start, 10));
            pace.on_moved(1, || after(start, second + 3));
        }
        assert_eq!(pace.begin_wait(after(start, 9)), after(start, 10));
    }

    #[test]
    fn who_is_not_waited_for_is_never_late() {
        let start = crate::edges::clock::instant();
        let mut pace = PeerPace::new(LIMIT);
        for _ in 0..100 {
            pace.on_moved(0, || unreachable!("nobody waited"));
        }
        assert_eq!(pace.begin_wait(start), after(start, 10));
        pace.on_moved(1, || after(start, 9));
        pace.restart();
        assert_eq!(pace.begin_wait(after(start, 9)), after(start, 19));
    }

    #[test]
    fn a_body_has_its_pace_and_an_end() {
        let start = crate::edges::clock::instant();
        let limit = BodyTimeLimit {
            pace: LIMIT,
            total: Duration::from_secs(25),
        };
        let mut time = BodyTime::new(limit, start);
        assert_eq!(time.begin_wait(start), after(start, 10));
        time.on_moved(50, || after(start, 9));
        assert_eq!(time.begin_wait(after(start, 9)), after(start, 19));
        time.on_moved(50, || after(start, 18));
        assert_eq!(
            time.begin_wait(after(start, 18)),
            after(start, 25),
            "it has come fast enough, but all of it takes too long"
        );
    }

    #[test]
    fn without_a_rate_any_byte_will_do() {
        let start = crate::edges::clock::instant();
        let mut pace = PeerPace::new(MinimumSpeed {
            bytes_per_second_min: 0,
            ..LIMIT
        });
        assert_eq!(pace.begin_wait(start), after(start, 10));
        pace.on_moved(1, || after(start, 9));
        assert_eq!(pace.begin_wait(after(start, 9)), after(start, 19));
    }
}
