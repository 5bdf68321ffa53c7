//! How connections for calls are made: within which limits, and in which form.

use std::time::Duration;

use ::redis::AsyncConnectionConfig;

/// How long one attempt to connect may take, including finding the server, login and loading the scripts.
pub(in crate::store::redis) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(1);
/// The pause after the first failed attempt, from start to start; it doubles up to [`PAUSE_MAX`].
pub(in crate::store::redis) const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
pub(in crate::store::redis) const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The most concurrent calls to one server, queued ones included. Further calls are refused at once.
pub(in crate::store::redis) const CALLS_MAX: usize = 4096;

/// What all connections for calls have in common: those who call limit the time.
pub(super) fn connection_config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(CALLS_MAX)
}
