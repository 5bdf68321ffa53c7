//! The hourly stability counters in the ledger's file.

use std::collections::BTreeMap;

use redb::{ReadableDatabase, ReadableTable, Table};

use super::{HOURS, LedgerFile, begin_write, seal, unseal};
use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters, NodeHourCounters},
        ledger::NodeId,
    },
    store::StoreError,
};

impl LedgerFile {
    /// Stores those shares that have a greater watermark than the stored ones. They are on disk when this returns.
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
