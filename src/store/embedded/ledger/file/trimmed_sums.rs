//! What rows add up to that have left the ledger's file for the log's home, in a backup and out of one.

use std::collections::BTreeMap;

use redb::{ReadTransaction, ReadableTable, Table};

use super::summed_rows::{Place, SUMMED, SUMS, add};
use super::trimmed_rows::{TRIMMED, trimmed_of};
use super::{ROWS, seal, unseal, unseal_sums};
use crate::{
    domain::ledger::{
        consumption::Row,
        daily_sums::{DailySum, DailySums, Subject, Sums},
    },
    store::archive::Item,
};

/// The days with rows that have left, by account, and how many each has.
pub(super) fn trimmed_days(snapshot: &ReadTransaction) -> Result<BTreeMap<(String, i64), u64>, redb::Error> {
    let mut found = BTreeMap::new();
    for entry in snapshot.open_table(SUMS)?.iter()? {
        let (place, sealed) = entry?;
        let (account, day, subject, _) = place.value();
        if subject == TRIMMED {
            found.insert((account.to_owned(), day), unseal(sealed.value()).unwrap_or(0));
        }
    }
    Ok(found)
}

/// The items of rows that have left a day: its sums without those of the rows that are there. `None`: something is not readable.
pub(super) fn trimmed_items(
    snapshot: &ReadTransaction,
    account: &str,
    day: i64,
    rows: u64,
) -> Result<Option<Vec<Item>>, redb::Error> {
    let mut sums = DailySums::default();
    let kept = snapshot.open_table(SUMS)?;
    for entry in kept.range((account, day, "", "")..(account, day.saturating_add(1), "", ""))? {
        let (place, sealed) = entry?;
        let (_, _, subject, model) = place.value();
        if let Some(subject) = Subject::parse(subject) {
            let Some(counted) = unseal_sums(sealed.value()) else {
                return Ok(None);
            };
            sums.add_to(day, subject, model.into(), &counted);
        }
    }
    for entry in snapshot
        .open_table(ROWS)?
        .range((account, day, rows)..=(account, day, u64::MAX))?
    {
        let Some(row) = unseal::<Row>(entry?.1.value()) else {
            return Ok(None);
        };
        sums = sums.without([&row]);
    }
    Ok(Some(Item::trimmed(account, day, rows, sums.iter())))
}

/// Notes that so many rows have left a day. Those that come get places behind them, and are added to its sums.
pub(super) fn put_trimmed(
    table: &mut Table<'_, Place, &'static [u8]>,
    account: &str,
    day: i64,
    rows: u64,
) -> Result<(), redb::Error> {
    let rows = seal(&trimmed_of(&*table, account, day)?.saturating_add(rows))?;
    table.insert((account, day, TRIMMED, ""), rows.as_slice())?;
    table.insert((account, day, SUMMED, ""), rows.as_slice())?;
    Ok(())
}

/// Adds what those are summed up to of a subject and model. What is no subject is of a later weir, and passed over.
pub(super) fn put_sum(
    table: &mut Table<'_, Place, &'static [u8]>,
    account: &str,
    day: i64,
    (subject, model): (&str, &str),
    sums: &Sums,
) -> Result<(), redb::Error> {
    let Some(subject) = Subject::parse(subject) else {
        return Ok(());
    };
    let one = DailySum {
        day,
        subject,
        model: model.into(),
        sums: *sums,
    };
    add(table, account, &std::iter::once(one).collect())
}
