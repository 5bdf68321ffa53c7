//! The daily sums of the ledger's file: queries and removal.

use redb::ReadableDatabase;

use super::{
    LedgerFile, begin_write,
    sums_table::{LAST, SUMS, read_sums},
};
use crate::{
    domain::ledger::daily_sums::{DailySum, SumSelector, SumSubject},
    store::StoreError,
};

/// The prefix of the names of all keys.
const KEYS: &str = "k:";
/// The prefix of the names of all tags.
const TAGS: &str = "t:";

impl LedgerFile {
    /// The sums of some days, by day, subject and model.
    pub(in crate::store::embedded::ledger) fn sums(
        &self,
        account: &str,
        days: &[i64],
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError> {
        let names = name_ranges(of);
        let found = self.with(|database| {
            let table = database.begin_read()?.open_table(SUMS)?;
            let mut found = Vec::new();
            for day in days {
                for (first, last) in &names {
                    found.extend(read_sums(&table, account, *day, first, last)?);
                }
            }
            Ok(found)
        })?;
        let readable: Option<Vec<DailySum>> = found.into_iter().collect();
        readable.ok_or_else(|| StoreError::Corrupt(format!("a daily sum of account `{account}` is unreadable")))
    }

    /// All sums of a day, for rows to be added to. Unreadable sums start again from zero: charges do not wait for them, and a
    /// comparison with the rows finds them.
    pub(in crate::store::embedded::ledger) fn day_sums(
        &self,
        account: &str,
        day: i64,
    ) -> Result<Vec<DailySum>, StoreError> {
        self.recover()?;
        let found = self.with(|database| {
            let table = database.begin_read()?.open_table(SUMS)?;
            read_sums(&table, account, day, "", LAST)
        })?;
        let damaged = found.iter().filter(|sum| sum.is_none()).count();
        if damaged > 0 {
            tracing::error!(
                account,
                day,
                damaged,
                "daily sums of an account are unreadable and start again from zero; `weir log verify --mend` corrects them"
            );
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Removes the sums of an account's days before `day`, and returns their number.
    pub(in crate::store::embedded::ledger) fn remove_sums(&self, account: &str, day: i64) -> Result<usize, StoreError> {
        self.with(|database| {
            let old = (account, i64::MIN, "", "")..(account, day, "", "");
            let table = database.begin_read()?.open_table(SUMS)?;
            if table.range(old.clone())?.next().is_none() {
                return Ok(0);
            }
            let transaction = begin_write(database)?;
            let mut removed = 0;
            transaction.open_table(SUMS)?.retain_in(old, |_, _| {
                removed += 1;
                false
            })?;
            transaction.commit()?;
            Ok(removed)
        })
    }
}

/// The first and last subject name of each range that `of` selects, in order.
fn name_ranges(of: &SumSelector) -> Vec<(String, String)> {
    let one = |name: String| (name.clone(), name);
    let all = |beginning: &str| (beginning.to_owned(), format!("{beginning}{LAST}"));
    match of {
        SumSelector::One(subject) => vec![one(subject.store_name())],
        SumSelector::Keys => vec![all(KEYS)],
        SumSelector::Tags => vec![one(SumSubject::OtherTags.store_name()), all(TAGS)],
    }
}
