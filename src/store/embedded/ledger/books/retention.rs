//! Removes daily sums and hours after their retention period, one day at a time ([`crate::domain::ledger::retention`]).

use super::AccountTable;
use crate::{
    domain::ledger::{consumption::RETENTION_DAYS, retention::RetentionProgress},
    store::{StoreError, embedded::ledger::file::retention::first_hour},
};

impl AccountTable {
    /// Removes the sums and hours older than the retention period, at most one day more than the last time.
    pub(in crate::store::embedded::ledger) fn remove_old(&self, now_ms: i64) -> Result<(), StoreError> {
        let keep_days = i64::from(RETENTION_DAYS);
        let names = self.names();
        let oldest = self.file.oldest_day(&names)?;
        let before = self.file.retention()?;
        let after = match before {
            Some(retention) => retention.next_run(now_ms, keep_days, oldest),
            None => RetentionProgress::first_run(now_ms, keep_days, oldest),
        };
        if before != Some(after) {
            self.file.put_retention(after)?;
            let behind_days = after.days_behind(now_ms);
            if behind_days > 0 {
                tracing::warn!(
                    behind_days,
                    "retention of daily sums and hours advances one day at a time: weir was not running for days, or the clock \
                     has jumped; check the clock, and if it is right, `weir store prune` removes the rest at once"
                );
            }
        }
        self.remove_before(&names, after.first_kept(now_ms)).map(drop)
    }

    /// Removes everything before a day on an operator's order, and returns the number of sums removed.
    pub(in crate::store::embedded::ledger) fn prune(&self, day: i64, now_ms: i64) -> Result<usize, StoreError> {
        let word = RetentionProgress::forced_until(day, now_ms, i64::from(RETENTION_DAYS));
        self.file.put_retention(word)?;
        self.remove_before(&self.names(), day)
    }

    fn remove_before(&self, names: &[String], first: i64) -> Result<usize, StoreError> {
        let mut removed = 0;
        for id in names {
            // Nothing of these days is written meanwhile.
            let _writing = self.writing.lock();
            if let Some(slot) = self.slot(id) {
                slot.lock().days.forget_before(first);
            }
            removed += self.file.remove_sums(id, first)?;
        }
        self.file.remove_hours(first_hour(first))?;
        Ok(removed)
    }
}
