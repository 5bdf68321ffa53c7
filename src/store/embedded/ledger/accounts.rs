//! All accounts of the embedded ledger in memory, with their changes that are not on disk yet.
//!
//! Each account has its own lock, under which it changes. The names of changed accounts are recorded. To write an account, its
//! durable part is copied under its lock, so that one transaction has counters, watermarks and daily sums of one moment.
//!
//! [`EmbeddedLedger::run`] is the periodic work: writing changes, and each hour closing days and removing old sums.

pub(crate) mod daily_sums;

use std::{
    collections::{BTreeMap, HashSet},
    ops::Bound,
    path::Path,
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            Account, AccountChange, AccountRecord, AccountView, AdmitCall, AdmitReply, NodeId, Step, VolatileState,
            account::notices::{NoticeId, TakenNotices},
            consumption::{RETENTION_DAYS, Row},
            daily_sums::{RetentionProgress, day_of},
        },
    },
    store::{
        StoreError, StoreOpenError,
        embedded::{
            blocking,
            ledger::{
                COMMIT_AFTER, CommitSignals, EmbeddedLedger, FAILING_MAX_MS, HOUR_MS,
                accounts::daily_sums::OpenDays,
                file::{LedgerFile, PendingAccountWrite, daily_sums::first_hour},
                flush,
            },
            ownership::FilesOwner,
        },
    },
};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// All accounts, and the file in which they are stored.
pub(crate) struct AccountTable {
    file: LedgerFile,
    accounts: RwLock<BTreeMap<String, Arc<SharedAccountSlot>>>,
    /// The names of the accounts that have changed since they were last written.
    changed: Mutex<Vec<String>>,
    /// Locked while changes are written, and while days are opened, closed or removed. So a day is either open or completely in
    /// the file.
    writing: Mutex<()>,
    /// The time at which writing began to fail, in milliseconds since the Unix epoch; `None` if the last write succeeded.
    failing_since: Mutex<Option<i64>>,
    signals: Arc<CommitSignals>,
}

pub(super) type SharedAccountSlot = Mutex<AccountSlot>;

#[derive(Default)]
pub(super) struct AccountSlot {
    pub(super) account: Account,
    /// The sums of the days that receive rows.
    days: OpenDays,
    changed_keys: HashSet<KeyId>,
    /// Whether the operations that the account stores differ from those on disk.
    changed_operations: bool,
    /// Whether the waiting notices differ from those on disk.
    changed_notices: bool,
    /// Whether the account's name is in the list of changed accounts.
    is_listed: bool,
}

pub(super) enum ApplyOutcome {
    To(u64),
    /// Nothing was applied: this day must be opened first ([`AccountTable::open_day`]).
    NeedsDay(i64),
}

impl AccountTable {
    pub(super) fn open(folder: &Path, signals: Arc<CommitSignals>) -> Result<Self, StoreOpenError> {
        LedgerFile::open(folder).map(|(file, accounts)| Self::new(file, accounts, signals))
    }

    pub(super) fn new(file: LedgerFile, accounts: BTreeMap<String, Account>, signals: Arc<CommitSignals>) -> Self {
        let slot = |account| {
            Arc::new(Mutex::new(AccountSlot {
                account,
                ..AccountSlot::default()
            }))
        };
        let accounts = accounts.into_iter().map(|(id, account)| (id, slot(account)));
        Self {
            file,
            accounts: RwLock::new(accounts.collect()),
            changed: Mutex::default(),
            writing: Mutex::default(),
            failing_since: Mutex::default(),
            signals,
        }
    }

    pub(super) fn file(&self) -> &LedgerFile {
        &self.file
    }

    pub(super) fn is_empty(&self) -> bool {
        let accounts = self.accounts.read();
        accounts.is_empty()
    }

    pub(super) fn slot(&self, id: &str) -> Option<Arc<SharedAccountSlot>> {
        let accounts = self.accounts.read();
        accounts.get(id).map(Arc::clone)
    }

    /// Returns the number of the last of a node's steps that was applied to an account in memory; 0 if no step of the node was
    /// applied.
    pub(crate) fn watermark(&self, node: &NodeId, account: &str) -> u64 {
        let slot = self.slot(account);
        slot.map_or(0, |slot| slot.lock().account.watermark(node))
    }

    fn slot_or_new(&self, id: &str) -> Arc<SharedAccountSlot> {
        if let Some(slot) = self.slot(id) {
            return slot;
        }
        let mut accounts = self.accounts.write();
        Arc::clone(accounts.entry(id.to_owned()).or_default())
    }

    /// Checks that steps may be applied.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if writing has failed for [`FAILING_MAX_MS`]. Then the steps must stay in the journal.
    pub(super) fn check_written(&self, now_ms: i64) -> Result<(), StoreError> {
        let since = *self.failing_since.lock();
        match since {
            Some(since) if now_ms.saturating_sub(since) >= FAILING_MAX_MS => {
                let what = "cannot write the ledger's file; no steps are applied until it can be written";
                Err(StoreError::Unavailable(what.to_owned()))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn admit(&self, ask: &AdmitCall, now_ms: i64) -> AdmitReply {
        let id = ask.key.account.as_str();
        let Some(slot) = self.slot(id) else {
            return Account::default().admit(ask, now_ms);
        };
        let mut book = slot.lock();
        let known = book.account.key_revision(&ask.key.id);
        let answer = book.account.admit(ask, now_ms);
        if book.account.key_revision(&ask.key.id) != known {
            book.changed_keys.insert(ask.key.id.clone());
            self.mark_changed(id, &mut book);
        }
        answer
    }

    pub(super) fn apply(&self, node: &NodeId, id: &str, steps: &[Step], upto: u64, now_ms: i64) -> ApplyOutcome {
        let slot = self.slot_or_new(id);
        let mut book = slot.lock();
        let before = book.account.watermark(node);
        let new = steps.iter().filter(|step| step.seq > before);
        let mut days = new.filter_map(settled_row).map(day_of);
        if let Some(day) = days.find(|day| !book.days.contains(*day)) {
            return ApplyOutcome::NeedsDay(day);
        }
        let (watermark, rows) = book.account.apply(node, steps, upto);
        if watermark != before {
            let applied = steps.iter().filter(|step| step.seq > before && step.seq <= watermark);
            for step in applied {
                if let AccountChange::Settle(settlement) = &step.change {
                    book.changed_keys.insert(settlement.key.clone());
                    book.changed_notices |= !book.account.notices().is_empty();
                }
                book.changed_operations |= step.change.operation().is_some();
            }
            book.days.count(&rows, now_ms);
            self.mark_changed(id, &mut book);
        }
        ApplyOutcome::To(watermark)
    }

    pub(super) fn set_terms(&self, id: &str, from: &AccountRecord, to: &AccountRecord) -> bool {
        let slot = self.slot_or_new(id);
        let mut book = slot.lock();
        let before = book.account.record();
        let holds = book.account.set_terms(from, to);
        if book.account.record() != before {
            self.mark_changed(id, &mut book);
        }
        holds
    }

    /// Takes the notices that are due. The number of times that each notice was taken is also written to the file.
    pub(super) fn take_notices(&self, id: &str, pause_ms: i64, now_ms: i64) -> TakenNotices {
        let Some(slot) = self.slot(id) else {
            return TakenNotices::default();
        };
        let mut book = slot.lock();
        let taken = book.account.notices_mut().claim_due(pause_ms, now_ms);
        if !taken.notices.is_empty() || taken.lost > 0 {
            book.changed_notices = true;
            self.mark_changed(id, &mut book);
        }
        taken
    }

    /// Removes notices that were delivered.
    pub(super) fn acknowledge_notices(&self, id: &str, told: &[NoticeId]) {
        let Some(slot) = self.slot(id) else { return };
        let mut book = slot.lock();
        if book.account.notices_mut().acknowledge(told) {
            book.changed_notices = true;
            self.mark_changed(id, &mut book);
        }
    }

    /// Records that an account has changed, so that it is written.
    fn mark_changed(&self, id: &str, book: &mut AccountSlot) {
        if !book.is_listed {
            book.is_listed = true;
            let mut changed = self.changed.lock();
            if changed.is_empty() {
                self.signals.changed.notify_one();
            }
            changed.push(id.to_owned());
        }
    }

    /// Writes all changes. Everything that was applied before the call is on disk when this returns.
    pub(super) fn flush(&self, now_ms: i64) -> Result<(), StoreError> {
        let _writing = self.writing.lock();
        let names = std::mem::take(&mut *self.changed.lock());
        if names.is_empty() {
            return Ok(());
        }
        let slots = names.into_iter().filter_map(|id| Some((self.slot(&id)?, id)));
        let (slots, changes): (Vec<Arc<SharedAccountSlot>>, Vec<PendingAccountWrite>) = slots
            .map(|(slot, id)| {
                let changed = slot.lock().take_changed(id);
                (slot, changed)
            })
            .unzip();
        let outcome = self.file.commit(&changes);
        if outcome.is_ok() {
            *self.failing_since.lock() = None;
            return outcome;
        }
        self.failing_since.lock().get_or_insert(now_ms);
        for (slot, changed) in slots.iter().zip(changes) {
            let mut book = slot.lock();
            self.mark_changed(&changed.account, &mut book);
            book.mark_unwritten(changed);
        }
        outcome
    }

    pub(super) fn views(&self, after: Option<&str>, limit: usize, now_ms: i64) -> Vec<AccountView> {
        let accounts = self.accounts.read();
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = accounts.range::<str, _>((start, Bound::Unbounded));
        let views = behind.filter_map(|(id, slot)| slot.lock().account.view(id, now_ms));
        views.take(limit).collect()
    }

    fn names(&self) -> Vec<String> {
        let accounts = self.accounts.read();
        accounts.keys().cloned().collect()
    }
}

impl AccountSlot {
    fn take_changed(&mut self, account: String) -> PendingAccountWrite {
        self.is_listed = false;
        let ids = std::mem::take(&mut self.changed_keys);
        let keys = ids.into_iter().filter_map(|id| {
            let key = self.account.key(&id)?.clone();
            Some((id, key))
        });
        let operations = std::mem::take(&mut self.changed_operations);
        let notices = std::mem::take(&mut self.changed_notices);
        PendingAccountWrite {
            account,
            standing: self.account.summary().cloned(),
            operations: operations.then(|| self.account.operations().iter().cloned().collect()),
            notices: notices.then(|| self.account.notices().clone()),
            keys: keys.collect(),
            sums: self.days.take_changed(),
        }
    }

    /// Records that these changes could not be written.
    fn mark_unwritten(&mut self, unwritten: PendingAccountWrite) {
        self.changed_keys.extend(unwritten.keys.into_iter().map(|(id, _)| id));
        self.changed_operations |= unwritten.operations.is_some();
        self.changed_notices |= unwritten.notices.is_some();
        self.days.mark_unwritten(unwritten.sums);
    }
}

fn settled_row(step: &Step) -> Option<&Row> {
    match &step.change {
        AccountChange::Settle(settlement) => settlement.row.as_deref(),
        AccountChange::Open { .. } | AccountChange::Credit { .. } | AccountChange::Adjust { .. } => None,
    }
}

/// Returns the first day whose sums are retained, as the number of days since the Unix epoch.
pub(super) fn first_kept_day(now_ms: i64) -> i64 {
    now_ms.div_euclid(DAY_MS) - i64::from(RETENTION_DAYS)
}

/// The part of the accounts' state that is only in memory, by account.
pub(crate) type HandoverState = Vec<(String, VolatileState)>;

impl AccountTable {
    /// Returns the part of the accounts' current state that is only in memory.
    pub(in crate::store::embedded::ledger) fn handover_state(&self) -> HandoverState {
        let accounts = self.accounts.read();
        let of = accounts
            .iter()
            .map(|(id, slot)| (id.clone(), slot.lock().account.volatile_state()));
        of.filter(|(_, transient)| !transient.is_empty()).collect()
    }

    /// Takes over the state that another process has read with [`Self::handover_state`], for accounts that exist.
    pub(in crate::store::embedded::ledger) fn take_over(&self, carried: HandoverState, now_ms: i64) {
        for (account, transient) in carried {
            if let Some(slot) = self.slot(&account) {
                slot.lock().account.restore_volatile_state(transient, now_ms);
            }
        }
    }
}

impl AccountTable {
    /// Removes the sums and stability hours that are older than the retention period. Compared with the previous run, at most one
    /// further day is removed.
    pub(in crate::store::embedded::ledger) fn remove_old(&self, now_ms: i64) -> Result<(), StoreError> {
        let keep_days = i64::from(RETENTION_DAYS);
        let names = self.names();
        let oldest = self.file.oldest_day(&names)?;
        let before = self.file.retention()?;
        let after = match before {
            Some(retention) => retention.next_run(now_ms, keep_days, oldest),
            None => RetentionProgress::first_run(now_ms, keep_days, oldest),
        };
        if before != Some(after) {
            self.file.put_retention(after)?;
            let behind_days = after.days_behind(now_ms);
            if behind_days > 0 {
                tracing::warn!(
                    behind_days,
                    "old daily sums and old hours of the stability record are removed only one day at a time, because weir was not running for \
                     days or the clock has jumped; check the clock. If the clock is right, `weir store prune` removes all old \
                     days at once"
                );
            }
        }
        self.remove_before(&names, after.first_kept(now_ms)).map(drop)
    }

    /// Removes everything before a day, because an operator requested it. Returns the number of removed sums.
    pub(in crate::store::embedded::ledger) fn prune(&self, day: i64, now_ms: i64) -> Result<usize, StoreError> {
        let word = RetentionProgress::forced_until(day, now_ms, i64::from(RETENTION_DAYS));
        self.file.put_retention(word)?;
        self.remove_before(&self.names(), day)
    }

    fn remove_before(&self, names: &[String], first: i64) -> Result<usize, StoreError> {
        let mut removed = 0;
        for id in names {
            // While the lock is held, nothing of these days is written.
            let _writing = self.writing.lock();
            if let Some(slot) = self.slot(id) {
                slot.lock().days.forget_before(first);
            }
            removed += self.file.remove_sums(id, first)?;
        }
        self.file.remove_hours(first_hour(first))?;
        Ok(removed)
    }
}

impl EmbeddedLedger {
    /// Writes changes until `shutdown` becomes true or its sender is dropped. Then writes changes a last time and returns. Each
    /// hour, calls `applied`. It reads from the journals which steps are recorded as applied, and returns a function. That
    /// function is called when all of these steps are in the file.
    pub(crate) async fn run<W: FnOnce()>(
        &self,
        mut shutdown: watch::Receiver<bool>,
        applied: impl Fn(&AccountTable) -> W,
    ) {
        let (mut upkeep, mut ended) = (Upkeep::default(), false);
        loop {
            if let FilesOwner::Here(books) = &*self.ownership.owner().await {
                let now_ms = (self.now_ms)();
                let written = upkeep.is_hour_due(now_ms).then(|| applied(books));
                if upkeep.run_turn(books, now_ms, ended).await
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
                () = self.signals.wait_until_due(COMMIT_AFTER, (self.now_ms)()) => false,
            };
        }
    }
}

/// The results of the previous runs of the upkeep.
#[derive(Default)]
pub(super) struct Upkeep {
    failing: bool,
    /// The hour of the last removal, as the number of hours since the Unix epoch; `None` before the first.
    cleaned_hour: Option<i64>,
}

impl Upkeep {
    /// Whether the hourly work is due.
    pub(super) fn is_hour_due(&self, now_ms: i64) -> bool {
        self.cleaned_hour != Some(now_ms.div_euclid(HOUR_MS))
    }

    /// Runs the upkeep once. `ended` says that this is the last run. Returns whether everything that was applied before this call
    /// is on disk.
    pub(super) async fn run_turn(&mut self, books: &Arc<AccountTable>, now_ms: i64, ended: bool) -> bool {
        let outcome = flush(books, now_ms).await;
        if outcome.is_err() {
            // If the runtime is ending, as after a failed start, this task ends here: the file was not at fault.
            tokio::task::yield_now().await;
        }
        match &outcome {
            Ok(()) if self.failing => tracing::info!("weir can write the ledger's file again"),
            Err(error) if !self.failing || ended => {
                tracing::error!(%error, "cannot write the ledger's file: check the disk; the journal keeps the changes that the file lacks");
            }
            Ok(()) | Err(_) => {}
        }
        self.failing = outcome.is_err();
        if !ended && self.is_hour_due(now_ms) {
            self.cleaned_hour = Some(now_ms.div_euclid(HOUR_MS));
            let books = Arc::clone(books);
            let keep_house = move || {
                books.close_days(now_ms);
                books.remove_old(now_ms)
            };
            if let Err(error) = blocking(keep_house).await {
                tracing::warn!(%error, "cannot remove old daily sums and old hours of the stability record; trying again in an hour");
            }
        }
        outcome.is_ok()
    }
}
