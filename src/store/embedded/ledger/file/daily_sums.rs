//! The daily sums of the ledger's file: asked for, made anew, removed.

use std::ops::RangeInclusive;

use redb::{ReadableDatabase, ReadableTable};

use super::summed_rows::{Place, SUMMED, SUMS, TAGS, add, not_summed};
use super::{LedgerFile, ROWS, Unwritten, begin_write, seal, unseal};
use crate::{
    domain::ledger::{
        consumption::Row,
        daily_sums::{DailySum, DailySums, DayTags, Subject, Sums, SumsOf},
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
            let mut found = Vec::new();
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
            found.extend(more.of(days, of).into_iter().map(Some));
            Ok(found)
        })?;
        let sums: Option<DailySums> = found.into_iter().collect();
        let sums =
            sums.ok_or_else(|| StoreError::Corrupt(format!("a daily sum of account `{account}` is not readable")))?;
        Ok(sums.iter().collect())
    }

    /// Puts the sums of a day's rows in the place of those that are there.
    pub(in crate::store::embedded::ledger) fn resum(&self, account: &str, day: i64) -> Result<(), StoreError> {
        self.recover()?;
        let whole = self.with(|database| {
            let transaction = begin_write(database)?;
            let summed = {
                let rows = transaction.open_table(ROWS)?;
                sums_of_rows(&rows, account, day)?
            };
            let Some((sums, next)) = summed else {
                transaction.abort()?;
                return Ok(false);
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
            Ok(true)
        })?;
        let damaged = || {
            StoreError::Corrupt(format!(
                "a row of account `{account}`, day {day} since 1970, is not readable"
            ))
        };
        whole.then_some(()).ok_or_else(damaged)
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

/// The sums of one subject, or of all whose names begin so; `None` for what is not readable.
fn read(
    table: &impl ReadableTable<Place, &'static [u8]>,
    account: &str,
    day: i64,
    subject: &str,
    begins: bool,
    found: &mut Vec<Option<DailySum>>,
) -> Result<(), redb::Error> {
    let last = if begins {
        format!("{subject}{LAST}")
    } else {
        subject.to_owned()
    };
    for entry in table.range((account, day, subject, "")..=(account, day, last.as_str(), LAST))? {
        let (place, sealed) = entry?;
        let (_, day, subject, model) = place.value();
        let sums = Subject::parse(subject).zip(unseal::<Sums>(sealed.value()));
        found.push(sums.map(|(subject, sums)| DailySum {
            day,
            subject,
            model: model.to_owned(),
            sums,
        }));
    }
    Ok(())
}
