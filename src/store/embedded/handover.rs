//! The embedded store of a process that may hand it over to its successor while requests of its own still run.
//!
//! The files have one owner. To hand them over, the process lets running calls end, has later ones wait, writes what is
//! unwritten and closes the files. The successor opens them and gets what no file keeps ([`Transient`]); from then on the
//! process asks the successor for what its last requests need. If the successor does not come up, the process opens the files
//! again: what the successor may have changed meanwhile is read, and [`LedgerStore::epochs`] moves.
//!
//! [`LedgerStore::epochs`]: crate::store::ledger::LedgerStore::epochs

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, watch};
use tokio::time::timeout;

use super::EmbeddedStore;
use super::ledger::{COMMIT_AFTER, CommitSignals, EmbeddedLedger, NowMs, Upkeep};
use crate::domain::ledger::Transient;
use crate::store::{StoreError, StoreOpenError};

mod call;
mod keys;
mod ledger;
mod predecessor;
mod sign_ins;
pub(crate) mod successor;
#[cfg(test)]
mod tests;
mod web_sessions;

use successor::Successor;

/// How long the calls that run may take to end before the files are closed.
const CALLS_WAIT: Duration = Duration::from_secs(10);

/// What the accounts have that no file keeps, by account.
pub(crate) type Carried = Vec<(String, Transient)>;

/// The embedded store, here or at this process's successor.
pub(crate) struct HandoverStore {
    folder: PathBuf,
    now_ms: NowMs,
    owner: RwLock<Owner>,
    /// Held by a backup, which reads the files at its client's pace: they are not closed meanwhile.
    backup: Mutex<()>,
    nudges: watch::Sender<u64>,
    epochs: watch::Sender<u64>,
    commits: Arc<CommitSignals>,
}

/// Who has the files.
enum Owner {
    This(Files),
    Successor(Successor),
    /// They were closed, and could not be opened again.
    Nobody,
}

/// The opened files.
#[derive(Clone)]
struct Files {
    keys: Arc<EmbeddedStore>,
    ledger: Arc<EmbeddedLedger>,
}

/// A store whose files are closed. Calls wait until it is decided who has them. Dropped, nobody has.
pub(crate) struct Closed<'s> {
    store: &'s HandoverStore,
    owner: RwLockWriteGuard<'s, Owner>,
    _no_backup: MutexGuard<'s, ()>,
    carried: Carried,
}

impl HandoverStore {
    /// Opens the files in `folder`, which are made if need be, and takes over what a predecessor had besides.
    ///
    /// # Errors
    /// When another process has them open, the file system refuses, or they are not what weir wrote.
    pub(crate) fn open(folder: &Path, now_ms: NowMs, carried: Carried) -> Result<Self, StoreOpenError> {
        let (nudges, commits) = (watch::channel(0).0, Arc::default());
        let files = Files::open(folder, &now_ms, (&nudges, &commits), carried)?;
        Ok(Self {
            folder: folder.to_owned(),
            now_ms,
            owner: RwLock::new(Owner::This(files)),
            backup: Mutex::default(),
            nudges,
            epochs: watch::channel(0).0,
            commits,
        })
    }

    /// See [`EmbeddedLedger::begin`]; before the store is handed over.
    pub(crate) async fn begin(&self, accounts_known: usize) -> Result<(), StoreOpenError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.begin(accounts_known),
            Owner::Successor(_) | Owner::Nobody => Ok(()),
        }
    }

    /// Writes what has changed, as long as the files are this process's.
    ///
    /// # Errors
    /// As for [`EmbeddedLedger::flush`].
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        match &*self.owner.read().await {
            Owner::This(files) => files.ledger.flush().await,
            Owner::Successor(_) | Owner::Nobody => Ok(()),
        }
    }

    /// Writes changes all the time, until `shutdown` turns true or its sender is gone; then once more. Each hour `applied` notes
    /// how far journals know their steps as applied, and what it returns is called when all of these are in the file.
    pub(crate) async fn run<W: FnOnce()>(
        &self,
        mut shutdown: watch::Receiver<bool>,
        applied: impl Fn(&EmbeddedLedger) -> W,
    ) {
        let (mut upkeep, mut ended) = (Upkeep::default(), false);
        loop {
            if let Owner::This(files) = &*self.owner.read().await {
                let written = upkeep.is_hourly((self.now_ms)()).then(|| applied(&files.ledger));
                if upkeep.turn(&files.ledger, ended).await
                    && let Some(written) = written
                {
                    written();
                }
            }
            if ended {
                return;
            }
            ended = tokio::select! {
                _ = shutdown.wait_for(|ended| *ended) => true,
                () = self.commits.due(COMMIT_AFTER, (self.now_ms)()) => false,
            };
        }
    }

    /// Lets running calls end, writes what is unwritten, and closes the files. Later calls wait.
    ///
    /// # Errors
    /// The files are not this process's, are in use for longer, or cannot be written: they stay as they are.
    pub(crate) async fn close(&self) -> Result<(Closed<'_>, Carried), StoreError> {
        let no_backup = self.backup.try_lock();
        let no_backup =
            no_backup.map_err(|_| StoreError::Busy("a backup is being taken, try again after it".to_owned()))?;
        let owner = timeout(CALLS_WAIT, self.owner.write()).await;
        let mut owner = owner.map_err(|_| StoreError::Busy("calls that run do not end".to_owned()))?;
        let Owner::This(files) = &*owner else {
            return Err(elsewhere());
        };
        files.ledger.flush().await?;
        let carried = files.ledger.transient();
        files.keys.close();
        files.ledger.close();
        *owner = Owner::Nobody;
        let closed = Closed {
            store: self,
            owner,
            _no_backup: no_backup,
            carried: carried.clone(),
        };
        Ok((closed, carried))
    }

    /// The files, while they are this process's.
    async fn files(&self) -> Result<RwLockReadGuard<'_, Files>, StoreError> {
        RwLockReadGuard::try_map(self.owner.read().await, |owner| match owner {
            Owner::This(files) => Some(files),
            Owner::Successor(_) | Owner::Nobody => None,
        })
        .map_err(|_| elsewhere())
    }
}

impl Closed<'_> {
    /// The successor has the files open and serves.
    pub(crate) fn give_to(mut self, successor: Successor) {
        *self.owner = Owner::Successor(successor);
    }

    /// The successor has failed, and its process has ended: opens the files again.
    ///
    /// # Errors
    /// They cannot be opened: the store is away until weir is started again.
    pub(crate) fn take_back(mut self) -> Result<(), StoreOpenError> {
        let store = self.store;
        let files = Files::open(
            &store.folder,
            &store.now_ms,
            (&store.nudges, &store.commits),
            std::mem::take(&mut self.carried),
        )?;
        *self.owner = Owner::This(files);
        // It may have changed something that is not in the files: settlements look, and caches are emptied.
        store.epochs.send_modify(|epoch| *epoch += 1);
        Ok(())
    }
}

impl Drop for Closed<'_> {
    /// Whoever has the files from now on: caches look there.
    fn drop(&mut self) {
        self.store.nudges.send_modify(|nudge| *nudge += 1);
    }
}

impl Files {
    fn open(
        folder: &Path,
        now_ms: &NowMs,
        (nudges, commits): (&watch::Sender<u64>, &Arc<CommitSignals>),
        carried: Carried,
    ) -> Result<Self, StoreOpenError> {
        let keys = EmbeddedStore::open_with(folder, nudges.clone())?;
        let ledger = EmbeddedLedger::open_with(folder, Arc::clone(now_ms), Arc::clone(commits))?;
        ledger.take_over(carried);
        Ok(Self {
            keys: Arc::new(keys),
            ledger: Arc::new(ledger),
        })
    }
}

/// What is not asked of a successor.
fn elsewhere() -> StoreError {
    StoreError::Unavailable(
        "another weir process has taken this store over: ask that one, by running the command again".to_owned(),
    )
}
