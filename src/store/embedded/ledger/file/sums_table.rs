//! The table of daily sums. An entry is always put whole, so putting it twice is the same.

use redb::{ReadableTable, Table, TableDefinition};
use smol_str::SmolStr;

use super::sealed::{seal_sums, unseal_sums};
use crate::domain::ledger::daily_sums::{DailySum, SumSubject, Sums};

/// The key of an entry: account, day, subject and model.
pub(super) type SumKey = (&'static str, i64, &'static str, &'static str);
/// [`SumKey`] to the sealed sums of its rows. An entry is always written whole, so writing it twice has the same effect.
pub(super) const SUMS: TableDefinition<'_, SumKey, &[u8]> = TableDefinition::new("daily_sums");
/// Sorts after every name.
pub(super) const LAST: &str = "\u{10ffff}";

/// The sums of one subject, model and day of an account, as the file should have them.
pub(in crate::store::embedded::ledger) struct ChangedSum {
    pub(in crate::store::embedded::ledger) day: i64,
    pub(in crate::store::embedded::ledger) subject: SumSubject,
    pub(in crate::store::embedded::ledger) model: SmolStr,
    /// `None` if the file should not have them.
    pub(in crate::store::embedded::ledger) sums: Option<Sums>,
}

/// Writes sums of an account, each whole.
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

/// The sums of a day whose subject names are from `first` to `last`, by name and model; `None` for each unreadable one.
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
