//! The limits of attempts to connect.

use std::time::Duration;

/// The timeout of one attempt to connect, including finding the server, login and loading the scripts.
pub(in crate::store::redis) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(1);
/// The pause after the first failed attempt, from start to start.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The maximum pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The pauses between attempts at one server: each is twice the one before, from [`PAUSE_MIN`] to [`PAUSE_MAX`].
pub(in crate::store::redis) struct RetryPauses {
    next: Duration,
}

impl RetryPauses {
    pub(in crate::store::redis) fn new() -> Self {
        Self { next: PAUSE_MIN }
    }

    /// The pause after another failed attempt.
    pub(in crate::store::redis) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = PAUSE_MAX.min(pause * 2);
        pause
    }

    /// Starts again with the shortest pause, after an answer.
    pub(in crate::store::redis) fn reset(&mut self) {
        self.next = PAUSE_MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_quarter_of_a_second_and_begin_anew_after_an_answer() {
        let mut pauses = RetryPauses::new();
        let taken: Vec<_> = (0..5).map(|_| pauses.next_pause().as_millis()).collect();
        assert_eq!(taken, [50, 100, 200, 250, 250]);
        pauses.reset();
        assert_eq!(pauses.next_pause(), PAUSE_MIN);
    }
}
