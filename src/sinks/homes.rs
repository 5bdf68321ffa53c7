//! The log's home, and the one before it, read as one.

use std::{ops::RangeInclusive, sync::Arc};

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            consumption::Row,
            log_filter::LogFilter,
            log_place::{self, LogPlace},
        },
    },
    sinks::home::{Home, HomeError},
};

/// Where rows are besides the store. A row that has been moved may be in both.
#[derive(Clone, Default)]
pub(crate) struct Homes(Vec<Arc<dyn Home>>);

impl Homes {
    /// These, in any order.
    pub(crate) fn of(homes: impl IntoIterator<Item = Arc<dyn Home>>) -> Self {
        Self(homes.into_iter().collect())
    }

    /// Whether the store is all there is.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As [`Home::page`]. A row that two of them have comes twice.
    pub(crate) async fn page(
        &self,
        filter: &LogFilter,
        day: i64,
        after: &LogPlace,
        limit: usize,
    ) -> Result<Vec<Row>, HomeError> {
        let mut rows = Vec::new();
        for home in &self.0 {
            rows.extend(home.page(filter, day, after, limit).await?);
        }
        if self.0.len() > 1 {
            // The first rows of all are among the first ones of each.
            rows.sort_by(|one, other| log_place::order(one).cmp(&log_place::order(other)));
            rows.truncate(limit);
        }
        Ok(rows)
    }

    /// As [`Home::latest`], of each of them.
    pub(crate) async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<Vec<Row>, HomeError> {
        let mut rows = Vec::new();
        for home in &self.0 {
            rows.extend(home.latest(account, key, days.clone(), limit).await?);
        }
        Ok(rows)
    }
}
