//! The interface of the journal: opening it, appending records, and reporting its state.

use std::{
    collections::{BTreeSet, HashSet},
    path::{Path, PathBuf},
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
        keys::KeyId,
        ledger::{AccountChange, AdmittedRequest, Checkpoint, NodeId, Record, Step},
    },
    edges::clock,
    journal::{
        Disk, JournalEngine, JournalError, JournalUnavailable, Position, REQUEST_BYTES, RealDisk, Reservation,
        Retainers, Synced, WriteState,
        folder::{self, JournalFolder},
        frame::{self, JournalRecordReader, ReadScope},
        replay::{self, UncertainSettlement},
        sync,
        tail::JournalTail,
    },
};

/// An open journal, and the work that earlier processes left unfinished according to its records.
#[derive(Debug)]
pub(crate) struct OpenedJournal {
    pub journal: Arc<Journal>,
    /// The requests that were running when the previous process ended, in the order of their admission, each with its last
    /// checkpoint. `settlement/left_over.rs` charges them.
    pub unsettled: Vec<(AdmittedRequest, Option<Checkpoint>)>,
    /// The requests whose settlement may be in a damaged part of the journal. `settlement/left_over.rs` decides whether to charge
    /// them.
    pub possibly_settled: Vec<UncertainSettlement>,
    /// The names under which earlier processes held leases. Each name is paired with an account. The store may contain a lease of
    /// this account that is held under this name.
    pub lessees: Vec<(NodeId, SmolStr)>,
}

/// The journal of this node. Every method can be called from any thread.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(super) engine: Arc<JournalEngine>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens and reads the journal in the folder that the settings name. Creates the folder if it does not exist. Blocks
    /// until the journal is read.
    ///
    /// # Errors
    /// Another process uses the folder, the folder is a copy, or a file operation fails. Damaged records are not an error.
    pub(crate) fn open(settings: &JournalConfig) -> Result<OpenedJournal, JournalError> {
        Self::open_with(settings, Arc::new(RealDisk))
    }

    pub(super) fn open_with(settings: &JournalConfig, disk: Arc<dyn Disk>) -> Result<OpenedJournal, JournalError> {
        let folder = JournalFolder::open(&settings.path)?;
        let failed = |source| JournalError::io(&settings.path, source);
        let replayed = replay::replay(&folder)?;
        let tail = JournalTail::new(
            &folder,
            replayed.next_segment,
            settings.segment_bytes,
            Arc::clone(&disk),
        )
        .map_err(failed)?;
        let begin = Position {
            segment: replayed.next_segment,
            offset: frame::HEADER as u64,
        };
        let mut contents = replayed.contents;
        let lessees = std::mem::take(&mut contents.lessees);
        contents.retainers = Retainers::new(&settings.sinks);
        contents.begin_segment(begin, settings.segment_bytes, clock::unix_millis());
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
                needs_housekeeping: true,
                ready: HashSet::new(),
                retention: None,
                closing: false,
            }),
            work: Condvar::new(),
            synced: watch::Sender::new(Synced::up_to(begin)),
            steps_synced: Notify::new(),
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
        Ok(OpenedJournal {
            journal,
            unsettled: replayed.unsettled,
            possibly_settled: replayed.possibly_settled,
            lessees: lessees.into_iter().map(|(account, holder)| (holder, account)).collect(),
        })
    }

    /// Returns the node's name.
    pub(crate) fn node(&self) -> &NodeId {
        &self.engine.folder.node
    }

    /// Records in the folder that this process accepts no new requests. As a result, another process can start before this one
    /// has ended. The other process uses another lane.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn mark_draining(&self) -> Result<(), JournalError> {
        let folder = &self.engine.folder;
        folder
            .mark_draining()
            .map_err(|source| JournalError::io(&folder.path, source))
    }

    /// Reserves `bytes` for records ([`REQUEST_BYTES`] for a request). Reserved room can be written even if the disk becomes
    /// full.
    ///
    /// # Errors
    /// No room can be reserved, so the request must not be served. Another attempt may succeed a second later.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation, JournalUnavailable> {
        let engine = &self.engine;
        if !engine.free.reserve_if_open(bytes) {
            engine.check_folder_if_idle();
            let mut state = engine.lock();
            let promised = state.tail.reserve(bytes, &engine.folder);
            if promised.is_err() {
                // The thread checks whether the cause is gone.
                engine.request_housekeeping(&mut state);
            }
            promised?;
        }
        Ok(Reservation::new(Arc::clone(&engine.free), bytes))
    }

    /// Appends a record that is not a step. The record uses the room of `reservation`. If that room does not suffice, the method
    /// reserves more.
    ///
    /// # Errors
    /// The record is too large, the record is a step, there is no room, or the disk fails. After an error, nothing is recorded.
    pub(crate) fn append(&self, record: &Record, reservation: &mut Reservation) -> Result<Position, JournalError> {
        if matches!(record, Record::Step { .. }) {
            return Err(JournalError::UnnumberedStep);
        }
        self.write(&mut self.engine.lock(), record, reservation)
    }

    /// Appends a change of an account as the account's next step. Returns the step's number and position. `floor` is the store's
    /// watermark, or 0 if the caller does not know it. The step's number is greater than `floor`.
    ///
    /// # Errors
    /// As for [`Journal::append`]. After an error, the step's number remains unused.
    pub(crate) fn append_step(
        &self,
        account: &str,
        change: AccountChange,
        floor: u64,
        reservation: &mut Reservation,
    ) -> Result<(u64, Position), JournalError> {
        let mut state = self.engine.lock();
        let seq = state.contents.accounts.next_number(account, floor);
        let record = Record::Step {
            account: account.into(),
            step: Step { seq, change },
        };
        if floor > 0 {
            state.contents.accounts.raise_watermark(account, floor);
        }
        let position = self.write(&mut state, &record, reservation)?;
        if let Record::Step { step, .. } = record {
            state.contents.accounts.cache(account, step);
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
            .and_then(|()| self.write_frame(state, &mut frame, reservation));
        state.buffer = frame;
        let (position, now) = written?;
        state
            .contents
            .add_record(record, position, state.tail.current.at, now, true);
        Ok(position)
    }

    /// Fills in the frame's head and writes the frame in the reservation's room. Returns the frame's position, and the time in
    /// milliseconds since the Unix epoch. The caller must add the record to the journal's contents in memory.
    pub(super) fn write_frame(
        &self,
        state: &mut WriteState,
        frame: &mut [u8],
        reservation: &mut Reservation,
    ) -> Result<(Position, i64), JournalError> {
        let folder = &self.engine.folder;
        self.engine.request_housekeeping(state);
        let bytes = frame.len() as u64;
        let max = state.tail.frame_max();
        if bytes > max {
            return Err(JournalError::TooLarge { bytes, max });
        }
        let more = bytes.saturating_sub(reservation.remaining());
        if more > 0 {
            state.tail.reserve(more, folder)?;
            reservation.grow(more);
        }
        let mut written = state.tail.write(frame, folder);
        if let Err(error) = &written {
            self.record_failure(error);
            // A second attempt is made in the next segment, because a single bad block must not cause the loss of a
            // settlement.
            written = state.tail.write(frame, folder);
        }
        let now = clock::unix_millis();
        self.engine.register_segment(state, now);
        let position = written.map_err(|error| {
            self.record_failure(&error);
            JournalError::io(&folder.path, error)
        })?;
        reservation.spend(bytes);
        state.tail.free.release(bytes);
        if !state.dirty {
            state.dirty = true;
            self.engine.work.notify_one();
        }
        Ok((position, now))
    }

    pub(super) fn record_failure(&self, error: &std::io::Error) {
        self.engine.failures.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%error, folder = %self.engine.folder.path.display(), "cannot write a record to the journal: check the journal's disk");
    }

    /// Waits until a record is on disk.
    ///
    /// # Errors
    /// [`JournalError::NotDurable`] if the disk failed before the record was synced.
    pub(crate) async fn wait_until_synced(&self, position: Position) -> Result<(), JournalError> {
        let mut synced = self.engine.synced.subscribe();
        match synced.wait_for(|synced| synced.is_decided(position)).await {
            Ok(synced) if synced.is_on_disk(position) => Ok(()),
            Ok(_) | Err(_) => Err(JournalError::NotDurable),
        }
    }

    /// Creates a reader of the records from a position onwards.
    pub(crate) fn reader(&self, from: Position) -> JournalRecordReader {
        JournalRecordReader::new(Arc::clone(&self.engine), from, ReadScope::Written)
    }

    /// Counts the requests that this process has settled and the store has not acknowledged. Returns the count for the key, and
    /// the count for its account.
    pub(crate) fn pending_settlements(&self, account: &str, key: &KeyId) -> (u64, u64) {
        self.engine.lock().contents.accounts.pending_settlements(account, key)
    }

    /// Returns the `Notify` that is triggered when the store acknowledges steps of an account. These steps may have ended holds.
    pub(crate) fn acknowledgements(&self, account: &str) -> Arc<Notify> {
        self.engine.lock().contents.accounts.acknowledgements(account)
    }

    /// Returns the journal's size on disk, in bytes.
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

    /// Returns the number of steps that the store has not acknowledged.
    pub(crate) fn unacknowledged_steps(&self) -> u64 {
        self.engine.lock().contents.accounts.unacknowledged()
    }

    /// Returns the age of the oldest unacknowledged step, in milliseconds; 0 if there is none.
    pub(crate) fn oldest_unacknowledged_ms(&self) -> u64 {
        let oldest = self.engine.lock().contents.accounts.oldest_ms();
        oldest.map_or(0, |at| {
            u64::try_from(clock::unix_millis().saturating_sub(at)).unwrap_or(0)
        })
    }

    /// Returns the number of failed writes and syncs since the start.
    pub(crate) fn failures(&self) -> u64 {
        self.engine.failures.load(Ordering::Relaxed)
    }

    /// Returns the number of lost steps found since the start. A step is lost if the store has not applied it and the journal no
    /// longer contains it.
    pub(crate) fn lost_steps(&self) -> u64 {
        self.engine.lost.load(Ordering::Relaxed)
    }

    /// Returns the position of the next record.
    pub(crate) fn end(&self) -> Position {
        let state = self.engine.lock();
        Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        }
    }

    /// Returns the reason why no request can be admitted now; `None` if a request can be admitted.
    pub(crate) fn unavailability(&self) -> Option<JournalUnavailable> {
        self.engine.check_folder_if_idle();
        self.engine.lock().tail.unavailability(REQUEST_BYTES)
    }

    /// Returns the number of damaged parts that were found, and saved in quarantine, since the start.
    pub(crate) fn damaged_parts(&self) -> u64 {
        self.engine.damaged.load(Ordering::Relaxed)
    }

    /// Returns the number of accounts that have steps in this journal, or had steps in segments that were removed.
    pub(crate) fn accounts_known(&self) -> usize {
        self.engine.lock().contents.accounts.numbers().len()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.engine.lock().closing = true;
        self.engine.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread ends after at most one more sync.
            let _ = thread.join();
        }
    }
}

/// The maximum number of processes that share a folder: one of them serves, and the others are shutting down.
pub(crate) const LANES_MAX: usize = 16;

/// The role of a starting process in relation to other processes that use the same folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartRole {
    /// The process starts on its own. It refuses to start if another process serves, but not if others are only shutting down.
    Alone,
    /// The serving process has started this one as its successor. Other processes that use the folder are not an error.
    Successor,
}

/// The journals that a process opens at its start.
#[derive(Debug)]
pub(crate) struct ProcessJournals {
    /// The journal that the process writes to.
    pub(crate) own: OpenedJournal,
    /// The orphaned journals, whose processes have ended.
    pub(crate) orphaned: Vec<OpenedJournal>,
}

impl ProcessJournals {
    /// Opens every lane that no process uses. If there is no such lane, opens a new lane. Blocks until the opened lanes are read.
    ///
    /// # Errors
    /// As for [`Journal::open`]. [`JournalError::InUse`] if another process serves with this folder, or if all lanes are in use.
    pub(crate) fn open(settings: &JournalConfig, place: StartRole) -> Result<Self, JournalError> {
        let mut opened = Vec::new();
        for (number, path) in paths(settings).enumerate() {
            let is_new = number > 0 && !path.exists();
            if is_new && !opened.is_empty() {
                continue;
            }
            match open(settings, &path) {
                Ok(lane) => opened.push(lane),
                Err(JournalError::InUse(path)) => {
                    if place == StartRole::Alone && !folder::is_draining(&path) {
                        return Err(JournalError::InUse(settings.path.clone()));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if opened.is_empty() {
            return Err(JournalError::InUse(settings.path.clone()));
        }
        let own = opened.remove(0);
        Ok(Self { own, orphaned: opened })
    }

    /// Returns the largest number of accounts that any lane has.
    pub(crate) fn accounts_known(&self) -> usize {
        let lanes = self.orphaned.iter().chain([&self.own]);
        lanes.map(|lane| lane.journal.accounts_known()).max().unwrap_or(0)
    }
}

/// The result of [`open_orphaned`].
#[derive(Debug)]
pub(crate) struct OrphanScan {
    /// The journals that were opened.
    pub(crate) opened: Vec<OpenedJournal>,
    /// The number of journals that are already open, in this process or another.
    pub(crate) in_use: usize,
}

/// Opens the journals whose processes have ended. If a journal cannot be opened, logs the error, adds the journal to `refused`,
/// and does not try that journal again. Blocks until the journals are read.
pub(crate) fn open_orphaned(settings: &JournalConfig, refused: &mut BTreeSet<PathBuf>) -> OrphanScan {
    let (mut opened, mut in_use) = (Vec::new(), 0);
    // If the folder was replaced, the new one must not be touched.
    for path in paths(settings).filter(|path| folder::is_journal(path)) {
        if refused.contains(&path) {
            continue;
        }
        match open(settings, &path) {
            Ok(lane) => opened.push(lane),
            Err(JournalError::InUse(_)) => in_use += 1,
            Err(error) => {
                tracing::error!(%error, "cannot open an orphaned journal; its requests stay unsettled until weir is restarted");
                refused.insert(path);
            }
        }
    }
    OrphanScan { opened, in_use }
}

fn open(settings: &JournalConfig, path: &Path) -> Result<OpenedJournal, JournalError> {
    let settings = JournalConfig {
        path: path.to_owned(),
        ..settings.clone()
    };
    Journal::open(&settings)
}

fn paths(settings: &JournalConfig) -> impl Iterator<Item = PathBuf> {
    let first = std::iter::once(settings.path.clone());
    let others = (2..=LANES_MAX).map(|number| settings.path.join(format!("lane-{number}")));
    first.chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::scratch;

    fn settings(folder: &Path) -> JournalConfig {
        JournalConfig {
            path: folder.to_owned(),
            segment_bytes: 1 << 16,
            keep: std::time::Duration::from_secs(3600),
            sync: std::time::Duration::from_millis(1),
            sinks: Vec::new(),
        }
    }

    #[test]
    fn a_successor_has_a_lane_of_its_own_and_opens_what_its_predecessor_leaves() {
        let folder = scratch();
        let settings = settings(folder.path());
        let first = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        let second = ProcessJournals::open(&settings, StartRole::Successor).unwrap();
        assert!(second.orphaned.is_empty());
        assert_ne!(first.own.journal.node(), second.own.journal.node());
        let mut refused = BTreeSet::new();
        let mut open_left = || open_orphaned(&settings, &mut refused);
        let found = open_left();
        assert_eq!((found.opened.len(), found.in_use), (0, 2));
        let node = first.own.journal.node().clone();
        drop(first);
        let OrphanScan { opened: left, in_use } = open_left();
        assert_eq!((left.len(), in_use), (1, 1));
        assert_eq!(*left[0].journal.node(), node);
        let found = open_left();
        assert_eq!((found.opened.len(), found.in_use), (0, 2), "it is open already");
        drop((left, second));
        let all = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        assert_eq!(
            (all.own.journal.node().clone(), all.orphaned.len()),
            (node, 1),
            "the first lane is written to again"
        );
    }

    #[test]
    fn who_serves_is_in_the_way_of_a_start_and_who_ends_is_not() {
        let folder = scratch();
        let settings = settings(folder.path());
        let first = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        let refused = ProcessJournals::open(&settings, StartRole::Alone);
        assert!(matches!(refused, Err(JournalError::InUse(_))), "{refused:?}");
        first.own.journal.mark_draining().unwrap();
        let third = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        assert_ne!(first.own.journal.node(), third.own.journal.node());
        drop((first, third));
        let again = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        let refused = ProcessJournals::open(&settings, StartRole::Alone);
        assert!(
            matches!(refused, Err(JournalError::InUse(_))),
            "the note went with the next start"
        );
        drop(again);
    }

    #[test]
    fn a_folder_in_the_place_of_one_that_is_gone_is_left_alone() {
        let folder = scratch();
        let settings = settings(&folder.path().join("journal"));
        let lanes = ProcessJournals::open(&settings, StartRole::Alone).unwrap();
        std::fs::rename(&settings.path, folder.path().join("away")).unwrap();
        std::fs::create_dir(&settings.path).unwrap();
        assert!(open_orphaned(&settings, &mut BTreeSet::new()).opened.is_empty());
        assert_eq!(std::fs::read_dir(&settings.path).unwrap().count(), 0);
        drop(lanes);
    }

    #[test]
    fn a_copy_of_a_lane_is_refused_once() {
        let folder = scratch();
        let settings = settings(folder.path());
        drop(ProcessJournals::open(&settings, StartRole::Alone).unwrap());
        let copy = folder.path().join("lane-2");
        std::fs::create_dir(&copy).unwrap();
        for file in ["node", "place"] {
            std::fs::copy(folder.path().join(file), copy.join(file)).unwrap();
        }
        let mut refused = BTreeSet::new();
        assert_eq!(open_orphaned(&settings, &mut refused).opened.len(), 1);
        assert!(refused.contains(&copy));
        let refused = ProcessJournals::open(&settings, StartRole::Alone);
        assert!(matches!(refused, Err(JournalError::Copied(which)) if which == copy));
    }

    #[test]
    fn there_are_no_more_lanes_than_so_many() {
        let folder = scratch();
        let settings = settings(folder.path());
        let lanes: Vec<ProcessJournals> = (0..LANES_MAX)
            .map(|_| ProcessJournals::open(&settings, StartRole::Successor).unwrap())
            .collect();
        let refused = ProcessJournals::open(&settings, StartRole::Successor);
        assert!(matches!(refused, Err(JournalError::InUse(_))), "{refused:?}");
        drop(lanes);
    }
}
