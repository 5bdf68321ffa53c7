//! Handover of the embedded store's files to a successor process, while requests of this process still run.
//!
//! To hand the files over, the process waits for running calls to end, makes later calls wait, writes all pending changes and
//! closes the files. The successor opens them and receives the state that is only in memory ([`HandoverState`]). From then on,
//! the process calls the successor for everything that its last requests need. If the successor does not start, the process opens
//! the files again: it reads the changes that the successor may have made, and [`LedgerStore::epochs`] advances.
//!
//! [`LedgerStore::epochs`]: crate::store::ledger::LedgerStore::epochs

#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join;
use serde::Serialize;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{Mutex, MutexGuard, RwLockWriteGuard, mpsc},
    time::timeout,
};

use crate::store::{
    KeyStore, StoreError, StoreOpenError,
    archive::{Archive, ArchiveItem},
    embedded::{
        EmbeddedStore, StoreInner,
        ledger::{AccountTable, EmbeddedLedger, NowMs},
        ownership::{FilesOwner, Successor, SuccessorCall, not_owner_error, read_line},
    },
    ledger::{LedgerStore, StabilityStore},
    sessions::SessionStore,
};

pub(crate) use super::ledger::HandoverState;

/// The maximum time to wait for running calls to end before the files are closed.
const CALLS_WAIT: Duration = Duration::from_secs(10);

/// The two parts of the embedded store, whose files are handed over together.
pub(crate) struct EmbeddedFiles {
    folder: PathBuf,
    /// Keys, sign-ins and sessions.
    pub(crate) keys: Arc<EmbeddedStore>,
    /// Accounts, daily sums and the stability record.
    pub(crate) ledger: Arc<EmbeddedLedger>,
    /// Locked during a backup, so that the files are not closed meanwhile. A backup takes as long as its client takes to
    /// receive it.
    backup: Mutex<()>,
}

/// The store's files after they were closed for a handover. Calls of the store wait until it is decided which process owns the
/// files from now on. If this value is dropped before that is decided, no process owns the files.
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
                tracing::error!(%error, "cannot parse a call from the predecessor process; the call fails");
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
