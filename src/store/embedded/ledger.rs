//! The ledger of a single node, with all accounts in memory. Changes are written to one file later, in batches.
//!
//! Admission does not wait for the disk. Each batch of changes ([`CommitSignals`]) is one transaction, so that counters,
//! watermarks and daily sums in the file always agree. A crash loses the changes that are not yet in the file. Their steps come
//! after the watermark, and are sent again from the journal. Holds and rate limits are never written, because no request is
//! running when a process starts. The memory contains all accounts and the sums of the days that receive rows (`OpenDays`). Other
//! sums and the hourly stability counters are only in the file. Rows are not stored here: they are sent from the journal to the
//! log backend.

pub(crate) mod accounts;
mod file;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{sleep, timeout},
};

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters, NodeHourCounters},
        keys::KeyId,
        ledger::{
            Account, AccountRecord, AccountView, AdmitCall, AdmitReply, KeySpend, NodeId, OperationId, SpendByKey,
            Step, TopUp, TopUpReply,
            account::notices::{NoticeId, TakenNotices},
            daily_sums::{DailySum, DailySums, SumSelector},
            lease::{LeaseCall, LeaseReply},
            period::Period,
        },
        money::NanoUsd,
    },
    store::{
        StoreError, StoreOpenError,
        archive::{Archive, ArchiveItem},
        embedded::{
            blocking,
            ledger::accounts::ApplyOutcome,
            ownership::{FilesOwner, Ownership, SuccessorCall},
        },
        ledger::{APPLY_STEPS_MAX, HOURS_MAX, LIST_ACCOUNTS_MAX, LedgerStore, SHARES_MAX, StabilityStore, limit_steps},
    },
};

pub(crate) use crate::store::embedded::ledger::accounts::{AccountTable, HandoverState};

/// The clock of a ledger, in milliseconds since the Unix epoch.
pub(crate) type NowMs = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The ledger of the embedded store. Opening it locks its file, which only one process can use at a time.
pub(crate) struct EmbeddedLedger {
    folder: PathBuf,
    pub(super) ownership: Ownership<AccountTable>,
    now_ms: NowMs,
    pub(super) epochs: watch::Sender<u64>,
    signals: Arc<CommitSignals>,
}

impl EmbeddedLedger {
    /// Opens the ledger in `folder`, creating the folder if necessary. Blocks while it reads all accounts, so call it before
    /// serving.
    ///
    /// # Errors
    /// Another process has the file open, the file cannot be opened, or weir did not write it.
    pub(crate) fn open(folder: &Path, now_ms: NowMs) -> Result<Self, StoreOpenError> {
        Self::open_with(folder, now_ms, Vec::new())
    }

    /// Opens the ledger, and restores the state that another process had only in memory ([`EmbeddedLedger::close`]).
    pub(super) fn open_with(folder: &Path, now_ms: NowMs, carried: HandoverState) -> Result<Self, StoreOpenError> {
        let signals = Arc::default();
        let books = AccountTable::open(folder, Arc::clone(&signals))?;
        books.take_over(carried, now_ms());
        Ok(Self {
            folder: folder.to_owned(),
            ownership: Ownership::new(books),
            now_ms,
            epochs: watch::channel(0).0,
            signals,
        })
    }

    /// Opens the file again. Another process may have changed it meanwhile.
    pub(super) fn open_again(&self, carried: HandoverState) -> Result<AccountTable, StoreOpenError> {
        let books = AccountTable::open(&self.folder, Arc::clone(&self.signals))?;
        books.take_over(carried, (self.now_ms)());
        Ok(books)
    }

    /// Begins to use the ledger with a journal that contains `accounts_known` accounts. If the journal has accounts but the
    /// ledger has none, this succeeds only if this function was called on the file before. In that case, the process crashed
    /// before its first write. Otherwise, the file is new and has replaced a lost file, so it lacks the steps that the journal no
    /// longer has.
    ///
    /// # Errors
    /// [`StoreOpenError::Emptied`], or the file cannot be written. Then nothing has changed.
    pub(crate) fn begin(&self, accounts_known: usize) -> Result<(), StoreOpenError> {
        let Some(books) = self.ownership.here_now() else {
            return Ok(());
        };
        let file = books.file();
        let path = || self.folder.join(file::FILE_NAME);
        let refused = |error: StoreError| StoreOpenError::File {
            path: path(),
            reason: error.to_string(),
        };
        if file.is_begun().map_err(refused)? {
            return Ok(());
        }
        if accounts_known > 0 && books.is_empty() {
            return Err(StoreOpenError::Emptied {
                path: path(),
                accounts: accounts_known,
            });
        }
        file.begin().map_err(refused)
    }

    /// Writes all changes, if this process owns the file. When it returns, everything that was applied before the call is on
    /// disk.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the file cannot be written. The changes remain in the journal, and are written to the
    /// file with the next batch.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        match &*self.ownership.owner().await {
            FilesOwner::Here(books) => flush(books, (self.now_ms)()).await,
            FilesOwner::At(_) | FilesOwner::Nobody => Ok(()),
        }
    }

    /// Writes all changes and closes the file, so that another process can open it. Calls that still use it get
    /// [`StoreError::Unavailable`]. Returns the part of the accounts' state that is only in memory.
    pub(super) async fn close(&self, books: &Arc<AccountTable>) -> Result<HandoverState, StoreError> {
        flush(books, (self.now_ms)()).await?;
        let carried = books.handover_state();
        books.file().close();
        Ok(carried)
    }

    /// Removes all daily sums and stability hours before `day`, because an operator requested it. `day` is the number of days
    /// since the Unix epoch, in UTC. Returns the number of removed sums. If some of the days before `day` are within the
    /// retention period, removes nothing and returns `Ok(None)`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the file cannot be written.
    pub(crate) async fn prune(&self, day: i64) -> Result<Option<usize>, StoreError> {
        self.run_blocking(move |books, now_ms| {
            if day > accounts::first_kept_day(now_ms) {
                return Ok(None);
            }
            books.prune(day, now_ms).map(Some)
        })
        .await
    }

    /// Runs `work` with the accounts and the current time on a blocking thread.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AccountTable, i64) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let here = self.ownership.here().await?;
        let (books, now_ms) = (Arc::clone(&here), (self.now_ms)());
        blocking(move || work(&books, now_ms)).await
    }
}

async fn flush(books: &Arc<AccountTable>, now_ms: i64) -> Result<(), StoreError> {
    let books = Arc::clone(books);
    blocking(move || books.flush(now_ms)).await
}

#[async_trait]
impl LedgerStore for EmbeddedLedger {
    async fn admit(&self, ask: &AdmitCall) -> Result<AdmitReply, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner.forward(&SuccessorCall::Admit(Box::new(ask.clone()))).await;
        };
        Ok(books.admit(ask, (self.now_ms)()))
    }

    fn admit_now(&self, ask: &AdmitCall) -> Option<AdmitReply> {
        let books = self.ownership.here_now()?;
        Some(books.admit(ask, (self.now_ms)()))
    }

    async fn top_up(&self, ask: &TopUp) -> Result<TopUpReply, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner.forward(&SuccessorCall::TopUp(Box::new(ask.clone()))).await;
        };
        let slot = books.slot(&ask.account);
        Ok(slot.map_or(TopUpReply::NoHold, |slot| {
            slot.lock().account.top_up(ask, (self.now_ms)())
        }))
    }

    async fn lease(&self, ask: &LeaseCall) -> Result<LeaseReply, StoreError> {
        let books = self.ownership.here().await?;
        let now_ms = (self.now_ms)();
        Ok(match books.slot(&ask.account) {
            Some(slot) => slot.lock().account.lease(ask, now_ms),
            None => Account::default().lease(ask, now_ms),
        })
    }

    async fn apply(&self, node: &NodeId, account: &str, steps: &[Step], upto: u64) -> Result<u64, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            let call = SuccessorCall::Apply(node.clone(), account.to_owned(), steps.to_vec(), upto);
            return owner.forward(&call).await;
        };
        let now_ms = (self.now_ms)();
        books.check_written(now_ms)?;
        let (steps, upto) = limit_steps(steps, upto, APPLY_STEPS_MAX);
        loop {
            match books.apply(node, account, steps, upto, now_ms) {
                ApplyOutcome::To(watermark) => return Ok(watermark),
                ApplyOutcome::NeedsDay(day) => {
                    let (books, account) = (Arc::clone(books), account.to_owned());
                    blocking(move || books.open_day(&account, day, now_ms)).await?;
                }
            }
        }
    }

    async fn set_terms(&self, account: &str, from: &AccountRecord, to: &AccountRecord) -> Result<bool, StoreError> {
        let books = self.ownership.here().await?;
        Ok(books.set_terms(account, from, to))
    }

    async fn watermark(&self, node: &NodeId, account: &str) -> Result<u64, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner
                .forward(&SuccessorCall::Watermark(node.clone(), account.to_owned()))
                .await;
        };
        Ok(books.watermark(node, account))
    }

    async fn renew(&self, node: &NodeId, accounts: &[String]) -> Result<(), StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner
                .forward(&SuccessorCall::Renew(node.clone(), accounts.to_vec()))
                .await;
        };
        for slot in accounts.iter().filter_map(|account| books.slot(account)) {
            slot.lock().account.renew(node, (self.now_ms)());
        }
        Ok(())
    }

    async fn release(&self, node: &NodeId, account: &str) -> Result<(), StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner
                .forward(&SuccessorCall::Release(node.clone(), account.to_owned()))
                .await;
        };
        if let Some(slot) = books.slot(account) {
            slot.lock().account.release(node);
        }
        Ok(())
    }

    async fn account(&self, id: &str) -> Result<Option<AccountView>, StoreError> {
        let books = self.ownership.here().await?;
        let slot = books.slot(id);
        Ok(slot.and_then(|slot| slot.lock().account.view(id, (self.now_ms)())))
    }

    async fn accounts(&self, after: Option<&str>, limit: usize) -> Result<Vec<AccountView>, StoreError> {
        let books = self.ownership.here().await?;
        Ok(books.views(after, limit.min(LIST_ACCOUNTS_MAX), (self.now_ms)()))
    }

    async fn key_spend(&self, account: &str, key: &KeyId) -> Result<KeySpend, StoreError> {
        let books = self.ownership.here().await?;
        let slot = books.slot(account);
        Ok(slot.map_or_else(KeySpend::default, |slot| {
            slot.lock().account.key_spend(key, (self.now_ms)())
        }))
    }

    async fn spent(&self, account: &str, period: Period) -> Result<SpendByKey, StoreError> {
        let books = self.ownership.here().await?;
        let slot = books.slot(account);
        Ok(slot.map_or_else(SpendByKey::new, |slot| slot.lock().account.spend_by_key(period)))
    }

    async fn sums(
        &self,
        account: &str,
        days: RangeInclusive<i64>,
        of: &SumSelector,
    ) -> Result<Vec<DailySum>, StoreError> {
        let (account, of) = (account.to_owned(), of.clone());
        self.run_blocking(move |books, now_ms| books.sums(&account, &days, &of, now_ms))
            .await
    }

    async fn summed_up_to(&self, account: &str) -> Result<BTreeMap<NodeId, u64>, StoreError> {
        let books = self.ownership.here().await?;
        let slot = books.slot(account);
        let summed = slot.and_then(|slot| Some(slot.lock().account.summary()?.summed.clone()));
        Ok(summed.unwrap_or_default())
    }

    async fn put_sums(&self, account: &str, day: i64, sums: &DailySums, seen: u64) -> Result<bool, StoreError> {
        let (account, sums) = (account.to_owned(), sums.clone());
        self.run_blocking(move |books, now_ms| books.put_sums(&account, day, &sums, seen, now_ms))
            .await
    }

    async fn operation_amount(&self, account: &str, id: &OperationId) -> Result<Option<NanoUsd>, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner
                .forward(&SuccessorCall::Operation(account.to_owned(), id.clone()))
                .await;
        };
        let slot = books.slot(account);
        Ok(slot.and_then(|slot| slot.lock().account.operations().amount(id)))
    }

    async fn take_notices(&self, account: &str, pause_ms: i64) -> Result<TakenNotices, StoreError> {
        let books = self.ownership.here().await?;
        Ok(books.take_notices(account, pause_ms, (self.now_ms)()))
    }

    async fn acknowledge_notices(&self, account: &str, told: &[NoticeId]) -> Result<(), StoreError> {
        let books = self.ownership.here().await?;
        books.acknowledge_notices(account, told);
        Ok(())
    }

    async fn now_ms(&self) -> Result<i64, StoreError> {
        // A successor runs on the same machine, so its clock is the same.
        Ok((self.now_ms)())
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}

#[async_trait]
impl Archive for EmbeddedLedger {
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        // The guard is dropped, so that other calls, and a handover that waits for them, need not wait for the backup's client.
        let books = Arc::clone(&*self.ownership.here().await?);
        flush(&books, (self.now_ms)()).await?;
        blocking(move || books.file().dump(&to)).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.accounts(None, 1).await?.is_empty())
    }

    /// Loaded items are visible only when the ledger is opened again. Rows are not loaded: this store never keeps the log.
    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        let is_own = |item: &&ArchiveItem| {
            !matches!(
                item,
                ArchiveItem::Key { .. } | ArchiveItem::KeyGone { .. } | ArchiveItem::Row { .. }
            )
        };
        let items: Vec<ArchiveItem> = items.iter().filter(is_own).cloned().collect();
        if items.is_empty() {
            return Ok(());
        }
        self.run_blocking(move |books, _| books.file().load(&items)).await
    }
}

#[async_trait]
impl StabilityStore for EmbeddedLedger {
    async fn put_shares(&self, node: &NodeId, shares: &[NodeHourCounters]) -> Result<(), StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner.forward(&SuccessorCall::Tell(node.clone(), shares.to_vec())).await;
        };
        let shares: Vec<NodeHourCounters> = shares.iter().take(SHARES_MAX).cloned().collect();
        let (books, node) = (Arc::clone(books), node.clone());
        blocking(move || books.file().put_shares(&node, &shares)).await
    }

    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, ModelCounters>, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner.forward(&SuccessorCall::Buckets(first, last)).await;
        };
        let first = first.max(last.plus(1 - HOURS_MAX));
        let books = Arc::clone(books);
        blocking(move || books.file().buckets(first, last)).await
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}

const HOUR_MS: i64 = 3600 * 1000;
/// The maximum time for which a change waits to be written together with others.
const COMMIT_AFTER: Duration = Duration::from_secs(1);
/// The time, in milliseconds, after which the ledger stops applying steps if it cannot write. The steps stay in the journal.
const FAILING_MAX_MS: i64 = 60 * 1000;

/// Wakes the task that writes the file. This value outlives the open file, because the file can be closed and opened again.
#[derive(Debug, Default)]
struct CommitSignals {
    /// Notified at the first change after everything was written.
    changed: Notify,
}

impl CommitSignals {
    /// Waits until the next run of the upkeep is due: the first unwritten change was made `most` ago, or a new hour has begun.
    async fn wait_until_due(&self, most: Duration, now_ms: i64) {
        let changes = async {
            self.changed.notified().await;
            sleep(most).await;
        };
        let hour = HOUR_MS.saturating_sub(now_ms.rem_euclid(HOUR_MS));
        let _ = timeout(Duration::from_millis(hour.unsigned_abs()), changes).await;
    }
}
