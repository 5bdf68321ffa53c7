//! What weir tells about itself: metrics and the access log.

pub mod access_log;
pub mod metrics;
