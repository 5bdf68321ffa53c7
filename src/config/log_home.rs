//! `[log] home`: where the consumption log is at home, and what the journal keeps rows for.

use std::{path::PathBuf, time::Duration};

use super::{journal::JournalSink, kinds::path, log_bucket::LogBucketConfig, log_postgres::LogPostgresConfig};
use crate::domain::settings::{number, settings, table_with, within};

settings! {
    /// `[log.files]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogFilesConfig {
        /// The folder of the files. Several nodes may share one. With a bucket: the folder that files are made in, for each node its
        /// own. Without it: `log` beside the folder of an embedded store, or else as here.
        named_path("path"): Option<PathBuf> = path().optional("/var/lib/weir/log"),
        /// How long rows wait for others of their hour until they are written. Without it: 30 with Redis, for other nodes read the files
        /// too, and 3600 with an embedded store.
        named_longest("seconds"): Option<Duration> = within(1..=3600).map(Duration::from_secs).optional(30),
        /// The most rows of a file; days that are over become one file.
        rows_max: usize = number(32_768, 1..=1_000_000),
        /// The S3-compatible bucket that the files are put into, in place of the folder (docs/log.md). Without a name: the folder.
        bucket: Option<LogBucketConfig> = table_with("name"),
    } beside {
        /// The folder of the files; if they are in a bucket, that in which they are made.
        path: PathBuf,
        /// How long rows wait for others of their hour until they are written.
        longest: Duration,
    }
}

/// A home, as the file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeName {
    /// The store, if it is Redis.
    Store,
    /// Parquet files.
    Files,
    /// A table in Postgres.
    Postgres,
}

/// Where rows of the consumption log go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogHome {
    /// To the lists of the store.
    #[default]
    Store,
    /// To Parquet files, in a folder or a bucket.
    Files(Box<LogFilesConfig>),
    /// To a table in Postgres.
    Postgres(Box<LogPostgresConfig>),
}

impl LogHome {
    /// The sink for which the journal keeps rows.
    pub(super) fn sink(&self) -> Option<JournalSink> {
        let name = match self {
            Self::Store => return None,
            Self::Files(_) => "files",
            Self::Postgres(_) => "postgres",
        };
        Some(JournalSink { name, required: true })
    }
}
