//! The daily sums' table, and how rows get into it: in the transaction that writes them. How many rows of a day are in its sums
//! is kept with them, so that rows which are written again, after a failure that may have been none, count once.

use std::collections::{BTreeMap, btree_map::Entry};

use redb::{ReadableTable, Table, TableDefinition};

use super::{seal, seal_sums, unseal, unseal_sums};
use crate::domain::ledger::{
    consumption::Row,
    daily_sums::{DailySum, DailySums, DayTags, Subject, SumsOfRows},
};

/// Account, day, subject and model.
pub(super) type Place = (&'static str, i64, &'static str, &'static str);
/// To the sealed sums of its rows; by the subject [`SUMMED`] to how many rows of the day are in them.
pub(in crate::store::embedded::ledger) const SUMS: TableDefinition<'_, Place, &[u8]> =
    TableDefinition::new("daily_sums");
pub(super) const SUMMED: &str = "#";
/// What the names of all tags begin with.
pub(super) const TAGS: &str = "t:";

/// How far the sums of a day have come.
pub(super) struct SummedDay {
    /// The place of the first row that is not in them.
    next: u64,
    tags: DayTags,
}

/// Adds rows of an account to the sums of their days, each once.
pub(super) fn add_rows<'r>(
    table: &mut Table<'_, Place, &'static [u8]>,
    account: &str,
    rows: impl IntoIterator<Item = (i64, u64, &'r Row)>,
) -> Result<(), redb::Error> {
    let (sums, days) = not_summed(&*table, account, rows)?;
    add(table, account, &sums)?;
    for (day, summed) in days {
        table.insert((account, day, SUMMED, ""), seal(&summed.next)?.as_slice())?;
    }
    Ok(())
}

/// What rows add that are not in the sums of their days yet, and how far the sums come with them.
pub(super) fn not_summed<'r>(
    table: &impl ReadableTable<Place, &'static [u8]>,
    account: &str,
    rows: impl IntoIterator<Item = (i64, u64, &'r Row)>,
) -> Result<(DailySums, BTreeMap<i64, SummedDay>), redb::Error> {
    let (mut sums, mut days) = (SumsOfRows::default(), BTreeMap::new());
    for (day, number, row) in rows {
        let summed = match days.entry(day) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(SummedDay::read(table, account, day)?),
        };
        if number >= summed.next {
            summed.next = number.saturating_add(1);
            sums.add(row, &mut summed.tags);
        }
    }
    Ok((sums.sums(), days))
}

impl SummedDay {
    fn read(table: &impl ReadableTable<Place, &'static [u8]>, account: &str, day: i64) -> Result<Self, redb::Error> {
        let next = table.get((account, day, SUMMED, ""))?;
        let next = next.and_then(|sealed| unseal(sealed.value())).unwrap_or(0);
        let mut tags = Vec::new();
        for entry in table.range((account, day, TAGS, "")..(account, day.saturating_add(1), "", ""))? {
            if let Some(Subject::Tag(tag)) = Subject::parse(entry?.0.value().2) {
                tags.push(tag);
            }
        }
        let tags = tags.into_iter().collect();
        Ok(Self { next, tags })
    }
}

/// Adds to the sums that are there.
pub(super) fn add(
    table: &mut Table<'_, Place, &'static [u8]>,
    account: &str,
    more: &DailySums,
) -> Result<(), redb::Error> {
    for DailySum {
        day,
        subject,
        model,
        sums,
    } in more.iter()
    {
        let subject = subject.text();
        let place = (account, day, subject.as_str(), model.as_str());
        // What is not readable begins anew; a comparison with the rows finds it.
        let before = table.get(place)?.and_then(|sealed| unseal_sums(sealed.value()));
        let sums = before.unwrap_or_default().plus(&sums);
        table.insert(place, seal_sums(&sums)?.as_slice())?;
    }
    Ok(())
}
