//! The daily sums in the ledger's file: queries, changes and removal.

use std::collections::BTreeMap;

use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};
use smol_str::SmolStr;

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters, NodeHourCounters},
        ledger::{
            NodeId,
            daily_sums::{DailySum, RetentionProgress, SumSelector, SumSubject, Sums},
        },
    },
    store::{
        StoreError,
        embedded::ledger::file::{HOURS, LedgerFile, META, begin_write, seal, seal_sums, unseal, unseal_sums},
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
/// Maps a [`SumKey`] to the sealed sums of its rows. An entry is always written completely, so writing it again has no further
/// effect.
pub(super) const SUMS: TableDefinition<'_, SumKey, &[u8]> = TableDefinition::new("daily_sums");
/// A string that sorts after every name.
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

/// Returns those sums of a day whose subject names are between `first` and `last`, both included. The sums are ordered by subject
/// name and model. Each unreadable sum is `None`.
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

impl LedgerFile {
    /// Stores each share whose watermark is greater than the watermark of the stored share of the same hour. The new shares are
    /// on disk when this returns.
    pub(in crate::store::embedded::ledger) fn put_shares(
        &self,
        node: &NodeId,
        shares: &[NodeHourCounters],
    ) -> Result<(), StoreError> {
        self.recover()?;
        self.with(|database| {
            let transaction = begin_write(database)?;
            let mut changed = false;
            {
                let mut hours = transaction.open_table(HOURS)?;
                for share in shares {
                    changed |= put_share(&mut hours, node, share)?;
                }
            }
            if changed {
                Ok(transaction.commit()?)
            } else {
                Ok(transaction.abort()?)
            }
        })
    }

    /// Returns the counters of all nodes from hour `first` to hour `last`, both included. Unreadable ones are skipped.
    pub(in crate::store::embedded::ledger) fn buckets(
        &self,
        first: Hour,
        last: Hour,
    ) -> Result<BTreeMap<Hour, ModelCounters>, StoreError> {
        self.with(|database| {
            let mut buckets: BTreeMap<Hour, ModelCounters> = BTreeMap::new();
            let table = database.begin_read()?.open_table(HOURS)?;
            for entry in table.range((first.number(), "")..)? {
                let (place, sealed) = entry?;
                let (hour, node) = place.value();
                if hour > last.number() {
                    break;
                }
                let Some(counted) = unseal::<ModelCounters>(sealed.value()) else {
                    tracing::warn!(
                        hour,
                        node,
                        "cannot read an hour of the stability record; its counters are skipped"
                    );
                    continue;
                };
                let bucket = buckets.entry(Hour::from_number(hour)).or_default();
                for (model, counters) in counted {
                    bucket.entry(model).or_default().add(&counters);
                }
            }
            Ok(buckets)
        })
    }

    /// Removes the hours before `first`.
    pub(in crate::store::embedded::ledger) fn remove_hours(&self, first: Hour) -> Result<(), StoreError> {
        self.with(|database| {
            let table = database.begin_read()?.open_table(HOURS)?;
            if table.range(..(first.number(), ""))?.next().is_none() {
                return Ok(());
            }
            let transaction = begin_write(database)?;
            transaction
                .open_table(HOURS)?
                .retain_in(..(first.number(), ""), |_, _| false)?;
            Ok(transaction.commit()?)
        })
    }
}

/// Stores a share if its watermark is greater than that of the stored share. Returns whether it was stored.
pub(super) fn put_share(
    hours: &mut Table<'_, (i64, &'static str), &'static [u8]>,
    node: &NodeId,
    share: &NodeHourCounters,
) -> Result<bool, redb::Error> {
    let hour = share.hour;
    let place = (hour.number(), node.as_str());
    let held = hours
        .get(place)?
        .and_then(|sealed| unseal::<ModelCounters>(sealed.value()));
    let watermark = held.map_or(0, |bucket| NodeHourCounters { hour, bucket }.watermark());
    let is_greater = share.watermark() > watermark;
    if is_greater {
        hours.insert(place, seal(&share.bucket)?.as_slice())?;
    }
    Ok(is_greater)
}

const DAY_MS: i64 = 24 * 3600 * 1000;
const HOURS_A_DAY: i64 = 24;
/// The entry with the first day that is retained, as the number of days since the Unix epoch.
const KEPT_FROM: &str = "retention_kept_from";
/// The entry with the time at which the first retained day was last advanced, in milliseconds since the Unix epoch.
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
