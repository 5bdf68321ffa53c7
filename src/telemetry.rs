//! weir's own telemetry: metrics, the access log, and diagnostic messages on standard error.

pub(crate) mod access_log;
pub(crate) mod attention;
pub(crate) mod diagnostics;
mod line_queue;
pub(crate) mod metrics;
