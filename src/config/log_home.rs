//! `[log] home`: where the consumption log is at home.

use super::{
    JournalSink,
    log_postgres::{self, LogPostgresConfig, RawLogPostgres},
    values::Values,
};

/// Where rows of the consumption log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogHome {
    /// To the store alone.
    Store,
    /// To a table in Postgres besides.
    Postgres(Box<LogPostgresConfig>),
}

impl LogHome {
    /// The sink for which the journal keeps rows.
    pub(super) fn sink(&self) -> Option<JournalSink> {
        match self {
            Self::Store => None,
            Self::Postgres(_) => Some(JournalSink {
                name: "postgres",
                required: true,
            }),
        }
    }
}

pub(super) fn resolve(values: &mut Values<'_>, home: Option<&str>, postgres: &RawLogPostgres) -> LogHome {
    match home {
        None | Some("store") => LogHome::Store,
        Some("postgres") => {
            let resolved = log_postgres::resolve(values, postgres);
            resolved.map_or(LogHome::Store, |resolved| LogHome::Postgres(Box::new(resolved)))
        }
        Some(_) => {
            values.wrong(&["log", "home"], "no such home, give store or postgres");
            LogHome::Store
        }
    }
}
