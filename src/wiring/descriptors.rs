//! Shares the files that the process may open between clients' connections and everything else.

use crate::config::Config;

/// Descriptors that are not shared: for the process's own files, the store, the ops and admin listeners, which must always
/// respond, and connections that are accepted before they are counted.
const RESERVED: u64 = 200;
/// Descriptors of each gateway worker: its scheduler's, and a handle of the listening socket.
const PER_WORKER: u64 = 8;

/// Descriptors of one client's connection with a running request: itself, a connection to a provider with two handles, and a
/// share of the pool.
const PER_CLIENT: u64 = 4;

/// Maximum number of connections to the redirect listener.
const REDIRECT_CONNECTIONS_MAX: usize = 64;
/// Maximum number of connections to the operators' console.
const CONSOLE_CONNECTIONS_MAX: usize = 256;

/// The maximum of each kind of connection, so that all fit into the process's limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// Connections of clients to the gateway.
    pub(super) clients: usize,
    /// Running requests: over HTTP/2 there may be more of them than connections.
    pub(super) running: usize,
    /// Unused connections to providers.
    pub(super) pool: usize,
    /// Connections to the public stability service.
    pub(super) stability: usize,
    /// Connections to the redirect listener.
    pub(super) redirect: usize,
    /// Connections to the operators' console.
    pub(super) console: usize,
}

impl Descriptors {
    /// The configured maximums, or lower ones if the process may not open that many files.
    pub(super) fn share(config: &Config) -> Self {
        let wanted = Self {
            clients: config.connections.max,
            running: config.connections.running_max,
            pool: config.upstream.pool_size,
            stability: config.stability.connections_max,
            redirect: REDIRECT_CONNECTIONS_MAX,
            console: CONSOLE_CONNECTIONS_MAX,
        };
        let workers = PER_WORKER.saturating_mul(config.gateway.threads as u64);
        open_files_max().map_or(wanted, |limit| wanted.within(limit.saturating_sub(workers)))
    }

    fn within(self, open_files_max: u64) -> Self {
        let left = open_files_max.saturating_sub(RESERVED);
        let part = |files: u64| usize::try_from(files).unwrap_or(usize::MAX).max(1);
        let (eighth, sixteenth) = (left / 8, left / 16);
        let clients = part((left - eighth - 2 * sixteenth) / PER_CLIENT);
        Self {
            clients: self.clients.min(clients),
            running: self.running.min(clients),
            pool: self.pool.min((clients / 2).max(1)),
            stability: self.stability.min(part(eighth)),
            redirect: self.redirect.min(part(sixteenth)),
            console: self.console.min(part(sixteenth)),
        }
    }
}

/// This process's soft limit of open files; `None` if it is unlimited or cannot be read.
fn open_files_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_mean_few_connections_and_many_leave_the_settings_as_they_are() {
        let wanted = Descriptors {
            clients: 16_384,
            running: 16_384,
            pool: 256,
            stability: 256,
            redirect: 64,
            console: 256,
        };
        let few = Descriptors {
            clients: 75,
            running: 75,
            pool: 37,
            stability: 50,
            redirect: 25,
            console: 25,
        };
        assert_eq!(wanted.within(600), few);
        assert_eq!(wanted.within(1 << 20), wanted);
        let least = Descriptors {
            clients: 1,
            running: 1,
            pool: 1,
            stability: 1,
            redirect: 1,
            console: 1,
        };
        assert_eq!(wanted.within(10), least);
    }

    #[test]
    fn all_that_may_be_open_fits() {
        for limit in [250_u64, 600, 1024, 4096, 65_536] {
            let all = Descriptors {
                clients: usize::MAX,
                running: usize::MAX,
                pool: usize::MAX,
                stability: usize::MAX,
                redirect: usize::MAX,
                console: usize::MAX,
            };
            let share = all.within(limit);
            let most =
                share.clients + 2 * share.running + 2 * share.pool + share.stability + share.redirect + share.console;
            assert!(most as u64 + RESERVED <= limit.max(RESERVED + 8), "{limit}: {share:?}");
        }
    }
}
