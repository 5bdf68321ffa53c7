//! The daily sums of the ledger's file: asked for, made anew, removed.

use std::ops::RangeInclusive;

use redb::{ReadableDatabase, ReadableTable};

use super::summed_rows::{Place, SUMMED, SUMS, TAGS, add, not_summed};
use super::trimmed_rows::trimmed_of;
use super::{LedgerFile, ROWS, Unwritten, begin_write, seal, unseal, unseal_sums};
use crate::{
    domain::ledger::{
        consumption::Row,
        daily_sums::{DailySum, DailySums, DayTags, Subject, SumsOf},
    },
    store::StoreError,
};

/// What the names of all keys begin with.
const KEYS: &str = "k:";
/// Behind every text that a name may be.
const LAST: &str = "\u{10ffff}";

impl LedgerFile {
    /// Sums of some days, by day, subject and model, with what rows on their way add to them.
    pub(in crate::store::embedded::ledger) fn sums(
        &self,
        account: &str,
        days: &RangeInclusive<i64>,
        of: &SumsOf,
        unwritten: &[Unwritten],
    ) -> Result<Vec<DailySum>, StoreError> {
        let found = self.with(|database| {
            let table = database.begin_read()?.open_table(SUMS)?;
            let mut found = Some(Vec::new());
            for day in days.clone() {
                match of {
                    SumsOf::One(subject) => read(&table, account, day, &subject.text(), false, &mut found)?,
                    SumsOf::Keys => read(&table, account, day, KEYS, true, &mut found)?,
                    SumsOf::Tags => {
                        read(&table, account, day, &Subject::OtherTags.text(), false, &mut found)?;
                        read(&table, account, day, TAGS, true, &mut found)?;
                    }
                }
            }
            let (more, _) = not_summed(
                &table,
                account,
                unwritten.iter().map(|row| (row.day, row.number, &*row.row)),
            )?;
            Ok((found, more.of(days, of)))
        })?;
        let (Some(written), more) = found else {
            return Err(StoreError::Corrupt(format!(
                "a daily sum of account `{account}` is not readable"
            )));
        };
        Ok(together(written, more))
    }

    /// Puts the sums of a day's rows in the place of those that are there.
    pub(in crate::store::embedded::ledger) fn resum(&self, account: &str, day: i64) -> Result<(), StoreError> {
        self.recover()?;
        let resummed = self.with(|database| {
            let transaction = begin_write(database)?;
            if trimmed_of(&transaction.open_table(SUMS)?, account, day)? > 0 {
                transaction.abort()?;
                return Ok(Resummed::Trimmed);
            }
            let summed = {
                let rows = transaction.open_table(ROWS)?;
                sums_of_rows(&rows, account, day)?
            };
            let Some((sums, next)) = summed else {
                transaction.abort()?;
                return Ok(Resummed::Damaged);
            };
            {
                let mut table = transaction.open_table(SUMS)?;
                let all = (account, day, "", "")..(account, day.saturating_add(1), "", "");
                table.retain_in(all, |_, _| false)?;
                add(&mut table, account, &sums)?;
                if next > 0 {
                    table.insert((account, day, SUMMED, ""), seal(&next)?.as_slice())?;
                }
            }
            transaction.commit()?;
            Ok(Resummed::Whole)
        })?;
        match resummed {
            Resummed::Whole => Ok(()),
            Resummed::Trimmed => Err(StoreError::Busy(format!(
                "rows of account `{account}`, day {day} since 1970, have left the store for the log's home: their sums stay as they are"
            ))),
            Resummed::Damaged => Err(StoreError::Corrupt(format!(
                "a row of account `{account}`, day {day} since 1970, is not readable"
            ))),
        }
    }

    /// Removes the sums of an account's days before `day`.
    pub(in crate::store::embedded::ledger) fn remove_sums(&self, account: &str, day: i64) -> Result<(), StoreError> {
        self.with(|database| {
            let old = (account, i64::MIN, "", "")..(account, day, "", "");
            let table = database.begin_read()?.open_table(SUMS)?;
            if table.range(old.clone())?.next().is_none() {
                return Ok(());
            }
            let transaction = begin_write(database)?;
            transaction.open_table(SUMS)?.retain_in(old, |_, _| false)?;
            Ok(transaction.commit()?)
        })
    }
}

/// Both in one order. There are many written ones, in their order already, and few others.
fn together(mut written: Vec<DailySum>, more: Vec<DailySum>) -> Vec<DailySum> {
    fn place(sum: &DailySum) -> (i64, &Subject, &str) {
        (sum.day, &sum.subject, &sum.model)
    }
    let mut new = Vec::new();
    for sum in more {
        let known = written.binary_search_by(|one| place(one).cmp(&place(&sum)));
        match known.ok().and_then(|at| written.get_mut(at)) {
            Some(known) => known.sums = known.sums.plus(&sum.sums),
            None => new.push(sum),
        }
    }
    if !new.is_empty() {
        written.extend(new);
        written.sort_by(|one, other| place(one).cmp(&place(other)));
    }
    written
}

/// What came of making sums anew.
enum Resummed {
    Whole,
    /// Rows that they count are not there.
    Trimmed,
    /// A row is not readable.
    Damaged,
}

/// The sums of a day's rows, and the place behind the last; `None`: one is not readable.
fn sums_of_rows(
    rows: &impl ReadableTable<(&'static str, i64, u64), &'static [u8]>,
    account: &str,
    day: i64,
) -> Result<Option<(DailySums, u64)>, redb::Error> {
    let (mut sums, mut tags, mut next) = (DailySums::default(), DayTags::default(), 0);
    for entry in rows.range((account, day, 0)..=(account, day, u64::MAX))? {
        let (place, sealed) = entry?;
        let Some(row) = unseal::<Row>(sealed.value()) else {
            return Ok(None);
        };
        sums.add(&row, &mut tags);
        next = place.value().2.saturating_add(1);
    }
    Ok(Some((sums, next)))
}

/// Appends the sums of one subject, or of all whose names begin so. One that is not readable makes `None` of all.
fn read(
    table: &impl ReadableTable<Place, &'static [u8]>,
    account: &str,
    day: i64,
    subject: &str,
    begins: bool,
    found: &mut Option<Vec<DailySum>>,
) -> Result<(), redb::Error> {
    let last = if begins {
        format!("{subject}{LAST}")
    } else {
        subject.to_owned()
    };
    for entry in table.range((account, day, subject, "")..=(account, day, last.as_str(), LAST))? {
        let (place, sealed) = entry?;
        let (_, day, subject, model) = place.value();
        match (found.as_mut(), Subject::parse(subject), unseal_sums(sealed.value())) {
            (Some(found), Some(subject), Some(sums)) => found.push(DailySum {
                day,
                subject,
                model: model.into(),
                sums,
            }),
            _ => *found = None,
        }
    }
    Ok(())
}
