//! How many rows of a day have left the ledger's file: kept among its sums.

use redb::ReadableTable;

use super::{summed_rows::Place, unseal};
use crate::domain::ledger::LogDay;

/// Among the sums, by this subject: how many rows of the day have left. Rows in lesser places count as gone.
pub(super) const TRIMMED: &str = "#trimmed";

/// A place in the log: account, day, number.
type RowPlace = (&'static str, i64, u64);

/// How many rows of a day have left.
pub(super) fn trimmed_of(
    sums: &impl ReadableTable<Place, &'static [u8]>,
    account: &str,
    day: i64,
) -> Result<u64, redb::Error> {
    let trimmed = sums.get((account, day, TRIMMED, ""))?;
    Ok(trimmed.and_then(|sealed| unseal(sealed.value())).unwrap_or(0))
}

/// The place of the next row of a day.
pub(super) fn next_place(
    rows: &impl ReadableTable<RowPlace, &'static [u8]>,
    sums: &impl ReadableTable<Place, &'static [u8]>,
    account: &str,
    day: i64,
) -> Result<u64, redb::Error> {
    let last = rows.range((account, day, 0)..=(account, day, u64::MAX))?.next_back();
    let next = last
        .transpose()?
        .map_or(0, |(place, _)| place.value().2.saturating_add(1));
    Ok(next.max(trimmed_of(sums, account, day)?))
}

/// A day, as far as the file has it.
pub(super) fn log_day(
    rows: &impl ReadableTable<RowPlace, &'static [u8]>,
    sums: &impl ReadableTable<Place, &'static [u8]>,
    account: &str,
    day: i64,
) -> Result<LogDay, redb::Error> {
    let trimmed = trimmed_of(sums, account, day)?;
    let next = next_place(rows, sums, account, day)?;
    Ok(LogDay {
        day,
        rows: next.saturating_sub(trimmed),
        trimmed,
    })
}
