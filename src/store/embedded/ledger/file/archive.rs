//! Backup and restore of the ledger's file.

use redb::{ReadTransaction, ReadableDatabase, ReadableTable};
use tokio::sync::mpsc;

use super::{
    ACCOUNTS, ChangedSum, HOURS, KEYS, LedgerFile, OPERATIONS, SUMS, begin_write, put_sums, read_operations, seal,
    unseal,
};
use crate::store::embedded::ledger::file::daily_sums::put_share;
use crate::store::embedded::ledger::file::unseal_sums;
use crate::{
    domain::{
        faults::stability::{Hour, NodeHourCounters},
        keys::KeyId,
        ledger::{
            NodeId,
            daily_sums::{DailySums, SumSubject},
        },
    },
    store::{StoreError, archive::ArchiveItem},
};

impl LedgerFile {
    /// Sends the current content of the file as of one moment. An account and its changed sums are always written in the same
    /// commit, so the account and the sums that are sent agree. Writing continues meanwhile. Ends early if the receiver is
    /// dropped.
    pub(in crate::store::embedded::ledger) fn dump(&self, to: &mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        let snapshot = self.with(|database| Ok(database.begin_read()?))?;
        let mut send = |item: Option<ArchiveItem>| item.map(|item| to.blocking_send(item).is_ok());
        match dump(&snapshot, &mut send) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(StoreError::Corrupt(
                "a part of the ledger's file is unreadable".to_owned(),
            )),
            Err(error) => Err(StoreError::Unavailable(format!(
                "cannot read the ledger's file: {error}"
            ))),
        }
    }

    /// Adds items to the file. Ignores rows, whose sums are separate items.
    pub(in crate::store::embedded::ledger) fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
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
                        ArchiveItem::Account {
                            id,
                            standing,
                            operations,
                        } => {
                            accounts.insert(id.as_str(), seal(standing)?.as_slice())?;
                            remembered.insert(id.as_str(), seal(operations)?.as_slice())?;
                        }
                        ArchiveItem::AccountKey { account, id, state } => {
                            keys.insert((account.as_str(), id.as_str()), seal(state)?.as_slice())?;
                        }
                        ArchiveItem::DaySums {
                            account,
                            day,
                            subject,
                            models,
                        } => {
                            let Some(subject) = SumSubject::parse(subject) else {
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
                        ArchiveItem::Stability { node, hour, bucket } => {
                            let (hour, bucket) = (*hour, bucket.clone());
                            put_share(&mut hours, node, &NodeHourCounters { hour, bucket })?;
                        }
                        ArchiveItem::Key { .. } | ArchiveItem::KeyGone { .. } | ArchiveItem::Row { .. } => {}
                    }
                }
            }
            Ok(transaction.commit()?)
        })
    }
}

/// Sends all items with `send`, which gets `None` for an unreadable one. Returns `None` if there was an unreadable one, `false`
/// if the receiver was dropped, and otherwise `true`.
fn dump(
    snapshot: &ReadTransaction,
    send: &mut impl FnMut(Option<ArchiveItem>) -> Option<bool>,
) -> Result<Option<bool>, redb::Error> {
    let remembered = snapshot.open_table(OPERATIONS)?;
    for entry in snapshot.open_table(ACCOUNTS)?.iter()? {
        let (id, sealed) = entry?;
        let operations = read_operations(&remembered, id.value())?;
        let item = unseal(sealed.value()).zip(operations);
        let item = item.map(|(standing, operations)| ArchiveItem::Account {
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
        let item = item.map(|(id, state)| ArchiveItem::AccountKey {
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
        let item = item.map(|(node, bucket)| ArchiveItem::Stability {
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

/// Sends the daily sums day by day. Returns the same as [`dump`].
fn dump_sums(
    snapshot: &ReadTransaction,
    send: &mut impl FnMut(Option<ArchiveItem>) -> Option<bool>,
) -> Result<Option<bool>, redb::Error> {
    let mut gathered: Option<(String, i64, DailySums)> = None;
    let mut send_day = |gathered: Option<(String, i64, DailySums)>| {
        let items = gathered.map(|(account, day, sums)| ArchiveItem::day_sums(&account, day, &sums));
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
        let Some((subject, counted)) = SumSubject::parse(subject).zip(unseal_sums(sealed.value())) else {
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
