//! The lists of rows in Redis, if the log is kept there, or was before.

use std::ops::RangeInclusive;

use async_trait::async_trait;

use super::{ADMIN_BUDGET, CallPolicy, RedisLedger, answer, arguments};
use crate::{
    domain::ledger::{LogDay, consumption::Row},
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LogLists},
    },
};

impl RedisLedger {
    /// Appends rows to their day. With `is_used`, the account must exist.
    pub(super) async fn push_rows(
        &self,
        account: &str,
        day: i64,
        rows: &[Vec<u8>],
        is_used: bool,
    ) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts().put_rows, account);
        call.arg(day).arg(u8::from(is_used)).arg(rows);
        let (status, _) = self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        Ok(status == "ok")
    }
}

#[async_trait]
impl LogLists for RedisLedger {
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        let limit = limit.min(LOG_ROWS_MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut call = self.prepare(&self.scripts().rows, account);
        call.arg(day).arg(skip).arg(limit);
        let (_, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        answer.remaining().map(|text| answer::parse_row(&text)).collect()
    }

    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError> {
        let mut call = self.prepare(&self.scripts().log_days, account);
        call.arg(*days.start()).arg(*days.end());
        let (_, answer) = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        let mut words = answer.remaining();
        let mut found = Vec::new();
        while let Some(day) = words.next() {
            let rows = words.next().ok_or_else(answer::unknown_answer)?;
            found.push(LogDay {
                day: answer::parse(&day)?,
                rows: answer::parse(&rows)?,
            });
        }
        Ok(found)
    }

    async fn put_rows(&self, account: &str, day: i64, rows: &[Row]) -> Result<bool, StoreError> {
        let rows = rows.iter().map(arguments::row).collect::<Result<Vec<_>, _>>()?;
        self.push_rows(account, day, &rows, true).await
    }

    async fn remove(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts().remove, account);
        call.arg(seen.day).arg(seen.rows);
        // Not repeated when the answer is lost: the second time the day has no rows.
        let (status, _) = self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        Ok(status == "ok")
    }
}
