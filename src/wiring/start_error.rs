//! Why weir does not start, or a command failed.

use std::fmt::Display;

/// Why weir did not start, or a command failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration or a rule file is wrong: exit code 78.
    #[error("{0}")]
    Configuration(String),
    /// An address or a socket cannot be used.
    #[error("cannot listen: {0}")]
    Listen(String),
    /// A client command failed.
    #[error("{0}")]
    Client(String),
    /// Something else failed.
    #[error("{what}: {why}")]
    Failed {
        /// The part or action that failed.
        what: &'static str,
        /// The error's text.
        why: String,
    },
}

impl StartError {
    pub(super) fn failed(what: &'static str, why: impl Display) -> Self {
        Self::Failed {
            what,
            why: why.to_string(),
        }
    }
}
