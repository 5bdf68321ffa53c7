//! `[log]`: the access log, messages, and where the consumption log is kept.

use std::{path::PathBuf, time::Duration};

use tracing::level_filters::LevelFilter;

use super::{
    journal::JournalSink,
    log_events::LogEventsConfig,
    log_home::{LogBackendConfig, LogBackendName, LogFilesConfig},
    log_postgres::LogPostgresConfig,
    store::StoreConfig,
};
use crate::domain::settings::{Section, SettingKind, number, one_of, settings, table, table_with};

const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

settings! {
    /// `[log]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct LogConfig {
        /// The access log, one JSON line per request: "stdout", "off", or a file. If the file is renamed, weir continues in a
        /// new one at the same path.
        access: AccessTarget = access_target().or("stdout"),
        /// The level of messages on stderr: error, warn, info, debug or trace. Messages that cannot be written in time are
        /// dropped and counted (weir_diagnostics_dropped_total); requests never wait for them.
        level: LevelFilter = one_of("level", LEVELS).or("info"),
        /// Maximum number of access lines that wait to be written. Further ones are dropped and counted; requests never wait.
        access_queue_lines: usize = number(65_536, 1..=16_777_216),
        /// The log backend, which keeps the consumption log: "files" (Parquet files, which other programs can read too;
        /// docs/log.md), "postgres" (a table; docs/postgres.md), or, with Redis, "store". Without it: "files" with an embedded
        /// store, and "store" with Redis, where a million rows take about half a gigabyte of memory. While the backend is
        /// unreachable, rows wait in the journal.
        named_home("home"): Option<LogBackendName> = one_of(
            "home",
            [("store", LogBackendName::Store), ("files", LogBackendName::Files), ("postgres", LogBackendName::Postgres)],
        )
        .optional("files"),
        /// The previous log backend, "files" or "postgres" with its own section below, or, with Redis, "store": rows are read
        /// there too. `weir log move --to` copies them to the new one while weir serves; when `weir log verify` finds all of
        /// them there, remove this line.
        named_former_home("former_home"): Option<LogBackendName> = one_of(
            "home",
            [("store", LogBackendName::Store), ("files", LogBackendName::Files), ("postgres", LogBackendName::Postgres)],
        )
        .optional("postgres"),
        /// The log backend "files".
        files: LogFilesConfig = table(),
        /// The log backend "postgres".
        postgres: Option<LogPostgresConfig> = table_with("url"),
        /// A billing system that gets each row as a CloudEvent, at least once; see docs/events.md. Off without a url.
        events: Option<LogEventsConfig> = table_with("url"),
    } beside {
        /// The log backend.
        home: LogBackendConfig,
        /// The previous log backend, which is still read.
        former_home: Option<LogBackendConfig>,
    }
}

/// The target of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessTarget {
    /// A file; lines are appended.
    File(PathBuf),
    /// Access lines are discarded.
    Off,
    /// Standard output.
    Stdout,
}

fn access_target() -> SettingKind<AccessTarget> {
    SettingKind::of(|given| match given.text()? {
        "stdout" => Ok(AccessTarget::Stdout),
        "off" => Ok(AccessTarget::Off),
        _ => given.path().map(AccessTarget::File),
    })
}

/// How long rows wait for others of their hour, if other nodes read the files, and if none does.
const SHARED_LONGEST: Duration = Duration::from_secs(30);
const OWN_LONGEST: Duration = Duration::from_secs(3600);

impl LogConfig {
    /// Sets the log backends, and returns the sinks for which the journal keeps its files. By default, an embedded store has
    /// files beside it, and Redis keeps the log itself, because each node would have its own files.
    pub(super) fn set_backends(&mut self, store: &StoreConfig, from: &Section<'_>) -> Vec<JournalSink> {
        let (beside, longest, default, store) = match store {
            StoreConfig::Embedded(store) => {
                self.refuse_store(from);
                let beside = store.path.with_file_name("log");
                (
                    beside,
                    OWN_LONGEST,
                    LogBackendName::Files,
                    Some(JournalSink::EMBEDDED_STORE),
                )
            }
            StoreConfig::Redis(_) => (
                PathBuf::from("/var/lib/weir/log"),
                SHARED_LONGEST,
                LogBackendName::Store,
                None,
            ),
        };
        self.files.path = self.files.named_path.clone().unwrap_or(beside);
        self.files.longest = self.files.named_longest.unwrap_or(longest);
        let (home, former) = (self.named_home.unwrap_or(default), self.named_former_home);
        if former == Some(home) {
            let message = "is the same as log.home: name another one, or remove this line";
            from.report_fault("log.former_home", &["log.home"], message);
        }
        self.home = self.backend_named(home, "log.home", from);
        self.former_home = former.map(|former| self.backend_named(former, "log.former_home", from));
        let events = self.events.as_ref().map(|events| JournalSink {
            name: "events",
            required: events.required,
        });
        self.home.sink().into_iter().chain(events).chain(store).collect()
    }

    /// Reports an embedded store that is named as log backend, which it cannot be, and removes the name.
    fn refuse_store(&mut self, from: &Section<'_>) {
        let is_store = |name: &mut LogBackendName| *name == LogBackendName::Store;
        if self.named_home.take_if(is_store).is_some() {
            let message = "an embedded store keeps no rows: give \"files\", or \"postgres\" with [log.postgres] url";
            from.report_fault("log.home", &["store.engine"], message);
        }
        if self.named_former_home.take_if(is_store).is_some() {
            let message = "an embedded store has no rows to read: give \"files\" or \"postgres\", or remove this line";
            from.report_fault("log.former_home", &["store.engine"], message);
        }
    }

    /// The log backend that is named at `key`, with its own section.
    fn backend_named(&self, name: LogBackendName, key: &str, from: &Section<'_>) -> LogBackendConfig {
        match (name, &self.postgres) {
            (LogBackendName::Store, _) => LogBackendConfig::Store,
            (LogBackendName::Files, _) => LogBackendConfig::Files(Box::new(self.files.clone())),
            (LogBackendName::Postgres, Some(postgres)) => LogBackendConfig::Postgres(Box::new(postgres.clone())),
            (LogBackendName::Postgres, None) => {
                let message = "missing, give the secret with the connection string, such as \"env:WEIR_LOG_POSTGRES\"";
                from.report_fault("log.postgres.url", &[key], message);
                LogBackendConfig::Store
            }
        }
    }
}
