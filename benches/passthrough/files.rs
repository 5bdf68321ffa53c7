//! How many open files this process and those that it starts may have, and how many streams through weir that is enough for.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// weir keeps a quarter of its files for others than clients, and counts four for each client.
const FILES_OF_CLIENTS: (u64, u64) = (16, 3);
/// Besides those.
const OTHER_FILES: u64 = 500;

/// Takes as many as the system allows.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where that is refused, there are fewer streams.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// How many there may be.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many weir needs for so many streams at once.
pub(crate) fn needed(streams: usize) -> u64 {
    (streams as u64 * FILES_OF_CLIENTS.0).div_ceil(FILES_OF_CLIENTS.1) + OTHER_FILES
}

/// So many streams, or as many as there may be.
pub(crate) fn streams_within(streams: usize) -> usize {
    let possible = limit().saturating_sub(OTHER_FILES) / FILES_OF_CLIENTS.0 * FILES_OF_CLIENTS.1;
    streams.min(usize::try_from(possible).unwrap_or(usize::MAX))
}
