//! Decides when to give up on a server: how long a call waits, what an error means for it, and when a server is treated as dead
//! although its connections are open. A dead server has been called and has answered nothing for a while. A call that waits in
//! vain raises the suspicion. Only time confirms it, however many calls wait.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ::redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use crate::{
    edges::clock,
    store::{
        StoreError,
        redis::link::{
            RedisErrorMeaning,
            connection::LastAnswer,
            master::{LaneState, MasterLane},
        },
    },
};

/// How long a server may leave all calls unanswered.
const SILENCE_MAX: Duration = Duration::from_millis(200);
/// The minimum timeout of a sign of life. The server may have been silent for [`SILENCE_MAX`] before.
const SIGN_WAIT_MIN: Duration = Duration::from_millis(20);

/// Marks a lane as suspected until this is dropped.
struct SuspicionGuard(Arc<MasterLane>);

impl Drop for SuspicionGuard {
    fn drop(&mut self) {
        self.0.is_suspected.store(false, Ordering::Release);
    }
}

impl MasterLane {
    /// Called when a call got no answer since the moment `since`. Sends a PING on the connection, behind all commands that were
    /// sent there. If nothing is answered on any connection for [`SILENCE_MAX`], the lane's connection is given up.
    pub(super) fn suspect(self: &Arc<Self>, number: u64, since: Instant) {
        self.runtime_connections.drop_own();
        let live = self.live_now().filter(|live| live.number == number);
        let Some(live) = live.filter(|_| !self.is_suspected.swap(true, Ordering::AcqRel)) else {
            return;
        };
        let suspicion = SuspicionGuard(Arc::clone(self));
        tokio::spawn(async move {
            let lane = &suspicion.0;
            let silent = clock::instant().saturating_duration_since(since);
            let wait = SILENCE_MAX.saturating_sub(silent).max(SIGN_WAIT_MIN);
            match timeout(wait, sign_of_life(live.wire.connection.clone())).await {
                Ok(true) => lane.last_answer.record(clock::instant()),
                // Other tasks notice that the connection was closed.
                Ok(false) => {}
                Err(_) if lane.last_answer.time() > since => {}
                Err(_) => {
                    let reason = "redis does not answer calls".to_owned();
                    lane.give_up(number, LaneState::Down { reason });
                }
            }
        });
    }
}

async fn sign_of_life(mut connection: MultiplexedConnection) -> bool {
    let answer = ::redis::cmd("PING").exec_async(&mut connection).await;
    answer.err().map(|error| RedisErrorMeaning::of(&error)) != Some(RedisErrorMeaning::Broken)
}

/// How late a timer may fire. If it fires later, this process was suspended or overloaded, and has read no answers meanwhile.
const LATE_MAX: Duration = Duration::from_millis(10);

/// How long a call waits for its answer. Redis answers the calls of a connection in order, so a waiting call is not stuck while
/// earlier ones are answered. A wait ends when Redis is silent for too long, or at the total timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTimeout {
    began: Instant,
    /// The timeout without any answer on the connection.
    silence: Duration,
    /// The timeout in total.
    total: Duration,
    /// When the timeout is checked next.
    next_check: Instant,
    /// By how much the last check was late because this process was suspended or overloaded.
    late: Duration,
}

/// The result of checking a timeout.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TimeoutCheck {
    /// Continue to wait for this duration.
    Wait(Duration),
    /// Give up: nothing was answered since this moment.
    Silent(Instant),
    /// Give up: other calls are answered, but this one has taken too long.
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

    /// The time until the first check.
    pub(super) fn first(&self) -> Duration {
        self.silence
    }

    /// Checks the timeout. `last_answer` is that of the connection on which the answer is expected; `None` if there is no
    /// connection yet.
    pub(super) fn check(&mut self, last_answer: Option<&LastAnswer>, now: Instant) -> TimeoutCheck {
        let late = now.saturating_duration_since(self.next_check);
        // The extra time is granted once for each delay of this process: answers that arrived meanwhile are read within less.
        self.late = if late > LATE_MAX && self.late.is_zero() {
            late.min(self.silence)
        } else {
            Duration::ZERO
        };
        let since = last_answer.map_or(self.began, |last_answer| last_answer.time().max(self.began));
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

    /// Returns the error of a call that was given up.
    pub(super) fn error(&self, check: &TimeoutCheck) -> StoreError {
        StoreError::Unavailable(match check {
            TimeoutCheck::TooLong => format!(
                "redis is overloaded: a call has waited for {} ms behind others",
                self.total.as_millis()
            ),
            TimeoutCheck::Silent(_) | TimeoutCheck::Wait(_) => {
                format!("redis gave no answer within {} ms", self.silence.as_millis())
            }
        })
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
            last_answer.record(now - 10 * MS);
            assert_eq!(call_timeout.check(Some(&last_answer), now), TimeoutCheck::Wait(90 * MS));
        }
        let end = start + 1_000 * MS;
        last_answer.record(end - MS);
        assert_eq!(call_timeout.check(Some(&last_answer), end), TimeoutCheck::TooLong);
    }

    #[test]
    fn what_came_before_the_call_says_nothing_of_it() {
        let (mut call_timeout, _, start) = begun();
        let old = LastAnswer::new(start - 50 * MS);
        old.record(start - 20 * MS);
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
