//! All accounts in memory, and what of them is not on the disk yet.
//!
//! Each account has a lock of its own, under which it changes. What has changed is noted by name; writing it takes a copy of
//! the durable part under the account's lock, so that one transaction has counters, watermarks and daily sums of one moment.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use self::open_days::OpenDays;
use super::commits::{CommitSignals, FAILING_MAX_MS};
use super::file::{Changed, LedgerFile};
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        Account, AccountRecord, AccountView, Admit, AdmitReply, Change, NodeId, Step,
        consumption::{RETENTION_DAYS, Row},
        daily_sums::day_of,
        notice::{NoticeOf, TakenNotices},
    },
};
use crate::store::{StoreError, StoreOpenError};

const DAY_MS: i64 = 24 * 3600 * 1000;

mod daily_sums;
mod open_days;
mod retention;
mod transient;

pub(crate) use transient::Carried;

/// All accounts, and the file.
pub(crate) struct Books {
    file: LedgerFile,
    accounts: RwLock<BTreeMap<String, Arc<SharedBook>>>,
    /// Names of the accounts that have changed since they were last written.
    changed: Mutex<Vec<String>>,
    /// Held while changes are written, and while days are opened, closed or removed: a day is open, or the file has all of it.
    writing: Mutex<()>,
    /// Since when writing has failed, in milliseconds since the Unix epoch; `None`: the last time it did not.
    failing_since: Mutex<Option<i64>>,
    signals: Arc<CommitSignals>,
}

pub(super) type SharedBook = Mutex<Book>;

#[derive(Default)]
pub(super) struct Book {
    pub(super) account: Account,
    /// The sums of the days that rows come to.
    days: OpenDays,
    changed_keys: HashSet<KeyId>,
    /// Whether it remembers operations that are not on the disk.
    changed_operations: bool,
    /// Whether what waits to be told is not as on the disk.
    changed_notices: bool,
    /// Whether its name is among the changed ones.
    noted: bool,
}

pub(super) enum Applied {
    To(u64),
    /// Nothing: this day has to be opened first ([`Books::open_day`]).
    NeedsDay(i64),
}

impl Books {
    pub(super) fn open(folder: &Path, signals: Arc<CommitSignals>) -> Result<Self, StoreOpenError> {
        LedgerFile::open(folder).map(|(file, accounts)| Self::of(file, accounts, signals))
    }

    pub(super) fn of(file: LedgerFile, accounts: BTreeMap<String, Account>, signals: Arc<CommitSignals>) -> Self {
        let slot = |account| {
            Arc::new(Mutex::new(Book {
                account,
                ..Book::default()
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

    /// Whether there is no account.
    pub(super) fn is_empty(&self) -> bool {
        let accounts = self.accounts.read();
        accounts.is_empty()
    }

    pub(super) fn slot(&self, id: &str) -> Option<Arc<SharedBook>> {
        let accounts = self.accounts.read();
        accounts.get(id).map(Arc::clone)
    }

    /// The last step of a node that was applied to an account, in memory.
    pub(crate) fn applied(&self, node: &NodeId, account: &str) -> u64 {
        let slot = self.slot(account);
        slot.map_or(0, |slot| slot.lock().account.watermark(node))
    }

    fn slot_or_new(&self, id: &str) -> Arc<SharedBook> {
        if let Some(slot) = self.slot(id) {
            return slot;
        }
        let mut accounts = self.accounts.write();
        Arc::clone(accounts.entry(id.to_owned()).or_default())
    }

    /// Whether steps may be applied.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when writing has failed for [`FAILING_MAX_MS`]: they are to stay in the journal.
    pub(super) fn check_written(&self, now_ms: i64) -> Result<(), StoreError> {
        let since = *self.failing_since.lock();
        match since {
            Some(since) if now_ms.saturating_sub(since) >= FAILING_MAX_MS => {
                let what = "the ledger's file cannot be written, and applies nothing until it can";
                Err(StoreError::Unavailable(what.to_owned()))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn admit(&self, ask: &Admit, now_ms: i64) -> AdmitReply {
        let id = ask.key.account.as_str();
        let Some(slot) = self.slot(id) else {
            return Account::default().admit(ask, now_ms);
        };
        let mut book = slot.lock();
        let known = book.account.key_revision(&ask.key.id);
        let answer = book.account.admit(ask, now_ms);
        if book.account.key_revision(&ask.key.id) != known {
            book.changed_keys.insert(ask.key.id.clone());
            self.note(id, &mut book);
        }
        answer
    }

    pub(super) fn apply(&self, node: &NodeId, id: &str, steps: &[Step], upto: u64, now_ms: i64) -> Applied {
        let slot = self.slot_or_new(id);
        let mut book = slot.lock();
        let before = book.account.watermark(node);
        let new = steps.iter().filter(|step| step.seq > before);
        let mut days = new.filter_map(settled_row).map(day_of);
        if let Some(day) = days.find(|day| !book.days.has(*day)) {
            return Applied::NeedsDay(day);
        }
        let (watermark, rows) = book.account.apply(node, steps, upto);
        if watermark != before {
            let applied = steps.iter().filter(|step| step.seq > before && step.seq <= watermark);
            for step in applied {
                if let Change::Settle(settlement) = &step.change {
                    book.changed_keys.insert(settlement.key.clone());
                    book.changed_notices |= !book.account.notices().is_empty();
                }
                book.changed_operations |= step.change.operation().is_some();
            }
            book.days.count(&rows, now_ms);
            self.note(id, &mut book);
        }
        Applied::To(watermark)
    }

    pub(super) fn set_terms(&self, id: &str, from: &AccountRecord, to: &AccountRecord) -> bool {
        let slot = self.slot_or_new(id);
        let mut book = slot.lock();
        let before = book.account.record();
        let holds = book.account.set_terms(from, to);
        if book.account.record() != before {
            self.note(id, &mut book);
        }
        holds
    }

    /// Takes the notices that are due. How often they were taken is written, too.
    pub(super) fn take_notices(&self, id: &str, pause_ms: i64, now_ms: i64) -> TakenNotices {
        let Some(slot) = self.slot(id) else {
            return TakenNotices::default();
        };
        let mut book = slot.lock();
        let taken = book.account.notices_mut().take(pause_ms, now_ms);
        if !taken.notices.is_empty() || taken.lost > 0 {
            book.changed_notices = true;
            self.note(id, &mut book);
        }
        taken
    }

    /// Forgets notices that were told.
    pub(super) fn told(&self, id: &str, told: &[NoticeOf]) {
        let Some(slot) = self.slot(id) else { return };
        let mut book = slot.lock();
        if book.account.notices_mut().told(told) {
            book.changed_notices = true;
            self.note(id, &mut book);
        }
    }

    /// Notes that an account has changed.
    fn note(&self, id: &str, book: &mut Book) {
        if !book.noted {
            book.noted = true;
            let mut changed = self.changed.lock();
            if changed.is_empty() {
                self.signals.changed.notify_one();
            }
            changed.push(id.to_owned());
        }
    }

    /// Writes all that has changed. Everything applied before the call is on the disk when it returns.
    pub(super) fn flush(&self, now_ms: i64) -> Result<(), StoreError> {
        let _writing = self.writing.lock();
        let names = std::mem::take(&mut *self.changed.lock());
        if names.is_empty() {
            return Ok(());
        }
        let slots = names.into_iter().filter_map(|id| Some((self.slot(&id)?, id)));
        let (slots, changes): (Vec<Arc<SharedBook>>, Vec<Changed>) = slots
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
            self.note(&changed.account, &mut book);
            book.put_back(changed);
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

impl Book {
    fn take_changed(&mut self, account: String) -> Changed {
        self.noted = false;
        let ids = std::mem::take(&mut self.changed_keys);
        let keys = ids.into_iter().filter_map(|id| {
            let key = self.account.key(&id)?.clone();
            Some((id, key))
        });
        let operations = std::mem::take(&mut self.changed_operations);
        let notices = std::mem::take(&mut self.changed_notices);
        Changed {
            account,
            standing: self.account.summary().cloned(),
            operations: operations.then(|| self.account.operations().iter().cloned().collect()),
            notices: notices.then(|| self.account.notices().clone()),
            keys: keys.collect(),
            sums: self.days.take_changed(),
        }
    }

    /// Takes back that this was written.
    fn put_back(&mut self, unwritten: Changed) {
        self.changed_keys.extend(unwritten.keys.into_iter().map(|(id, _)| id));
        self.changed_operations |= unwritten.operations.is_some();
        self.changed_notices |= unwritten.notices.is_some();
        self.days.put_back(unwritten.sums);
    }
}

fn settled_row(step: &Step) -> Option<&Row> {
    match &step.change {
        Change::Settle(settlement) => settlement.row.as_deref(),
        Change::Open { .. } | Change::Credit { .. } | Change::Adjust { .. } => None,
    }
}

/// The first day whose sums are kept.
pub(super) fn first_kept_day(now_ms: i64) -> i64 {
    now_ms.div_euclid(DAY_MS) - i64::from(RETENTION_DAYS)
}
