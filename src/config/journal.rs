//! `[journal]`: this node's record of requests and charges.

use std::{path::PathBuf, time::Duration};

use super::kinds::path;
use crate::domain::settings::{days, millis, number, settings};

settings! {
    /// `[journal]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct JournalConfig {
        /// The folder where this node records what it owes to accounts before the store knows it. One per process, never shared or
        /// copied.
        path: PathBuf = path().or("/var/lib/weir/journal").trying_out("./weir-data/journal"),
        /// The size of one file, in bytes; it is taken from the disk as a whole.
        segment_bytes: u64 = number(64 << 20, 1 << 20..=1 << 30),
        /// How long a file is kept after the store has taken over everything in it (an embedded one: into its own file), so that a store
        /// that was set back, as by an older backup, can be told again. So backups are to be made more often than that. A clock that
        /// jumps ahead makes the files of one day old at a time; a smaller number here holds at once.
        keep("keep_days"): Duration = days(7, 1..=3650),
        /// Longest time from a record to its being on disk: what a power cut can lose. The end of the process loses nothing.
        sync("sync_ms"): Duration = millis(10, 1..=1000),
    } beside {
        /// The sinks that read rows from it, for which files are kept longer.
        sinks: Vec<JournalSink>,
    }
}

/// For whom the journal keeps its files besides settlement: a sink of the consumption log that it feeds, or the embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalSink {
    /// Its name in metrics, messages and settings.
    pub name: &'static str,
    /// Files with rows that it lacks are kept, however full the disk is. Of an optional one they go when the disk is nearly
    /// full, and the rows in them are counted as dropped.
    pub required: bool,
}

impl JournalSink {
    /// The embedded store, which acknowledges steps before they are in its file.
    pub(crate) const EMBEDDED_STORE: Self = Self {
        name: "store",
        required: true,
    };
}
