//! The daily sums of the ledger's file: asked for, and removed.

use redb::ReadableDatabase;

use super::{
    LedgerFile, begin_write,
    sums_table::{LAST, SUMS, read},
};
use crate::{
    domain::ledger::daily_sums::{DailySum, Subject, SumsOf},
    store::StoreError,
};

/// What the names of all keys begin with.
const KEYS: &str = "k:";
/// What the names of all tags begin with.
const TAGS: &str = "t:";

impl LedgerFile {
    /// Sums of some days, by day, subject and model.
    pub(in crate::store::embedded::ledger) fn sums(
        &self,
        account: &str,
        days: &[i64],
        of: &SumsOf,
    ) -> Result<Vec<DailySum>, StoreError> {
        let names = names(of);
        let found = self.with(|database| {
            let table = database.begin_read()?.open_table(SUMS)?;
            let mut found = Vec::new();
            for day in days {
                for (first, last) in &names {
                    found.extend(read(&table, account, *day, first, last)?);
                }
            }
            Ok(found)
        })?;
        let readable: Option<Vec<DailySum>> = found.into_iter().collect();
        readable.ok_or_else(|| StoreError::Corrupt(format!("a daily sum of account `{account}` is not readable")))
    }

    /// All sums of a day, for rows to be added to. Those that are not readable begin again: charges do not wait for them, and
    /// a comparison with the rows finds them.
    pub(in crate::store::embedded::ledger) fn day(&self, account: &str, day: i64) -> Result<Vec<DailySum>, StoreError> {
        self.recover()?;
        let found = self.with(|database| {
            let table = database.begin_read()?.open_table(SUMS)?;
            read(&table, account, day, "", LAST)
        })?;
        let damaged = found.iter().filter(|sum| sum.is_none()).count();
        if damaged > 0 {
            tracing::error!(
                account,
                day,
                damaged,
                "daily sums of an account are not readable and begin again; `weir log verify --mend` makes them right"
            );
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Removes the sums of an account's days before `day`, and says how many.
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

/// The first and the last name of the subjects that are asked for, in their order.
fn names(of: &SumsOf) -> Vec<(String, String)> {
    let one = |name: String| (name.clone(), name);
    let all = |beginning: &str| (beginning.to_owned(), format!("{beginning}{LAST}"));
    match of {
        SumsOf::One(subject) => vec![one(subject.text())],
        SumsOf::Keys => vec![all(KEYS)],
        SumsOf::Tags => vec![one(Subject::OtherTags.text()), all(TAGS)],
    }
}
