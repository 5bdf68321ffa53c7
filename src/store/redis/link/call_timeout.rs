//! How long a call waits for its answer. Redis answers the calls of a connection in order, so a queued call is not
//! stuck while earlier ones are answered. A wait ends by silence, or by its total limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::store::StoreError;

/// How late a timer may ring. One that rings later says that this process was held up: nobody has listened so long.
const LATE_MAX: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(super) struct CallTimeout {
    began: Instant,
    /// How long nothing may be answered.
    silence: Duration,
    /// How long it may take in all.
    total: Duration,
    /// When it is to be looked at next.
    next_check: Instant,
    /// How long this process was held up since it was looked at last.
    late: Duration,
}

/// What is to be done when the time has come to look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TimeoutCheck {
    /// To wait on, so long.
    Wait(Duration),
    /// To give up: nothing was answered since then.
    Silent(Instant),
    /// To give up: others are answered, but it has taken too long.
    TooLong,
}

impl CallTimeout {
    pub(super) fn new(silence: Duration, total: Duration, now: Instant) -> Self {
        Self {
            began: now,
            silence,
            total: total.max(silence),
            next_check: now + silence,
            late: Duration::ZERO,
        }
    }

    /// How long until it is to be looked at first.
    pub(super) fn first(&self) -> Duration {
        self.silence
    }

    /// The time has come. `last_answer` is that of the connection on which the answer is expected, if there is one.
    pub(super) fn check(&mut self, last_answer: Option<&LastAnswer>, now: Instant) -> TimeoutCheck {
        let late = now.saturating_duration_since(self.next_check);
        // Once for each time that it was held up: what has come meanwhile is read within less.
        self.late = if late > LATE_MAX && self.late.is_zero() {
            late.min(self.silence)
        } else {
            Duration::ZERO
        };
        let since = last_answer.map_or(self.began, |last_answer| last_answer.at().max(self.began));
        let until = (since + self.silence).max(now + self.late);
        let end = self.began + self.total;
        if until <= now {
            return TimeoutCheck::Silent(since);
        }
        if end <= now {
            return TimeoutCheck::TooLong;
        }
        self.next_check = until.min(end);
        TimeoutCheck::Wait(self.next_check.saturating_duration_since(now))
    }

    /// Why it was given up.
    pub(super) fn ended(&self, check: &TimeoutCheck) -> StoreError {
        StoreError::Unavailable(match check {
            TimeoutCheck::TooLong => format!(
                "redis has more to do than it can: a call has waited for {} ms behind others",
                self.total.as_millis()
            ),
            TimeoutCheck::Silent(_) | TimeoutCheck::Wait(_) => {
                format!("redis gave no answer within {} ms", self.silence.as_millis())
            }
        })
    }
}

/// When a connection or a server last answered.
pub(super) struct LastAnswer {
    born: Instant,
    /// In microseconds since then.
    micros: AtomicU64,
}

impl LastAnswer {
    /// What came into being now; that counts as an answer.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            born: now,
            micros: AtomicU64::new(0),
        }
    }

    /// Something was answered, be it an error.
    pub(super) fn note(&self, now: Instant) {
        let micros = now.saturating_duration_since(self.born).as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX);
        self.micros.fetch_max(micros, Ordering::Relaxed);
    }

    /// When that was last.
    pub(super) fn at(&self) -> Instant {
        self.born + Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    const MS: Duration = Duration::from_millis(1);

    fn begun() -> (CallTimeout, LastAnswer, Instant) {
        let now = clock::instant();
        (CallTimeout::new(100 * MS, 1_000 * MS, now), LastAnswer::new(now), now)
    }

    #[test]
    fn nobody_waits_longer_than_redis_is_silent() {
        let (mut call_timeout, last_answer, start) = begun();
        assert_eq!(call_timeout.first(), 100 * MS);
        assert_eq!(
            call_timeout.check(Some(&last_answer), start + 100 * MS),
            TimeoutCheck::Silent(start)
        );
        let (mut call_timeout, _, start) = begun();
        assert_eq!(call_timeout.check(None, start + 100 * MS), TimeoutCheck::Silent(start));
    }

    #[test]
    fn while_others_are_answered_the_turn_comes_until_it_has_taken_too_long() {
        let (mut call_timeout, last_answer, start) = begun();
        for round in 1..10 {
            let now = start + 100 * round * MS;
            last_answer.note(now - 10 * MS);
            assert_eq!(call_timeout.check(Some(&last_answer), now), TimeoutCheck::Wait(90 * MS));
        }
        let end = start + 1_000 * MS;
        last_answer.note(end - MS);
        assert_eq!(call_timeout.check(Some(&last_answer), end), TimeoutCheck::TooLong);
    }

    #[test]
    fn what_came_before_the_call_says_nothing_of_it() {
        let (mut call_timeout, _, start) = begun();
        let old = LastAnswer::new(start - 50 * MS);
        old.note(start - 20 * MS);
        assert_eq!(
            call_timeout.check(Some(&old), start + 100 * MS),
            TimeoutCheck::Silent(start)
        );
    }

    #[test]
    fn a_process_that_was_held_up_listens_again_before_it_gives_up() {
        let (mut call_timeout, last_answer, start) = begun();
        let late = start + 160 * MS;
        assert_eq!(
            call_timeout.check(Some(&last_answer), late),
            TimeoutCheck::Wait(60 * MS)
        );
        assert_eq!(
            call_timeout.check(Some(&last_answer), late + 60 * MS),
            TimeoutCheck::Silent(start)
        );
    }
}
