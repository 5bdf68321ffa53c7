//! The ledger's file in a backup.

use std::collections::HashMap;

use redb::{ReadTransaction, ReadableDatabase, ReadableTable};
use tokio::sync::mpsc;

use super::{
    ACCOUNTS, HOURS, KEYS, LedgerFile, OPERATIONS, ROWS, SUMS, add_rows, begin_write, next_place, operations_of, seal,
    stability::put,
    trimmed_sums::{put_sum, put_trimmed, trimmed_days, trimmed_items},
    unseal,
};
use crate::{
    domain::{
        faults::stability::{Hour, Share},
        keys::key::KeyId,
        ledger::{NodeId, consumption::Row},
    },
    store::{StoreError, archive::Item},
};

const DAY_MS: i64 = 24 * 3600 * 1000;

impl LedgerFile {
    /// Sends what the file holds now, of one moment; writing goes on meanwhile. Ends early when nobody receives any more.
    pub(in crate::store::embedded::ledger) fn dump(&self, to: &mpsc::Sender<Item>) -> Result<(), StoreError> {
        let snapshot = self.with(|database| Ok(database.begin_read()?))?;
        let mut send = |item: Option<Item>| item.map(|item| to.blocking_send(item).is_ok());
        match dump(&snapshot, &mut send) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(StoreError::Corrupt("a part of the ledger is not readable".to_owned())),
            Err(error) => Err(StoreError::Unavailable(format!(
                "the ledger's file cannot be read: {error}"
            ))),
        }
    }

    /// Adds items; rows behind those of their day, and to the daily sums.
    pub(in crate::store::embedded::ledger) fn load(&self, items: &[Item]) -> Result<(), StoreError> {
        self.with(|database| {
            let transaction = begin_write(database)?;
            {
                let mut accounts = transaction.open_table(ACCOUNTS)?;
                let mut keys = transaction.open_table(KEYS)?;
                let mut rows = transaction.open_table(ROWS)?;
                let mut hours = transaction.open_table(HOURS)?;
                let mut remembered = transaction.open_table(OPERATIONS)?;
                let mut sums = transaction.open_table(SUMS)?;
                let mut next: HashMap<(&str, i64), u64> = HashMap::new();
                let mut put_back: HashMap<&str, Vec<(i64, u64, &Row)>> = HashMap::new();
                for item in items {
                    match item {
                        Item::Account {
                            id,
                            standing,
                            operations,
                        } => {
                            accounts.insert(id.as_str(), seal(standing)?.as_slice())?;
                            remembered.insert(id.as_str(), seal(operations)?.as_slice())?;
                        }
                        Item::AccountKey { account, id, state } => {
                            keys.insert((account.as_str(), id.as_str()), seal(state)?.as_slice())?;
                        }
                        Item::Trimmed { account, day, rows } => put_trimmed(&mut sums, account, *day, *rows)?,
                        Item::TrimmedSum {
                            account,
                            day,
                            subject,
                            model,
                            sums: counted,
                        } => put_sum(&mut sums, account, *day, (subject.as_str(), model.as_str()), counted)?,
                        Item::Row { row } => {
                            let (account, day) = (row.account.as_str(), row.time_ms.div_euclid(DAY_MS));
                            let number = match next.get(&(account, day)) {
                                Some(number) => *number,
                                None => next_place(&rows, &sums, account, day)?,
                            };
                            rows.insert((account, day, number), seal(row)?.as_slice())?;
                            next.insert((account, day), number.saturating_add(1));
                            put_back.entry(account).or_default().push((day, number, row));
                        }
                        Item::Stability { node, hour, bucket } => {
                            let (hour, bucket) = (*hour, bucket.clone());
                            put(&mut hours, node, &Share { hour, bucket })?;
                        }
                        Item::Key { .. } | Item::KeyGone { .. } => {}
                    }
                }
                for (account, rows) in put_back {
                    add_rows(&mut sums, account, rows)?;
                }
            }
            Ok(transaction.commit()?)
        })
    }
}

/// Sends item by item; `send` is given `None` for one that is not readable. `None`: there was one; `false`: nobody receives.
fn dump(
    snapshot: &ReadTransaction,
    send: &mut impl FnMut(Option<Item>) -> Option<bool>,
) -> Result<Option<bool>, redb::Error> {
    let remembered = snapshot.open_table(OPERATIONS)?;
    for entry in snapshot.open_table(ACCOUNTS)?.iter()? {
        let (id, sealed) = entry?;
        let operations = operations_of(&remembered, id.value())?;
        let item = unseal(sealed.value()).zip(operations);
        let item = item.map(|(standing, operations)| Item::Account {
            id: id.value().to_owned(),
            standing,
            operations,
        });
        match send(item) {
            Some(true) => {}
            other => return Ok(other),
        }
    }
    for entry in snapshot.open_table(KEYS)?.iter()? {
        let (name, sealed) = entry?;
        let (account, id) = name.value();
        let item = KeyId::parse(id).ok().zip(unseal(sealed.value()));
        let item = item.map(|(id, state)| Item::AccountKey {
            account: account.to_owned(),
            id,
            state,
        });
        match send(item) {
            Some(true) => {}
            other => return Ok(other),
        }
    }
    match dump_rows(snapshot, send)? {
        Some(true) => {}
        other => return Ok(other),
    }
    for entry in snapshot.open_table(HOURS)?.iter()? {
        let (place, sealed) = entry?;
        let (hour, node) = place.value();
        let item = NodeId::parse(node).zip(unseal(sealed.value()));
        let item = item.map(|(node, bucket)| Item::Stability {
            node,
            hour: Hour::from_number(hour),
            bucket,
        });
        match send(item) {
            Some(true) => {}
            other => return Ok(other),
        }
    }
    Ok(Some(true))
}

/// The same of the log: what has left of each day, then the rows that are there.
fn dump_rows(
    snapshot: &ReadTransaction,
    send: &mut impl FnMut(Option<Item>) -> Option<bool>,
) -> Result<Option<bool>, redb::Error> {
    let trimmed = trimmed_days(snapshot)?;
    for ((account, day), rows) in &trimmed {
        let Some(items) = trimmed_items(snapshot, account, *day, *rows)? else {
            return Ok(send(None));
        };
        for item in items {
            match send(Some(item)) {
                Some(true) => {}
                other => return Ok(other),
            }
        }
    }
    for entry in snapshot.open_table(ROWS)?.iter()? {
        let (place, sealed) = entry?;
        let (account, day, number) = place.value();
        let is_gone = !trimmed.is_empty()
            && trimmed
                .get(&(account.to_owned(), day))
                .is_some_and(|gone| number < *gone);
        if is_gone {
            continue;
        }
        match send(unseal(sealed.value()).map(|row| Item::Row { row })) {
            Some(true) => {}
            other => return Ok(other),
        }
    }
    Ok(Some(true))
}
