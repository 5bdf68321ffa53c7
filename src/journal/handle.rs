//! The journal as its users have it: opened, written to, asked how it is.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::{Condvar, Mutex};
use smol_str::SmolStr;
use tokio::sync::{Notify, watch};

use crate::{
    config::JournalConfig,
    domain::{
        keys::key::KeyId,
        ledger::{Admitted, Change, Checkpoint, NodeId, Record, Step},
    },
    edges::clock,
    journal::{
        disk::{Disk, RealDisk},
        engine::{JournalEngine, WriteState},
        error::{JournalError, JournalShut},
        folder::Folder,
        frame,
        holders::Holders,
        position::Position,
        reader::{Reader, Scope},
        replay::{self, PossiblySettled},
        reservation::Reservation,
        sizes::REQUEST_BYTES,
        sync,
        synced::Synced,
        tail::Tail,
    },
};

/// An open journal and what it contained.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The opened journal.
    pub journal: Arc<Journal>,
    /// Requests that were running when the previous process ended, in the order of their admission, with their last
    /// checkpoint. `settlement/left_over.rs` charges them.
    pub unsettled: Vec<(Admitted, Option<Checkpoint>)>,
    /// Requests whose settlement may be in a damaged part of the journal, which `settlement/left_over.rs` judges.
    pub possibly_settled: Vec<PossiblySettled>,
    /// Who has left leases of accounts, perhaps: holders that ended with a process before.
    pub lessees: Vec<(NodeId, SmolStr)>,
}

/// The journal of this node. Every method may be called from any thread.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(super) engine: Arc<JournalEngine>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens the folder, making it at the first use, and reads what it holds. Blocks for as long as that takes.
    ///
    /// # Errors
    /// Another process has it, it is a copy, or the file system refuses. Damaged records are no error.
    pub(crate) fn open(settings: &JournalConfig) -> Result<Opened, JournalError> {
        Self::open_with(settings, Arc::new(RealDisk))
    }

    pub(super) fn open_with(settings: &JournalConfig, disk: Arc<dyn Disk>) -> Result<Opened, JournalError> {
        let folder = Folder::open(&settings.path)?;
        let failed = |source| JournalError::io(&settings.path, source);
        let replayed = replay::replay(&folder)?;
        let tail = Tail::new(&folder, replayed.next, settings.segment_bytes, Arc::clone(&disk)).map_err(failed)?;
        let begin = Position {
            segment: replayed.next,
            offset: frame::HEADER as u64,
        };
        let mut contents = replayed.contents;
        let lessees = std::mem::take(&mut contents.lessees);
        contents.holders = Holders::new(&settings.sinks);
        contents.begin(begin, settings.segment_bytes, clock::unix_millis());
        let engine = Arc::new(JournalEngine {
            folder,
            disk,
            free: Arc::clone(&tail.free),
            settings: settings.clone(),
            state: Mutex::new(WriteState {
                tail,
                contents,
                buffer: Vec::new(),
                dirty: true,
                is_stirred: true,
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
        let thread = sync::start(Arc::clone(&engine)).map_err(failed)?;
        let journal = Arc::new(Self {
            engine,
            thread: Some(thread),
        });
        Ok(Opened {
            journal,
            unsettled: replayed.unsettled,
            possibly_settled: replayed.possibly_settled,
            lessees: lessees.into_iter().map(|(account, holder)| (holder, account)).collect(),
        })
    }

    /// The name of the node.
    pub(crate) fn node(&self) -> &NodeId {
        &self.engine.folder.node
    }

    /// Notes in the folder that this process takes no new requests: who starts meanwhile takes another lane.
    ///
    /// # Errors
    /// The file system refuses.
    pub(crate) fn note_draining(&self) -> Result<(), JournalError> {
        let folder = &self.engine.folder;
        folder
            .note_draining()
            .map_err(|source| JournalError::io(&folder.path, source))
    }

    /// Promises room for records of so many bytes ([`REQUEST_BYTES`] for a request). What is promised can be written,
    /// whatever becomes of the disk's free space.
    ///
    /// # Errors
    /// There is no room and none can be had: the request must not be served. It may work again a second later.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation, JournalShut> {
        let engine = &self.engine;
        if !engine.free.take_openly(bytes) {
            engine.look_if_resting();
            let mut state = engine.lock();
            let promised = state.tail.promise(bytes, &engine.folder);
            if promised.is_err() {
                // What is in the way may pass.
                engine.stir(&mut state);
            }
            promised?;
        }
        Ok(Reservation::new(Arc::clone(&engine.free), bytes))
    }

    /// Records something that is no step, taking its room from the reservation, and more if that does not suffice.
    ///
    /// # Errors
    /// The record is too large, is a step, or there is no room, or the disk fails. Nothing is recorded then.
    pub(crate) fn append(&self, record: &Record, reservation: &mut Reservation) -> Result<Position, JournalError> {
        if matches!(record, Record::Step { .. }) {
            return Err(JournalError::Numbered);
        }
        self.write(&mut self.engine.lock(), record, reservation)
    }

    /// Numbers a change of an account and records it; answers with the number. `floor` is what the caller knows of the
    /// store's watermark (0: nothing): the number is greater.
    ///
    /// # Errors
    /// As for [`Journal::append`]. The number is not used up then.
    pub(crate) fn append_step(
        &self,
        account: &str,
        change: Change,
        floor: u64,
        reservation: &mut Reservation,
    ) -> Result<(u64, Position), JournalError> {
        let mut state = self.engine.lock();
        let seq = state.contents.accounts.next(account, floor);
        let record = Record::Step {
            account: account.into(),
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
        state: &mut WriteState,
        record: &Record,
        reservation: &mut Reservation,
    ) -> Result<Position, JournalError> {
        let mut frame = std::mem::take(&mut state.buffer);
        frame.clear();
        frame.extend([0; frame::HEAD]);
        let path = &self.engine.folder.path;
        let written = (record.write(&mut frame))
            .map_err(|error| JournalError::io(path, error.into()))
            .and_then(|()| self.put(state, &mut frame, reservation));
        state.buffer = frame;
        let (position, now) = written?;
        state.contents.note(record, position, state.tail.current.at, now, true);
        Ok(position)
    }

    /// Writes a frame, whose head is filled in, in room of the reservation; answers with its position and the time in
    /// milliseconds since the Unix epoch. What stands in it is yet to be noted.
    pub(super) fn put(
        &self,
        state: &mut WriteState,
        frame: &mut [u8],
        reservation: &mut Reservation,
    ) -> Result<(Position, i64), JournalError> {
        let folder = &self.engine.folder;
        self.engine.stir(state);
        let bytes = frame.len() as u64;
        let max = state.tail.frame_max();
        if bytes > max {
            return Err(JournalError::TooLarge { bytes, max });
        }
        let more = bytes.saturating_sub(reservation.left());
        if more > 0 {
            state.tail.promise(more, folder)?;
            reservation.grow(more);
        }
        let mut written = state.tail.write(frame, folder);
        if let Err(error) = &written {
            self.failed(error);
            // The disk may take it elsewhere: a settlement is not to be lost for one bad place.
            written = state.tail.write(frame, folder);
        }
        let now = clock::unix_millis();
        self.engine.note_begun(state, now);
        let position = written.map_err(|error| {
            self.failed(&error);
            JournalError::io(&folder.path, error)
        })?;
        reservation.spend(bytes);
        state.tail.free.give(bytes);
        if !state.dirty {
            state.dirty = true;
            self.engine.work.notify_one();
        }
        Ok((position, now))
    }

    pub(super) fn failed(&self, error: &std::io::Error) {
        self.engine.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%error, folder = %self.engine.folder.path.display(), "the journal cannot be written");
    }

    /// Waits until a record is on disk.
    ///
    /// # Errors
    /// [`JournalError::NotDurable`].
    pub(crate) async fn synced(&self, position: Position) -> Result<(), JournalError> {
        let mut synced = self.engine.synced.subscribe();
        match synced.wait_for(|synced| synced.knows(position)).await {
            Ok(synced) if synced.has(position) => Ok(()),
            Ok(_) | Err(_) => Err(JournalError::NotDurable),
        }
    }

    /// Reads records from a position on.
    pub(crate) fn reader(&self, from: Position) -> Reader {
        Reader::new(Arc::clone(&self.engine), from, Scope::Written)
    }

    /// How many requests of a key, and of its account, this process has settled that the store has not acknowledged.
    pub(crate) fn pending(&self, account: &str, key: &KeyId) -> (u64, u64) {
        self.engine.lock().contents.accounts.pending(account, key)
    }

    /// Notified whenever the store has acknowledged steps of an account, which may have ended holds.
    pub(crate) fn acknowledgements(&self, account: &str) -> Arc<Notify> {
        self.engine.lock().contents.accounts.acknowledgements(account)
    }

    /// The journal's size on disk, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.engine.lock();
        let segments = state
            .contents
            .segments
            .values()
            .map(|segment| segment.bytes)
            .sum::<u64>();
        segments.saturating_add(state.tail.spare_bytes())
    }

    /// The number of steps that the store has not acknowledged.
    pub(crate) fn unacknowledged_steps(&self) -> u64 {
        self.engine.lock().contents.accounts.unacknowledged()
    }

    /// The age of the oldest unacknowledged step, in milliseconds; 0 if there is none.
    pub(crate) fn oldest_unacknowledged_ms(&self) -> u64 {
        let oldest = self.engine.lock().contents.accounts.oldest_ms();
        oldest.map_or(0, |at| {
            u64::try_from(clock::unix_millis().saturating_sub(at)).unwrap_or(0)
        })
    }

    /// How often writing or syncing has failed since the start.
    pub(crate) fn failures(&self) -> u64 {
        self.engine.failures.load(Ordering::Relaxed)
    }

    /// Steps found lost since the start: numbered, not applied by the store, and no longer in the journal.
    pub(crate) fn lost_steps(&self) -> u64 {
        self.engine.lost.load(Ordering::Relaxed)
    }

    /// The position of the next record.
    pub(crate) fn end(&self) -> Position {
        let state = self.engine.lock();
        Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        }
    }

    /// Why nothing is admitted now; `None`: a request can be recorded.
    pub(crate) fn shut(&self) -> Option<JournalShut> {
        self.engine.look_if_resting();
        self.engine.lock().tail.shut(REQUEST_BYTES)
    }

    /// How many damaged parts were found since the start, and kept aside.
    pub(crate) fn damaged_parts(&self) -> u64 {
        self.engine.damaged.load(Ordering::Relaxed)
    }

    /// How many accounts have steps here, or had some that are not kept any more.
    pub(crate) fn accounts_known(&self) -> usize {
        self.engine.lock().contents.accounts.numbers().len()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.engine.lock().closing = true;
        self.engine.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread ends within one sync.
            let _ = thread.join();
        }
    }
}
