//! Decides when a server counts as dead although its connections are open: it was asked and has answered nothing for a
//! while. A call that waits in vain raises the suspicion; only time confirms it, however many calls wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::lane::{Lane, LaneState};
use super::verdict::Verdict;
use crate::edges::clock;

/// How long a server may leave everything unanswered.
const SILENCE_MAX: Duration = Duration::from_millis(200);
/// How long a sign of life may take at least: the silence may be as long as that already.
const SIGN_WAIT_MIN: Duration = Duration::from_millis(20);

/// A suspicion that is being settled.
struct Suspicion(Arc<Lane>);

impl Drop for Suspicion {
    fn drop(&mut self) {
        self.0.is_suspected.store(false, Ordering::Release);
    }
}

impl Lane {
    /// A call has met nothing but silence since a moment. Asks the connection for a sign of life, which stands behind all that
    /// was asked there; if nothing is answered anywhere for [`SILENCE_MAX`], the lane is given up.
    pub(super) fn suspect(self: &Arc<Self>, number: u64, since: Instant) {
        self.runtime_connections.note_timeout();
        let live = self.live_now().filter(|live| live.number == number);
        let Some(live) = live.filter(|_| !self.is_suspected.swap(true, Ordering::AcqRel)) else {
            return;
        };
        let suspicion = Suspicion(Arc::clone(self));
        tokio::spawn(async move {
            let lane = &suspicion.0;
            let silent = clock::instant().saturating_duration_since(since);
            let wait = SILENCE_MAX.saturating_sub(silent).max(SIGN_WAIT_MIN);
            match timeout(wait, sign_of_life(live.wire.connection.clone())).await {
                Ok(true) => lane.last_answer.note(clock::instant()),
                // Its end is noticed by others.
                Ok(false) => {}
                Err(_) if lane.last_answer.at() > since => {}
                Err(_) => {
                    let reason = "redis leaves calls unanswered".to_owned();
                    lane.leave(number, LaneState::Down { reason });
                }
            }
        });
    }
}

async fn sign_of_life(mut connection: MultiplexedConnection) -> bool {
    let answer = ::redis::cmd("PING").exec_async(&mut connection).await;
    answer.err().map(|error| Verdict::of(&error)) != Some(Verdict::Broken)
}
