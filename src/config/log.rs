//! `[log]`: access log, messages, and where the consumption log goes.

use std::{path::PathBuf, time::Duration};

use tracing::level_filters::LevelFilter;

use super::{
    journal::JournalSink,
    log_events::LogEventsConfig,
    log_home::{HomeName, LogFilesConfig, LogHome},
    log_postgres::LogPostgresConfig,
    store::StoreConfig,
};
use crate::domain::settings::{Kind, Section, number, one_of, settings, table, table_with};

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
        /// One JSON line per request: "stdout", "off", or a file. When it is renamed weir goes on in a new one at its path.
        access: AccessTarget = access_target().or("stdout"),
        /// The least important message written to stderr: error, warn, info, debug or trace. Messages that nobody takes are dropped and
        /// counted (weir_diagnostics_dropped_total), requests never wait for them.
        level: LevelFilter = one_of("level", LEVELS).or("info"),
        /// Most access lines waiting to be written. Beyond it they are dropped and counted, requests never wait.
        access_queue_lines: usize = number(65_536, 1..=16_777_216),
        /// Where the consumption log is at home: "files": Parquet files, which others read too (docs/log.md), "postgres": a table
        /// (docs/postgres.md), or, with Redis, "store". Without it: "files" with an embedded store, and "store" with Redis, where a million
        /// rows take about half a gigabyte of memory. A home that is away costs nothing but room in the journal.
        named_home("home"): Option<HomeName> = one_of(
            "home",
            [("store", HomeName::Store), ("files", HomeName::Files), ("postgres", HomeName::Postgres)],
        )
        .optional("files"),
        /// The home before, "files" or "postgres" with its own section below, or, with Redis, "store": rows are read there too. `weir log
        /// move --to` the new home brings them over while weir serves; when `weir log verify` finds all of them there, take this line out.
        named_former_home("former_home"): Option<HomeName> = one_of(
            "home",
            [("store", HomeName::Store), ("files", HomeName::Files), ("postgres", HomeName::Postgres)],
        )
        .optional("postgres"),
        /// The home "files".
        files: LogFilesConfig = table(),
        /// The home "postgres".
        postgres: Option<LogPostgresConfig> = table_with("url"),
        /// A billing system that gets each row as a CloudEvent, at least once; docs/events.md says more. Off without an address.
        events: Option<LogEventsConfig> = table_with("url"),
    } beside {
        /// Where the consumption log is at home.
        home: LogHome,
        /// Where it was at home before, and is read as long as rows are there.
        former_home: Option<LogHome>,
    }
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

fn access_target() -> Kind<AccessTarget> {
    Kind::of(|given| match given.text()? {
        "stdout" => Ok(AccessTarget::Stdout),
        "off" => Ok(AccessTarget::Off),
        _ => given.path().map(AccessTarget::File),
    })
}

/// How long rows wait for others of their hour: where other nodes read the files, and where none does.
const SHARED_LONGEST: Duration = Duration::from_secs(30);
const OWN_LONGEST: Duration = Duration::from_secs(3600);

impl LogConfig {
    /// Finds the homes of the log, and tells for whom the journal keeps its files. Where no home is named: files beside an embedded
    /// store, and a Redis alone, for other nodes would have files of their own.
    pub(super) fn settle(&mut self, store: &StoreConfig, from: &Section<'_>) -> Vec<JournalSink> {
        let (beside, longest, default, store) = match store {
            StoreConfig::Embedded(store) => {
                self.refuse_store(from);
                let beside = store.path.with_file_name("log");
                (beside, OWN_LONGEST, HomeName::Files, Some(JournalSink::EMBEDDED_STORE))
            }
            StoreConfig::Redis(_) => (
                PathBuf::from("/var/lib/weir/log"),
                SHARED_LONGEST,
                HomeName::Store,
                None,
            ),
        };
        self.files.path = self.files.named_path.clone().unwrap_or(beside);
        self.files.longest = self.files.named_longest.unwrap_or(longest);
        let (home, former) = (self.named_home.unwrap_or(default), self.named_former_home);
        if former == Some(home) {
            let message = "it is log.home: name another one, or take this line out";
            from.wrong("log.former_home", &["log.home"], message);
        }
        self.home = self.at(home, "log.home", from);
        self.former_home = former.map(|former| self.at(former, "log.former_home", from));
        let events = self.events.as_ref().map(|events| JournalSink {
            name: "events",
            required: events.required,
        });
        self.home.sink().into_iter().chain(events).chain(store).collect()
    }

    /// An embedded store has no rows: notes where it is named as a home, and goes on without the name.
    fn refuse_store(&mut self, from: &Section<'_>) {
        let is_store = |name: &mut HomeName| *name == HomeName::Store;
        if self.named_home.take_if(is_store).is_some() {
            let message = "an embedded store keeps no rows, write \"files\", or \"postgres\" with [log.postgres] url";
            from.wrong("log.home", &["store.engine"], message);
        }
        if self.named_former_home.take_if(is_store).is_some() {
            let message =
                "an embedded store has no rows to read, write \"files\" or \"postgres\", or take this line out";
            from.wrong("log.former_home", &["store.engine"], message);
        }
    }

    /// The home of a name that stands at `key`, with its own section.
    fn at(&self, name: HomeName, key: &str, from: &Section<'_>) -> LogHome {
        match (name, &self.postgres) {
            (HomeName::Store, _) => LogHome::Store,
            (HomeName::Files, _) => LogHome::Files(Box::new(self.files.clone())),
            (HomeName::Postgres, Some(postgres)) => LogHome::Postgres(Box::new(postgres.clone())),
            (HomeName::Postgres, None) => {
                let message = "missing, name the secret with the connection string, such as \"env:WEIR_LOG_POSTGRES\"";
                from.wrong("log.postgres.url", &[key], message);
                LogHome::Store
            }
        }
    }
}
