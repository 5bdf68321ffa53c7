//! Decides when to give up on a server: how long a call waits, what an error means for it, and when a server counts as dead
//! although its connections are open. A dead server was asked and has answered nothing for a while. A call that waits in vain
//! raises the suspicion; only time confirms it, however many calls wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::lane::{LaneState, MasterLane};
use super::verdict::RedisErrorMeaning;
use crate::edges::clock;

/// How long a server may leave everything unanswered.
const SILENCE_MAX: Duration = Duration::from_millis(200);
/// The minimum timeout of a sign of life: the server may have been silent for [`SILENCE_MAX`] already.
const SIGN_WAIT_MIN: Duration = Duration::from_millis(20);

/// Marks a lane as suspected until the suspicion is resolved.
struct SuspicionGuard(Arc<MasterLane>);

impl Drop for SuspicionGuard {
    fn drop(&mut self) {
        self.0.is_suspected.store(false, Ordering::Release);
    }
}

impl MasterLane {
    /// A call has met nothing but silence since a moment. Asks for a sign of life on the connection, behind everything that
    /// was sent there; if nothing is answered anywhere for [`SILENCE_MAX`], the lane is given up.
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
                // Other tasks notice the end of the connection.
                Ok(false) => {}
                Err(_) if lane.last_answer.time() > since => {}
                Err(_) => {
                    let reason = "redis leaves calls unanswered".to_owned();
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
