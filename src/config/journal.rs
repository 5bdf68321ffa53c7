//! `[journal]`: this node's record of requests and charges.

use std::{path::PathBuf, time::Duration};

use super::kinds::path;
use crate::domain::settings::{days, millis, number, settings};

settings! {
    /// `[journal]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct JournalConfig {
        /// The folder where this node records requests and charges before the store has them. Each node has its own; never
        /// share or copy it.
        path: PathBuf = path().or("/var/lib/weir/journal").trying_out("./weir-data/journal"),
        /// The size of one file, in bytes, which is allocated as a whole.
        segment_bytes: u64 = number(64 << 20, 1 << 20..=1 << 30),
        /// How long a file is kept after the store has applied everything in it (the embedded store: written it to its own
        /// file), so that a store that was set back, for example by restoring a backup, gets it again. Make backups more often
        /// than that. A clock that jumps ahead ages the files of only one day at a time; a smaller number takes effect at once.
        keep("keep_days"): Duration = days(7, 1..=3650),
        /// Maximum time until a record is on disk, and so the maximum loss in a power cut. The end of the process loses nothing.
        sync("sync_ms"): Duration = millis(10, 1..=1000),
    } beside {
        /// The sinks that read the journal, for which files are kept longer.
        sinks: Vec<JournalSink>,
    }
}

/// A reader for which the journal keeps its files longer than settlement needs them: a sink of the consumption log, or the
/// embedded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalSink {
    /// Its name in metrics, messages and settings.
    pub name: &'static str,
    /// Whether files with rows that it lacks are kept however full the disk is. For an optional sink they are removed when the
    /// disk is nearly full, and their rows are counted as dropped.
    pub required: bool,
}

impl JournalSink {
    /// The embedded store, which acknowledges steps before they are in its file.
    pub(crate) const EMBEDDED_STORE: Self = Self {
        name: "store",
        required: true,
    };
}
