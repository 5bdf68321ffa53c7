//! Removes rows, daily sums and hours after their retention period, a day at a time ([`crate::domain::ledger::retention`]).

use super::Books;
use crate::{
    domain::ledger::{consumption::RETENTION_DAYS, retention::Retention},
    store::{StoreError, embedded::ledger::file::retention::first_hour},
};

/// How many rows one transaction removes.
pub(super) const REMOVED_ROWS_MAX: usize = 4096;

impl Books {
    /// Removes the rows and the hours that are older than they are kept, at most one day more than the last time.
    pub(in crate::store::embedded::ledger) fn remove_old_rows(&self, now_ms: i64) -> Result<(), StoreError> {
        let keep_days = i64::from(RETENTION_DAYS);
        let names = self.names();
        self.remove_trimmed_rows(&names)?;
        let oldest = self.file.oldest_day(&names)?;
        let before = self.file.retention()?;
        let after = match before {
            Some(retention) => retention.go_on(now_ms, keep_days, oldest),
            None => Retention::begin(now_ms, keep_days, oldest),
        };
        if before != Some(after) {
            self.file.note_retention(after)?;
            let behind_days = after.behind(now_ms);
            if behind_days > 0 {
                tracing::warn!(
                    behind_days,
                    "retention of the log goes on by a day at a time: weir was not running for days, or the clock has jumped; \
                     see to the clock, and if that is right `weir store prune` removes the rest at once"
                );
            }
        }
        self.remove_before(&names, after.first_kept(now_ms)).map(drop)
    }

    /// An operator's word: removes everything before a day. How many rows that were.
    pub(in crate::store::embedded::ledger) fn prune(&self, day: i64, now_ms: i64) -> Result<usize, StoreError> {
        let word = Retention::until(day, now_ms, i64::from(RETENTION_DAYS));
        self.file.note_retention(word)?;
        self.remove_before(&self.names(), day)
    }

    fn remove_before(&self, names: &[String], first: i64) -> Result<usize, StoreError> {
        let mut removed = 0;
        for id in names {
            if let Some(slot) = self.slot(id) {
                slot.lock().next_rows.retain(|day, _| *day >= first);
            }
            loop {
                let rows = self.file.remove_rows(id, first, REMOVED_ROWS_MAX)?;
                removed += rows;
                if rows < REMOVED_ROWS_MAX {
                    break;
                }
            }
            self.file.remove_sums(id, first)?;
        }
        self.file.remove_hours(first_hour(first))?;
        Ok(removed)
    }
}
