//! The partitions of the table: one for each day on which rows ended, and some ahead. Old ones are dropped.

use std::{collections::BTreeSet, sync::Arc};

use jiff::{ToSpan, civil::Date, tz::TimeZone};
use tokio_postgres::Client;

use crate::{
    journal::NumberedRow,
    sinks::postgres::{columns, error::PostgresError},
};

/// The number of days after the newest row's for which partitions are created ahead.
const AHEAD_DAYS: i64 = 3;
/// The maximum number of days that are remembered; beyond it all are forgotten, and their partitions are requested again.
const KNOWN_MAX: usize = 1024;

/// The days that are known to have a partition.
#[derive(Debug, Default)]
pub(super) struct KnownPartitions(BTreeSet<Date>);

impl KnownPartitions {
    /// Creates the partitions that the rows need, unless they are known to exist.
    pub(super) async fn create_for(&mut self, client: &Client, rows: &[Arc<NumberedRow>]) -> Result<(), PostgresError> {
        for day in self.lacking(rows) {
            client.execute("SELECT weir.make_partition($1)", &[&day]).await?;
            if self.0.len() >= KNOWN_MAX {
                self.0.clear();
            }
            self.0.insert(day);
        }
        Ok(())
    }

    fn lacking(&self, rows: &[Arc<NumberedRow>]) -> BTreeSet<Date> {
        let mut days: BTreeSet<Date> = rows.iter().map(|row| day(row.row.time_ms)).collect();
        // On a new day, the next days' partitions are created as well.
        if let Some(last) = days.last().copied().filter(|last| !self.0.contains(last)) {
            days.extend((1..=AHEAD_DAYS).filter_map(|ahead| last.checked_add(ahead.days()).ok()));
        }
        days.retain(|day| !self.0.contains(day));
        days
    }
}

fn day(unix_ms: i64) -> Date {
    columns::moment(unix_ms).to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::consumption::Row,
        sinks::contract::samples::{BEGIN_MS, row},
    };

    fn at(times: &[i64]) -> Vec<Arc<NumberedRow>> {
        let numbered = |(number, time_ms): (u64, &i64)| NumberedRow {
            number,
            row: Row {
                time_ms: *time_ms,
                ..row(number, BEGIN_MS)
            },
        };
        (1..).zip(times).map(numbered).map(Arc::new).collect()
    }

    #[test]
    fn days_of_rows_have_partitions_and_a_new_day_has_the_next_ones_too() {
        let day_ms = 24 * 3_600_000;
        let mut known = KnownPartitions::default();
        let lacking = |known: &KnownPartitions, times: &[i64]| -> Vec<String> {
            known.lacking(&at(times)).iter().map(ToString::to_string).collect()
        };
        let first = ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-04"];
        assert_eq!(lacking(&known, &[BEGIN_MS, BEGIN_MS + day_ms - 1]), first);
        known.0 = known.lacking(&at(&[BEGIN_MS]));
        assert!(lacking(&known, &[BEGIN_MS, BEGIN_MS + 3 * day_ms]).is_empty());
        assert_eq!(lacking(&known, &[BEGIN_MS - 1]), ["2026-10-31"]);
        // Clocks that are off by ages name a day all the same.
        assert_eq!(lacking(&known, &[i64::MIN])[0], "1970-01-01");
        assert_eq!(lacking(&known, &[i64::MAX]), ["9999-12-30", "9999-12-31"]);
    }
}
