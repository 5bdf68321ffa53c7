//! Why weir does not start, or a command failed.

use std::fmt::Display;

/// Why weir does not start, or a command failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration or a rule file is wrong: exit code 78.
    #[error("{0}")]
    Configuration(String),
    /// An address or a socket cannot be taken.
    #[error("cannot listen: {0}")]
    Listen(String),
    /// A client command did not succeed.
    #[error("{0}")]
    Client(String),
    /// Something else that is needed cannot be had.
    #[error("{what}: {why}")]
    Failed {
        /// The action that failed.
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
