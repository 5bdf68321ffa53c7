//! Records operators' changes to accounts and keys in the journal. If a failover of the store loses a credit, a suspension or a
//! revocation that the store had acknowledged, the change is sent again from the journal.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use thiserror::Error;

use crate::{
    domain::{
        keys::{KeyId, KeyRecord, secret::KeyDigest},
        ledger::{AccountChange, AccountRecord, Record},
    },
    journal::{Journal, JournalError, STEP_BYTES_MAX},
    money::billing::Billing,
    store::ledger::LedgerStore,
};

/// The maximum time for which an operator's request waits until the store has applied the change. During this time, the change is
/// already in the journal.
pub(crate) const APPLIED_WAIT: Duration = Duration::from_secs(2);

/// The service that records operators' changes on disk, and makes sure that the store gets them.
#[async_trait]
pub(crate) trait AccountChanges: Send + Sync {
    /// Records the change as this node's next step of the account. The step is written to the journal and synced to disk; then
    /// the store applies it. Waits at most [`APPLIED_WAIT`] for the store. If the future is dropped after the step was written to
    /// the journal, the step remains valid.
    async fn submit(&self, account: &str, change: AccountChange) -> Result<Submitted, AccountChangeError>;

    /// Writes the account's new record to the journal and syncs it to disk. This node immediately stops admitting requests under
    /// the old record.
    async fn account_changed(&self, account: &str, record: &AccountRecord) -> Result<(), AccountChangeError>;

    /// Writes the key's new record to the journal and syncs it to disk.
    async fn key_changed(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), AccountChangeError>;

    /// Records in the journal that a key was deleted from the store at `revision`, and syncs the journal to disk.
    async fn key_gone(&self, id: &KeyId, revision: u64) -> Result<(), AccountChangeError>;
}

/// Whether a submitted change is in effect. The change cannot be lost in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// The store has applied the change: it is in effect.
    Applied,
    /// The change is in the journal. It takes effect as soon as the store can be reached.
    Recorded,
}

/// A change could not be recorded, because the journal cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot write the journal: {0}; check its folder and the free space on its disk")]
pub(crate) struct AccountChangeError(pub String);

/// The interval at which weir checks whether the store has applied a change.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// The implementation of [`AccountChanges`] that production uses.
pub(crate) struct JournaledChanges {
    journal: Arc<Journal>,
    ledger: Arc<dyn LedgerStore>,
    billing: Billing,
}

impl JournaledChanges {
    /// Creates the service. The service writes changes to `journal`, and the settlement sends the journal's steps to `ledger`.
    /// `billing` applies each change immediately, even while the store is unreachable.
    pub(crate) fn new(journal: Arc<Journal>, ledger: Arc<dyn LedgerStore>, billing: Billing) -> Self {
        Self {
            journal,
            ledger,
            billing,
        }
    }

    async fn record(&self, record: &Record) -> Result<(), AccountChangeError> {
        let mut reservation = self
            .journal
            .reserve(STEP_BYTES_MAX)
            .map_err(|full| failed(&full.into()))?;
        let position = self
            .journal
            .append(record, &mut reservation)
            .map_err(|error| failed(&error))?;
        self.journal
            .wait_until_synced(position)
            .await
            .map_err(|error| failed(&error))
    }

    async fn wait_until_applied(&self, account: &str, seq: u64) -> Submitted {
        let applied = async {
            loop {
                let watermark = self.ledger.watermark(self.journal.node(), account).await;
                if watermark.is_ok_and(|watermark| watermark >= seq) {
                    return;
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        };
        match tokio::time::timeout(APPLIED_WAIT, applied).await {
            Ok(()) => Submitted::Applied,
            Err(_) => Submitted::Recorded,
        }
    }
}

#[async_trait]
impl AccountChanges for JournaledChanges {
    async fn submit(&self, account: &str, change: AccountChange) -> Result<Submitted, AccountChangeError> {
        let mut reservation = self
            .journal
            .reserve(STEP_BYTES_MAX)
            .map_err(|full| failed(&full.into()))?;
        // A new journal continues after the steps that the store has applied. If the store is unreachable, the settlement reads
        // the store's watermark later.
        self.billing.account_changed(account, false);
        let floor = self.ledger.watermark(self.journal.node(), account).await.unwrap_or(0);
        let (seq, position) = self
            .journal
            .append_step(account, change, floor, &mut reservation)
            .map_err(|error| failed(&error))?;
        self.journal
            .wait_until_synced(position)
            .await
            .map_err(|error| failed(&error))?;
        Ok(self.wait_until_applied(account, seq).await)
    }

    async fn account_changed(&self, account: &str, record: &AccountRecord) -> Result<(), AccountChangeError> {
        self.billing.account_changed(account, record.suspended);
        let (account, record) = (account.into(), *record);
        self.record(&Record::Account { account, record }).await
    }

    async fn key_changed(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), AccountChangeError> {
        let record = Box::new(record.clone());
        self.record(&Record::Key {
            digest: *digest,
            record,
        })
        .await
    }

    async fn key_gone(&self, id: &KeyId, revision: u64) -> Result<(), AccountChangeError> {
        let id = id.clone();
        self.record(&Record::KeyGone { id, revision }).await
    }
}

fn failed(error: &JournalError) -> AccountChangeError {
    AccountChangeError(error.to_string())
}

/// An implementation of [`AccountChanges`] for tests that writes changes directly to a store.
#[cfg(test)]
pub(crate) mod direct {
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
        /// The fault to inject into the next calls; `None` for no fault.
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
}
