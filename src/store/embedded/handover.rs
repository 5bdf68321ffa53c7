//! The embedded store of a process that may hand it over to its successor while its own requests still run.
//!
//! To hand the files over, the process waits for running calls to end, makes later ones wait, writes all pending changes and
//! closes the files. The successor opens them and receives the state that no file keeps ([`HandoverState`]). From then on the
//! process calls the successor for what its last requests need. If the successor does not come up, the process opens the
//! files again: it reads what the successor may have changed, and [`LedgerStore::epochs`] advances.
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

/// How long running calls may take to end before the files are closed.
const CALLS_WAIT: Duration = Duration::from_secs(10);

/// The two parts of the embedded store, whose files are handed over together.
pub(crate) struct EmbeddedFiles {
    folder: PathBuf,
    /// Keys, sign-ins and sessions.
    pub(crate) keys: Arc<EmbeddedStore>,
    /// Accounts, daily sums and the public record.
    pub(crate) ledger: Arc<EmbeddedLedger>,
    /// Held by a backup, which reads the files at its client's pace: they are not closed meanwhile.
    backup: Mutex<()>,
}

/// Closed files. Calls wait until their new owner is decided. If this is dropped before that, nobody owns them.
pub(crate) struct ClosedFiles<'s> {
    files: &'s EmbeddedFiles,
    keys: RwLockWriteGuard<'s, FilesOwner<StoreInner>>,
    books: RwLockWriteGuard<'s, FilesOwner<AccountTable>>,
    _no_backup: MutexGuard<'s, ()>,
    carried: HandoverState,
}

impl EmbeddedFiles {
    /// Opens the files in `folder`, creating them if necessary, and takes over the state that a predecessor had only in
    /// memory.
    ///
    /// # Errors
    /// When another process has them open, the file system refuses, or weir did not write them.
    pub(crate) fn open(folder: &Path, now_ms: NowMs, carried: HandoverState) -> Result<Self, StoreOpenError> {
        Ok(Self {
            folder: folder.to_owned(),
            keys: Arc::new(EmbeddedStore::open(folder)?),
            ledger: Arc::new(EmbeddedLedger::open_with(folder, now_ms, carried)?),
            backup: Mutex::default(),
        })
    }

    /// Waits for running calls to end, writes all pending changes, and closes the files. Later calls wait.
    ///
    /// # Errors
    /// If the files are not this process's, stay in use for too long, or cannot be written: they stay as they are.
    pub(crate) async fn close(&self) -> Result<(ClosedFiles<'_>, HandoverState), StoreError> {
        let no_backup = self.backup.try_lock();
        let no_backup = no_backup
            .map_err(|_| StoreError::Busy("a backup is in progress: try again when it is finished".to_owned()))?;
        // No call uses both.
        let idle = join(self.keys.ownership.lock(), self.ledger.ownership.lock());
        let idle = timeout(CALLS_WAIT, idle).await;
        let (mut keys, mut books) = idle.map_err(|_| StoreError::Busy("running calls do not end".to_owned()))?;
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
    /// Gives the files to the successor, which has opened them and serves.
    pub(crate) fn give_to(mut self, successor: Successor) {
        *self.keys = FilesOwner::At(successor.clone());
        *self.books = FilesOwner::At(successor);
    }

    /// Opens the files again after the successor has failed and its process has ended.
    ///
    /// # Errors
    /// If they cannot be opened: the store is unavailable until weir is started again.
    pub(crate) fn take_back(mut self) -> Result<(), StoreOpenError> {
        let files = self.files;
        let inner = StoreInner::open(&files.folder, files.keys.nudge.clone())?;
        let books = files.ledger.open_again(std::mem::take(&mut self.carried))?;
        *self.keys = FilesOwner::Here(Arc::new(inner));
        *self.books = FilesOwner::Here(Arc::new(books));
        // The successor may have changed something that is not in the files: settlements check, and caches are flushed.
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

/// Keys first, then accounts with their daily sums.
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
    /// Answers the calls of the predecessor at the other end of `stream`. Returns when it has ended.
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
                tracing::error!(%error, "cannot understand a call of the predecessor process");
                let said = StoreError::Unavailable(
                    "the process that has taken over the store does not know this call".to_owned(),
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

/// An answer as JSON, which contains no line feeds.
fn encode_answer<T: Serialize>(answer: &Result<T, StoreError>) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot encode an answer to the predecessor process");
        b"null".to_vec()
    })
}
