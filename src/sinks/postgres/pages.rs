//! Pages in the order that the log has everywhere, and the latest rows of a key. What is asked for goes down to partitions and
//! indexes as conditions with parameters.

use std::ops::RangeInclusive;

use tokio_postgres::types::ToSql;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{NodeId, log_filter::LogFilter, log_place::LogPlace, tag::Tag},
    },
    journal::NumberedRow,
    sinks::{
        asks::{PAGE_ROWS_MAX, PageAsk},
        postgres::{
            columns,
            connection::{Dialer, within},
            error::PostgresError,
            reading::Reading,
            settings::PostgresSettings,
        },
    },
};

/// Texts compare as their bytes do, whatever the database's language is.
const BY_BYTES: &str = "COLLATE \"C\"";

/// A question: its conditions and what their parameters stand for.
#[derive(Default)]
pub(super) struct Question {
    conditions: Vec<String>,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
    order: String,
    limit: String,
}

impl Question {
    /// The name of a parameter with this value.
    fn value(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.values.push(Box::new(value));
        format!("${}", self.values.len())
    }

    /// A page of a day.
    pub(super) fn page(ask: &PageAsk) -> Self {
        let mut question = Self::of(&ask.filter.on(ask.day));
        question.behind(&ask.after);
        let order = format!("account, time, request_id {BY_BYTES}");
        question.in_order(order, ask.limit, |limit| format!("FETCH FIRST {limit} ROWS WITH TIES"))
    }

    /// The last rows of a key that ended on one of these days, the latest first, at most `limit` and [`PAGE_ROWS_MAX`].
    pub(super) fn latest((account, key): (&str, &KeyId), days: &RangeInclusive<i64>, limit: usize) -> Self {
        let filter = LogFilter {
            key: Some(key.clone()),
            since_ms: LogFilter::of_day(account, *days.start()).since_ms,
            ..LogFilter::of_day(account, *days.end())
        };
        let order = format!("time DESC, request_id {BY_BYTES} DESC");
        Self::of(&filter).in_order(order, limit, |limit| format!("LIMIT {limit}"))
    }

    /// Rows that a filter takes.
    fn of(filter: &LogFilter) -> Self {
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
        let since = question.value(columns::moment(*since_ms));
        let until = question.value(columns::moment(*until_ms));
        question.conditions.push(format!("time >= {since} AND time < {until}"));
        if let Some(account) = account {
            let account = question.value(account.clone());
            question.conditions.push(format!("account = {account}"));
        }
        if let Some(key) = key {
            let key = question.value(key.as_str().to_owned());
            question.conditions.push(format!("key_id = {key}"));
        }
        if let Some(model) = model {
            let model = question.value(columns::text(model));
            question
                .conditions
                .push(format!("(model = {model} OR model_asked = {model})"));
        }
        if let Some(status) = status {
            let (first, last) = (i32::from(*status.start()), i32::from(*status.end()));
            let (first, last) = (question.value(first), question.value(last));
            question.conditions.push(format!("status BETWEEN {first} AND {last}"));
        }
        if let Some(tag) = tag {
            let tag = question.value(Tag::as_str(tag).to_owned());
            question.conditions.push(format!("{tag} = ANY (tags)"));
        }
        question
    }

    /// And that are behind a place.
    fn behind(&mut self, place: &LogPlace) {
        let account = self.value(place.account.to_string());
        let time = self.value(columns::moment(place.time_ms));
        let id = self.value(columns::text(&place.request_id));
        // The first half says nothing new: it is what the index is entered by.
        self.conditions.push(format!(
            "(account, time) >= ({account}, {time}) \
             AND (account, time, request_id {BY_BYTES}) > ({account}, {time}, {id})"
        ));
    }

    /// In an order, as many as a clause says that is made with the name of their number.
    fn in_order(mut self, order: String, limit: usize, clause: impl FnOnce(&str) -> String) -> Self {
        self.limit = clause(&self.value(i64::try_from(limit.min(PAGE_ROWS_MAX)).unwrap_or(i64::MAX)));
        self.order = order;
        self
    }

    /// The statement, with the names of its parameters.
    pub(super) fn sql(&self) -> String {
        let conditions = self.conditions.join(" AND ");
        let (order, limit) = (&self.order, &self.limit);
        format!("SELECT * FROM weir.log WHERE {conditions} ORDER BY {order} {limit}")
    }

    /// What the parameters stand for.
    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        let values = self.values.iter().map(|value| &**value as &(dyn ToSql + Sync));
        values.collect()
    }
}

impl Reading {
    /// The rows that a question asks for.
    pub(super) async fn put(
        &self,
        dialer: &Dialer,
        settings: &PostgresSettings,
        question: &Question,
    ) -> Result<Vec<(NodeId, NumberedRow)>, PostgresError> {
        let found = within(settings.read, async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            let connection = self.connection(dialer, settings).await?;
            let found = connection.client.query(&question.sql(), &question.values()).await?;
            self.idle.lock().push(connection);
            Ok(found)
        });
        found.await?.iter().map(columns::read).collect()
    }
}
