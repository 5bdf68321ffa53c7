//! The SQL queries of the log: pages in the order of the log, and the most recent rows of a key. Filters become conditions with
//! parameters, so the database can use partitions and indexes for them.

use std::ops::RangeInclusive;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_postgres::types::ToSql;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            NodeId,
            ids::Tag,
            log_query::{LogFilter, LogPosition},
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

/// Makes SQL compare texts by their bytes, independently of the database's locale.
const BY_BYTES: &str = "COLLATE \"C\"";

/// A query of the log: conditions with their parameters, order and limit.
#[derive(Default)]
pub(super) struct LogQuery {
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
    pub(super) fn page(ask: &LogPageQuery) -> Self {
        let mut question = Self::for_filter(&ask.filter.within_day(ask.day));
        question.add_after(&ask.after);
        let order = format!("account, time, request_id {BY_BYTES}");
        question.with_order(order, ask.limit, |limit| format!("FETCH FIRST {limit} ROWS WITH TIES"))
    }

    /// Creates the query for the most recent rows of a key that ended on one of `days`, the most recent first. Returns at most
    /// `limit` and at most [`PAGE_ROWS_MAX`] rows.
    pub(super) fn latest((account, key): (&str, &KeyId), days: &RangeInclusive<i64>, limit: usize) -> Self {
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

    /// Sets the order and the limit. `clause` returns the SQL of the limit for the name of its parameter.
    fn with_order(mut self, order: String, limit: usize, clause: impl FnOnce(&str) -> String) -> Self {
        self.limit = clause(&self.add_value(i64::try_from(limit.min(PAGE_ROWS_MAX)).unwrap_or(i64::MAX)));
        self.order = order;
        self
    }

    /// Returns the SQL statement with the names of the parameters.
    pub(super) fn sql(&self) -> String {
        let conditions = self.conditions.join(" AND ");
        let (order, limit) = (&self.order, &self.limit);
        format!("SELECT * FROM weir.log WHERE {conditions} ORDER BY {order} {limit}")
    }

    /// Returns the values of the parameters.
    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        let values = self.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        values.collect()
    }
}

impl PostgresReader {
    /// Runs a query and returns the rows with their lanes.
    pub(super) async fn query(
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
pub(super) struct PostgresReader {
    pub(super) permits: Semaphore,
    /// Connections that are not in use; at most [`READERS_MAX`].
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
    /// Returns a connection that is not in use, or opens one.
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
