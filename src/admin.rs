//! Handles the calls of the admin API; the API's listeners are elsewhere. Callers are the subcommands, the console and the
//! portal. Every change is written to the audit record before it is made. All users of the console share recent answers, so the
//! load on the store does not grow with the number of users.

mod accounts;
pub(crate) mod audit;
mod keys;
pub(crate) mod log;
mod node;
pub(crate) mod sessions;
mod usage;
mod verify;

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::Method;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    admin::audit::{Audit, AuditError, Author},
    api::{
        AdminError, AdminErrorCode, AdminQuestion,
        node::{AuditedChange, ModelView, ProviderView, UpgradedProcess},
        sessions::ConsoleLink,
        wire::AdminCall,
    },
    domain::{keys::secret::KeyPrefix, money::price::Price, sign_in::Role},
    edges::{clock, low_priority::LowPriorityThreads},
    money::account_changes::{AccountChangeError, AccountChanges},
    sign_in::AgentSignIns,
    sinks::reading::LogReader,
    store::{ChangeError, KeyStore, StoreError, archive::Archive, ledger::LedgerStore, sessions::WebSessionStore},
};

pub(crate) use crate::admin::audit::AdminPeer;
pub(crate) use crate::admin::audit::ConnectionExtension;
pub(crate) use crate::admin::node::AdminLogBackends;

/// Lists the models and providers of this node, and switches providers on and off.
pub(crate) trait ProviderDirectory: Send + Sync {
    /// Returns the models that are served now. Leaves out a model whose providers are all switched off.
    fn models(&self) -> Vec<ModelView>;
    /// Returns the public name of the model with this name or alias, even if the model is not served now.
    ///
    /// # Errors
    /// No model has this name or alias. The error contains the most similar name, or `None` if no name is similar enough.
    fn model_named(&self, name: &str) -> Result<String, Option<String>>;
    /// Returns the current price of a model at a provider. `model` is the model's public name. `None` if the provider does not
    /// have the model.
    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>>;
    /// Returns all providers, including those that are switched off.
    fn providers(&self) -> Vec<ProviderView>;
    /// Switches a provider on or off. Returns whether this has changed the provider's state.
    ///
    /// # Errors
    /// The new state cannot be saved, so the provider's state has not changed.
    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool>;
}

/// Issues links that open sessions of the console.
pub(crate) trait ConsoleLinks: Send + Sync {
    /// Issues a link that opens one console session with the role `role`. The audit record names `opener` as the caller that
    /// opened the session. The link must be opened within a minute.
    ///
    /// # Errors
    /// No link can be issued. The error contains the reason.
    fn issue(&self, opener: &AdminPeer, role: Role) -> Result<ConsoleLink, String>;
}

/// Upgrades weir by starting a successor of this process.
#[async_trait]
pub(crate) trait Upgrades: Send + Sync {
    /// Starts the successor, and returns as soon as the successor serves requests. The upgrade continues even if the returned
    /// future is dropped.
    ///
    /// # Errors
    /// The successor does not serve requests. The error contains the reason. This process continues to serve requests.
    async fn upgrade(self: Arc<Self>) -> Result<UpgradedProcess, String>;
}

/// The number of threads that write exports of the log.
const EXPORTING_THREADS: usize = 2;

/// The handler of all calls of the admin API. It holds the components of weir that the calls read or change.
#[derive(Clone)]
pub(crate) struct Admin {
    store: Arc<dyn KeyStore>,
    ledger: Arc<dyn LedgerStore>,
    changes: Arc<dyn AccountChanges>,
    archive: Option<Arc<dyn Archive>>,
    /// The current and the former log backend.
    homes: AdminLogBackends,
    /// The reader of the log in all log backends.
    log: Arc<LogReader>,
    /// The threads that write exports of the log. The threads continue to exist after an export, so the next export reuses their
    /// memory.
    exporting: LowPriorityThreads,
    providers: Arc<dyn ProviderDirectory>,
    prefix: KeyPrefix,
    audit: Audit,
    /// The issuer of links that open the console. `None` if the console is off.
    console: Option<Arc<dyn ConsoleLinks>>,
    /// The sessions of users of the console and the portal.
    web_sessions: Arc<dyn WebSessionStore>,
    /// The sign-ins of agents. `None` if agents cannot sign in.
    sign_ins: Option<Arc<AgentSignIns>>,
    /// The component that starts a successor of this process. `None` if this process cannot be upgraded.
    upgrades: Option<Arc<dyn Upgrades>>,
    /// Locked while an account is changed, so that this process changes one account at a time.
    changing: Arc<tokio::sync::Mutex<()>>,
    /// The number of changes that were made through this node.
    changes_seen: ChangeCounter,
    /// The cache of recent answers, which callers share.
    recent: Arc<ResponseCache<SharedAnswer>>,
}

/// The stores that the admin API reads and changes.
#[derive(Clone)]
pub(crate) struct AdminStores {
    pub keys: Arc<dyn KeyStore>,
    /// The ledger, from which accounts and the consumption log are read.
    pub ledger: Arc<dyn LedgerStore>,
    /// The component that records changes of accounts and keys in the journal, and makes sure that the store gets them.
    pub changes: Arc<dyn AccountChanges>,
    /// The complete store, for backups. `None` if other processes can read the store directly.
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

    /// Returns the log reader, which reads from all log backends.
    pub(crate) fn log(&self) -> &Arc<LogReader> {
        &self.log
    }

    /// Adds the issuer of links that open the console.
    pub(crate) fn with_console(self, links: Arc<dyn ConsoleLinks>) -> Self {
        Self {
            console: Some(links),
            ..self
        }
    }

    /// Adds the sign-ins of agents; with `None`, agents cannot sign in.
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

    /// Writes a sign-in to the audit record, before the sign-in takes effect. This is not a call of the API. Only the console and
    /// the portal of this process use it.
    ///
    /// # Errors
    /// The audit record cannot be written. The caller must not complete the sign-in.
    pub(crate) async fn record_sign_in(&self, peer: AdminPeer, role: Role) -> Result<(), AdminError> {
        let _change = self.changes_seen.begin();
        let written = self.audit(peer, "console.sign_in", "", &AuditedSignIn { role }).await;
        written.map_err(|error| AdminError::failed(error.to_string()))
    }
}

/// The values that the audit record contains for a sign-in.
#[derive(Serialize)]
struct AuditedSignIn {
    role: Role,
}

/// The minimum time for which an answer is reused.
const REUSE_MIN: Duration = Duration::from_secs(1);
/// An answer is reused for this multiple of the time that its preparation took. Therefore preparing the same answer repeatedly
/// occupies the store for at most a twentieth of the time, unless the maximum time for reuse applies.
const REUSE_FACTOR: u32 = 20;
/// The maximum time for which an answer is reused.
const REUSE_MAX: Duration = Duration::from_secs(30);
/// The maximum number of stored answers. Each answer takes at most about 200 KB. If this many answers are stored, further answers
/// are not stored or shared.
const ANSWERS_MAX: usize = 64;

/// An answer of the admin API that several callers share.
type SharedAnswer = Result<Arc<dyn Any + Send + Sync>, AdminError>;

/// The recent answers, by the path and query of the call.
struct ResponseCache<T> {
    answers: Mutex<HashMap<String, Arc<CachedAnswer<T>>>>,
}

/// An answer that is ready or is being prepared.
struct CachedAnswer<T> {
    /// The number of changes that had been made through this node when the answer was requested.
    changes: u64,
    made: OnceCell<TimedAnswer<T>>,
}

struct TimedAnswer<T> {
    answer: T,
    good_until: Instant,
}

impl<T> Default for ResponseCache<T> {
    fn default() -> Self {
        Self {
            answers: Mutex::default(),
        }
    }
}

impl<T: Clone> ResponseCache<T> {
    /// Returns a recent result for the same path, if no change has been made through this node since that result was requested.
    /// Otherwise calls `make` and returns its result. Concurrent callers share one call of `make`.
    async fn get(&self, path: &str, changes: &ChangeCounter, make: impl Future<Output = T>) -> T {
        let known = self.entry(path, changes.count(), clock::instant());
        let made = known.made.get_or_init(|| async {
            let began = clock::instant();
            let answer = make.await;
            let now = clock::instant();
            let good_until = now + reuse_time(now.saturating_duration_since(began));
            TimedAnswer { answer, good_until }
        });
        made.await.answer.clone()
    }

    fn entry(&self, path: &str, changes: u64, now: Instant) -> Arc<CachedAnswer<T>> {
        let mut answers = self.answers.lock();
        if let Some(known) = answers.get(path).filter(|known| known.is_good(changes, now)) {
            return Arc::clone(known);
        }
        answers.retain(|_, known| known.is_good(changes, now));
        let made = OnceCell::new();
        let new = Arc::new(CachedAnswer { changes, made });
        if answers.len() < ANSWERS_MAX {
            answers.insert(path.to_owned(), Arc::clone(&new));
        }
        new
    }
}

impl<T> CachedAnswer<T> {
    fn is_good(&self, changes: u64, now: Instant) -> bool {
        self.changes == changes && self.made.get().is_none_or(|made| now < made.good_until)
    }
}

/// Returns the time for which an answer can be reused, from the time that it took to prepare.
fn reuse_time(took: Duration) -> Duration {
    took.saturating_mul(REUSE_FACTOR).clamp(REUSE_MIN, REUSE_MAX)
}

/// A counter of the changes that were made through this node. All parts of the admin API share the counter.
#[derive(Clone, Debug, Default)]
struct ChangeCounter(Arc<AtomicU64>);

/// A change in progress. When this value is dropped, the change is counted, whether it succeeded or failed.
#[must_use = "the change counts as made when this is dropped"]
struct PendingChange<'a>(&'a AtomicU64);

impl ChangeCounter {
    /// Returns the number of changes so far.
    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Begins a change, which is counted when the returned value is dropped.
    fn begin(&self) -> PendingChange<'_> {
        PendingChange(&self.0)
    }
}

impl Drop for PendingChange<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::NotFound => AdminErrorCode::NotFound,
            StoreError::Duplicate | StoreError::Deleted => AdminErrorCode::Duplicate,
            StoreError::Unavailable(_) | StoreError::Busy(_) => AdminErrorCode::StoreUnavailable,
            StoreError::Corrupt(_) => AdminErrorCode::StoreCorrupt,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ChangeError> for AdminError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::NotChanged(why) => why.into(),
        }
    }
}

impl From<AuditError> for AdminError {
    fn from(error: AuditError) -> Self {
        Self::new(
            AdminErrorCode::AuditUnavailable,
            format!("nothing was changed, because the audit record cannot be written: {error}"),
        )
    }
}

impl From<AccountChangeError> for AdminError {
    fn from(error: AccountChangeError) -> Self {
        Self::new(
            AdminErrorCode::JournalUnavailable,
            format!("nothing was changed: {error}"),
        )
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        (self.status(), Json(json!({ "error": self }))).into_response()
    }
}

/// A call of the admin API that this process can answer.
pub(crate) trait AdminHandler: AdminQuestion {
    /// Answers the call.
    fn answer(self, admin: &Admin, author: Author) -> impl Future<Output = Result<Self::Answer, AdminError>> + Send;
}

impl Admin {
    /// Answers a call of the admin API.
    ///
    /// # Errors
    /// The call cannot be answered, or the author's role does not permit it.
    pub(crate) async fn call<Q: AdminHandler>(&self, author: Author, question: Q) -> Result<Q::Answer, AdminError> {
        author.peer.check_role(Q::ROLE)?;
        let _change = (Q::METHOD != Method::GET).then(|| self.changes_seen.begin());
        question.answer(self, author).await
    }

    /// Answers a read-only call. All callers share an answer for some seconds, so the answer must not depend on the author. The
    /// answer includes every change that was made through this node.
    ///
    /// # Errors
    /// The call cannot be answered, or the author's role does not permit it.
    pub(crate) async fn call_cached<Q: AdminHandler>(
        &self,
        author: Author,
        question: Q,
    ) -> Result<Arc<Q::Answer>, AdminError> {
        author.peer.check_role(Q::ROLE)?;
        let target = AdminCall::from_question(&question)?.target;
        let make = async {
            let answer: Arc<dyn Any + Send + Sync> = Arc::new(question.answer(self, author).await?);
            Ok(answer)
        };
        let answer = self.recent.get(&target, &self.changes_seen, make).await?;
        let failed = |_| AdminError::failed("another call has the same path and query, which is a bug");
        answer.downcast().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Requests an answer. The content of an answer is the number of answers that were prepared so far.
    async fn ask(recent: &ResponseCache<u64>, path: &str, changes: &ChangeCounter, made: &AtomicU64) -> u64 {
        let make = async { made.fetch_add(1, Ordering::SeqCst) + 1 };
        recent.get(path, changes, make).await
    }

    #[tokio::test]
    async fn who_asks_at_the_same_time_gets_one_answer() {
        let (recent, changes, made) = (ResponseCache::default(), ChangeCounter::default(), AtomicU64::new(0));
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let first = recent.get("/a", &changes, async {
            wait.await.unwrap();
            100
        });
        let second = async {
            let other = ask(&recent, "/b", &changes, &made).await;
            assert_eq!(other, 1, "another path waits for nobody");
            let joined = recent.get("/a", &changes, async { panic!("it is being made already") });
            let (joined, ()) = tokio::join!(joined, async { go.send(()).unwrap() });
            joined
        };
        assert_eq!(tokio::join!(first, second), (100, 100));
    }

    #[tokio::test]
    async fn a_change_is_seen_at_once() {
        let (recent, changes, made) = (ResponseCache::default(), ChangeCounter::default(), AtomicU64::new(0));
        for _ in 0..3 {
            assert_eq!(ask(&recent, "/a", &changes, &made).await, 1);
        }
        drop(changes.begin());
        assert_eq!(ask(&recent, "/a", &changes, &made).await, 2);
    }

    #[tokio::test]
    async fn an_answer_from_before_a_change_is_not_given_after_it() {
        let (recent, changes, made) = (ResponseCache::default(), ChangeCounter::default(), AtomicU64::new(0));
        let old = recent.get("/a", &changes, async {
            drop(changes.begin());
            100
        });
        assert_eq!(old.await, 100);
        assert_eq!(ask(&recent, "/a", &changes, &made).await, 1);
    }

    #[test]
    fn answers_become_old_by_what_they_cost() {
        let recent = ResponseCache::default();
        let now = clock::instant();
        let answer = recent.entry("/a", 0, now);
        let good_until = now + reuse_time(Duration::ZERO);
        let answer_made = TimedAnswer { answer: 1, good_until };
        assert!(answer.made.set(answer_made).is_ok());
        let is_same = |at: Instant| Arc::ptr_eq(&answer, &recent.entry("/a", 0, at));
        assert!(is_same(good_until - Duration::from_millis(1)));
        assert!(!is_same(good_until));
        assert_eq!(reuse_time(Duration::from_millis(3)), REUSE_MIN);
        assert_eq!(reuse_time(Duration::from_millis(500)), Duration::from_secs(10));
        assert_eq!(reuse_time(Duration::from_secs(500)), REUSE_MAX);
    }

    #[test]
    fn so_many_answers_are_kept_and_no_more() {
        let recent = ResponseCache::<u64>::default();
        let now = clock::instant();
        for path in 0..2 * ANSWERS_MAX {
            recent.entry(&path.to_string(), 0, now);
        }
        assert_eq!(recent.answers.lock().len(), ANSWERS_MAX);
    }
}
