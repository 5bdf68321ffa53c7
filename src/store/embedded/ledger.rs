//! The ledger of a single node: live in memory, written behind to one file.
//!
//! Admission waits for no disk. What has changed is written in batches ([`commits`]), each in one transaction, so that counters,
//! watermarks and rows on the disk always agree; a crash loses the last batch, and the journal sends it again from the
//! watermark. Holds and rate limits are never written: after a start nothing runs. All accounts are in memory. The hourly
//! buckets are in the file alone (`stability.rs`).

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use self::books::{Applied, Books};
use self::commits::HOUR_MS;
use super::blocking;
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        Account, AccountRecord, AccountView, Admit, AdmitReply, KeySpend, LogDay, NodeId, OperationId, Spent, Step,
        TopUp, ToppedUp, Transient,
        consumption::Row,
        daily_sums::{DailySum, SumsOf},
        lease::{AskLease, LeaseAnswer},
        notice::{NoticeOf, TakenNotices},
        period::Period,
    },
    money::NanoUsd,
};
use crate::store::ledger::{APPLY_STEPS_MAX, LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore};
use crate::store::{StoreError, StoreOpenError};

mod archive;
mod books;
mod commits;
mod file;
mod stability;
#[cfg(test)]
mod tests;

pub(super) use commits::{COMMIT_AFTER, CommitSignals};

/// How many rows may wait to be written. Steps beyond wait until these are on the disk.
const UNWRITTEN_ROWS_MAX: usize = 16_384;

/// Where a ledger has its time from: milliseconds since the Unix epoch.
pub(crate) type NowMs = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The embedded ledger. Opening it takes a lock on its file: it has one owner.
pub(crate) struct EmbeddedLedger {
    folder: PathBuf,
    books: Arc<Books>,
    now_ms: NowMs,
    epochs: watch::Sender<u64>,
}

impl EmbeddedLedger {
    /// Opens the ledger in `folder`, which is made if need be. Blocks while it reads all accounts; call it before serving.
    ///
    /// # Errors
    /// When another process has it open, the file system refuses, or the file is not what weir wrote.
    pub(crate) fn open(folder: &Path, now_ms: NowMs) -> Result<Self, StoreOpenError> {
        Self::open_with(folder, now_ms, Arc::default())
    }

    /// The same with signals that outlive it.
    pub(super) fn open_with(folder: &Path, now_ms: NowMs, signals: Arc<CommitSignals>) -> Result<Self, StoreOpenError> {
        Ok(Self {
            folder: folder.to_owned(),
            books: Arc::new(Books::open(folder, signals)?),
            now_ms,
            epochs: watch::channel(0).0,
        })
    }

    /// Takes the ledger into use beside a journal that knows so many accounts. Without any accounts it has to have been in use
    /// before, as one that a crash caught before its first write: what was made in the place of a lost one knows nothing of
    /// what the journal does not keep any more.
    ///
    /// # Errors
    /// [`StoreOpenError::Emptied`]; or the file system refuses. Nothing is changed then.
    pub(crate) fn begin(&self, accounts_known: usize) -> Result<(), StoreOpenError> {
        let file = self.books.file();
        let path = || self.folder.join(file::FILE_NAME);
        let refused = |error: StoreError| StoreOpenError::File {
            path: path(),
            reason: error.to_string(),
        };
        if file.is_begun().map_err(refused)? {
            return Ok(());
        }
        if accounts_known > 0 && self.books.is_empty() {
            return Err(StoreOpenError::Emptied {
                path: path(),
                accounts: accounts_known,
            });
        }
        file.begin().map_err(refused)
    }

    /// The last step of a node that was applied to an account, in memory.
    pub(crate) fn applied(&self, node: &NodeId, account: &str) -> u64 {
        let slot = self.books.slot(account);
        slot.map_or(0, |slot| slot.lock().account.watermark(node))
    }

    /// Writes what has changed. When it returns, everything applied before the call is on the disk.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the disk refuses. Then it is tried again with the next batch, and the journal has it.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        let books = Arc::clone(&self.books);
        blocking(move || books.flush()).await
    }

    /// Closes the file, so that another process can open it; what is asked of it later is [`StoreError::Unavailable`].
    pub(super) fn close(&self) {
        self.books.file().close();
    }

    /// What the accounts have that the file does not keep.
    pub(super) fn transient(&self) -> Vec<(String, Transient)> {
        self.books.transient()
    }

    /// Takes over what another process has read by [`Self::transient`], for accounts that are there.
    pub(super) fn take_over(&self, carried: Vec<(String, Transient)>) {
        for (account, transient) in carried {
            if let Some(slot) = self.books.slot(&account) {
                slot.lock().account.take_over(transient, (self.now_ms)());
            }
        }
    }

    /// Removes all rows and hours before a day (since the Unix epoch, UTC) on an operator's word; answers with the number of
    /// rows. Days that are kept still are refused: `Ok(None)`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the disk refuses.
    pub(crate) async fn prune(&self, day: i64) -> Result<Option<usize>, StoreError> {
        let (books, now_ms) = (Arc::clone(&self.books), (self.now_ms)());
        if day > books::first_kept_day(now_ms) {
            return Ok(None);
        }
        blocking(move || books.prune(day, now_ms).map(Some)).await
    }

    async fn remove_old_rows(&self) -> Result<(), StoreError> {
        let (books, now_ms) = (Arc::clone(&self.books), (self.now_ms)());
        blocking(move || books.remove_old_rows(now_ms)).await
    }
}

/// What is done all the time: changes are written, and now and then old rows are removed.
#[derive(Default)]
pub(super) struct Upkeep {
    failing: bool,
    /// The hour of the last removal.
    cleaned: Option<i64>,
}

impl Upkeep {
    /// Whether what is done each hour is due.
    pub(super) fn is_hourly(&self, now_ms: i64) -> bool {
        self.cleaned != Some(now_ms.div_euclid(HOUR_MS))
    }

    /// One turn, the last one when it has `ended`. Says whether everything that was applied before it is on the disk.
    pub(super) async fn turn(&mut self, ledger: &EmbeddedLedger, ended: bool) -> bool {
        let outcome = ledger.flush().await;
        match &outcome {
            Ok(()) if self.failing => tracing::info!("the ledger is written again"),
            Err(error) if !self.failing || ended => {
                tracing::error!(%error, "the ledger cannot be written, the journal keeps what is missing; see to the disk");
            }
            Ok(()) | Err(_) => {}
        }
        self.failing = outcome.is_err();
        let now_ms = (ledger.now_ms)();
        if !ended && self.is_hourly(now_ms) {
            self.cleaned = Some(now_ms.div_euclid(HOUR_MS));
            if let Err(error) = ledger.remove_old_rows().await {
                tracing::warn!(%error, "old rows of the consumption log and old hours stay for another day");
            }
        }
        outcome.is_ok()
    }
}

#[async_trait]
impl LedgerStore for EmbeddedLedger {
    async fn admit(&self, ask: &Admit) -> Result<AdmitReply, StoreError> {
        Ok(self.books.admit(ask, (self.now_ms)()))
    }

    fn admit_now(&self, ask: &Admit) -> Option<AdmitReply> {
        Some(self.books.admit(ask, (self.now_ms)()))
    }

    async fn top_up(&self, ask: &TopUp) -> Result<ToppedUp, StoreError> {
        let slot = self.books.slot(&ask.account);
        Ok(slot.map_or(ToppedUp::NoHold, |slot| {
            slot.lock().account.top_up(ask, (self.now_ms)())
        }))
    }

    async fn lease(&self, ask: &AskLease) -> Result<LeaseAnswer, StoreError> {
        let now_ms = (self.now_ms)();
        Ok(match self.books.slot(&ask.account) {
            Some(slot) => slot.lock().account.lease(ask, now_ms),
            None => Account::default().lease(ask, now_ms),
        })
    }

    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step]) -> Result<u64, StoreError> {
        if self.books.unwritten_rows() >= UNWRITTEN_ROWS_MAX {
            self.flush().await?;
        }
        let steps = steps.get(..APPLY_STEPS_MAX).unwrap_or(steps);
        loop {
            match self.books.apply(node, account, steps) {
                Applied::To(watermark) => return Ok(watermark),
                Applied::NeedsDay(day) => {
                    let (books, account) = (Arc::clone(&self.books), account.to_owned());
                    blocking(move || books.load_day(&account, day)).await?;
                }
            }
        }
    }

    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError> {
        Ok(self.books.set_terms(account, from, to))
    }

    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError> {
        Ok(self.applied(node, account))
    }

    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError> {
        for slot in accounts.iter().filter_map(|account| self.books.slot(account)) {
            slot.lock().account.renew(node, (self.now_ms)());
        }
        Ok(())
    }

    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError> {
        if let Some(slot) = self.books.slot(account) {
            slot.lock().account.release(node);
        }
        Ok(())
    }

    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError> {
        let slot = self.books.slot(id);
        Ok(slot.and_then(|slot| slot.lock().account.view(id, (self.now_ms)())))
    }

    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError> {
        Ok(self.books.views(after, limit.min(LIST_ACCOUNTS_MAX), (self.now_ms)()))
    }

    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError> {
        let slot = self.books.slot(account);
        Ok(slot.map_or_else(KeySpend::default, |slot| {
            slot.lock().account.key_spend(key, (self.now_ms)())
        }))
    }

    async fn spent(&self, account: &str, period: Period) -> Result<Spent, StoreError> {
        let slot = self.books.slot(account);
        Ok(slot.map_or_else(Spent::new, |slot| slot.lock().account.spent(period)))
    }

    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        let (books, account, now_ms) = (Arc::clone(&self.books), account.to_owned(), (self.now_ms)());
        blocking(move || books.rows(&account, day, skip, limit.min(LOG_ROWS_MAX), now_ms)).await
    }

    async fn sums(&self, account: &str, days: RangeInclusive<i64>, of: &SumsOf) -> Result<Vec<DailySum>, StoreError> {
        let (books, account, of, now_ms) = (Arc::clone(&self.books), account.to_owned(), of.clone(), (self.now_ms)());
        blocking(move || books.sums(&account, &days, &of, now_ms)).await
    }

    async fn resum(&self, account: &str, day: i64) -> Result<(), StoreError> {
        let (books, account) = (Arc::clone(&self.books), account.to_owned());
        blocking(move || books.resum(&account, day)).await
    }

    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError> {
        let (books, account, now_ms) = (Arc::clone(&self.books), account.to_owned(), (self.now_ms)());
        blocking(move || books.log_days(&account, &days, now_ms)).await
    }

    async fn trim(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError> {
        let (books, account, seen) = (Arc::clone(&self.books), account.to_owned(), *seen);
        blocking(move || books.trim(&account, &seen)).await
    }

    async fn put_rows(&self, account: &str, day: i64, rows: &[Row]) -> Result<bool, StoreError> {
        let (books, account, rows) = (Arc::clone(&self.books), account.to_owned(), rows.to_vec());
        blocking(move || books.put_rows(&account, day, rows)).await
    }

    async fn take_turn(&self, _task: &str, _node: &NodeId, _for_ms: i64) -> Result<bool, StoreError> {
        // The files have one owner.
        Ok(true)
    }

    async fn operation(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError> {
        let slot = self.books.slot(account);
        Ok(slot.and_then(|slot| slot.lock().account.operations().amount(id)))
    }

    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError> {
        Ok(self.books.take_notices(account, pause_ms, (self.now_ms)()))
    }

    async fn told(&self, account: &str, told: &[NoticeOf]) -> Result<(), StoreError> {
        self.books.told(account, told);
        Ok(())
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        Ok((self.now_ms)())
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}
