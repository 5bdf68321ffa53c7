//! Notifies the service manager of the process's state, by sd_notify(3). Without a service manager this does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;

/// Reports that the process serves, or has finished a reload.
pub(super) fn notify_ready() {
    notify_manager(&[NotifyState::Ready]);
}

/// Reports that a reload begins; [`ready`] ends it.
pub(super) fn reloading() {
    // Type=notify-reload needs the time.
    match NotifyState::monotonic_usec_now() {
        Ok(since) => notify_manager(&[NotifyState::Reloading, since]),
        Err(_) => notify_manager(&[NotifyState::Reloading]),
    }
}

/// Reports that the successor serves and is the main process from now on; this ends a reload.
pub(super) fn succeeded_by(pid: u32) {
    notify_manager(&[NotifyState::MainPid(pid), NotifyState::Ready]);
}

/// Reports that the process stops, within at most `time`: so `TimeoutStopSec=` need not follow `drain_seconds`.
pub(super) fn stopping(time: Duration) {
    let extended = format!("EXTEND_TIMEOUT_USEC={}", time.as_micros());
    notify_manager(&[NotifyState::Stopping, NotifyState::Custom(&extended)]);
}

/// Reports that background tasks still run, twice as often as the service manager's `WatchdogSec=`. Returns at once without that
/// setting, and when the successor is the main process.
pub(super) async fn watchdog(mut handed_over: watch::Receiver<bool>) {
    // An interval of zero is not possible.
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return;
    };
    let mut turns = tokio::time::interval(limit / 2);
    loop {
        tokio::select! {
            _ = turns.tick() => {}
            _ = handed_over.wait_for(|handed_over| *handed_over) => return,
        }
        notify_manager(&[NotifyState::Watchdog]);
    }
}

fn notify_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager at $NOTIFY_SOCKET cannot be notified; it may consider weir dead");
    }
}
