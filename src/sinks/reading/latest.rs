//! Reads the last rows of a key, and the newest rows, from the log backends and those on their way there.

use std::ops::RangeInclusive;

use super::{LogReadError, LogReader};
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{consumption::Row, log_filter::LogFilter, log_place},
    },
    sinks::asks::{LatestKeyRows, LogBackendError},
};

impl LogReader {
    /// The last rows of a key that ended on one of these days, with the error of a log backend that could not be read.
    pub(crate) async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<(LatestKeyRows, Option<LogBackendError>), LogReadError> {
        let filter = LogFilter {
            key: Some(key.clone()),
            since_ms: LogFilter::of_day(account, *days.start()).since_ms,
            ..LogFilter::of_day(account, *days.end())
        };
        let on_their_way = self.pending_rows(&filter).await?;
        let mut rows: Vec<Row> = on_their_way.iter().map(|row| row.row.clone()).collect();
        let (mut is_whole, mut not_read) = (true, None);
        for home in self.backends() {
            match home.latest(account, key, days.clone(), limit).await {
                Ok(of_home) => {
                    rows.extend(of_home.rows);
                    is_whole &= of_home.is_complete;
                }
                Err(LogBackendError::Store(error)) => return Err(error.into()),
                Err(error) => not_read = Some(error),
            }
        }
        // Each once, the latest first.
        rows.sort_by(|one, other| log_place::row_sort_key(other).cmp(&log_place::row_sort_key(one)));
        rows.dedup_by(|one, other| log_place::row_sort_key(one) == log_place::row_sort_key(other));
        rows.truncate(limit);
        is_whole = not_read.is_none() && (is_whole || rows.len() == limit);
        Ok((
            LatestKeyRows {
                rows,
                is_complete: is_whole,
            },
            not_read,
        ))
    }
}
