//! `[log] home`: where the consumption log is at home.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use super::{
    log_bucket::{self, LogBucketConfig, RawLogBucket},
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
    bucket: RawLogBucket,
}

/// `[log.files]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFilesConfig {
    /// The folder of the files; if they are in a bucket, that in which they are made.
    pub path: PathBuf,
    /// How long rows wait for others of their hour until they are written.
    pub longest: Duration,
    /// The most rows of a file, until files are merged.
    pub rows_max: usize,
    /// The bucket that files are put into.
    pub bucket: Option<LogBucketConfig>,
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

/// Where rows of the consumption log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogHome {
    /// In the store alone.
    Store,
    /// To Parquet files besides, in a folder or a bucket.
    Files(Box<LogFilesConfig>),
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

/// The home that `home` names and the one before it, with the settings of their own sections. Where the first names none, files
/// beside an embedded store, and a Redis alone: other nodes would have files of their own. `embedded` is the folder of an
/// embedded store.
pub(super) fn resolve(
    values: &mut Values<'_>,
    (home, former): (Option<&str>, Option<&str>),
    sections: (&RawLogFiles, &RawLogPostgres),
    embedded: Option<&Path>,
) -> (LogHome, LogHome) {
    let default = if embedded.is_some() { "files" } else { "store" };
    let home = home.unwrap_or(default);
    let resolved = named(values, ("home", home), sections, embedded);
    let Some(former) = former else {
        return (resolved, LogHome::Store);
    };
    if former == home || former == "store" {
        values.wrong(
            &["log", "former_home"],
            "name files or postgres, the one that log.home does not name; what the store has is read in any case",
        );
        return (resolved, LogHome::Store);
    }
    let former = named(values, ("former_home", former), sections, embedded);
    (resolved, former)
}

/// The home that a setting names.
fn named(
    values: &mut Values<'_>,
    (key, name): (&str, &str),
    (files, postgres): (&RawLogFiles, &RawLogPostgres),
    embedded: Option<&Path>,
) -> LogHome {
    match name {
        "store" => LogHome::Store,
        "files" => {
            let path = match (files.path.as_deref(), embedded) {
                (Some(path), _) => values.path(&["log", "files", "path"], path),
                (None, Some(store)) => store.with_file_name("log"),
                (None, None) => PathBuf::from("/var/lib/weir/log"),
            };
            let rows = ["log", "files", "rows_max"];
            let bucket = log_bucket::resolve(values, &files.bucket);
            LogHome::Files(Box::new(LogFilesConfig {
                path,
                longest: values.seconds(&["log", "files", "seconds"], files.seconds, 3600, 1..=3600),
                rows_max: values.count(&rows, files.rows_max, 32_768, 1..=1_000_000),
                bucket,
            }))
        }
        "postgres" => {
            let resolved = log_postgres::resolve(values, postgres);
            resolved.map_or(LogHome::Store, |resolved| LogHome::Postgres(Box::new(resolved)))
        }
        _ => {
            values.wrong(&["log", key], "no such home, give store, files or postgres");
            LogHome::Store
        }
    }
}
