//! The system clocks. Only this file reads them; all other code gets the time as an argument.
#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the wall clock's time, in whole seconds since the Unix epoch.
pub(crate) fn unix_seconds() -> i64 {
    unix_millis().div_euclid(1000)
}

/// Returns the wall clock's time, in milliseconds since the Unix epoch; 0 if the clock is set before the epoch.
pub(crate) fn unix_millis() -> i64 {
    let millis = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    millis.saturating_add(offset_ms()).max(0)
}

/// Returns the shift of the wall clock, in milliseconds. Only builds with the feature `failpoints` can shift the clock.
#[cfg(not(feature = "failpoints"))]
const fn offset_ms() -> i64 {
    0
}

/// Returns the shift of the wall clock, in milliseconds. It is set in whole seconds by the environment variable
/// `WEIR_CLOCK_OFFSET_SECONDS`, which is read once.
#[cfg(feature = "failpoints")]
fn offset_ms() -> i64 {
    static OFFSET: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    *OFFSET.get_or_init(|| {
        let seconds = std::env::var("WEIR_CLOCK_OFFSET_SECONDS").ok();
        let seconds = seconds.and_then(|seconds| seconds.parse::<i64>().ok());
        seconds.unwrap_or(0).saturating_mul(1000)
    })
}

/// Returns the processor time that this thread has used so far. The difference of two values is the cost of the work in between,
/// independent of other load on the machine.
pub(crate) fn thread_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(used.tv_sec), u32::try_from(used.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Returns the monotonic clock's time, for measuring durations.
pub(crate) fn instant() -> Instant {
    Instant::now()
}
