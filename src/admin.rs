//! Handles the calls of the admin API, without its listeners. Callers are the subcommands, the console and the portal. Every
//! change is written to the audit record before it is made.

mod accounts;
pub(crate) mod audit;
pub(crate) mod errors;
mod keys;
pub(crate) mod log;

mod node;
mod overview;

pub(crate) mod recent;
pub(crate) mod sessions;
mod usage;
mod verify;

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::{
    admin::{
        audit::{Audit, AuditError},
        recent::{ChangeCounter, ResponseCache, SharedAnswer},
    },
    api::{
        error::AdminError,
        node::{AuditedChange, ModelView, ProviderView, UpgradedProcess},
        sessions::ConsoleLink,
    },
    domain::{keys::secret::KeyPrefix, money::price::Price, sign_in::Role},
    edges::{clock, low_priority::LowPriorityThreads},
    money::account_changes::AccountChanges,
    sign_in::AgentSignIns,
    sinks::reading::LogReader,
    store::{KeyStore, archive::Archive, ledger::LedgerStore, sessions::WebSessionStore},
};

pub(crate) use crate::admin::audit::AdminPeer;
pub(crate) use crate::admin::audit::ConnectionExtension;
pub(crate) use crate::admin::node::AdminLogBackends;

/// Lists the models and providers of this node, and switches providers on and off.
pub(crate) trait ProviderDirectory: Send + Sync {
    /// Returns the models that are served now. A model whose providers are all switched off is left out.
    fn models(&self) -> Vec<ModelView>;
    /// Returns the public name of the model that has this name or alias, whether it is served now or not.
    ///
    /// # Errors
    /// No model has this name or alias. Contains the most similar name, or `None` if no name is similar enough.
    fn model_named(&self, name: &str) -> Result<String, Option<String>>;
    /// Returns the current price of a model at a provider. `model` is the model's public name. `None` if the provider does not
    /// have the model.
    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>>;
    /// Returns all providers, including those that are switched off.
    fn providers(&self) -> Vec<ProviderView>;
    /// Switches a provider on or off. Returns whether the provider was in the other position before.
    ///
    /// # Errors
    /// The position cannot be saved. Nothing has changed.
    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool>;
}

/// Issues links that open sessions of the console.
pub(crate) trait ConsoleLinks: Send + Sync {
    /// Issues a link that must be opened within a minute and then opens one session, with this role, on behalf of `opener`.
    ///
    /// # Errors
    /// No link can be issued. Contains the reason.
    fn issue(&self, opener: &AdminPeer, role: Role) -> Result<ConsoleLink, String>;
}

/// Upgrades weir by starting a successor of this process.
#[async_trait]
pub(crate) trait Upgrades: Send + Sync {
    /// Starts the successor and returns when it serves. The upgrade continues even if the returned future is dropped.
    ///
    /// # Errors
    /// The successor does not serve; contains the reason. This process continues to serve.
    async fn upgrade(self: Arc<Self>) -> Result<UpgradedProcess, String>;
}

/// The number of threads that write exports of the log.
const EXPORTING_THREADS: usize = 2;

/// The handler of all calls of the admin API, with the parts that calls read and change.
#[derive(Clone)]
pub(crate) struct Admin {
    store: Arc<dyn KeyStore>,
    ledger: Arc<dyn LedgerStore>,
    changes: Arc<dyn AccountChanges>,
    archive: Option<Arc<dyn Archive>>,
    /// The current and the former log backend.
    homes: AdminLogBackends,
    /// Reads the log from all log backends.
    log: Arc<LogReader>,
    /// The threads that write exports of the log. They are reused, so that an export reuses the memory of the previous one.
    exporting: LowPriorityThreads,
    providers: Arc<dyn ProviderDirectory>,
    prefix: KeyPrefix,
    audit: Audit,
    /// Issues links that open the console. `None` if the console is off.
    console: Option<Arc<dyn ConsoleLinks>>,
    /// The sessions of users of the console and the portal.
    web_sessions: Arc<dyn WebSessionStore>,
    /// The sign-ins of agents. `None` if agents cannot sign in.
    sign_ins: Option<Arc<AgentSignIns>>,
    /// Starts a successor of this process. `None` if this process cannot be upgraded.
    upgrades: Option<Arc<dyn Upgrades>>,
    /// Locked while an account is changed, so that this process changes one account at a time.
    changing: Arc<Mutex<()>>,
    /// The number of changes that were made through this node.
    changes_seen: ChangeCounter,
    /// The most recent answers, which callers share.
    recent: Arc<ResponseCache<SharedAnswer>>,
}

/// The stores that the admin API reads and changes.
#[derive(Clone)]
pub(crate) struct AdminStores {
    pub keys: Arc<dyn KeyStore>,
    /// The ledger, from which accounts and the consumption log are read.
    pub ledger: Arc<dyn LedgerStore>,
    /// Submits changes of accounts, and records changes of keys in the journal.
    pub changes: Arc<dyn AccountChanges>,
    /// Backs up the complete store. `None` if other processes can read the store directly.
    pub archive: Option<Arc<dyn Archive>>,
    /// The current and the former log backend.
    pub homes: AdminLogBackends,
    /// The sessions of users of the console and the portal.
    pub web_sessions: Arc<dyn WebSessionStore>,
}

impl Admin {
    /// Creates the handler. The console and the sign-in of agents are off until they are added.
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

    /// Returns the reader of the log in all log backends.
    pub(crate) fn log(&self) -> &Arc<LogReader> {
        &self.log
    }

    /// Lets callers request links that open the console.
    pub(crate) fn with_console(self, links: Arc<dyn ConsoleLinks>) -> Self {
        Self {
            console: Some(links),
            ..self
        }
    }

    /// Lets agents sign in; `None` leaves that off.
    pub(crate) fn with_sign_ins(self, sign_ins: Option<Arc<AgentSignIns>>) -> Self {
        Self { sign_ins, ..self }
    }

    /// Writes a change and its author to the audit record. Must be called before the change is made.
    async fn audit(
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

    /// Writes a sign-in to the audit record, before it takes place. This is not a call of the API: only pages of this process
    /// make it.
    ///
    /// # Errors
    /// The audit record cannot be written. The sign-in must not take place.
    pub(crate) async fn record_sign_in(&self, peer: AdminPeer, role: Role) -> Result<(), AdminError> {
        let _change = self.changes_seen.begin();
        let written = self.audit(peer, "console.sign_in", "", &AuditedSignIn { role }).await;
        written.map_err(|error| AdminError::failed(error.to_string()))
    }
}

/// The values that the audit record has for a sign-in.
#[derive(Serialize)]
struct AuditedSignIn {
    role: Role,
}
