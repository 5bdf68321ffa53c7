//! The admin API: accounts, keys, the log, models and providers, for the subcommands and a console to come. On a unix socket
//! the file's mode decides who may connect, over TCP ([`tcp`]) a certificate; every change is in the audit record before it
//! is made.

mod accounts;
mod backup;
mod change;
mod fields;
mod keys;
mod log;
mod providers;
mod reply;
pub mod tcp;

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Json, Router,
    extract::{DefaultBodyLimit, State},
    routing::{get, post},
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use serde::Serialize;
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
    sync::{Mutex, Semaphore, watch},
};

use crate::{
    account_changes::AccountChanges,
    clock,
    domain::{price::Price, secret::KeyPrefix},
    side::audit::{Audit, AuditError, AuditRecord},
    store::{KeyStore, archive::Archive, ledger::LedgerStore},
};

/// The largest request body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Connections served at once; more are closed.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may take to send a request's head.
const HEADER_READ: Duration = Duration::from_secs(10);
/// The pause after a failed accept: most often descriptors have run out, and asking again at once would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a whole connection may last: the client makes one call on each.
const CONNECTION_WAIT: Duration = Duration::from_secs(60);
/// How long one may last that takes a backup.
const BACKUP_WAIT: Duration = Duration::from_secs(4 * 3600);

/// The parts that the admin API works on.
#[derive(Clone)]
pub struct AdminState {
    store: Arc<dyn KeyStore>,
    ledger: Arc<dyn LedgerStore>,
    changes: Arc<dyn AccountChanges>,
    archive: Option<Arc<dyn Archive>>,
    providers: Arc<dyn Providers>,
    prefix: KeyPrefix,
    audit: Audit,
    /// Accounts are changed one after the other.
    changing: Arc<Mutex<()>>,
}

/// What keys, accounts and the log are read from and changed by.
#[derive(Clone)]
pub struct Stores {
    /// The store of keys.
    pub keys: Arc<dyn KeyStore>,
    /// Reads accounts and the consumption log.
    pub ledger: Arc<dyn LedgerStore>,
    /// Changes accounts, and records changes of keys.
    pub changes: Arc<dyn AccountChanges>,
    /// Everything, for backups; `None` where others can read the store besides this process.
    pub archive: Option<Arc<dyn Archive>>,
}

/// A model as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub struct ModelView {
    /// The public name.
    pub name: String,
    /// The human-readable name.
    pub display_name: String,
    /// The preferred provider.
    pub provider: String,
    /// The protocols in which it is served.
    pub protocols: Vec<&'static str>,
    /// Its prices by provider.
    pub prices: BTreeMap<String, Arc<Price>>,
}

/// A provider as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderView {
    /// The name in the configuration.
    pub name: String,
    /// The human-readable name.
    pub display_name: String,
    /// Whether the configuration has it on and a secret of it is there.
    pub configured: bool,
    /// Why the configuration has it off; `None` where it is on.
    pub why_off: Option<String>,
    /// Whether no operator has switched it off.
    pub enabled: bool,
    /// Its credentials, with their rests.
    pub credentials: Vec<CredentialView>,
    /// The number of addresses ejected after failures in a row.
    pub places_ejected: usize,
    /// Models that are requested from other providers, after failures in a row.
    pub passed_over: Vec<PassedOverView>,
}

/// A model that a provider is not asked for now.
#[derive(Clone, Debug, Serialize)]
pub struct PassedOverView {
    /// The provider's name for the model.
    pub model: String,
    /// Seconds until a request may probe it.
    pub asked_again_seconds: u64,
}

/// A credential as the API shows it: never the secret.
#[derive(Clone, Debug, Serialize)]
pub struct CredentialView {
    /// Its name.
    pub name: String,
    /// Seconds until the credential's rest ends; 0 if it is in use.
    pub rests_seconds: u64,
}

/// What is served now, and the switches of its providers.
pub trait Providers: Send + Sync {
    /// The models that are served now, without those whose providers are all switched off.
    fn models(&self) -> Vec<ModelView>;
    /// The public name of the model that a name or an alias means, served now or not.
    ///
    /// # Errors
    /// There is none; with the nearest name there is, if one is near.
    fn model_named(&self, name: &str) -> Result<String, Option<String>>;
    /// All providers, on or off.
    fn providers(&self) -> Vec<ProviderView>;
    /// Switches a provider on or off; true when that changed anything.
    ///
    /// # Errors
    /// The switch cannot be written down; then nothing has changed.
    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool>;
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
enum Peer {
    /// A process on this machine, as far as the system tells.
    Process { uid: Option<u32>, pid: Option<i32> },
    /// The holder of a certificate.
    Certified(Arc<str>),
}

/// How long a connection may last, which one of its calls can extend.
#[derive(Clone, Debug, Default)]
struct Patience(Arc<AtomicBool>);

impl Patience {
    fn extend(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl AdminState {
    /// The API on these parts.
    pub fn new(stores: Stores, providers: Arc<dyn Providers>, prefix: KeyPrefix, audit: Audit) -> Self {
        Self {
            store: stores.keys,
            ledger: stores.ledger,
            changes: stores.changes,
            archive: stores.archive,
            providers,
            prefix,
            audit,
            changing: Arc::default(),
        }
    }

    /// Writes down what is about to be changed, and by whom.
    async fn audit(
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

fn router(state: AdminState) -> Router {
    Router::new()
        .route("/v1/accounts", post(accounts::create).get(accounts::list))
        .route("/v1/accounts/{id}", get(accounts::show).patch(accounts::update))
        .route("/v1/accounts/{id}/credit", post(accounts::credit))
        .route("/v1/accounts/{id}/adjust", post(accounts::adjust))
        .route("/v1/accounts/{id}/suspend", post(accounts::suspend))
        .route("/v1/accounts/{id}/resume", post(accounts::resume))
        .route("/v1/log", get(log::query))
        .route("/v1/backup", get(backup::send))
        .route("/v1/keys", post(keys::create).get(keys::list))
        .route(
            "/v1/keys/{id}",
            get(keys::show).patch(keys::update).delete(keys::delete),
        )
        .route("/v1/keys/{id}/rotate", post(keys::rotate))
        .route("/v1/keys/{id}/revoke", post(keys::revoke))
        .route("/v1/models", get(models))
        .route("/v1/providers", get(providers::list))
        .route("/v1/providers/{name}/enable", post(providers::enable))
        .route("/v1/providers/{name}/disable", post(providers::disable))
        .fallback(async || reply::ApiError::not_found("no such path in the admin API"))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(state)
}

async fn models(State(state): State<AdminState>) -> Json<serde_json::Value> {
    Json(json!({ "models": state.providers.models() }))
}

/// Serves until the watch turns true; running requests may end.
pub async fn serve(listener: UnixListener, state: AdminState, mut shutdown: watch::Receiver<bool>) {
    let router = router(state);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A closed channel means the same as true: whoever could say so is gone.
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin socket cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            let credentials = stream.peer_cred().ok();
            let peer = Peer::Process {
                uid: credentials.map(|credentials| credentials.uid()),
                pid: credentials.and_then(|credentials| credentials.pid()),
            };
            served(stream, peer, router).await;
            drop(permit);
        });
    }
}

/// Serves a connection for as long as one may last. Its errors are its client's to see.
async fn served<S>(stream: S, peer: Peer, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let patience = Patience::default();
    let service = TowerToHyperService::new(router.layer(Extension(peer)).layer(Extension(patience.clone())));
    let mut serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = tokio::time::timeout(CONNECTION_WAIT, &mut serving).await;
    if ended.is_err() && patience.0.load(Ordering::Relaxed) {
        let _ = tokio::time::timeout(BACKUP_WAIT, serving).await;
    }
}

#[cfg(test)]
mod tests;
