//! The ledger's file in a backup.

use redb::{ReadTransaction, ReadableDatabase, ReadableTable};
use tokio::sync::mpsc;

use super::{
    ACCOUNTS, ChangedSum, HOURS, KEYS, LedgerFile, OPERATIONS, SUMS, begin_write, operations_of, put_sums, seal,
    sealed::unseal_sums, stability::put, unseal,
};
use crate::{
    domain::{
        faults::stability::{Hour, Share},
        keys::key::KeyId,
        ledger::{
            NodeId,
            daily_sums::{DailySums, Subject},
        },
    },
    store::{StoreError, archive::Item},
};

impl LedgerFile {
    /// Sends what the file holds now, of one moment, since each commit has an account with its sums; writing goes on meanwhile.
    /// Ends early when nobody receives any more.
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

    /// Adds items. Rows are passed over: their sums are items of their own.
    pub(in crate::store::embedded::ledger) fn load(&self, items: &[Item]) -> Result<(), StoreError> {
        self.with(|database| {
            let transaction = begin_write(database)?;
            {
                let mut accounts = transaction.open_table(ACCOUNTS)?;
                let mut keys = transaction.open_table(KEYS)?;
                let mut hours = transaction.open_table(HOURS)?;
                let mut remembered = transaction.open_table(OPERATIONS)?;
                let mut sums = transaction.open_table(SUMS)?;
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
                        Item::DaySums {
                            account,
                            day,
                            subject,
                            models,
                        } => {
                            let Some(subject) = Subject::parse(subject) else {
                                continue;
                            };
                            let counted = models.iter().map(|(model, counted)| ChangedSum {
                                day: *day,
                                subject: subject.clone(),
                                model: model.clone(),
                                sums: Some(*counted),
                            });
                            put_sums(&mut sums, account, &counted.collect::<Vec<_>>())?;
                        }
                        Item::Stability { node, hour, bucket } => {
                            let (hour, bucket) = (*hour, bucket.clone());
                            put(&mut hours, node, &Share { hour, bucket })?;
                        }
                        Item::Key { .. } | Item::KeyGone { .. } | Item::Row { .. } => {}
                    }
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
    match dump_sums(snapshot, send)? {
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

/// The same of the daily sums, day by day.
fn dump_sums(
    snapshot: &ReadTransaction,
    send: &mut impl FnMut(Option<Item>) -> Option<bool>,
) -> Result<Option<bool>, redb::Error> {
    let mut gathered: Option<(String, i64, DailySums)> = None;
    let mut send_day = |gathered: Option<(String, i64, DailySums)>| {
        let items = gathered.map(|(account, day, sums)| Item::day_sums(&account, day, &sums));
        for item in items.into_iter().flatten() {
            match send(Some(item)) {
                Some(true) => {}
                other => return other,
            }
        }
        Some(true)
    };
    for entry in snapshot.open_table(SUMS)?.iter()? {
        let (place, sealed) = entry?;
        let (account, day, subject, model) = place.value();
        let Some((subject, counted)) = Subject::parse(subject).zip(unseal_sums(sealed.value())) else {
            return Ok(None);
        };
        let is_same = gathered.as_ref().is_some_and(|(of, on, _)| of == account && *on == day);
        if !is_same {
            match send_day(gathered.replace((account.to_owned(), day, DailySums::default()))) {
                Some(true) => {}
                other => return Ok(other),
            }
        }
        if let Some((_, _, sums)) = &mut gathered {
            sums.add_to(day, subject, model.into(), &counted);
        }
    }
    Ok(send_day(gathered))
}
