//! The parts that the admin API works on.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::Mutex;

use super::{
    changes_seen::ChangesSeen,
    home::LogHomes,
    parts::{ConsoleLinks, Providers, Upgrades},
    peer::Peer,
    recent::{Recent, Shared},
};
use crate::{
    admin::audit::{Audit, AuditError},
    api::error::AdminError,
    api::node::AuditedChange,
    domain::{keys::secret::KeyPrefix, role::Role},
    edges::{clock, low_priority::LowPriority},
    money::account_changes::AccountChanges,
    sign_in::AgentSignIns,
    sinks::reading::LogReading,
    store::{KeyStore, archive::Archive, ledger::LedgerStore, web_sessions::WebSessionStore},
};

/// How many pieces of exports are written at a time; further ones wait for their turn.
const EXPORTING_THREADS: usize = 2;

/// The parts that the admin API works on.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(super) store: Arc<dyn KeyStore>,
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) changes: Arc<dyn AccountChanges>,
    pub(super) archive: Option<Arc<dyn Archive>>,
    /// Where the log is.
    pub(super) homes: LogHomes,
    /// The log, wherever it is.
    pub(super) log: Arc<LogReading>,
    /// Writes exports of it. Their threads stay, so that an export uses the memory of the one before.
    pub(super) exporting: LowPriority,
    pub(super) providers: Arc<dyn Providers>,
    pub(super) prefix: KeyPrefix,
    pub(super) audit: Audit,
    /// Makes links into the console; `None`: it is off.
    pub(super) console: Option<Arc<dyn ConsoleLinks>>,
    /// The sessions of people in browsers.
    pub(super) web_sessions: Arc<dyn WebSessionStore>,
    /// Signs agents in; `None`: it is off.
    pub(super) sign_ins: Option<Arc<AgentSignIns>>,
    /// `None`: it cannot be upgraded.
    pub(super) upgrades: Option<Arc<dyn Upgrades>>,
    /// Accounts are changed one after the other.
    pub(super) changing: Arc<Mutex<()>>,
    /// Counts what was changed through this node.
    pub(super) changes_seen: ChangesSeen,
    /// Answers of a moment ago.
    pub(super) recent: Arc<Recent<Shared>>,
}

/// What keys, accounts and the log are read from and changed by.
#[derive(Clone)]
pub(crate) struct Stores {
    pub keys: Arc<dyn KeyStore>,
    /// Reads accounts and the consumption log.
    pub ledger: Arc<dyn LedgerStore>,
    /// Changes accounts, and records changes of keys.
    pub changes: Arc<dyn AccountChanges>,
    /// Everything, for backups; `None` where others can read the store besides this process.
    pub archive: Option<Arc<dyn Archive>>,
    /// Where the log is.
    pub homes: LogHomes,
    /// The sessions of people in browsers.
    pub web_sessions: Arc<dyn WebSessionStore>,
}

impl Admin {
    /// The API on these parts.
    pub(crate) fn new(
        stores: Stores,
        providers: Arc<dyn Providers>,
        prefix: KeyPrefix,
        audit: Audit,
        upgrades: Option<Arc<dyn Upgrades>>,
    ) -> Self {
        let log = stores.homes.reading();
        Self {
            log: Arc::new(log),
            exporting: LowPriority::new(EXPORTING_THREADS),
            store: stores.keys,
            ledger: stores.ledger,
            changes: stores.changes,
            archive: stores.archive,
            homes: stores.homes,
            providers,
            prefix,
            audit,
            console: None,
            web_sessions: stores.web_sessions,
            sign_ins: None,
            upgrades,
            changing: Arc::default(),
            changes_seen: ChangesSeen::default(),
            recent: Arc::default(),
        }
    }

    /// The log, wherever it is.
    pub(crate) fn log(&self) -> &Arc<LogReading> {
        &self.log
    }

    /// The same with a console to open.
    pub(crate) fn with_console(self, links: Arc<dyn ConsoleLinks>) -> Self {
        Self {
            console: Some(links),
            ..self
        }
    }

    /// The same with agents that sign in.
    pub(crate) fn with_sign_ins(self, sign_ins: Option<Arc<AgentSignIns>>) -> Self {
        Self { sign_ins, ..self }
    }

    /// Writes down what is about to be changed, and by whom.
    pub(super) async fn audit(
        &self,
        peer: Peer,
        operation: &'static str,
        key_id: &str,
        values: &(impl Serialize + Sync),
    ) -> Result<(), AuditError> {
        let change = AuditedChange {
            time_unix_ms: clock::unix_millis(),
            peer: peer.audit_peer(),
            operation: operation.into(),
            key_id: key_id.to_owned(),
            values: serde_json::to_value(values).unwrap_or_default(),
        };
        self.audit.record(change).await
    }

    /// Writes down that somebody is about to be signed in. Only pages of this process can: it is no question of the API.
    ///
    /// # Errors
    /// The record cannot be written: nobody must be signed in.
    pub(crate) async fn signs_in(&self, peer: Peer, role: Role) -> Result<(), AdminError> {
        let _change = self.changes_seen.begin();
        let written = self.audit(peer, "console.sign_in", "", &SignIn { role }).await;
        written.map_err(|error| AdminError::failed(error.to_string()))
    }
}

/// The audit record's values of a sign-in.
#[derive(Serialize)]
struct SignIn {
    role: Role,
}
