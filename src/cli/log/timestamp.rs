//! Times as the log shows them.

use jiff::Timestamp;

/// RFC 3339, or the number itself where it is no time.
pub(super) fn time(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms).map_or_else(|_| unix_ms.to_string(), |time| time.to_string())
}
