//! Records operators' changes in the journal. If a failover of the store loses a credit, a suspension or a revocation that
//! the store had acknowledged, the change is sent again from the journal.

use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

use crate::domain::{
    keys::{
        key::{KeyId, KeyRecord},
        secret::KeyDigest,
    },
    ledger::{AccountChange, AccountRecord},
};

#[cfg(test)]
pub(crate) mod direct;
pub(crate) mod journaled;

/// How long a change that is in the journal waits for the store to apply it, before the operator gets the response.
pub(crate) const APPLIED_WAIT: Duration = Duration::from_secs(2);

/// Records changes on disk before it returns, and sees to it that the store gets them.
#[async_trait]
pub(crate) trait AccountChanges: Send + Sync {
    /// Records the change as this node's next step of the account: in the journal, synced to disk, then applied by the store.
    /// Waits at most [`APPLIED_WAIT`] for the store. Dropping the future once the step is in the journal does not undo it.
    async fn submit(&self, account: &str, change: AccountChange) -> Result<Submitted, AccountChangeError>;

    /// Writes the account's new record to the journal, synced to disk. This node stops admitting by the old record at once.
    async fn account_changed(&self, account: &str, record: &AccountRecord) -> Result<(), AccountChangeError>;

    /// Writes the key's new record to the journal, synced to disk.
    async fn key_changed(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), AccountChangeError>;

    /// Records in the journal, synced to disk, that a key was deleted from the store at `revision`.
    async fn key_gone(&self, id: &KeyId, revision: u64) -> Result<(), AccountChangeError>;
}

/// The state of a submitted change. Either way it is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// The store has applied it: it is in effect.
    Applied,
    /// It is recorded, and takes effect as soon as the store answers.
    Recorded,
}

/// The journal cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the journal cannot be written: {0}; check its folder and the space on its disk")]
pub(crate) struct AccountChangeError(pub String);
