//! The hourly buckets in the ledger's file.

use std::collections::BTreeMap;

use redb::{ReadableDatabase, ReadableTable, Table};

use super::{HOURS, LedgerFile, begin_write, seal, unseal};
use crate::{
    domain::{
        faults::stability::{Bucket, Hour, Share},
        ledger::NodeId,
    },
    store::StoreError,
};

impl LedgerFile {
    /// Puts shares in the place of those with a lesser watermark. They are on the disk when it returns.
    pub(in crate::store::embedded::ledger) fn tell(&self, node: &NodeId, shares: &[Share]) -> Result<(), StoreError> {
        self.recover()?;
        self.with(|database| {
            let transaction = begin_write(database)?;
            let mut changed = false;
            {
                let mut hours = transaction.open_table(HOURS)?;
                for share in shares {
                    changed |= put(&mut hours, node, share)?;
                }
            }
            if changed {
                Ok(transaction.commit()?)
            } else {
                Ok(transaction.abort()?)
            }
        })
    }

    /// All nodes' counters from `first` to `last`, both included. What is not readable is passed over.
    pub(in crate::store::embedded::ledger) fn buckets(
        &self,
        first: Hour,
        last: Hour,
    ) -> Result<BTreeMap<Hour, Bucket>, StoreError> {
        self.with(|database| {
            let mut buckets: BTreeMap<Hour, Bucket> = BTreeMap::new();
            let table = database.begin_read()?.open_table(HOURS)?;
            for entry in table.range((first.number(), "")..)? {
                let (place, sealed) = entry?;
                let (hour, node) = place.value();
                if hour > last.number() {
                    break;
                }
                let Some(counted) = unseal::<Bucket>(sealed.value()) else {
                    tracing::warn!(
                        hour,
                        node,
                        "an hour of the stability record is not readable, it is passed over"
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

/// Puts one share in its place, if its watermark is greater than that of what is there. Whether it is.
pub(super) fn put(
    hours: &mut Table<'_, (i64, &'static str), &'static [u8]>,
    node: &NodeId,
    share: &Share,
) -> Result<bool, redb::Error> {
    let hour = share.hour;
    let place = (hour.number(), node.as_str());
    let held = hours.get(place)?.and_then(|sealed| unseal::<Bucket>(sealed.value()));
    let watermark = held.map_or(0, |bucket| Share { hour, bucket }.watermark());
    let is_greater = share.watermark() > watermark;
    if is_greater {
        hours.insert(place, seal(&share.bucket)?.as_slice())?;
    }
    Ok(is_greater)
}
