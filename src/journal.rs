//! The journal: this node's own durable record of what it owes to accounts.
//!
//! It is a folder of append-only segments. Each is allocated in full before it is written, so a full disk is found at
//! admission ([`Journal::reserve`]) and never at the end of an answer. A record is in the page cache when
//! [`Journal::append`] returns, so the end of the process loses nothing. It is on disk at most
//! [`crate::config::JournalConfig::sync`] later, so a power cut loses at most that; only operators' changes wait for it
//! ([`Journal::synced`]).
//!
//! The journal numbers the steps of each account, so their order in the file is the order of their numbers. It keeps in
//! memory where the steps are that the store has not acknowledged; [`crate::settlement`] sends them. It also keeps in
//! memory what the settled rows count by hour and model, for the stability record.

use std::{
    collections::HashSet,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use tokio::sync::{Notify, watch};

mod accounts;
mod checked;
mod contents;
mod damage;
mod disk;
mod error;
mod files;
mod folder;
mod frame;
mod gaps;
mod index;
mod position;
mod reader;
mod replay;
mod reservation;
mod retention;
mod shares;
mod shut;
mod steps;
mod sync;
mod tail;
mod tallies;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::config::JournalConfig as JournalSettings;
pub use error::JournalError;
pub use position::Position;
pub use reader::Reader;
pub use replay::Doubtful;
pub use reservation::{ADMIT_BYTES_MAX, REQUEST_BYTES, Reservation, STEP_BYTES_MAX};
pub use shut::JournalShut;
pub use steps::{KeyKept, Unsent};
pub use tail::{RECORD_BYTES_MAX, SEGMENT_BYTES_MIN};

use crate::{
    clock,
    domain::{
        key::KeyId,
        ledger::{Admitted, Change, Checkpoint, NodeId, Record, Step},
        retention::Retention,
    },
};
use contents::Contents;
use disk::{Disk, RealDisk};
use folder::Folder;
use sync::Synced;
use tail::Tail;

/// The file with the position up to which the store has acknowledged everything. It only speeds up the start.
const ACKNOWLEDGED: &str = "acknowledged";
/// The file with each account's last number and last acknowledged number, as of the last removal of segments.
const NUMBERS: &str = "numbers";

/// An open journal and what it contained.
#[derive(Debug)]
pub struct Opened {
    /// The opened journal.
    pub journal: Arc<Journal>,
    /// The name of the node, from the journal's folder.
    pub node: NodeId,
    /// Requests that were running when the previous process ended, in the order of their admission, with their last
    /// checkpoint. [`crate::settlement::settle_left_over`] charges them.
    pub unsettled: Vec<(Admitted, Option<Checkpoint>)>,
    /// Requests whose settlement may be in a damaged part of the journal: [`crate::settlement::judge_doubtful`].
    pub doubtful: Vec<Doubtful>,
}

/// The state that all handles of a journal share.
#[derive(Debug)]
struct Shared {
    folder: Folder,
    disk: Arc<dyn Disk>,
    settings: JournalSettings,
    state: Mutex<State>,
    /// Signalled when there is something to sync, or the journal closes.
    work: Condvar,
    synced: watch::Sender<Synced>,
    /// Notified when further steps are on disk.
    woken: Notify,
    /// Notified when the store has acknowledged steps.
    progress: Notify,
    /// Locked while forgotten steps are looked up.
    lookup: Mutex<()>,
    failures: AtomicU64,
    lost: AtomicU64,
    damaged: AtomicU64,
}

#[derive(Debug)]
struct State {
    tail: Tail,
    contents: Contents,
    /// The frame being encoded; reused.
    buffer: Vec<u8>,
    dirty: bool,
    /// Accounts with steps on disk that settlement has not picked up.
    ready: HashSet<String>,
    /// How far removal of old segments has gone; `None` before the first housekeeping.
    retention: Option<Retention>,
    closing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in the locked parts panics; if it did, what is on disk would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the current segment, if it was begun since the last call.
    fn note_begun(&self, state: &mut State, now_ms: i64) {
        let begin = Position {
            segment: state.tail.current.number,
            offset: frame::HEADER as u64,
        };
        if !state.contents.segments.contains_key(&begin.segment) {
            state.contents.begin(begin, self.settings.segment_bytes, now_ms);
        }
    }
}

/// The journal of this node. Every method may be called from any thread.
#[derive(Debug)]
pub struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens the folder, making it at the first use, and reads what it holds. Blocks for as long as that takes.
    ///
    /// # Errors
    /// Another process has it, it is a copy, or the file system refuses. Damaged records are no error.
    pub fn open(settings: &JournalSettings) -> Result<Opened, JournalError> {
        Self::open_with(settings, Arc::new(RealDisk))
    }

    fn open_with(settings: &JournalSettings, disk: Arc<dyn Disk>) -> Result<Opened, JournalError> {
        let folder = Folder::open(&settings.path)?;
        let failed = |source| JournalError::io(&settings.path, source);
        let replayed = replay::replay(&folder)?;
        let tail = Tail::new(&folder, replayed.next, settings.segment_bytes, Arc::clone(&disk)).map_err(failed)?;
        let begin = Position {
            segment: replayed.next,
            offset: frame::HEADER as u64,
        };
        let node = folder.node.clone();
        let mut contents = replayed.contents;
        contents.begin(begin, settings.segment_bytes, clock::unix_millis());
        let shared = Arc::new(Shared {
            folder,
            disk,
            settings: settings.clone(),
            state: Mutex::new(State {
                tail,
                contents,
                buffer: Vec::new(),
                dirty: true,
                ready: HashSet::new(),
                retention: None,
                closing: false,
            }),
            work: Condvar::new(),
            synced: watch::Sender::new(Synced::up_to(begin)),
            woken: Notify::new(),
            progress: Notify::new(),
            lookup: Mutex::new(()),
            failures: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            damaged: AtomicU64::new(replayed.damaged),
        });
        let thread = sync::start(Arc::clone(&shared)).map_err(failed)?;
        let journal = Arc::new(Self {
            shared,
            thread: Some(thread),
        });
        Ok(Opened {
            journal,
            node,
            unsettled: replayed.unsettled,
            doubtful: replayed.doubtful,
        })
    }

    /// The name of the node.
    pub fn node(&self) -> &NodeId {
        &self.shared.folder.node
    }

    /// Promises room for records of so many bytes ([`REQUEST_BYTES`] for a request). What is promised can be written,
    /// whatever becomes of the disk's free space.
    ///
    /// # Errors
    /// There is no room and none can be had: the request must not be served. It may work again a second later.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, JournalShut> {
        self.shared.lock().tail.promise(bytes, &self.shared.folder)?;
        Ok(Reservation::new(Arc::clone(&self.shared), bytes))
    }

    /// Records something that is no step, taking its room from the reservation, and more if that does not suffice. A
    /// [`Record::Checkpoint`] leaves the reservation alone: it is recorded while there is other room, and may be left out.
    ///
    /// # Errors
    /// The record is too large, is a step, or there is no room, or the disk fails. Nothing is recorded then.
    pub fn append(&self, record: &Record, reservation: &mut Reservation) -> Result<Position, JournalError> {
        match record {
            Record::Step { .. } => Err(JournalError::Numbered),
            Record::Checkpoint(_) => {
                let mut room = Reservation::new(Arc::clone(&self.shared), 0);
                self.write(&mut self.shared.lock(), record, &mut room)
            }
            Record::Admit(_) | Record::Key { .. } | Record::KeyGone { .. } => {
                self.write(&mut self.shared.lock(), record, reservation)
            }
        }
    }

    /// Numbers a change of an account and records it; answers with the number. `floor` is what the caller knows of the
    /// store's watermark (0: nothing): the number is greater.
    ///
    /// # Errors
    /// As for [`Journal::append`]. The number is not used up then.
    pub fn append_step(
        &self,
        account: &str,
        change: Change,
        floor: u64,
        reservation: &mut Reservation,
    ) -> Result<(u64, Position), JournalError> {
        let mut state = self.shared.lock();
        let seq = state.contents.accounts.next(account, floor);
        let record = Record::Step {
            account: account.to_owned(),
            step: Step { seq, change },
        };
        if floor > 0 {
            state.contents.accounts.raise(account, floor);
        }
        let position = self.write(&mut state, &record, reservation)?;
        if let Record::Step { step, .. } = record {
            state.contents.accounts.keep(account, step);
        }
        Ok((seq, position))
    }

    fn write(
        &self,
        state: &mut State,
        record: &Record,
        reservation: &mut Reservation,
    ) -> Result<Position, JournalError> {
        let folder = &self.shared.folder;
        let failed = |source| JournalError::io(&folder.path, source);
        state.buffer.clear();
        state.buffer.extend([0; frame::HEAD]);
        serde_json::to_writer(&mut state.buffer, record).map_err(|error| failed(error.into()))?;
        let bytes = state.buffer.len() as u64;
        let max = state.tail.frame_max();
        if bytes > max {
            return Err(JournalError::TooLarge { bytes, max });
        }
        let more = bytes.saturating_sub(reservation.left());
        if more > 0 {
            state.tail.promise(more, folder)?;
            reservation.grow(more);
        }
        let mut written = state.tail.write(&mut state.buffer, folder);
        if let Err(error) = &written {
            self.failed(error);
            // The disk may take it elsewhere: a settlement is not to be lost for one bad place.
            written = state.tail.write(&mut state.buffer, folder);
        }
        let now = clock::unix_millis();
        self.shared.note_begun(state, now);
        let position = written.map_err(|error| {
            self.failed(&error);
            failed(error)
        })?;
        reservation.spend(bytes);
        state.tail.release(bytes);
        state.contents.note(record, position, state.tail.current.at, now, true);
        if !state.dirty {
            state.dirty = true;
            self.shared.work.notify_one();
        }
        Ok(position)
    }

    fn failed(&self, error: &std::io::Error) {
        self.shared.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%error, folder = %self.shared.folder.path.display(), "the journal cannot be written");
    }

    /// Waits until a record is on disk.
    ///
    /// # Errors
    /// [`JournalError::NotDurable`].
    pub async fn synced(&self, position: Position) -> Result<(), JournalError> {
        let mut synced = self.shared.synced.subscribe();
        match synced.wait_for(|synced| synced.knows(position)).await {
            Ok(synced) if synced.has(position) => Ok(()),
            Ok(_) | Err(_) => Err(JournalError::NotDurable),
        }
    }

    /// Reads records from a position on.
    pub fn reader(&self, from: Position) -> Reader {
        Reader::new(Arc::clone(&self.shared), from)
    }

    /// How many requests of a key, and of its account, this process has settled that the store has not acknowledged.
    pub fn pending(&self, account: &str, key: &KeyId) -> (u64, u64) {
        self.shared.lock().contents.accounts.pending(account, key)
    }

    /// Notified whenever the store has acknowledged steps of an account, which may have ended holds.
    pub fn acknowledgements(&self, account: &str) -> Arc<Notify> {
        self.shared.lock().contents.accounts.acknowledgements(account)
    }

    /// The journal's size on disk, in bytes.
    pub fn bytes(&self) -> u64 {
        let state = self.shared.lock();
        let segments = state
            .contents
            .segments
            .values()
            .map(|segment| segment.bytes)
            .sum::<u64>();
        segments.saturating_add(state.tail.spare_bytes())
    }

    /// The number of steps that the store has not acknowledged.
    pub fn unacknowledged_steps(&self) -> u64 {
        self.shared.lock().contents.accounts.unacknowledged()
    }

    /// The age of the oldest unacknowledged step, in milliseconds; 0 if there is none.
    pub fn oldest_unacknowledged_ms(&self) -> u64 {
        let oldest = self.shared.lock().contents.accounts.oldest_ms();
        oldest.map_or(0, |at| {
            u64::try_from(clock::unix_millis().saturating_sub(at)).unwrap_or(0)
        })
    }

    /// How often writing or syncing has failed since the start.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Steps found lost since the start: numbered, not applied by the store, and no longer in the journal.
    pub fn lost_steps(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// The position of the next record.
    pub fn end(&self) -> Position {
        let state = self.shared.lock();
        Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread ends within one sync.
            let _ = thread.join();
        }
    }
}
