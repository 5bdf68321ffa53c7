//! An implementation of [`AccountChanges`] for tests that writes changes directly to a store.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{AccountChangeError, AccountChanges, Submitted};
use crate::{
    domain::{
        keys::{KeyId, KeyRecord, secret::KeyDigest},
        ledger::{AccountChange, AccountRecord, NodeId, Record, Step},
    },
    store::ledger::LedgerStore,
};

/// Numbers the steps in memory, and stores the records that a journal would have.
pub(crate) struct DirectChanges {
    ledger: Arc<dyn LedgerStore>,
    node: NodeId,
    last: tokio::sync::Mutex<HashMap<String, u64>>,
    journal: Mutex<Vec<Record>>,
    /// The fault that the next calls have; `None` for no fault.
    fault: Mutex<Option<InjectedFault>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// The store does not answer, so steps stay in the journal.
    StoreAway,
    /// Nothing can be written to the disk.
    DiskFull,
}

impl DirectChanges {
    pub(crate) fn new(ledger: Arc<dyn LedgerStore>) -> Self {
        Self {
            ledger,
            node: NodeId::generate(&mut rand::rng()),
            last: tokio::sync::Mutex::default(),
            journal: Mutex::default(),
            fault: Mutex::default(),
        }
    }

    pub(crate) fn journal(&self) -> Vec<Record> {
        self.journal.lock().clone()
    }

    pub(crate) fn fail(&self, fault: Option<InjectedFault>) {
        *self.fault.lock() = fault;
    }

    /// Sends all steps of an account from the journal to the store, as a settlement does.
    pub(crate) async fn send(&self, account: &str) {
        let of_account = |record| match record {
            Record::Step { account: owner, step } if owner == account => Some(step),
            _ => None,
        };
        let steps: Vec<Step> = self.journal().into_iter().filter_map(of_account).collect();
        self.ledger.apply(&self.node, account, &steps, 0).await.unwrap();
    }

    fn write(&self, record: Record) -> Result<Option<InjectedFault>, AccountChangeError> {
        let fault = *self.fault.lock();
        if fault == Some(InjectedFault::DiskFull) {
            return Err(AccountChangeError("no space left on device".to_owned()));
        }
        self.journal.lock().push(record);
        Ok(fault)
    }
}

#[async_trait]
impl AccountChanges for DirectChanges {
    async fn submit(&self, account: &str, change: AccountChange) -> Result<Submitted, AccountChangeError> {
        let mut last = self.last.lock().await;
        let seq = last.get(account).copied().unwrap_or_default() + 1;
        let step = Step { seq, change };
        let fault = self.write(Record::Step {
            account: account.into(),
            step: step.clone(),
        })?;
        last.insert(account.to_owned(), seq);
        if fault.is_some() {
            return Ok(Submitted::Recorded);
        }
        match self.ledger.apply(&self.node, account, &[step], 0).await {
            Ok(watermark) if watermark >= seq => Ok(Submitted::Applied),
            Ok(_) | Err(_) => Ok(Submitted::Recorded),
        }
    }

    async fn account_changed(&self, account: &str, record: &AccountRecord) -> Result<(), AccountChangeError> {
        let (account, record) = (account.into(), *record);
        self.write(Record::Account { account, record }).map(drop)
    }

    async fn key_changed(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), AccountChangeError> {
        let record = Box::new(record.clone());
        self.write(Record::Key {
            digest: *digest,
            record,
        })
        .map(drop)
    }

    async fn key_gone(&self, id: &KeyId, revision: u64) -> Result<(), AccountChangeError> {
        self.write(Record::KeyGone {
            id: id.clone(),
            revision,
        })
        .map(drop)
    }
}
