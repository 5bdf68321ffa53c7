//! `[log] home`: where the consumption log is at home.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{JournalSink, values::Values};

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

/// Where rows of the consumption log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogHome {
    /// To the store alone.
    Store,
    /// To Parquet files besides.
    Files(LogFilesConfig),
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
        }
    }
}

pub(super) fn resolve(values: &mut Values<'_>, home: Option<&str>, files: &RawLogFiles) -> LogHome {
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
        Some(_) => {
            values.wrong(&["log", "home"], "no such home, give store or files");
            LogHome::Store
        }
    }
}
