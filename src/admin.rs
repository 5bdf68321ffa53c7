//! The admin API without its listeners: it answers the questions of the subcommands, the console and the portal. Every change is
//! in the audit record before it is made.

mod accounts;
pub(crate) mod audit;
pub(crate) mod errors;
mod keys;
pub(crate) mod log;
mod log_backend;
mod node;
mod overview;
pub(crate) mod peer;
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

pub(crate) use crate::admin::log_backend::AdminLogBackends;
pub(crate) use crate::admin::peer::AdminPeer;
pub(crate) use crate::admin::peer::ConnectionExtension;

/// The served models and the providers, with their switches.
pub(crate) trait ProviderDirectory: Send + Sync {
    /// The served models. A model whose providers are all switched off is left out.
    fn models(&self) -> Vec<ModelView>;
    /// The public name of the model with this name or alias, whether it is served now or not.
    ///
    /// # Errors
    /// No model has it. Contains the most similar name, if one is similar enough.
    fn model_named(&self, name: &str) -> Result<String, Option<String>>;
    /// The current price of a model at a provider, by the model's public name; `None` if the provider does not have the model.
    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>>;
    /// All providers, whether they are on or off.
    fn providers(&self) -> Vec<ProviderView>;
    /// Switches a provider on or off. Returns whether that changed anything.
    ///
    /// # Errors
    /// The switch cannot be saved, and nothing has changed.
    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool>;
}

/// Makes links that open a session in the console.
pub(crate) trait ConsoleLinks: Send + Sync {
    /// A link that opens one session of `opener` with this role, within a minute.
    ///
    /// # Errors
    /// Why no link can be made.
    fn issue(&self, opener: &AdminPeer, role: Role) -> Result<ConsoleLink, String>;
}

/// Starts the successor of this process.
#[async_trait]
pub(crate) trait Upgrades: Send + Sync {
    /// Returns when the successor serves. The upgrade continues even if the caller stops waiting.
    ///
    /// # Errors
    /// Why the successor does not start. This process continues to serve.
    async fn upgrade(self: Arc<Self>) -> Result<UpgradedProcess, String>;
}

/// How many pieces of exports are written concurrently.
const EXPORTING_THREADS: usize = 2;

/// The admin API, with the parts that it works on.
#[derive(Clone)]
pub(crate) struct Admin {
    store: Arc<dyn KeyStore>,
    ledger: Arc<dyn LedgerStore>,
    changes: Arc<dyn AccountChanges>,
    archive: Option<Arc<dyn Archive>>,
    /// The log backends.
    homes: AdminLogBackends,
    /// Reads the log from all backends.
    log: Arc<LogReader>,
    /// Writes exports of the log. Its threads are reused, so that an export reuses the memory of the previous one.
    exporting: LowPriorityThreads,
    providers: Arc<dyn ProviderDirectory>,
    prefix: KeyPrefix,
    audit: Audit,
    /// Makes links into the console; `None` if the console is off.
    console: Option<Arc<dyn ConsoleLinks>>,
    /// The sessions of people in browsers.
    web_sessions: Arc<dyn WebSessionStore>,
    /// Signs agents in; `None` if that is off.
    sign_ins: Option<Arc<AgentSignIns>>,
    /// Starts a successor; `None` if this process cannot be upgraded.
    upgrades: Option<Arc<dyn Upgrades>>,
    /// Held while an account is changed, one at a time.
    changing: Arc<Mutex<()>>,
    /// Counts the changes made through this node.
    changes_seen: ChangeCounter,
    /// The recent answers.
    recent: Arc<ResponseCache<SharedAnswer>>,
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
