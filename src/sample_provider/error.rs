//! Why the sample provider did not start or stopped.

use std::{net::SocketAddr, path::PathBuf};

use super::script::ScriptError;

/// Why the sample provider did not start or stopped.
#[derive(Debug, thiserror::Error)]
pub enum SampleProviderError {
    /// A flag is out of range.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The variable named by `--require-key-env` is missing or empty.
    #[error("environment variable {name} (--require-key-env) is not set or is empty: set it, or leave the flag out")]
    KeyEnv {
        /// The name of the environment variable.
        name: String,
    },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}; choose another --listen")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The ledger cannot be opened.
    #[error("cannot open the ledger {}: {source}", path.display())]
    Ledger {
        /// The ledger's path.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The runtime, stdout or a signal handler failed.
    #[error("sample provider: {0}")]
    Io(#[from] std::io::Error),
}
