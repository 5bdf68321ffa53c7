//! The parts that the admin API works on.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::{served::Providers, upgrades::Upgrades};
use crate::{
    domain::keys::secret::KeyPrefix,
    edges::clock,
    money::account_changes::AccountChanges,
    side::audit::{Audit, AuditError, AuditRecord},
    store::{KeyStore, archive::Archive, ledger::LedgerStore},
};

/// The parts that the admin API works on.
#[derive(Clone)]
pub(crate) struct AdminState {
    pub(super) store: Arc<dyn KeyStore>,
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) changes: Arc<dyn AccountChanges>,
    pub(super) archive: Option<Arc<dyn Archive>>,
    pub(super) providers: Arc<dyn Providers>,
    pub(super) prefix: KeyPrefix,
    pub(super) audit: Audit,
    /// `None`: it cannot be upgraded.
    pub(super) upgrades: Option<Arc<dyn Upgrades>>,
    /// Accounts are changed one after the other.
    pub(super) changing: Arc<Mutex<()>>,
}

/// What keys, accounts and the log are read from and changed by.
#[derive(Clone)]
pub(crate) struct Stores {
    /// The store of keys.
    pub keys: Arc<dyn KeyStore>,
    /// Reads accounts and the consumption log.
    pub ledger: Arc<dyn LedgerStore>,
    /// Changes accounts, and records changes of keys.
    pub changes: Arc<dyn AccountChanges>,
    /// Everything, for backups; `None` where others can read the store besides this process.
    pub archive: Option<Arc<dyn Archive>>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// A process on this machine, as far as the system tells.
    Process { uid: Option<u32>, pid: Option<i32> },
    /// The holder of a certificate.
    Certified(Arc<str>),
}

impl AdminState {
    /// The API on these parts.
    pub(crate) fn new(
        stores: Stores,
        providers: Arc<dyn Providers>,
        prefix: KeyPrefix,
        audit: Audit,
        upgrades: Option<Arc<dyn Upgrades>>,
    ) -> Self {
        Self {
            store: stores.keys,
            ledger: stores.ledger,
            changes: stores.changes,
            archive: stores.archive,
            providers,
            prefix,
            audit,
            upgrades,
            changing: Arc::default(),
        }
    }

    /// Writes down what is about to be changed, and by whom.
    pub(super) async fn audit(
        &self,
        peer: Peer,
        operation: &'static str,
        key_id: &str,
        values: serde_json::Value,
    ) -> Result<(), AuditError> {
        let (peer_uid, peer_pid, peer_certificate) = match peer {
            Peer::Process { uid, pid } => (uid, pid, None),
            Peer::Certified(holder) => (None, None, Some(holder)),
        };
        let record = AuditRecord {
            time_unix_ms: clock::unix_millis(),
            peer_uid,
            peer_pid,
            peer_certificate,
            operation,
            key_id: key_id.to_owned(),
            values,
        };
        self.audit.record(record).await
    }
}
