//! The log backend that stores rows in Postgres. All rows are in one table, which has a partition for each day. The log backend
//! writes rows with COPY. It writes a lane's watermark in the same transaction as the lane's rows, so the table has each row
//! exactly once. It can read a page of rows in the order of the log, or the most recent rows of a key.

mod columns;
mod connection;
mod sink;
#[cfg(test)]
mod tests;

use std::{error::Error, ops::RangeInclusive, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Transaction, error::SqlState, types::ToSql};

use crate::{
    config::log::PostgresTls,
    domain::{
        keys::{KeyId, secret::Secret},
        ledger::{
            NodeId,
            ids::Tag,
            log_query::{LogFilter, LogPosition},
        },
    },
    journal::NumberedRow,
    sinks::{
        LogPageQuery, PAGE_ROWS_MAX,
        postgres::connection::{PostgresConnection, PostgresDialer, with_timeout},
    },
};

pub(crate) use crate::sinks::postgres::sink::PostgresLog;
pub(crate) use crate::sinks::postgres::sink::PostgresRetention;

/// The settings of `[log.postgres]`. The secrets and files that the configuration names have already been read.
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

/// The reason why a call of the database failed. The messages contain neither the connection string nor values of rows.
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

/// The migrations in order. Each is applied once and never changes afterwards. A later migration only adds to the schema,
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

/// Quotes an SQL identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Makes SQL compare strings by their bytes, independently of the database's locale.
const BY_BYTES: &str = "COLLATE \"C\"";

/// A query of the log. It consists of SQL conditions, the values of its parameters, an order and a limit. Each filter becomes an
/// SQL condition, so the database can use partitions and indexes to find the rows.
#[derive(Default)]
struct LogQuery {
    conditions: Vec<String>,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
    order: String,
    limit: String,
}

impl LogQuery {
    /// Adds a value as a parameter. Returns the parameter's name in SQL.
    fn add_value(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    /// Creates the query for a page of a day's rows.
    fn page(ask: &LogPageQuery) -> Self {
        let mut question = Self::for_filter(&ask.filter.within_day(ask.day));
        question.add_after(&ask.after);
        let order = format!("account, time, request_id {BY_BYTES}");
        question.with_order(order, ask.limit, |limit| format!("FETCH FIRST {limit} ROWS WITH TIES"))
    }

    /// Creates the query for a key's most recent rows, among those whose requests ended on one of `days`. The query returns the
    /// most recent row first. It returns at most `limit` and at most [`PAGE_ROWS_MAX`] rows.
    fn latest((account, key): (&str, &KeyId), days: &RangeInclusive<i64>, limit: usize) -> Self {
        let filter = LogFilter {
            key: Some(key.clone()),
            since_ms: LogFilter::of_day(account, *days.start()).since_ms,
            ..LogFilter::of_day(account, *days.end())
        };
        let order = format!("time DESC, request_id {BY_BYTES} DESC");
        Self::for_filter(&filter).with_order(order, limit, |limit| format!("LIMIT {limit}"))
    }

    /// Creates a query for all rows that match a filter, without an order.
    fn for_filter(filter: &LogFilter) -> Self {
        let mut question = Self::default();
        let LogFilter {
            account,
            key,
            model,
            status,
            tag,
            since_ms,
            until_ms,
        } = filter;
        let since = question.add_value(columns::moment(*since_ms));
        let until = question.add_value(columns::moment(*until_ms));
        question.conditions.push(format!("time >= {since} AND time < {until}"));
        if let Some(account) = account {
            let account = question.add_value(account.clone());
            question.conditions.push(format!("account = {account}"));
        }
        if let Some(key) = key {
            let key = question.add_value(key.as_str().to_owned());
            question.conditions.push(format!("key_id = {key}"));
        }
        if let Some(model) = model {
            let model = question.add_value(columns::text(model));
            question
                .conditions
                .push(format!("(model = {model} OR model_asked = {model})"));
        }
        if let Some(status) = status {
            let (first, last) = (i32::from(*status.start()), i32::from(*status.end()));
            let (first, last) = (question.add_value(first), question.add_value(last));
            question.conditions.push(format!("status BETWEEN {first} AND {last}"));
        }
        if let Some(tag) = tag {
            let tag = question.add_value(Tag::as_str(tag).to_owned());
            question.conditions.push(format!("{tag} = ANY (tags)"));
        }
        question
    }

    /// Adds the condition that rows are after a position.
    fn add_after(&mut self, place: &LogPosition) {
        let account = self.add_value(place.account.to_string());
        let time = self.add_value(columns::moment(place.time_ms));
        let id = self.add_value(columns::text(&place.request_id));
        // The first half is redundant, but lets the database use the index.
        self.conditions.push(format!(
            "(account, time) >= ({account}, {time}) \
             AND (account, time, request_id {BY_BYTES}) > ({account}, {time}, {id})"
        ));
    }

    /// Sets the order and the limit. `clause` gets the name of the parameter that contains the limit, and returns the SQL of the
    /// limit.
    fn with_order(mut self, order: String, limit: usize, clause: impl FnOnce(&str) -> String) -> Self {
        self.limit = clause(&self.add_value(i64::try_from(limit.min(PAGE_ROWS_MAX)).unwrap_or(i64::MAX)));
        self.order = order;
        self
    }

    /// Returns the SQL statement with the names of the parameters.
    fn sql(&self) -> String {
        let conditions = self.conditions.join(" AND ");
        let (order, limit) = (&self.order, &self.limit);
        format!("SELECT * FROM weir.log WHERE {conditions} ORDER BY {order} {limit}")
    }

    /// Returns the values of the parameters.
    fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        let values = self.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        values.collect()
    }
}

impl PostgresReader {
    /// Runs a query and returns the rows with their lanes.
    async fn query(
        &self,
        dialer: &PostgresDialer,
        settings: &PostgresSettings,
        question: &LogQuery,
    ) -> Result<Vec<(NodeId, NumberedRow)>, PostgresError> {
        let found = with_timeout(settings.read, async {
            // The result cannot be an error, because the semaphore is never closed.
            let _turn = self.permits.acquire().await;
            let connection = self.connection(dialer, settings).await?;
            let found = connection.client.query(&question.sql(), &question.values()).await?;
            self.idle.lock().push(connection);
            Ok(found)
        });
        found.await?.iter().map(columns::read).collect()
    }
}

/// The maximum number of concurrent queries. Further queries wait for their turn; the wait is part of their timeout.
const READERS_MAX: usize = 2;

/// Runs queries of the log on a few connections.
struct PostgresReader {
    permits: Semaphore,
    /// Connections that are not in use; at most [`READERS_MAX`].
    idle: Mutex<Vec<PostgresConnection>>,
}

impl Default for PostgresReader {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(READERS_MAX),
            idle: Mutex::default(),
        }
    }
}

impl PostgresReader {
    /// Returns a connection that is not in use, or opens one.
    async fn connection(
        &self,
        dialer: &PostgresDialer,
        settings: &PostgresSettings,
    ) -> Result<PostgresConnection, PostgresError> {
        let kept = self.idle.lock().pop().filter(|kept| !kept.client.is_closed());
        match kept {
            Some(kept) => Ok(kept),
            None => dialer.connect(settings.read).await,
        }
    }
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
