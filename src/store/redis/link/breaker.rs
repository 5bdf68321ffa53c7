//! When a connection counts as dead although nobody has closed it.

use std::time::{Duration, Instant};

/// How many calls in a row may run into their budget.
const UNANSWERED_MAX: u32 = 3;
/// How long calls may meet nothing but silence, before the one that waits in vain then ends it.
const SILENCE_MAX: Duration = Duration::from_millis(200);

/// What is known of one connection's answers. It opens on the third call in a row that waited in vain, or on the first that
/// ends 200 ms of silence.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    unanswered: u32,
    /// Since when something has been asked and nothing answered.
    silent_since: Option<Instant>,
}

impl Breaker {
    /// A call is sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.silent_since.get_or_insert(now);
    }

    /// Anything was answered, an error included.
    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }

    /// A call ran into its budget. Whether the breaker opens now.
    pub(super) fn timed_out(&mut self, now: Instant) -> bool {
        self.unanswered += 1;
        let silent = self
            .silent_since
            .is_some_and(|since| now.saturating_duration_since(since) >= SILENCE_MAX);
        silent || self.unanswered >= UNANSWERED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn three_calls_in_a_row_open_it() {
        let (mut breaker, now) = (Breaker::default(), clock::instant());
        for _ in 0..3 {
            breaker.sent(now);
        }
        let opened = [(); 3].map(|()| breaker.timed_out(now + 100 * MS));
        assert_eq!(opened, [false, false, true]);
    }

    #[test]
    fn silence_opens_it_sooner() {
        let (mut breaker, start) = (Breaker::default(), clock::instant());
        breaker.sent(start);
        assert!(!breaker.timed_out(start + 100 * MS));
        breaker.sent(start + 100 * MS);
        assert!(breaker.timed_out(start + 200 * MS));
    }

    #[test]
    fn an_answer_ends_the_count() {
        let (mut breaker, start) = (Breaker::default(), clock::instant());
        for round in 0..10 {
            let now = start + 1000 * round * MS;
            breaker.sent(now);
            breaker.sent(now);
            assert!(!breaker.timed_out(now + 100 * MS));
            breaker.answered();
        }
    }
}
