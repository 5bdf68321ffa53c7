//! The daily sums of accounts. Those of open days, which receive rows, are in memory; all others are only in the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
};

use smol_str::SmolStr;

use crate::{
    domain::ledger::{
        consumption::Row,
        daily_sums::{DailySum, DailySums, DayTags, RowSums, SumSelector, SumSubject, Sums, day_of},
    },
    store::{
        StoreError,
        embedded::ledger::{
            HOUR_MS,
            accounts::{AccountTable, first_kept_day},
            file::ChangedSum,
        },
    },
};

impl AccountTable {
    /// Opens a day of an account, unless it is open already: reads its sums into memory.
    pub(in crate::store::embedded::ledger) fn open_day(
        &self,
        id: &str,
        day: i64,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        // The lock is held until the day is open, so that the sums that are read from the file do not change in between.
        let _writing = self.writing.lock();
        let slot = self.slot_or_new(id);
        if slot.lock().days.contains(day) {
            return Ok(());
        }
        let sums = self.file.day_sums(id, day)?;
        slot.lock().days.open(day, sums, now_ms);
        Ok(())
    }

    /// Closes the days that are written and have received no row for an hour: removes their sums from memory.
    pub(in crate::store::embedded::ledger) fn close_days(&self, now_ms: i64) {
        // A write in progress may still fail, so this waits for it.
        let _writing = self.writing.lock();
        for id in self.names() {
            if let Some(slot) = self.slot(&id) {
                slot.lock().days.close(now_ms.saturating_sub(HOUR_MS));
            }
        }
    }

    /// Returns the selected daily sums. Reads open days first. A day that is closed or opened meanwhile is completely in the
    /// file.
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
        // The sums of a day all come from one place, which has them in order.
        found.sort_by_key(|sum| sum.day);
        Ok(found)
    }

    /// Replaces the sums of a day, if the account's sums count exactly `seen` requests. Returns whether the sums were replaced.
    /// The new sums are on disk when this returns.
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
                // The day was closed again meanwhile.
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

/// The open days, by the number of days since the Unix epoch in UTC.
#[derive(Default)]
pub(super) struct OpenDays(BTreeMap<i64, OpenDay>);

/// One open day, with all of its sums.
#[derive(Default)]
struct OpenDay {
    sums: BTreeMap<(SumSubject, SmolStr), Sums>,
    tags: DayTags,
    /// The sums that differ from those in the file.
    changed: BTreeSet<(SumSubject, SmolStr)>,
    /// The time at which the day was opened or last received a row, in milliseconds since the Unix epoch.
    used_ms: i64,
}

impl OpenDays {
    /// Whether a day is open.
    pub(super) fn contains(&self, day: i64) -> bool {
        self.0.contains_key(&day)
    }

    /// Opens a day, with its sums from the file.
    pub(super) fn open(&mut self, day: i64, sums: Vec<DailySum>, now_ms: i64) {
        self.0.insert(day, OpenDay::new(sums, now_ms));
    }

    /// Adds rows, whose days must be open, to the sums.
    pub(super) fn count(&mut self, rows: &[Arc<Row>], now_ms: i64) {
        let mut more = RowSums::default();
        for row in rows {
            let day = self.0.entry(day_of(row)).or_default();
            day.used_ms = now_ms;
            more.add(row, &mut day.tags);
        }
        for sum in more.into_sums().iter() {
            let day = self.0.entry(sum.day).or_default();
            let place = (sum.subject, sum.model);
            if !day.changed.contains(&place) {
                day.changed.insert(place.clone());
            }
            let sums = day.sums.entry(place).or_default();
            *sums = sums.plus(&sum.sums);
        }
    }

    /// Replaces the sums of a day, if the account's sums count exactly `seen` requests. Returns whether the sums were replaced;
    /// `None` if the day is not open.
    pub(super) fn replace(&mut self, day: i64, sums: &DailySums, seen: u64, now_ms: i64) -> Option<bool> {
        let before = self.0.get_mut(&day)?;
        if before.requests() != seen {
            return Some(false);
        }
        let mut after = OpenDay::new(sums.iter().filter(|sum| sum.day == day), now_ms);
        after.changed = std::mem::take(&mut before.changed);
        let places = before.sums.keys().chain(after.sums.keys());
        after.changed.extend(places.cloned());
        *before = after;
        Some(true)
    }

    /// Returns the selected sums of those `days` that are open, in order.
    pub(super) fn select(&self, days: &RangeInclusive<i64>, of: &SumSelector) -> BTreeMap<i64, Vec<DailySum>> {
        let asked = self.0.iter().filter(|(day, _)| days.contains(day));
        asked.map(|(day, open)| (*day, open.select(*day, of))).collect()
    }

    /// Returns the sums that the file lacks, and from now on treats them as written.
    pub(super) fn take_changed(&mut self) -> Vec<ChangedSum> {
        let mut all = Vec::new();
        for (day, open) in &mut self.0 {
            for place in std::mem::take(&mut open.changed) {
                let sums = open.sums.get(&place).copied();
                let (day, (subject, model)) = (*day, place);
                all.push(ChangedSum {
                    day,
                    subject,
                    model,
                    sums,
                });
            }
        }
        all
    }

    /// Records that these sums could not be written.
    pub(super) fn mark_unwritten(&mut self, unwritten: Vec<ChangedSum>) {
        for one in unwritten {
            if let Some(open) = self.0.get_mut(&one.day) {
                open.changed.insert((one.subject, one.model));
            }
        }
    }

    /// Closes the days that are written and were last used at `used_ms` or earlier.
    pub(super) fn close(&mut self, used_ms: i64) {
        self.0
            .retain(|_, open| !open.changed.is_empty() || open.used_ms > used_ms);
    }

    /// Drops the days before `day`, whether they are written or not.
    pub(super) fn forget_before(&mut self, day: i64) {
        self.0.retain(|one, _| *one >= day);
    }
}

impl OpenDay {
    fn new(sums: impl IntoIterator<Item = DailySum>, used_ms: i64) -> Self {
        let sums: BTreeMap<(SumSubject, SmolStr), Sums> = sums
            .into_iter()
            .map(|sum| ((sum.subject, sum.model), sum.sums))
            .collect();
        let tags = sums.keys().filter_map(|(subject, _)| match subject {
            SumSubject::Tag(tag) => Some(tag.clone()),
            SumSubject::Account | SumSubject::Key(_) | SumSubject::OtherTags => None,
        });
        Self {
            tags: tags.collect(),
            sums,
            changed: BTreeSet::new(),
            used_ms,
        }
    }

    /// Returns the number of requests in the account's sums.
    fn requests(&self) -> u64 {
        let of_account = self
            .sums
            .iter()
            .filter(|((subject, _), _)| *subject == SumSubject::Account);
        of_account.fold(0, |all, (_, sums)| all.saturating_add(sums.requests))
    }

    fn select(&self, day: i64, of: &SumSelector) -> Vec<DailySum> {
        let asked = self.sums.iter().filter(|((subject, _), _)| of.matches(subject));
        let sums = asked.map(|((subject, model), sums)| DailySum {
            day,
            subject: subject.clone(),
            model: model.clone(),
            sums: *sums,
        });
        sums.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::money::NanoUsd,
        store::ledger::contract::{START_MS, row},
    };

    const DAY: i64 = START_MS / (24 * 3600 * 1000);

    fn rows(key: u8, count: u64) -> Vec<Arc<Row>> {
        let one = |number| row("acme", key, &format!("r{number}"), START_MS, NanoUsd::from_nanos(1));
        (0..count).map(|number| Arc::new(one(number))).collect()
    }

    /// Returns an open day with rows of two keys. All of its sums are written.
    fn written() -> OpenDays {
        let mut days = OpenDays::default();
        days.open(DAY, Vec::new(), START_MS);
        days.count(&rows(1, 3), START_MS);
        days.count(&rows(2, 2), START_MS);
        days.take_changed();
        days
    }

    /// Returns the names of the sums that are to be written, and the number of requests in each.
    fn changed(days: &mut OpenDays) -> Vec<(String, Option<u64>)> {
        let all = days.take_changed().into_iter();
        all.map(|one| (one.subject.store_name(), one.sums.map(|sums| sums.requests)))
            .collect()
    }

    fn key(number: u8) -> String {
        format!("k:key_{number:016}")
    }

    #[test]
    fn only_what_has_changed_is_written_and_each_sum_is_whole() {
        let mut days = written();
        days.count(&rows(2, 1), START_MS);
        assert_eq!(changed(&mut days), [("a".to_owned(), Some(6)), (key(2), Some(3))]);
        assert!(changed(&mut days).is_empty());
    }

    #[test]
    fn what_was_not_written_after_all_is_written_with_what_has_come_since() {
        let mut days = written();
        days.count(&rows(1, 1), START_MS);
        let unwritten = days.take_changed();
        days.count(&rows(1, 1), START_MS);
        days.mark_unwritten(unwritten);
        assert_eq!(changed(&mut days), [("a".to_owned(), Some(7)), (key(1), Some(5))]);
    }

    #[test]
    fn a_day_is_closed_when_it_is_written_and_nothing_has_come_for_long_enough() {
        let mut days = written();
        days.close(START_MS - 1);
        assert!(days.contains(DAY));
        days.count(&rows(1, 1), START_MS);
        days.close(i64::MAX);
        assert!(days.contains(DAY), "it is not written");
        days.take_changed();
        days.close(START_MS);
        assert!(!days.contains(DAY));
    }

    #[test]
    fn sums_that_are_replaced_leave_nothing_of_those_before_them() {
        let mut days = written();
        let sums = DailySums::of_day(rows(1, 4).iter().map(|row| &**row));
        assert_eq!(days.replace(DAY, &sums, 4, START_MS), Some(false), "it counts five");
        assert_eq!(days.replace(DAY + 1, &sums, 0, START_MS), None);
        assert!(changed(&mut days).is_empty());
        assert_eq!(days.replace(DAY, &sums, 5, START_MS), Some(true));
        let after = [("a".to_owned(), Some(4)), (key(1), Some(4)), (key(2), None)];
        assert_eq!(changed(&mut days), after);
        let kept = days.select(&(DAY..=DAY), &SumSelector::Keys);
        assert_eq!(kept[&DAY], sums.select(&(DAY..=DAY), &SumSelector::Keys));
    }
}
