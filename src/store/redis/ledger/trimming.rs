//! Rows leave Redis for the log's home, a day of an account at a time.

use std::ops::RangeInclusive;

use super::{ADMIN_BUDGET, Effort, RedisLedger, answer};
use crate::{
    domain::ledger::{LogDay, NodeId},
    store::StoreError,
};

impl RedisLedger {
    pub(super) async fn days_of_log(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
    ) -> Result<Vec<LogDay>, StoreError> {
        let mut call = self.prepare(&self.scripts().log_days, account);
        call.arg(*days.start()).arg(*days.end());
        let (_, answer) = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
        let mut words = answer.rest();
        let mut found = Vec::new();
        while let Some(day) = words.next() {
            let (Some(rows), Some(trimmed)) = (words.next(), words.next()) else {
                return Err(answer::unknown());
            };
            found.push(LogDay {
                day: answer::parse(&day)?,
                rows: answer::parse(&rows)?,
                trimmed: answer::parse(&trimmed)?,
            });
        }
        Ok(found)
    }

    pub(super) async fn trim_day(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError> {
        let mut call = self.prepare(&self.scripts().trim, account);
        call.arg(seen.day).arg(seen.rows).arg(seen.trimmed);
        // Not sent again when the answer is lost: a second time the day is another.
        let (status, _) = self.call(&call, Effort::Write(ADMIN_BUDGET)).await?;
        Ok(status == "ok")
    }

    pub(super) async fn turn(&self, task: &str, node: &NodeId, for_ms: i64) -> Result<bool, StoreError> {
        let mut call = self.scripts().turn.call();
        call.key(format!("{{{}:accounts}}:turn:{task}", self.store.namespace));
        call.arg(node.as_str()).arg(for_ms);
        let (_, mut answer) = self.call(&call, Effort::Read(ADMIN_BUDGET)).await?;
        Ok(answer.number::<u8>()? == 1)
    }
}
