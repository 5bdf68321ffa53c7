//! The daily sums in the ledger's file: queries, changes and removal.

use redb::{ReadableDatabase, ReadableTable, Table, TableDefinition};
use smol_str::SmolStr;

use crate::{
    domain::ledger::daily_sums::{DailySum, SumSelector, SumSubject, Sums},
    store::{
        StoreError,
        embedded::ledger::file::{LedgerFile, begin_write, seal_sums, unseal_sums},
    },
};

/// The prefix of the subject names of all keys.
const KEYS: &str = "k:";
/// The prefix of the subject names of all tags.
const TAGS: &str = "t:";

impl LedgerFile {
    /// Returns the selected sums of some days, by day, subject and model.
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

    /// Returns all sums of a day, so that rows can be added to them. Unreadable sums start again from zero, because charges
    /// cannot wait for a repair; a comparison with the rows finds and corrects them.
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

    /// Removes the sums of an account's days before `day`, and returns the number of removed sums.
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

/// Returns the first and last subject name of each range that `of` selects, in order.
fn name_ranges(of: &SumSelector) -> Vec<(String, String)> {
    let one = |name: String| (name.clone(), name);
    let all = |beginning: &str| (beginning.to_owned(), format!("{beginning}{LAST}"));
    match of {
        SumSelector::One(subject) => vec![one(subject.store_name())],
        SumSelector::Keys => vec![all(KEYS)],
        SumSelector::Tags => vec![one(SumSubject::OtherTags.store_name()), all(TAGS)],
    }
}

/// The key of an entry: account, day, subject and model.
pub(super) type SumKey = (&'static str, i64, &'static str, &'static str);
/// Maps a [`SumKey`] to the sealed sums of its rows. An entry is always written completely, so writing it twice has the same
/// effect.
pub(super) const SUMS: TableDefinition<'_, SumKey, &[u8]> = TableDefinition::new("daily_sums");
/// A text that sorts after every name.
pub(super) const LAST: &str = "\u{10ffff}";

/// The sums of one subject, model and day of an account, as the file should have them.
pub(in crate::store::embedded::ledger) struct ChangedSum {
    pub(in crate::store::embedded::ledger) day: i64,
    pub(in crate::store::embedded::ledger) subject: SumSubject,
    pub(in crate::store::embedded::ledger) model: SmolStr,
    /// The sums; `None` if the entry is to be removed from the file.
    pub(in crate::store::embedded::ledger) sums: Option<Sums>,
}

/// Writes sums of an account. Each entry is written completely, or removed.
pub(super) fn put_sums(
    table: &mut Table<'_, SumKey, &'static [u8]>,
    account: &str,
    changed: &[ChangedSum],
) -> Result<(), redb::Error> {
    for one in changed {
        let subject = one.subject.store_name();
        let place = (account, one.day, subject.as_str(), one.model.as_str());
        if let Some(sums) = &one.sums {
            table.insert(place, seal_sums(sums)?.as_slice())?;
        } else {
            table.remove(place)?;
        }
    }
    Ok(())
}

/// Returns the sums of a day whose subject names are from `first` to `last`, by name and model; `None` for each unreadable one.
pub(super) fn read_sums(
    table: &impl ReadableTable<SumKey, &'static [u8]>,
    account: &str,
    day: i64,
    first: &str,
    last: &str,
) -> Result<Vec<Option<DailySum>>, redb::Error> {
    let mut found = Vec::new();
    for entry in table.range((account, day, first, "")..=(account, day, last, LAST))? {
        let (place, sealed) = entry?;
        let (_, day, subject, model) = place.value();
        let sum = SumSubject::parse(subject).zip(unseal_sums(sealed.value()));
        found.push(sum.map(|(subject, sums)| DailySum {
            day,
            subject,
            model: model.into(),
            sums,
        }));
    }
    Ok(found)
}
