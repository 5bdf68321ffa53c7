//! Brings operators' changes to the journal. If a failover loses a credit, a suspension or a revocation that the store
//! had acknowledged, it is repeated from there.

use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

use crate::domain::{
    keys::{
        key::{KeyId, KeyRecord},
        secret::KeyDigest,
    },
    ledger::{AccountRecord, Change},
};

#[cfg(test)]
pub(crate) mod direct;
pub(crate) mod journaled;

/// How long an operator waits until the store has applied a change that is in the journal.
pub(crate) const APPLIED_WAIT: Duration = Duration::from_secs(2);

/// Writes changes down, on disk before it answers, and sees to it that the store learns of them.
#[async_trait]
pub(crate) trait AccountChanges: Send + Sync {
    /// Makes the change the next step of this node on the account: in the journal, synced to disk, then applied by the store.
    /// Waits at most [`APPLIED_WAIT`] for the latter. Dropping the future after the step is in the journal does not undo it.
    async fn submit(&self, account: &str, change: Change) -> Result<Submitted, AccountChangeError>;

    /// An account's record stands so in the store: writes that into the journal, synced to disk. What this node admits by what it
    /// knew of the account ends at once.
    async fn account_changed(&self, account: &str, record: &AccountRecord) -> Result<(), AccountChangeError>;

    /// A key stands in the store in this form: writes that into the journal, synced to disk.
    async fn key_changed(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), AccountChangeError>;

    /// A key that stood at `revision` was deleted from the store: writes that into the journal, synced to disk.
    async fn key_gone(&self, id: &KeyId, revision: u64) -> Result<(), AccountChangeError>;
}

/// How far a change has come. Either way it is not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// The store has applied it: it holds.
    Applied,
    /// It is recorded, and will hold as soon as the store answers.
    Recorded,
}

/// The journal cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the journal cannot be written: {0}; check its folder and the space on its disk")]
pub(crate) struct AccountChangeError(pub String);
