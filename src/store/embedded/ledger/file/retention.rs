//! The progress of retention, as stored in the ledger's file.

use redb::{Database, ReadableDatabase, ReadableTable};

use super::{HOURS, LedgerFile, META, SUMS, begin_write};
use crate::{
    domain::{faults::stability::Hour, ledger::retention::RetentionProgress},
    store::StoreError,
};

const DAY_MS: i64 = 24 * 3600 * 1000;
const HOURS_A_DAY: i64 = 24;
/// The entry with the first day that is retained, as the number of days since the Unix epoch.
const KEPT_FROM: &str = "retention_kept_from";
/// The entry with the time when retention advanced to that day, in milliseconds since the Unix epoch.
const RAN_MS: &str = "retention_ran_ms";
/// The entry with the number of days for which daily sums and stability hours are retained.
const KEEP_DAYS: &str = "retention_keep_days";

impl LedgerFile {
    /// Returns the progress of retention; `None` before its first run.
    pub(in crate::store::embedded::ledger) fn retention(&self) -> Result<Option<RetentionProgress>, StoreError> {
        self.with(|database| {
            let meta = database.begin_read()?.open_table(META)?;
            let get = |name: &str| {
                let value = meta.get(name)?.map(|value| value.value());
                Ok::<_, redb::Error>(value.and_then(|value| i64::try_from(value).ok()))
            };
            let (kept_from, ran_ms, keep_days) = (get(KEPT_FROM)?, get(RAN_MS)?, get(KEEP_DAYS)?);
            let known = kept_from.zip(ran_ms).zip(keep_days);
            Ok(known.map(|((kept_from, ran_ms), keep_days)| RetentionProgress {
                kept_from,
                ran_ms,
                keep_days,
            }))
        })
    }

    /// Stores the progress of retention. It is on disk when this returns.
    pub(in crate::store::embedded::ledger) fn put_retention(
        &self,
        retention: RetentionProgress,
    ) -> Result<(), StoreError> {
        self.recover()?;
        self.with(|database| {
            let transaction = begin_write(database)?;
            {
                let mut meta = transaction.open_table(META)?;
                // No value is negative, because all times are after 1970.
                let mut put = |name: &str, value: i64| meta.insert(name, u64::try_from(value).unwrap_or(0)).map(drop);
                put(KEPT_FROM, retention.kept_from)?;
                put(RAN_MS, retention.ran_ms)?;
                put(KEEP_DAYS, retention.keep_days)?;
            }
            Ok(transaction.commit()?)
        })
    }

    /// Returns the day of the oldest daily sum of these accounts, or of the oldest stability hour if that is older; `None` if
    /// there is neither.
    pub(in crate::store::embedded::ledger) fn oldest_day(
        &self,
        accounts: &[String],
    ) -> Result<Option<i64>, StoreError> {
        self.with(|database| oldest_day(database, accounts))
    }
}

fn oldest_day(database: &Database, accounts: &[String]) -> Result<Option<i64>, redb::Error> {
    let read = database.begin_read()?;
    let (hours, sums) = (read.open_table(HOURS)?, read.open_table(SUMS)?);
    let hour = hours.first()?.map(|(place, _)| place.value().0);
    let mut oldest = hour.map(|hour| hour.div_euclid(HOURS_A_DAY));
    for account in accounts {
        let account = account.as_str();
        let first = sums.range((account, i64::MIN, "", "")..)?.next().transpose()?;
        let sum = first.and_then(|(place, _)| {
            let (of, day, ..) = place.value();
            (of == account).then_some(day)
        });
        oldest = [oldest, sum].into_iter().flatten().min();
    }
    Ok(oldest)
}

pub(in crate::store::embedded::ledger) fn first_hour(day: i64) -> Hour {
    Hour::from_unix_ms(day.saturating_mul(DAY_MS))
}
