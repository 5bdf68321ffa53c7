//! The embedded store of a process that may hand it over to its successor while requests of its own still run.
//!
//! To hand the files over, the process lets running calls end, has later ones wait, writes what is unwritten and closes the
//! files. The successor opens them and gets what no file keeps ([`Carried`]); from then on the process asks the successor for
//! what its last requests need. If the successor does not come up, the process opens the files again: what the successor may
//! have changed meanwhile is read, and [`LedgerStore::epochs`] moves.
//!
//! [`LedgerStore::epochs`]: crate::store::ledger::LedgerStore::epochs

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join;
use tokio::sync::{Mutex, MutexGuard, RwLockWriteGuard, mpsc};
use tokio::time::timeout;

use super::ledger::{Books, EmbeddedLedger, NowMs};
use super::ownership::{Owner, elsewhere, successor::Successor};
use super::{EmbeddedStore, StoreInner};
use crate::store::{
    StoreError, StoreOpenError,
    archive::{Archive, Item},
};

pub(crate) use super::ledger::Carried;

mod predecessor;
#[cfg(test)]
mod tests;

/// How long the calls that run may take to end before the files are closed.
const CALLS_WAIT: Duration = Duration::from_secs(10);

/// The embedded store in its two parts, whose files go to a successor together.
pub(crate) struct EmbeddedFiles {
    folder: PathBuf,
    /// Keys, sign-ins and sessions.
    pub(crate) keys: Arc<EmbeddedStore>,
    /// Accounts, daily sums and the public record.
    pub(crate) ledger: Arc<EmbeddedLedger>,
    /// Held by a backup, which reads the files at its client's pace: they are not closed meanwhile.
    backup: Mutex<()>,
}

/// Files that are closed. Calls wait until it is decided who has them. Dropped, nobody has.
pub(crate) struct Closed<'s> {
    files: &'s EmbeddedFiles,
    keys: RwLockWriteGuard<'s, Owner<StoreInner>>,
    books: RwLockWriteGuard<'s, Owner<Books>>,
    _no_backup: MutexGuard<'s, ()>,
    carried: Carried,
}

impl EmbeddedFiles {
    /// Opens the files in `folder`, which are made if need be, and takes over what a predecessor had besides.
    ///
    /// # Errors
    /// When another process has them open, the file system refuses, or they are not what weir wrote.
    pub(crate) fn open(folder: &Path, now_ms: NowMs, carried: Carried) -> Result<Self, StoreOpenError> {
        Ok(Self {
            folder: folder.to_owned(),
            keys: Arc::new(EmbeddedStore::open(folder)?),
            ledger: Arc::new(EmbeddedLedger::open_with(folder, now_ms, carried)?),
            backup: Mutex::default(),
        })
    }

    /// Lets running calls end, writes what is unwritten, and closes the files. Later calls wait.
    ///
    /// # Errors
    /// The files are not this process's, are in use for longer, or cannot be written: they stay as they are.
    pub(crate) async fn close(&self) -> Result<(Closed<'_>, Carried), StoreError> {
        let no_backup = self.backup.try_lock();
        let no_backup =
            no_backup.map_err(|_| StoreError::Busy("a backup is being taken, try again after it".to_owned()))?;
        // No call has to do with both.
        let idle = join(self.keys.ownership.lock(), self.ledger.ownership.lock());
        let idle = timeout(CALLS_WAIT, idle).await;
        let (mut keys, mut books) = idle.map_err(|_| StoreError::Busy("calls that run do not end".to_owned()))?;
        let (Owner::Here(inner), Owner::Here(open)) = (&*keys, &*books) else {
            return Err(elsewhere());
        };
        let carried = self.ledger.close(open).await?;
        inner.close();
        *keys = Owner::Nobody;
        *books = Owner::Nobody;
        let closed = Closed {
            files: self,
            keys,
            books,
            _no_backup: no_backup,
            carried: carried.clone(),
        };
        Ok((closed, carried))
    }
}

impl Closed<'_> {
    /// The successor has the files open and serves.
    pub(crate) fn give_to(mut self, successor: Successor) {
        *self.keys = Owner::At(successor.clone());
        *self.books = Owner::At(successor);
    }

    /// The successor has failed, and its process has ended: opens the files again.
    ///
    /// # Errors
    /// They cannot be opened: the store is away until weir is started again.
    pub(crate) fn take_back(mut self) -> Result<(), StoreOpenError> {
        let files = self.files;
        let inner = StoreInner::open(&files.folder, files.keys.nudge.clone())?;
        let books = files.ledger.open_again(std::mem::take(&mut self.carried))?;
        *self.keys = Owner::Here(Arc::new(inner));
        *self.books = Owner::Here(Arc::new(books));
        // It may have changed something that is not in the files: settlements look, and caches are emptied.
        files.ledger.epochs.send_modify(|epoch| *epoch += 1);
        Ok(())
    }
}

impl Drop for Closed<'_> {
    /// Whoever has the files from now on: caches look there.
    fn drop(&mut self) {
        self.files.keys.nudge.send_modify(|nudge| *nudge += 1);
    }
}

/// Keys first, then accounts with their daily sums.
#[async_trait]
impl Archive for EmbeddedFiles {
    async fn dump(&self, to: mpsc::Sender<Item>) -> Result<(), StoreError> {
        let _backup = self.backup.lock().await;
        self.keys.dump(to.clone()).await?;
        self.ledger.dump(to).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.keys.is_empty().await? && self.ledger.is_empty().await?)
    }

    async fn load(&self, items: &[Item]) -> Result<(), StoreError> {
        self.keys.load(items).await?;
        self.ledger.load(items).await
    }
}
