//! Waiting for conditions. The only place of these tests that sleeps, a few milliseconds between two looks.

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up; far above what a loaded machine with two cores needs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(3);

/// Waits until `condition` holds; fails the test, naming `what`, when [`DEADLINE`] passes first.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// Waits until `look` finds something and returns it; fails the test, naming `what`, when [`DEADLINE`] passes first.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let Some(found) = wait_within(DEADLINE, look) else {
        panic!("waited {DEADLINE:?} in vain for {what}");
    };
    found
}

/// Looks until `look` finds something, at most for `limit`.
pub(crate) fn wait_within<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if started.elapsed() > limit {
            return None;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
