//! The parts that the admin API works on.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::Mutex;

use super::{
    changes_seen::ChangeCounter,
    home::AdminLogBackends,
    parts::{ConsoleLinks, ProviderDirectory, Upgrades},
    peer::AdminPeer,
    recent::{ResponseCache, SharedAnswer},
};
use crate::{
    admin::audit::{Audit, AuditError},
    api::error::AdminError,
    api::node::AuditedChange,
    domain::{keys::secret::KeyPrefix, role::Role},
    edges::{clock, low_priority::LowPriorityThreads},
    money::account_changes::AccountChanges,
    sign_in::AgentSignIns,
    sinks::reading::LogReader,
    store::{KeyStore, archive::Archive, ledger::LedgerStore, web_sessions::WebSessionStore},
};

/// How many pieces of exports are written concurrently.
const EXPORTING_THREADS: usize = 2;

/// The admin API, with the parts that it works on.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(super) store: Arc<dyn KeyStore>,
    pub(super) ledger: Arc<dyn LedgerStore>,
    pub(super) changes: Arc<dyn AccountChanges>,
    pub(super) archive: Option<Arc<dyn Archive>>,
    /// The log backends.
    pub(super) homes: AdminLogBackends,
    /// Reads the log from all backends.
    pub(super) log: Arc<LogReader>,
    /// Writes exports of the log. Its threads are reused, so that an export reuses the memory of the previous one.
    pub(super) exporting: LowPriorityThreads,
    pub(super) providers: Arc<dyn ProviderDirectory>,
    pub(super) prefix: KeyPrefix,
    pub(super) audit: Audit,
    /// Makes links into the console; `None` if the console is off.
    pub(super) console: Option<Arc<dyn ConsoleLinks>>,
    /// The sessions of people in browsers.
    pub(super) web_sessions: Arc<dyn WebSessionStore>,
    /// Signs agents in; `None` if that is off.
    pub(super) sign_ins: Option<Arc<AgentSignIns>>,
    /// Starts a successor; `None` if this process cannot be upgraded.
    pub(super) upgrades: Option<Arc<dyn Upgrades>>,
    /// Held while an account is changed, one at a time.
    pub(super) changing: Arc<Mutex<()>>,
    /// Counts the changes made through this node.
    pub(super) changes_seen: ChangeCounter,
    /// The recent answers.
    pub(super) recent: Arc<ResponseCache<SharedAnswer>>,
}

/// The stores that the admin API reads and changes.
#[derive(Clone)]
pub(crate) struct AdminStores {
    pub keys: Arc<dyn KeyStore>,
    /// Reads accounts and the consumption log.
    pub ledger: Arc<dyn LedgerStore>,
    /// Changes accounts, and records changes of keys.
    pub changes: Arc<dyn AccountChanges>,
    /// The whole store, for backups; `None` if other processes can read the store directly.
    pub archive: Option<Arc<dyn Archive>>,
    /// The log backends.
    pub homes: AdminLogBackends,
    /// The sessions of people in browsers.
    pub web_sessions: Arc<dyn WebSessionStore>,
}

impl Admin {
    /// The API on these parts.
    pub(crate) fn new(
        stores: AdminStores,
        providers: Arc<dyn ProviderDirectory>,
        prefix: KeyPrefix,
        audit: Audit,
        upgrades: Option<Arc<dyn Upgrades>>,
    ) -> Self {
        let log = stores.homes.reading();
        Self {
            log: Arc::new(log),
            exporting: LowPriorityThreads::new(EXPORTING_THREADS),
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
            changes_seen: ChangeCounter::default(),
            recent: Arc::default(),
        }
    }

    /// Reads the log from all backends.
    pub(crate) fn log(&self) -> &Arc<LogReader> {
        &self.log
    }

    /// Adds links into the console.
    pub(crate) fn with_console(self, links: Arc<dyn ConsoleLinks>) -> Self {
        Self {
            console: Some(links),
            ..self
        }
    }

    /// Adds the sign-in of agents.
    pub(crate) fn with_sign_ins(self, sign_ins: Option<Arc<AgentSignIns>>) -> Self {
        Self { sign_ins, ..self }
    }

    /// Records a change and its author, before it is made.
    pub(super) async fn audit(
        &self,
        peer: AdminPeer,
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

    /// Records a sign-in before it takes place. Not a question of the API: only pages of this process may call it.
    ///
    /// # Errors
    /// The record cannot be written, so nobody must be signed in.
    pub(crate) async fn record_sign_in(&self, peer: AdminPeer, role: Role) -> Result<(), AdminError> {
        let _change = self.changes_seen.begin();
        let written = self.audit(peer, "console.sign_in", "", &AuditedSignIn { role }).await;
        written.map_err(|error| AdminError::failed(error.to_string()))
    }
}

/// The values of a sign-in in the audit record.
#[derive(Serialize)]
struct AuditedSignIn {
    role: Role,
}
