//! `[log]`, checked.

use std::{path::PathBuf, time::Duration};

use tracing::level_filters::LevelFilter;

use super::{log_events, log_home};

/// `[log]`: access log and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogConfig {
    /// Where access lines are written.
    pub access: AccessTarget,
    /// The least important message that is written to stderr.
    pub level: LevelFilter,
    /// Most access lines waiting to be written; more are dropped and counted.
    pub access_queue_lines: usize,
    /// Where the consumption log is at home.
    pub home: log_home::LogHome,
    /// Whether the file says so.
    pub home_is_named: bool,
    /// Where it was at home before, and is read as long as rows are there; [`log_home::LogHome::Store`]: nowhere.
    pub former_home: log_home::LogHome,
    /// For how long the store keeps the rows of a day that is over, once its home has them.
    pub store_keep: Duration,
    /// Who gets its rows as events.
    pub events: Option<log_events::LogEventsConfig>,
}

/// Where access lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessTarget {
    /// A file; lines are appended.
    File(PathBuf),
    /// Access lines are discarded.
    Off,
    /// Standard output.
    Stdout,
}
