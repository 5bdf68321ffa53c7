//! Rows that have left the ledger's file for the log's home: how many of each day did. First they are marked as gone, in one
//! transaction; then they are removed, a part at a time, so that nobody waits long who writes.

use std::ops::RangeInclusive;

use redb::ReadableDatabase;

use super::summed_rows::SUMS;
use super::trimmed_rows::{TRIMMED, log_day, trimmed_of};
use super::{LedgerFile, ROWS, begin_write, seal};
use crate::{domain::ledger::LogDay, store::StoreError};

impl LedgerFile {
    /// The days that have had rows, the earliest first.
    pub(in crate::store::embedded::ledger) fn log_days(
        &self,
        account: &str,
        days: &RangeInclusive<i64>,
    ) -> Result<Vec<LogDay>, StoreError> {
        self.with(|database| {
            let read = database.begin_read()?;
            let (rows, sums) = (read.open_table(ROWS)?, read.open_table(SUMS)?);
            let mut found = Vec::new();
            for day in days.clone() {
                let of_day = log_day(&rows, &sums, account, day)?;
                found.extend((of_day.ever() > 0).then_some(of_day));
            }
            Ok(found)
        })
    }

    /// Marks the rows of a day as gone, if it is as it was seen; whether it is.
    pub(in crate::store::embedded::ledger) fn trim(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError> {
        self.recover()?;
        self.with(|database| {
            let transaction = begin_write(database)?;
            let is_same = {
                let rows = transaction.open_table(ROWS)?;
                let mut sums = transaction.open_table(SUMS)?;
                let is_same = log_day(&rows, &sums, account, seen.day)? == *seen;
                if is_same && seen.rows > 0 {
                    let trimmed = seal(&seen.ever())?;
                    sums.insert((account, seen.day, TRIMMED, ""), trimmed.as_slice())?;
                }
                is_same
            };
            if is_same {
                transaction.commit()?;
            } else {
                transaction.abort()?;
            }
            Ok(is_same)
        })
    }

    /// Removes up to `most` rows of a day that are marked as gone, and says how many.
    pub(in crate::store::embedded::ledger) fn remove_trimmed(
        &self,
        account: &str,
        day: i64,
        most: usize,
    ) -> Result<usize, StoreError> {
        self.with(|database| {
            let mut gone = Vec::new();
            {
                let read = database.begin_read()?;
                let trimmed = trimmed_of(&read.open_table(SUMS)?, account, day)?;
                let rows = read.open_table(ROWS)?;
                for entry in rows.range((account, day, 0)..(account, day, trimmed))?.take(most) {
                    gone.push(entry?.0.value().2);
                }
            }
            if gone.is_empty() {
                return Ok(0);
            }
            let transaction = begin_write(database)?;
            {
                let mut rows = transaction.open_table(ROWS)?;
                for number in &gone {
                    rows.remove((account, day, *number))?;
                }
            }
            transaction.commit()?;
            Ok(gone.len())
        })
    }

    /// The days of an account with rows that are marked as gone and have not been removed.
    pub(in crate::store::embedded::ledger) fn left_over(&self, account: &str) -> Result<Vec<i64>, StoreError> {
        self.with(|database| {
            let read = database.begin_read()?;
            let (rows, sums) = (read.open_table(ROWS)?, read.open_table(SUMS)?);
            let (mut found, mut from) = (Vec::new(), i64::MIN);
            while let Some(first) = rows.range((account, from, 0)..=(account, i64::MAX, u64::MAX))?.next() {
                let (_, day, number) = first?.0.value();
                if number < trimmed_of(&sums, account, day)? {
                    found.push(day);
                }
                from = day.saturating_add(1);
            }
            Ok(found)
        })
    }
}
