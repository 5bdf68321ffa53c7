//! The log backend that stores rows in Postgres: one table with a partition per day, which is filled by COPY. A lane's watermark
//! is written in the same transaction as its rows, so the table has each row exactly once.

mod columns;
mod connection;
mod query;
mod sink;
#[cfg(test)]
mod tests;

use std::{error::Error, time::Duration};

use tokio_postgres::{Client, Transaction, error::SqlState};

use crate::{
    config::log::PostgresTls,
    domain::keys::secret::Secret,
    sinks::postgres::connection::{PostgresDialer, with_timeout},
};

pub(crate) use crate::sinks::postgres::sink::PostgresLog;
pub(crate) use crate::sinks::postgres::sink::PostgresRetention;

/// The settings of `[log.postgres]`. Secrets and files that they name have been read.
#[derive(Clone, Debug)]
pub(crate) struct PostgresSettings {
    /// The connection string: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or the form `host=... user=...`.
    pub url: Secret,
    pub tls: PostgresTls,
    /// CA certificates in PEM that are trusted instead of the platform's. `None` for the platform's.
    pub ca: Option<Vec<u8>>,
    /// The timeout for opening a connection and making it ready to use.
    pub connect: Duration,
    /// The timeout for committing a batch of rows.
    pub write: Duration,
    /// The timeout for reading a page of rows.
    pub read: Duration,
    /// The number of days for which rows are kept.
    pub keep_days: u32,
}

/// Why a call of the database failed. The messages contain neither the connection string nor values of rows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostgresError {
    /// The settings cannot be used.
    #[error("[log.postgres] {0}")]
    Settings(String),
    /// The schema is missing, or lacks migrations of this version.
    #[error("cannot use the database: its schema is missing or out of date; run `weir log init`")]
    NotReady,
    /// The server refused the statement.
    #[error("postgres refused a statement: {message} ({code})")]
    Refused {
        /// The SQLSTATE code of the refusal.
        code: String,
        /// The server's message.
        message: String,
    },
    /// The server cannot be reached, or the connection was lost. It is not known whether the statement was executed.
    #[error("postgres cannot be reached: {0}")]
    Unreachable(String),
    /// The server did not answer in time. It is not known whether the statement was executed.
    #[error("postgres did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// A row of the table cannot be read, because weir did not write it.
    #[error("cannot read a row of the table weir.log: {0}")]
    Row(String),
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refusal) = error.as_db_error() {
            // Only the message is used, because the error's detail may quote a row.
            return Self::Refused {
                code: refusal.code().code().to_owned(),
                message: refusal.message().to_owned(),
            };
        }
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        Self::Unreachable(text)
    }
}

/// The timeout for the complete setup. It is long, because building an index on a large table takes long.
const LIMIT: Duration = Duration::from_secs(3600);

/// Roles of the database that are granted rights, in addition to the owner of the schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    /// The roles that are granted the right to write the log.
    pub writers: Vec<String>,
    /// The roles that are granted the right to read the log.
    pub readers: Vec<String>,
}

/// Applies the missing migrations and grants the rights. Returns the numbers of the applied migrations. Can be called repeatedly.
pub(crate) async fn set_up(settings: &PostgresSettings, grants: &Grants) -> Result<Vec<i32>, PostgresError> {
    let dialer = PostgresDialer::new(settings)?;
    let mut connection = dialer.connect(LIMIT).await?;
    let client = &mut connection.client;
    with_timeout(LIMIT, async {
        let applied = apply(client).await?;
        for role in &grants.writers {
            grant_writer(client, role).await?;
        }
        for role in &grants.readers {
            grant_reader(client, role).await?;
        }
        Ok(applied)
    })
    .await
}

/// The migrations in their order. Each is applied once and never changes afterwards. A later migration only adds to the schema,
/// so that earlier versions of weir can continue to use it.
const MIGRATIONS: [&str; 5] = [
    include_str!("postgres/migrations/0001_log.sql"),
    include_str!("postgres/migrations/0002_retention.sql"),
    include_str!("postgres/migrations/0003_hold_and_attempts.sql"),
    include_str!("postgres/migrations/0004_modalities.sql"),
    include_str!("postgres/migrations/0005_transport_and_losses.sql"),
];
/// The number of the advisory lock that is held while migrations are applied, so that only one process at a time applies them.
const LOCK: i64 = 7_523_094_288_207_667_298;

/// Applies the missing migrations. Returns their numbers.
async fn apply(client: &mut Client) -> Result<Vec<i32>, PostgresError> {
    let transaction = client.transaction().await?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await?;
    // The schema is only created if it is missing, because a role that can use it may not be allowed to create it.
    let found = transaction
        .query_one("SELECT to_regclass('weir.migration') IS NOT NULL", &[])
        .await?;
    if !found.try_get::<_, bool>(0)? {
        transaction
            .batch_execute(
                "CREATE SCHEMA IF NOT EXISTS weir;
                 CREATE TABLE weir.migration (
                     number integer PRIMARY KEY,
                     applied_at timestamptz NOT NULL DEFAULT now()
                 )",
            )
            .await?;
    }
    let last = last_migration(&transaction).await?;
    let mut applied = Vec::new();
    for (number, sql) in (1_i32..).zip(MIGRATIONS).filter(|(number, _)| *number > last) {
        transaction.batch_execute(sql).await?;
        transaction
            .execute("INSERT INTO weir.migration (number) VALUES ($1)", &[&number])
            .await?;
        applied.push(number);
    }
    transaction.commit().await?;
    Ok(applied)
}

async fn last_migration(transaction: &Transaction<'_>) -> Result<i32, PostgresError> {
    let row = transaction
        .query_one("SELECT coalesce(max(number), 0) FROM weir.migration", &[])
        .await?;
    Ok(row.try_get(0)?)
}

/// Returns an error if the database lacks a migration. Migrations of later versions of weir are no error.
async fn check(client: &Client) -> Result<(), PostgresError> {
    let asked = client
        .query_one("SELECT coalesce(max(number), 0) FROM weir.migration", &[])
        .await;
    let last: i32 = match asked {
        Ok(row) => row.try_get(0)?,
        Err(error) => {
            let code = error.code();
            let absent = code == Some(&SqlState::UNDEFINED_TABLE) || code == Some(&SqlState::INVALID_SCHEMA_NAME);
            return Err(if absent { PostgresError::NotReady } else { error.into() });
        }
    };
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    if last < known {
        Err(PostgresError::NotReady)
    } else {
        Ok(())
    }
}

/// Grants a role the rights to add rows to the log. The role can neither change nor remove rows.
async fn grant_writer(client: &Client, role: &str) -> Result<(), PostgresError> {
    let role = quoted(role);
    let grants = format!(
        "GRANT USAGE ON SCHEMA weir TO {role};
         GRANT SELECT, INSERT ON weir.log TO {role};
         GRANT SELECT, INSERT, UPDATE ON weir.sink TO {role};
         GRANT SELECT ON weir.migration TO {role};
         GRANT EXECUTE ON FUNCTION weir.make_partition(date), weir.drop_oldest(integer) TO {role};"
    );
    Ok(client.batch_execute(&grants).await?)
}

/// Grants a role the right to read the log.
async fn grant_reader(client: &Client, role: &str) -> Result<(), PostgresError> {
    let role = quoted(role);
    let grants = format!("GRANT USAGE ON SCHEMA weir TO {role}; GRANT SELECT ON weir.log TO {role};");
    Ok(client.batch_execute(&grants).await?)
}

/// Quotes a name of SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod migrations_tests {
    use super::*;

    #[test]
    fn a_role_of_any_name_is_one_word_of_sql() {
        for (name, written) in [
            ("weir", "\"weir\""),
            ("a b", "\"a b\""),
            ("x\"; DROP TABLE t; --", "\"x\"\"; DROP TABLE t; --\""),
        ] {
            assert_eq!(quoted(name), written);
        }
    }
}
