//! `[log] home`: the log backend, which keeps the consumption log.

use std::{path::PathBuf, time::Duration};

use super::{journal::JournalSink, kinds::path, log_bucket::LogBucketConfig, log_postgres::LogPostgresConfig};
use crate::domain::settings::{number, settings, table_with, within};

settings! {
    /// `[log.files]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogFilesConfig {
        /// The folder of the files; several nodes may share one. With a bucket: the folder in which files are made before the
        /// upload, one for each node. Without it: `log` beside the folder of an embedded store, or else as here.
        named_path("path"): Option<PathBuf> = path().optional("/var/lib/weir/log"),
        /// How long rows wait for others of their hour before they are written. Without it: 30 with Redis, because other nodes
        /// read the files too, and 3600 with an embedded store.
        named_longest("seconds"): Option<Duration> = within(1..=3600).map(Duration::from_secs).optional(30),
        /// Maximum number of rows in a file; the files of a past day are merged into one.
        rows_max: usize = number(32_768, 1..=1_000_000),
        /// The S3-compatible bucket that keeps the files in place of the folder (docs/log.md). Without a name: the folder.
        bucket: Option<LogBucketConfig> = table_with("name"),
    } beside {
        /// The folder of the files; with a bucket, the folder in which they are made before the upload.
        path: PathBuf,
        /// How long rows wait for others of their hour before they are written.
        longest: Duration,
    }
}

/// A log backend by its name in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogBackendName {
    /// The store, if it is Redis.
    Store,
    /// Parquet files.
    Files,
    /// A table in Postgres.
    Postgres,
}

/// The log backend: where the rows of the consumption log are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum LogBackendConfig {
    /// In lists in the store.
    #[default]
    Store,
    /// In Parquet files, in a folder or a bucket.
    Files(Box<LogFilesConfig>),
    /// In a table in Postgres.
    Postgres(Box<LogPostgresConfig>),
}

impl LogBackendConfig {
    /// The sink for which the journal keeps rows; `None` for the store.
    pub(super) fn sink(&self) -> Option<JournalSink> {
        let name = match self {
            Self::Store => return None,
            Self::Files(_) => "files",
            Self::Postgres(_) => "postgres",
        };
        Some(JournalSink { name, required: true })
    }
}
