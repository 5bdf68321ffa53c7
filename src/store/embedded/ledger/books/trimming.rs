//! Rows leave the ledger for the log's home.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::{Books, first_kept_day, retention::REMOVED_ROWS_MAX};
use crate::{domain::ledger::LogDay, store::StoreError};

impl Books {
    /// The days that have had rows, with those on their way, which are looked at first.
    pub(in crate::store::embedded::ledger) fn log_days(
        &self,
        id: &str,
        days: &RangeInclusive<i64>,
        now_ms: i64,
    ) -> Result<Vec<LogDay>, StoreError> {
        let Some(slot) = self.slot(id) else {
            return Ok(Vec::new());
        };
        let days = first_kept_day(now_ms).max(*days.start())..=*days.end();
        if days.is_empty() {
            return Ok(Vec::new());
        }
        let on_their_way = slot.lock().next_rows.clone();
        let on_disk = self.file.log_days(id, &days)?;
        let mut found: BTreeMap<i64, LogDay> = on_disk.into_iter().map(|one| (one.day, one)).collect();
        for (day, next) in on_their_way.range(days).filter(|(_, next)| **next > 0) {
            let of_day = found.entry(*day).or_insert(LogDay {
                day: *day,
                ..LogDay::default()
            });
            of_day.rows = of_day.rows.max(next.saturating_sub(of_day.trimmed));
        }
        Ok(found.into_values().collect())
    }

    /// Takes the rows of a day out, if it is as it was seen; whether it was.
    pub(in crate::store::embedded::ledger) fn trim(&self, id: &str, seen: &LogDay) -> Result<bool, StoreError> {
        let Some(slot) = self.slot(id) else { return Ok(false) };
        self.flush()?;
        let trimmed = {
            let _writing = self.writing.lock();
            // One that comes behind this line takes a place behind those that go.
            let next = slot.lock().next_rows.get(&seen.day).copied();
            next.is_none_or(|next| next == seen.ever()) && self.file.trim(id, seen)?
        };
        if trimmed {
            self.remove_trimmed(id, seen.day)?;
        }
        Ok(trimmed)
    }

    /// Removes what a crash has left of rows that are gone.
    pub(super) fn remove_trimmed_rows(&self, names: &[String]) -> Result<(), StoreError> {
        for id in names {
            for day in self.file.left_over(id)? {
                self.remove_trimmed(id, day)?;
            }
        }
        Ok(())
    }

    fn remove_trimmed(&self, id: &str, day: i64) -> Result<(), StoreError> {
        while self.file.remove_trimmed(id, day, REMOVED_ROWS_MAX)? == REMOVED_ROWS_MAX {}
        Ok(())
    }
}
