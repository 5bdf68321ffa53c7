//! The daily sums of accounts: those of open days are in memory, those of all others in the file alone.

use std::ops::RangeInclusive;

use super::{Books, first_kept_day};
use crate::{
    domain::ledger::daily_sums::{DailySum, DailySums, SumsOf},
    store::{StoreError, embedded::ledger::commits::HOUR_MS},
};

impl Books {
    /// Opens a day of an account, unless it is open.
    pub(in crate::store::embedded::ledger) fn open_day(
        &self,
        id: &str,
        day: i64,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        // What is read here stays what the file has until the day is open.
        let _writing = self.writing.lock();
        let slot = self.slot_or_new(id);
        if slot.lock().days.has(day) {
            return Ok(());
        }
        let sums = self.file.day(id, day)?;
        slot.lock().days.open(day, sums, now_ms);
        Ok(())
    }

    /// Closes the days to which nothing has come for an hour and that are written.
    pub(in crate::store::embedded::ledger) fn close_days(&self, now_ms: i64) {
        // What is being written may yet fail.
        let _writing = self.writing.lock();
        for id in self.names() {
            if let Some(slot) = self.slot(&id) {
                slot.lock().days.close(now_ms.saturating_sub(HOUR_MS));
            }
        }
    }

    /// Daily sums. Open days are looked at first: the file has all of a day that is closed meanwhile, and of one that is opened.
    pub(in crate::store::embedded::ledger) fn sums(
        &self,
        id: &str,
        days: &RangeInclusive<i64>,
        of: &SumsOf,
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
        // Each day is from one place, where its sums are in order.
        found.sort_by_key(|sum| sum.day);
        Ok(found)
    }

    /// Puts sums in the place of those of a day, if the account's count as many requests as were `seen`; whether they do. They are
    /// on the disk when it returns.
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
                // It was closed again.
                None => {}
                Some(false) => return Ok(false),
                Some(true) => {
                    self.note(id, &mut book);
                    break;
                }
            }
        }
        self.flush(now_ms)?;
        Ok(true)
    }
}
