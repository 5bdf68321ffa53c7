//! `[log] home`: where the consumption log is at home.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{
    log_postgres::{self, LogPostgresConfig, RawLogPostgres},
    values::Values,
};

/// `[log.files]` as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLogFiles {
    path: Option<String>,
    seconds: Option<u64>,
    rows_max: Option<u64>,
}

/// `[log.files]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFilesConfig {
    /// The folder of the files.
    pub path: PathBuf,
    /// How long rows wait for others of their hour until they are written.
    pub longest: Duration,
    /// The most rows of a file, until files are merged.
    pub rows_max: usize,
}

/// A sink of the consumption log that is fed by the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalSink {
    /// Its name in metrics, messages and settings.
    pub name: &'static str,
    /// Files with rows that it lacks are kept, however full the disk is. Of an optional one they go when the disk is nearly
    /// full, and the rows in them are counted as dropped.
    pub required: bool,
}

/// Where rows of the consumption log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogHome {
    /// To the store alone.
    Store,
    /// To Parquet files besides.
    Files(LogFilesConfig),
    /// To a table in Postgres besides.
    Postgres(Box<LogPostgresConfig>),
}

impl LogHome {
    /// The sink for which the journal keeps rows.
    pub(super) fn sink(&self) -> Option<JournalSink> {
        match self {
            Self::Store => None,
            Self::Files(_) => Some(JournalSink {
                name: "files",
                required: true,
            }),
            Self::Postgres(_) => Some(JournalSink {
                name: "postgres",
                required: true,
            }),
        }
    }
}

/// The home that `home` names, with the settings of its own section.
pub(super) fn resolve(
    values: &mut Values<'_>,
    home: Option<&str>,
    files: &RawLogFiles,
    postgres: &RawLogPostgres,
) -> LogHome {
    match home {
        None | Some("store") => LogHome::Store,
        Some("files") => {
            let path = files.path.as_deref().unwrap_or("/var/lib/weir/log");
            let rows = ["log", "files", "rows_max"];
            LogHome::Files(LogFilesConfig {
                path: values.path(&["log", "files", "path"], path),
                longest: values.seconds(&["log", "files", "seconds"], files.seconds, 3600, 1..=3600),
                rows_max: values.count(&rows, files.rows_max, 32_768, 1..=1_000_000),
            })
        }
        Some("postgres") => {
            let resolved = log_postgres::resolve(values, postgres);
            resolved.map_or(LogHome::Store, |resolved| LogHome::Postgres(Box::new(resolved)))
        }
        Some(_) => {
            values.wrong(&["log", "home"], "no such home, give store, files or postgres");
            LogHome::Store
        }
    }
}
