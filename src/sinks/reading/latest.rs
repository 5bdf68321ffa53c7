//! The last rows of a key, of the homes and of those on their way there.

use std::ops::RangeInclusive;

use super::{LogReadError, LogReading};
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{consumption::Row, log_filter::LogFilter, log_place},
    },
    sinks::asks::{HomeError, Latest},
};

impl LogReading {
    /// The last rows of a key that ended on one of these days, and why there may be others that could not be read.
    pub(crate) async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<(Latest, Option<HomeError>), LogReadError> {
        let filter = LogFilter {
            key: Some(key.clone()),
            since_ms: LogFilter::of_day(account, *days.start()).since_ms,
            ..LogFilter::of_day(account, *days.end())
        };
        let on_their_way = self.on_their_way(&filter).await?;
        let mut rows: Vec<Row> = on_their_way.iter().map(|row| row.row.clone()).collect();
        let (mut is_whole, mut not_read) = (true, None);
        for home in self.homes() {
            match home.latest(account, key, days.clone(), limit).await {
                Ok(of_home) => {
                    rows.extend(of_home.rows);
                    is_whole &= of_home.is_whole;
                }
                Err(HomeError::Store(error)) => return Err(error.into()),
                Err(error) => not_read = Some(error),
            }
        }
        // Each once, the latest first.
        rows.sort_by(|one, other| log_place::order(other).cmp(&log_place::order(one)));
        rows.dedup_by(|one, other| log_place::order(one) == log_place::order(other));
        rows.truncate(limit);
        is_whole = not_read.is_none() && (is_whole || rows.len() == limit);
        Ok((Latest { rows, is_whole }, not_read))
    }
}
