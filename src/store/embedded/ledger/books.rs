//! All accounts in memory, and what of them is not on the disk yet.
//!
//! Each account has a lock of its own, under which it changes. What has changed is noted by name; writing it takes a copy of
//! the durable part under the account's lock, so that one transaction has counters, watermarks and rows of one moment.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::{Bound, RangeInclusive};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};

use super::commits::{COMMIT_ROWS, CommitSignals};
use super::file::{Changed, LedgerFile, Unwritten};
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        Account, AccountRecord, AccountView, Admit, AdmitReply, Change, NodeId, Step,
        consumption::{RETENTION_DAYS, Row},
        daily_sums::{DailySum, SumsOf, day_of},
        notice::{NoticeOf, TakenNotices},
    },
};
use crate::store::{StoreError, StoreOpenError};

const DAY_MS: i64 = 24 * 3600 * 1000;

mod putting_back;
mod retention;
mod transient;
mod trimming;

pub(crate) use transient::Carried;

/// All accounts, and the file.
pub(crate) struct Books {
    file: LedgerFile,
    accounts: RwLock<BTreeMap<String, Arc<SharedBook>>>,
    /// Names of the accounts that have changed since they were last written.
    changed: Mutex<Vec<String>>,
    /// Held by who writes: the file takes one at a time.
    writing: Mutex<()>,
    unwritten_rows: AtomicUsize,
    signals: Arc<CommitSignals>,
}

pub(super) type SharedBook = Mutex<Book>;

#[derive(Default)]
pub(super) struct Book {
    pub(super) account: Account,
    /// By day, the place of the next row; loaded when a day's first row comes.
    next_rows: BTreeMap<i64, u64>,
    /// Rows that are not on the disk yet, or have just got there.
    unwritten: VecDeque<Unwritten>,
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
    /// Nothing: the place of the next row of this day has to be given first.
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
            unwritten_rows: AtomicUsize::new(0),
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

    pub(super) fn unwritten_rows(&self) -> usize {
        self.unwritten_rows.load(Ordering::Relaxed)
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

    pub(super) fn apply(&self, node: &NodeId, id: &str, steps: &[Step], upto: u64) -> Applied {
        let slot = self.slot_or_new(id);
        let mut book = slot.lock();
        let days = steps.iter().filter_map(settled_row).map(day_of);
        if let Some(day) = days.into_iter().find(|day| !book.next_rows.contains_key(day)) {
            return Applied::NeedsDay(day);
        }
        let before = book.account.watermark(node);
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
            self.push(&mut book, rows);
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

    /// Reads the place of the next row of a day from the file. No row of that day is on its way, so the file knows.
    pub(super) fn load_day(&self, id: &str, day: i64) -> Result<(), StoreError> {
        let next = self.file.next_row(id, day)?;
        self.slot_or_new(id).lock().next_rows.entry(day).or_insert(next);
        Ok(())
    }

    /// Puts rows behind those of their days.
    fn push(&self, book: &mut Book, rows: Vec<Arc<Row>>) {
        let before = self.unwritten_rows.fetch_add(rows.len(), Ordering::Relaxed);
        if before < COMMIT_ROWS && before.saturating_add(rows.len()) >= COMMIT_ROWS {
            self.signals.full.notify_one();
        }
        for row in rows {
            book.push(row);
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
    pub(super) fn flush(&self) -> Result<(), StoreError> {
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
        for (slot, changed) in slots.iter().zip(changes) {
            let mut book = slot.lock();
            if outcome.is_ok() {
                book.unwritten.drain(..changed.rows.len());
                let before = self.unwritten_rows.fetch_sub(changed.rows.len(), Ordering::Relaxed);
                if before.saturating_sub(changed.rows.len()) >= COMMIT_ROWS {
                    // As many have come meanwhile.
                    self.signals.full.notify_one();
                }
            } else {
                book.changed_keys.extend(changed.keys.into_iter().map(|(id, _)| id));
                book.changed_operations |= changed.operations.is_some();
                book.changed_notices |= changed.notices.is_some();
                self.note(&changed.account, &mut book);
            }
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

    /// Rows of a day: first what the disk has, then what is on its way. The latter is looked at first, so that a row which
    /// gets to the disk meanwhile is seen there.
    pub(super) fn rows(
        &self,
        id: &str,
        day: i64,
        skip: usize,
        limit: usize,
        now_ms: i64,
    ) -> Result<Vec<Row>, StoreError> {
        let Some(slot) = self.slot(id).filter(|_| day >= first_kept_day(now_ms)) else {
            return Ok(Vec::new());
        };
        let skip = u64::try_from(skip).unwrap_or(u64::MAX);
        let on_their_way = slot.lock().unwritten_of(day);
        let (begin, mut rows) = self.file.rows(id, day, skip, limit)?;
        let on_disk = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        let next = begin.saturating_add(on_disk);
        let rest = on_their_way.into_iter().filter(|unwritten| unwritten.number >= next);
        let rest = rest.map(|unwritten| Arc::unwrap_or_clone(unwritten.row));
        let room = limit.saturating_sub(rows.len());
        rows.extend(rest.take(room));
        Ok(rows)
    }

    /// Daily sums, with those of rows on their way, which are looked at first.
    pub(super) fn sums(
        &self,
        id: &str,
        days: &RangeInclusive<i64>,
        of: &SumsOf,
        now_ms: i64,
    ) -> Result<Vec<DailySum>, StoreError> {
        let days = first_kept_day(now_ms).max(*days.start())..=*days.end();
        let Some(slot) = self.slot(id) else {
            return Ok(Vec::new());
        };
        let on_their_way: Vec<Unwritten> = {
            let book = slot.lock();
            let asked = book.unwritten.iter().filter(|row| days.contains(&row.day));
            asked.cloned().collect()
        };
        self.file.sums(id, &days, of, &on_their_way)
    }

    /// Makes the sums of a day anew from the rows in the file; those on their way are added when they are written.
    pub(super) fn resum(&self, id: &str, day: i64) -> Result<(), StoreError> {
        let _writing = self.writing.lock();
        self.file.resum(id, day)
    }

    fn names(&self) -> Vec<String> {
        let accounts = self.accounts.read();
        accounts.keys().cloned().collect()
    }
}

impl Book {
    fn push(&mut self, row: Arc<Row>) {
        let day = day_of(&row);
        let next = self.next_rows.entry(day).or_default();
        let number = *next;
        *next += 1;
        self.unwritten.push_back(Unwritten { day, number, row });
    }

    fn unwritten_of(&self, day: i64) -> Vec<Unwritten> {
        let wanted = |unwritten: &&Unwritten| unwritten.day == day;
        self.unwritten.iter().filter(wanted).cloned().collect()
    }

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
            rows: self.unwritten.iter().cloned().collect(),
        }
    }
}

fn settled_row(step: &Step) -> Option<&Row> {
    match &step.change {
        Change::Settle(settlement) => settlement.row.as_deref(),
        Change::Open { .. } | Change::Credit { .. } | Change::Adjust { .. } => None,
    }
}

/// The first day whose rows are kept.
pub(super) fn first_kept_day(now_ms: i64) -> i64 {
    now_ms.div_euclid(DAY_MS) - i64::from(RETENTION_DAYS)
}
