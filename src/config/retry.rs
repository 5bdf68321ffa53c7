//! `[retry]`: whether a request goes to another provider although the first may have served it.

use serde::Deserialize;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRetry {
    after_timeout: Option<bool>,
}

/// The section, checked and with defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryConfig {
    /// Whether a request goes on to the next provider if the first did not answer in time, or closed the connection
    /// before an answer. The first may have served it, and bill for it.
    pub after_timeout: bool,
}

pub(super) fn resolve(raw: &RawRetry) -> RetryConfig {
    RetryConfig {
        after_timeout: raw.after_timeout.unwrap_or(false),
    }
}
