//! Tells the service manager how far the process is, as sd_notify(3) has it. Without one nothing is told.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;

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

/// Another process serves in its place, and is the one to look at from now on; this ends a reload.
pub(super) fn succeeded_by(pid: u32) {
    tell(&[NotifyState::MainPid(pid), NotifyState::Ready]);
}

/// It has begun to stop, which takes at most `time`: `TimeoutStopSec=` need not be changed with `drain_seconds`.
pub(super) fn stopping(time: Duration) {
    let extended = format!("EXTEND_TIMEOUT_USEC={}", time.as_micros());
    tell(&[NotifyState::Stopping, NotifyState::Custom(&extended)]);
}

/// Tells that the background still gets its turns, twice as often as the service manager (`WatchdogSec=`) wants to hear it.
/// Ends at once where it does not, and when another process is looked at instead.
pub(super) async fn watchdog(mut handed_over: watch::Receiver<bool>) {
    // An interval of no length cannot be kept.
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return;
    };
    let mut turns = tokio::time::interval(limit / 2);
    loop {
        tokio::select! {
            _ = turns.tick() => {}
            _ = handed_over.wait_for(|handed_over| *handed_over) => return,
        }
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager at $NOTIFY_SOCKET cannot be told; it may take weir for dead");
    }
}
