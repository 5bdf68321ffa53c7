//! Which process owns the embedded store's files: this process, or its successor, to which it has handed them over.
//!
//! Keys and ledger each have an [`Ownership`], which contains their files. A call accesses the files through a guard that it
//! holds until its end. So the files are closed only when no call runs, and later calls wait until the new owner is decided. A
//! call that holds a guard must not take a second one: a task that waits for the first guard to be released may be queued between
//! the two, and then both wait forever.

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, mpsc, oneshot},
    time::timeout,
};

use crate::{
    domain::{
        faults::stability::{Hour, NodeHourCounters},
        keys::{KeyId, secret::KeyDigest},
        ledger::{AdmitCall, NodeId, OperationId, Step, TopUp},
        wire::{provider_state::StateKey, session_hint::ServedBy},
    },
    store::{
        KeyStore, StoreError, StoreOpenError,
        archive::{Archive, ArchiveItem},
        embedded::{
            EmbeddedStore, StoreInner,
            ledger::{AccountTable, EmbeddedLedger, NowMs},
        },
        ledger::{LedgerStore, StabilityStore},
        sessions::SessionStore,
    },
};

pub(crate) use super::ledger::HandoverState;

/// The owner of the files `F`.
pub(super) enum FilesOwner<F> {
    /// This process owns the files.
    Here(Arc<F>),
    /// The process that has taken this one's place owns the files. It answers the calls that this process's last requests need.
    At(Successor),
    /// The files were closed and could not be opened again.
    Nobody,
}

/// The files `F` with their owner.
pub(super) struct Ownership<F>(RwLock<FilesOwner<F>>);

impl<F> FilesOwner<F> {
    /// Forwards a call to the successor, and returns its answer.
    ///
    /// # Errors
    /// The error of the successor's store; [`StoreError::Unavailable`] if the successor has ended, or if there is none.
    pub(super) async fn forward<T: DeserializeOwned>(&self, call: &SuccessorCall) -> Result<T, StoreError> {
        match self {
            Self::At(successor) => successor.call(call).await,
            Self::Here(_) | Self::Nobody => Err(not_owner_error()),
        }
    }

    fn files(&self) -> Option<&Arc<F>> {
        match self {
            Self::Here(files) => Some(files),
            Self::At(_) | Self::Nobody => None,
        }
    }
}

impl<F> Ownership<F> {
    /// Creates the ownership of files that this process has opened.
    pub(super) fn new(files: F) -> Self {
        Self(RwLock::new(FilesOwner::Here(Arc::new(files))))
    }

    /// Returns the owner, for a call that can also be forwarded to a successor.
    pub(super) async fn owner(&self) -> RwLockReadGuard<'_, FilesOwner<F>> {
        self.0.read().await
    }

    /// Returns the files, for a call that only their owner can answer.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if this process does not own the files.
    pub(super) async fn here(&self) -> Result<RwLockReadGuard<'_, Arc<F>>, StoreError> {
        RwLockReadGuard::try_map(self.0.read().await, FilesOwner::files).map_err(|_| not_owner_error())
    }

    /// Returns the files without waiting; `None` if this process does not own them, or if the owner is being decided.
    pub(super) fn here_now(&self) -> Option<RwLockReadGuard<'_, Arc<F>>> {
        RwLockReadGuard::try_map(self.0.try_read().ok()?, FilesOwner::files).ok()
    }

    /// Waits until no call runs. Later calls wait until the guard is dropped.
    pub(super) async fn lock(&self) -> RwLockWriteGuard<'_, FilesOwner<F>> {
        self.0.write().await
    }
}

/// Returns the error of a call that only the owner of the files can answer.
pub(super) fn not_owner_error() -> StoreError {
    StoreError::Unavailable(
        "another weir process has taken over this store: run the command again, and that process answers it".to_owned(),
    )
}

/// A call to the successor. Each is named after a method of the traits in [`crate::store`]. A process that is stopping needs no
/// other calls: it accepts nothing new from operators, and an embedded ledger grants no leases.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::store::embedded) enum SuccessorCall {
    Find(KeyDigest),
    Touch(Vec<(KeyId, i64)>),
    ChangesSince(u64),
    Recall(Vec<StateKey>),
    Remember(Vec<(StateKey, ServedBy)>, i64),
    Admit(Box<AdmitCall>),
    TopUp(Box<TopUp>),
    Apply(NodeId, String, Vec<Step>, u64),
    Watermark(NodeId, String),
    Renew(NodeId, Vec<String>),
    Release(NodeId, String),
    Operation(String, OperationId),
    Tell(NodeId, Vec<NodeHourCounters>),
    Buckets(Hour, Hour),
}

/// Maximum length of a call or an answer, in bytes. That is enough for hundreds of steps, or for all hours of the stability
/// record.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of calls that wait to be sent.
const CALLS_WAITING_MAX: usize = 1024;
/// The timeout of a call, including the wait until it is sent.
const CALL_WAIT: Duration = Duration::from_secs(5);

/// A call to be sent, with the channel for its answer.
type PendingCall = (Vec<u8>, oneshot::Sender<Vec<u8>>);

/// The connection to the successor process. It is closed when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct Successor {
    calls: mpsc::Sender<PendingCall>,
}

impl Successor {
    /// Creates the connection from a stream on which the successor answers. Must be called on a runtime.
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (calls, waiting) = mpsc::channel(CALLS_WAITING_MAX);
        tokio::spawn(carry(stream, waiting));
        Self { calls }
    }

    /// Sends a call and waits for its answer.
    ///
    /// # Errors
    /// The error of the successor's store; [`StoreError::Unavailable`] if the successor has ended.
    async fn call<T: DeserializeOwned>(&self, call: &SuccessorCall) -> Result<T, StoreError> {
        let gone = || StoreError::Unavailable("the process that has taken over the store does not answer".to_owned());
        let garbled = |error: serde_json::Error| StoreError::Corrupt(error.to_string());
        let text = serde_json::to_vec(call).map_err(garbled)?;
        let (to, answer) = oneshot::channel();
        let asked = async {
            self.calls.send((text, to)).await.ok()?;
            answer.await.ok()
        };
        let answer = timeout(CALL_WAIT, asked).await.ok().flatten().ok_or_else(gone)?;
        serde_json::from_slice::<Result<T, StoreError>>(&answer).map_err(garbled)?
    }
}

/// Sends calls and receives their answers, one after another. Ends when the stream is closed; then later calls fail.
async fn carry(stream: UnixStream, mut waiting: mpsc::Receiver<PendingCall>) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    while let Some((mut call, to)) = waiting.recv().await {
        call.push(b'\n');
        if write.write_all(&call).await.is_err() {
            return;
        }
        let Some(answer) = read_line(&mut read).await else {
            return;
        };
        // The send fails if the caller has stopped waiting.
        let _ = to.send(answer);
    }
}

/// Reads one line, without its line feed; returns `None` at the end of the stream.
pub(in crate::store::embedded) async fn read_line<R: AsyncBufReadExt + Unpin>(read: &mut R) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    read.take(LINE_BYTES_MAX).read_until(b'\n', &mut text).await.ok()?;
    (text.pop() == Some(b'\n')).then_some(text)
}

/// The maximum time to wait for running calls to end before the files are closed.
const CALLS_WAIT: Duration = Duration::from_secs(10);

/// The two parts of the embedded store, whose files are handed over together.
pub(crate) struct EmbeddedFiles {
    folder: PathBuf,
    /// Keys, sign-ins and sessions.
    pub(crate) keys: Arc<EmbeddedStore>,
    /// Accounts, daily sums and the stability record.
    pub(crate) ledger: Arc<EmbeddedLedger>,
    /// Locked by a backup, which reads the files as slowly as its client, so that they are not closed meanwhile.
    backup: Mutex<()>,
}

/// Closed files. Calls wait until their new owner is decided. If this is dropped before that, no process owns the files.
pub(crate) struct ClosedFiles<'s> {
    files: &'s EmbeddedFiles,
    keys: RwLockWriteGuard<'s, FilesOwner<StoreInner>>,
    books: RwLockWriteGuard<'s, FilesOwner<AccountTable>>,
    _no_backup: MutexGuard<'s, ()>,
    carried: HandoverState,
}

impl EmbeddedFiles {
    /// Opens the files in `folder`, creating them if necessary. `carried` is the state that a predecessor process had only in
    /// memory.
    ///
    /// # Errors
    /// Another process has the files open, they cannot be opened, or weir did not write them.
    pub(crate) fn open(folder: &Path, now_ms: NowMs, carried: HandoverState) -> Result<Self, StoreOpenError> {
        Ok(Self {
            folder: folder.to_owned(),
            keys: Arc::new(EmbeddedStore::open(folder)?),
            ledger: Arc::new(EmbeddedLedger::open_with(folder, now_ms, carried)?),
            backup: Mutex::default(),
        })
    }

    /// Waits for running calls to end, writes all pending changes, and closes the files. Later calls wait. Returns the closed
    /// files and the state that is only in memory.
    ///
    /// # Errors
    /// This process does not own the files, they stay in use for too long, or they cannot be written. Then nothing has changed.
    pub(crate) async fn close(&self) -> Result<(ClosedFiles<'_>, HandoverState), StoreError> {
        let no_backup = self.backup.try_lock();
        let no_backup = no_backup
            .map_err(|_| StoreError::Busy("a backup is in progress: try again when it is finished".to_owned()))?;
        // The order of the two locks does not matter: no call uses both.
        let idle = join(self.keys.ownership.lock(), self.ledger.ownership.lock());
        let idle = timeout(CALLS_WAIT, idle).await;
        let (mut keys, mut books) =
            idle.map_err(|_| StoreError::Busy("running calls of the store did not end in time: try again".to_owned()))?;
        let (FilesOwner::Here(inner), FilesOwner::Here(open)) = (&*keys, &*books) else {
            return Err(not_owner_error());
        };
        let carried = self.ledger.close(open).await?;
        inner.close();
        *keys = FilesOwner::Nobody;
        *books = FilesOwner::Nobody;
        let closed = ClosedFiles {
            files: self,
            keys,
            books,
            _no_backup: no_backup,
            carried: carried.clone(),
        };
        Ok((closed, carried))
    }
}

impl ClosedFiles<'_> {
    /// Gives the files to the successor, which has opened them and serves requests.
    pub(crate) fn give_to(mut self, successor: Successor) {
        *self.keys = FilesOwner::At(successor.clone());
        *self.books = FilesOwner::At(successor);
    }

    /// Opens the files again after the successor has failed and its process has ended.
    ///
    /// # Errors
    /// The files cannot be opened. Then the store is unavailable until weir is started again.
    pub(crate) fn take_back(mut self) -> Result<(), StoreOpenError> {
        let files = self.files;
        let inner = StoreInner::open(&files.folder, files.keys.nudge.clone())?;
        let books = files.ledger.open_again(std::mem::take(&mut self.carried))?;
        *self.keys = FilesOwner::Here(Arc::new(inner));
        *self.books = FilesOwner::Here(Arc::new(books));
        // The successor may have changed something that is not in the files, so settlements are checked and caches are flushed.
        files.ledger.epochs.send_modify(|epoch| *epoch += 1);
        Ok(())
    }
}

impl Drop for ClosedFiles<'_> {
    /// Makes caches read the feed of the files' new owner.
    fn drop(&mut self) {
        self.files.keys.nudge.send_modify(|nudge| *nudge += 1);
    }
}

/// Sends the keys first, then the accounts with their daily sums.
#[async_trait]
impl Archive for EmbeddedFiles {
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        let _backup = self.backup.lock().await;
        self.keys.dump(to.clone()).await?;
        self.ledger.dump(to).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.keys.is_empty().await? && self.ledger.is_empty().await?)
    }

    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        self.keys.load(items).await?;
        self.ledger.load(items).await
    }
}

impl EmbeddedFiles {
    /// Answers the calls of the predecessor at the other end of `stream`. Returns when the predecessor has ended.
    pub(crate) async fn serve_predecessor(self: Arc<Self>, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        while let Some(call) = read_line(&mut read).await {
            let mut answer = self.answer(&call).await;
            answer.push(b'\n');
            if write.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, call: &[u8]) -> Vec<u8> {
        let call = match serde_json::from_slice::<SuccessorCall>(call) {
            Ok(call) => call,
            Err(error) => {
                tracing::error!(%error, "cannot parse a call of the predecessor process");
                let said = StoreError::Unavailable(
                    "the process that has taken over the store cannot parse this call".to_owned(),
                );
                return encode_answer(&Err::<(), _>(said));
            }
        };
        match call {
            SuccessorCall::Find(digest) => encode_answer(&self.keys.find(&digest).await),
            SuccessorCall::Touch(used) => encode_answer(&self.keys.record_uses(&used).await),
            SuccessorCall::ChangesSince(version) => encode_answer(&self.keys.changes_since(version).await),
            SuccessorCall::Recall(states) => encode_answer(&self.keys.recall(&states).await),
            SuccessorCall::Remember(served, now) => encode_answer(&self.keys.remember(&served, now).await),
            SuccessorCall::Admit(ask) => encode_answer(&self.ledger.admit(&ask).await),
            SuccessorCall::TopUp(ask) => encode_answer(&self.ledger.top_up(&ask).await),
            SuccessorCall::Apply(node, account, steps, upto) => {
                encode_answer(&self.ledger.apply(&node, &account, &steps, upto).await)
            }
            SuccessorCall::Watermark(node, account) => encode_answer(&self.ledger.watermark(&node, &account).await),
            SuccessorCall::Renew(node, accounts) => encode_answer(&self.ledger.renew(&node, &accounts).await),
            SuccessorCall::Release(node, account) => encode_answer(&self.ledger.release(&node, &account).await),
            SuccessorCall::Operation(account, id) => encode_answer(&self.ledger.operation_amount(&account, &id).await),
            SuccessorCall::Tell(node, shares) => encode_answer(&self.ledger.put_shares(&node, &shares).await),
            SuccessorCall::Buckets(first, last) => encode_answer(&self.ledger.buckets(first, last).await),
        }
    }
}

/// Returns an answer as JSON, which contains no line feeds.
fn encode_answer<T: Serialize>(answer: &Result<T, StoreError>) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot encode an answer to the predecessor process");
        b"null".to_vec()
    })
}
