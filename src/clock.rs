//! The only reader of the clock. Everything else takes time as an argument.
#![expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The wall clock as whole seconds since the Unix epoch.
pub fn unix_seconds() -> i64 {
    unix_millis().div_euclid(1000)
}

/// The wall clock as milliseconds since the Unix epoch; 0 for a clock set before it.
pub fn unix_millis() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The monotonic clock, for durations.
pub fn instant() -> Instant {
    Instant::now()
}
