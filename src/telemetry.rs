//! What weir tells about itself: metrics and the access log.

pub(crate) mod access_log;
pub(crate) mod attention;
pub(crate) mod metrics;
