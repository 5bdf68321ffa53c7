//! The daily sums of the ledger's file: put, asked for, removed. An entry is always put whole, so putting it twice is the same.

use redb::{ReadableDatabase, ReadableTable, Table, TableDefinition};
use smol_str::SmolStr;

use super::{LedgerFile, begin_write, seal_sums, unseal_sums};
use crate::{
    domain::ledger::daily_sums::{DailySum, Subject, Sums, SumsOf},
    store::StoreError,
};

/// Account, day, subject and model.
pub(super) type Place = (&'static str, i64, &'static str, &'static str);
/// To the sealed sums of its rows.
pub(super) const SUMS: TableDefinition<'_, Place, &[u8]> = TableDefinition::new("daily_sums");
/// What the names of all keys begin with.
const KEYS: &str = "k:";
/// What the names of all tags begin with.
const TAGS: &str = "t:";
/// Behind every text that a name may be.
const LAST: &str = "\u{10ffff}";

/// The sums of one subject, model and day of an account, as the file is to have them.
pub(in crate::store::embedded::ledger) struct ChangedSum {
    pub(in crate::store::embedded::ledger) day: i64,
    pub(in crate::store::embedded::ledger) subject: Subject,
    pub(in crate::store::embedded::ledger) model: SmolStr,
    /// `None`: the file is to have none.
    pub(in crate::store::embedded::ledger) sums: Option<Sums>,
}

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

/// Puts sums of an account, each whole.
pub(super) fn put_sums(
    table: &mut Table<'_, Place, &'static [u8]>,
    account: &str,
    changed: &[ChangedSum],
) -> Result<(), redb::Error> {
    for one in changed {
        let subject = one.subject.text();
        let place = (account, one.day, subject.as_str(), one.model.as_str());
        if let Some(sums) = &one.sums {
            table.insert(place, seal_sums(sums)?.as_slice())?;
        } else {
            table.remove(place)?;
        }
    }
    Ok(())
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

/// The sums of a day from one subject's name to another's, by name and model; `None` for each that is not readable.
fn read(
    table: &impl ReadableTable<Place, &'static [u8]>,
    account: &str,
    day: i64,
    first: &str,
    last: &str,
) -> Result<Vec<Option<DailySum>>, redb::Error> {
    let mut found = Vec::new();
    for entry in table.range((account, day, first, "")..=(account, day, last, LAST))? {
        let (place, sealed) = entry?;
        let (_, day, subject, model) = place.value();
        let sum = Subject::parse(subject).zip(unseal_sums(sealed.value()));
        found.push(sum.map(|(subject, sums)| DailySum {
            day,
            subject,
            model: model.into(),
            sums,
        }));
    }
    Ok(found)
}
