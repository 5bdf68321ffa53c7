//! Writes changes as records of this node's journal.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{APPLIED_WAIT, AccountChangeError, AccountChanges, Submitted};
use crate::{
    domain::{
        keys::{
            key::{KeyId, KeyRecord},
            secret::KeyDigest,
        },
        ledger::{AccountRecord, Change, Record},
    },
    journal::{Journal, JournalError, STEP_BYTES_MAX},
    money::billing::Billing,
    store::ledger::LedgerStore,
};

/// How long between two questions whether the store has applied a change.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// The production's way.
pub(crate) struct JournaledChanges {
    journal: Arc<Journal>,
    ledger: Arc<dyn LedgerStore>,
    billing: Billing,
}

impl JournaledChanges {
    /// Writes to this journal; the settlement carries it to this ledger. What this node itself admits while the store is away
    /// heeds it at once.
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
        self.journal.synced(position).await.map_err(|error| failed(&error))
    }

    async fn applied(&self, account: &str, seq: u64) -> Submitted {
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
    async fn submit(&self, account: &str, change: Change) -> Result<Submitted, AccountChangeError> {
        let mut reservation = self
            .journal
            .reserve(STEP_BYTES_MAX)
            .map_err(|full| failed(&full.into()))?;
        // A journal that was begun anew goes on behind what the store has; a store that is away is asked by the settlement.
        self.billing.account_changed(account, false);
        let floor = self.ledger.watermark(self.journal.node(), account).await.unwrap_or(0);
        let (seq, position) = self
            .journal
            .append_step(account, change, floor, &mut reservation)
            .map_err(|error| failed(&error))?;
        self.journal.synced(position).await.map_err(|error| failed(&error))?;
        Ok(self.applied(account, seq).await)
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
