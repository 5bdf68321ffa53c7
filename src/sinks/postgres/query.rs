//! The queries: pages in the common order of the log, and the latest rows of a key. All filters are parameterised conditions, so
//! that the database can use partitions and indexes.

use std::ops::RangeInclusive;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_postgres::types::ToSql;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            NodeId,
            log_query::{LogFilter, LogPosition},
            tag::Tag,
        },
    },
    journal::NumberedRow,
    sinks::{
        asks::{LogPageQuery, PAGE_ROWS_MAX},
        postgres::{
            PostgresError, PostgresSettings, columns,
            connection::{PostgresConnection, PostgresDialer, with_timeout},
        },
    },
};

/// Compares texts by their bytes, whatever the database's locale.
const BY_BYTES: &str = "COLLATE \"C\"";

/// A query of the log: its conditions and their parameters.
#[derive(Default)]
pub(super) struct LogQuery {
    conditions: Vec<String>,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
    order: String,
    limit: String,
}

impl LogQuery {
    /// Adds a parameter; returns its name.
    fn add_value(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    /// A page of a day.
    pub(super) fn page(ask: &LogPageQuery) -> Self {
        let mut question = Self::for_filter(&ask.filter.within_day(ask.day));
        question.add_after(&ask.after);
        let order = format!("account, time, request_id {BY_BYTES}");
        question.with_order(order, ask.limit, |limit| format!("FETCH FIRST {limit} ROWS WITH TIES"))
    }

    /// The last rows of a key that ended on one of these days, the latest first; at most `limit` and [`PAGE_ROWS_MAX`].
    pub(super) fn latest((account, key): (&str, &KeyId), days: &RangeInclusive<i64>, limit: usize) -> Self {
        let filter = LogFilter {
            key: Some(key.clone()),
            since_ms: LogFilter::of_day(account, *days.start()).since_ms,
            ..LogFilter::of_day(account, *days.end())
        };
        let order = format!("time DESC, request_id {BY_BYTES} DESC");
        Self::for_filter(&filter).with_order(order, limit, |limit| format!("LIMIT {limit}"))
    }

    /// The rows that match a filter.
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
        // The first half is redundant: it lets the database use the index.
        self.conditions.push(format!(
            "(account, time) >= ({account}, {time}) \
             AND (account, time, request_id {BY_BYTES}) > ({account}, {time}, {id})"
        ));
    }

    /// Sets the order and the limit; `clause` makes the limit's SQL from the name of its parameter.
    fn with_order(mut self, order: String, limit: usize, clause: impl FnOnce(&str) -> String) -> Self {
        self.limit = clause(&self.add_value(i64::try_from(limit.min(PAGE_ROWS_MAX)).unwrap_or(i64::MAX)));
        self.order = order;
        self
    }

    /// The statement, with the names of its parameters.
    pub(super) fn sql(&self) -> String {
        let conditions = self.conditions.join(" AND ");
        let (order, limit) = (&self.order, &self.limit);
        format!("SELECT * FROM weir.log WHERE {conditions} ORDER BY {order} {limit}")
    }

    /// The values of the parameters.
    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        let values = self.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        values.collect()
    }
}

impl PostgresReader {
    /// Runs a query.
    pub(super) async fn query(
        &self,
        dialer: &PostgresDialer,
        settings: &PostgresSettings,
        question: &LogQuery,
    ) -> Result<Vec<(NodeId, NumberedRow)>, PostgresError> {
        let found = with_timeout(settings.read, async {
            // The semaphore is never closed.
            let _turn = self.permits.acquire().await;
            let connection = self.connection(dialer, settings).await?;
            let found = connection.client.query(&question.sql(), &question.values()).await?;
            self.idle.lock().push(connection);
            Ok(found)
        });
        found.await?.iter().map(columns::read).collect()
    }
}

/// The maximum number of concurrent queries. Further ones wait; their timeout includes the wait.
const READERS_MAX: usize = 2;

/// Reads the log of a database.
pub(super) struct PostgresReader {
    pub(super) permits: Semaphore,
    /// Idle connections; at most [`READERS_MAX`].
    pub(super) idle: Mutex<Vec<PostgresConnection>>,
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
    /// An idle connection, or a new one.
    pub(super) async fn connection(
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
