//! The daily sums of accounts: those of open days are in memory, all others only in the file.

use std::ops::RangeInclusive;

use super::{AccountTable, first_kept_day};
use crate::{
    domain::ledger::daily_sums::{DailySum, DailySums, SumSelector},
    store::{StoreError, embedded::ledger::commits::HOUR_MS},
};

impl AccountTable {
    /// Opens a day of an account, unless it is open.
    pub(in crate::store::embedded::ledger) fn open_day(
        &self,
        id: &str,
        day: i64,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        // What is read here is the file's state until the day is open.
        let _writing = self.writing.lock();
        let slot = self.slot_or_new(id);
        if slot.lock().days.contains(day) {
            return Ok(());
        }
        let sums = self.file.day_sums(id, day)?;
        slot.lock().days.open(day, sums, now_ms);
        Ok(())
    }

    /// Closes the days that are written and have received no row for an hour.
    pub(in crate::store::embedded::ledger) fn close_days(&self, now_ms: i64) {
        // A write in progress may still fail.
        let _writing = self.writing.lock();
        for id in self.names() {
            if let Some(slot) = self.slot(&id) {
                slot.lock().days.close(now_ms.saturating_sub(HOUR_MS));
            }
        }
    }

    /// Daily sums. Reads open days first: the file has all of a day that is closed meanwhile, and of one that is opened
    /// meanwhile.
    pub(in crate::store::embedded::ledger) fn sums(
        &self,
        id: &str,
        days: &RangeInclusive<i64>,
        of: &SumSelector,
        now_ms: i64,
    ) -> Result<Vec<DailySum>, StoreError> {
        let days = first_kept_day(now_ms).max(*days.start())..=*days.end();
        let Some(slot) = self.slot(id) else {
            return Ok(Vec::new());
        };
        let open = slot.lock().days.select(&days, of);
        let closed: Vec<i64> = days.filter(|day| !open.contains_key(day)).collect();
        let mut found = if closed.is_empty() {
            Vec::new()
        } else {
            self.file.sums(id, &closed, of)?
        };
        found.extend(open.into_values().flatten());
        // Each day comes from one place, which has its sums in order.
        found.sort_by_key(|sum| sum.day);
        Ok(found)
    }

    /// Replaces the sums of a day, if the account's count exactly `seen` requests, and returns whether they do. The new sums
    /// are on disk when it returns.
    pub(in crate::store::embedded::ledger) fn put_sums(
        &self,
        id: &str,
        day: i64,
        sums: &DailySums,
        seen: u64,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let Some(slot) = self.slot(id) else { return Ok(false) };
        loop {
            self.open_day(id, day, now_ms)?;
            let mut book = slot.lock();
            if book.account.summary().is_none() {
                return Ok(false);
            }
            match book.days.replace(day, sums, seen, now_ms) {
                // The day was closed again.
                None => {}
                Some(false) => return Ok(false),
                Some(true) => {
                    self.mark_changed(id, &mut book);
                    break;
                }
            }
        }
        self.flush(now_ms)?;
        Ok(true)
    }
}
