//! Tells the service manager how far the process is, as sd_notify(3) has it. Without one nothing is told.

use std::time::Duration;

use sd_notify::NotifyState;

/// It serves, or has dealt with a reload.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It loads its configuration anew; [`ready`] ends that.
pub(super) fn reloading() {
    // Type=notify-reload wants to know since when.
    match NotifyState::monotonic_usec_now() {
        Ok(since) => tell(&[NotifyState::Reloading, since]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// It has begun to stop, which takes at most `time`: `TimeoutStopSec=` need not be changed with `drain_seconds`.
pub(super) fn stopping(time: Duration) {
    let extended = format!("EXTEND_TIMEOUT_USEC={}", time.as_micros());
    tell(&[NotifyState::Stopping, NotifyState::Custom(&extended)]);
}

/// Tells that the background still gets its turns, twice as often as the service manager (`WatchdogSec=`) wants to hear it.
/// Ends at once where it does not.
pub(super) async fn watchdog() {
    // An interval of no length cannot be kept.
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return;
    };
    let mut turns = tokio::time::interval(limit / 2);
    loop {
        turns.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager at $NOTIFY_SOCKET cannot be told; it may take weir for dead");
    }
}
