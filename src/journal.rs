//! The journal: a node's own durable record of its requests and of what accounts owe for them.
//!
//! A journal is a folder of append-only segments. A segment is allocated completely before it is written, so a full disk is
//! noticed at a request's admission ([`Journal::reserve`]) and never at the end of its answer. When [`Journal::append`] returns,
//! the record is in the page cache, so nothing is lost when the process ends. The record is on disk at most
//! [`crate::config::JournalConfig::sync`] later, so a power cut loses at most the records of that time. Only operators' changes
//! wait until they are on disk ([`Journal::wait_until_synced`]).
//!
//! The journal numbers the steps of each account, in the order in which it records them. In memory it holds the positions of the
//! steps that the store has not acknowledged, and the counters of settled rows by hour and model. [`crate::money::settlement`]
//! sends the steps; the counters are for the stability record.

mod accounts;
mod folder;
pub mod frame;
pub(crate) mod handle;
mod hourly_counts;
mod index;
mod replay;
mod sinks;
mod steps;
mod sync;
mod tail;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use smol_str::SmolStr;
use thiserror::Error;
use tokio::sync::{Notify, watch};

use crate::{
    config::{JournalConfig, JournalSink},
    domain::ledger::daily_sums::RetentionProgress,
    journal::{folder::JournalFolder, index::JournalContents, tail::JournalTail},
};

pub(crate) use crate::journal::accounts::UnsentSteps;
pub(crate) use crate::journal::handle::{Journal, OpenedJournal};
pub(crate) use crate::journal::replay::UncertainSettlement;
pub use crate::journal::sinks::NumberedRow;
pub(crate) use crate::journal::sinks::RowReader;

/// The reason why the journal cannot record anything. No request is admitted until the cause is gone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum JournalUnavailable {
    /// The journal has no room, and no further segment can be created. Contains the reason.
    #[error(
        "the journal has no room: {0}; no request is served until the journal has room again, so free some space on its disk"
    )]
    Full(String),
    /// A write or a sync failed. The journal works again as soon as a new segment has been synced.
    #[error(
        "the journal's disk has failed (see the earlier error in weir's messages); no request is served until weir can write a new segment"
    )]
    Failed,
    /// The folder or the current segment was removed or replaced, so a later start would not find the records that are
    /// written now. Contains the path.
    #[error(
        "{} was removed or replaced while weir was running; no request is served until you put it back or restart weir",
        .0.display()
    )]
    Gone(PathBuf),
}

/// An error of a journal operation.
#[derive(Debug, Error)]
pub(crate) enum JournalError {
    /// Another process uses the folder, whose path this variant contains.
    #[error("another weir process uses the journal {}; stop that process, or configure another folder for this process (journal.path)", .0.display())]
    InUse(PathBuf),
    /// The folder was created in another place and then copied or moved. Contains the folder's present path.
    #[error("cannot open the journal {path}: the folder was copied or moved here. If the original folder no longer exists, delete {path}/place and start weir again. If the original folder is still in use, delete everything in this copy, because weir settles the requests from the original", path = .0.display())]
    Copied(PathBuf),
    /// The file `node` does not contain the name of a node. Contains the file's path.
    #[error("cannot open the journal: {} does not contain a node's name; restore the file from a backup, or move the complete folder away to start a new journal", .0.display())]
    InvalidNodeName(PathBuf),
    /// The segment was written by another node or another version of weir. Contains the segment's path.
    #[error("cannot read the journal segment {}: it was written by another node or another version of weir; move it out of the folder", .0.display())]
    Foreign(PathBuf),
    /// An operation of the file system failed.
    #[error("cannot read or write {}: {source}; check that the path exists, that its disk has space, and that weir is allowed to write there", path.display())]
    Io {
        /// The path of the folder or file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The journal cannot record anything now.
    #[error(transparent)]
    Unavailable(#[from] JournalUnavailable),
    /// The record is larger than a frame can be.
    #[error("cannot record {bytes} bytes in the journal: a record can have at most {max} bytes")]
    TooLarge {
        /// The size of the record in bytes.
        bytes: u64,
        /// The maximum size in bytes.
        max: u64,
    },
    /// The record is a step, which only [`crate::journal::Journal::append_step`] is allowed to record.
    #[error("cannot record a step without a number: use append_step")]
    UnnumberedStep,
    /// The disk failed before the record was synced, so the next power cut may lose the record.
    #[error("the journal's disk failed: the record may be lost; repeat the change")]
    NotDurable,
}

impl JournalError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

/// The maximum size of a record, in bytes.
pub(crate) const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// The minimum size of a segment that can be configured, in bytes.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4096;
/// The maximum size of the frame of a [`crate::domain::ledger::Record::Admit`], in bytes. This size suffices even for a record
/// with the maximum number of tags, provided that no string in the record is longer than 128 bytes.
pub(crate) const ADMIT_BYTES_MAX: u64 = 2560;
/// The maximum size of the frame of a settlement, in bytes. This size suffices for a settlement with the losses of a translation,
/// provided that no string in the settlement is longer than 128 bytes. If the settlement additionally has the maximum number of
/// parts, this size suffices provided that no string in the settlement is longer than 40 bytes.
pub(crate) const STEP_BYTES_MAX: u64 = 3456;
/// The room in bytes that is reserved for the admission and the settlement of a request. Larger records take more room if
/// there is any.
pub(crate) const REQUEST_BYTES: u64 = ADMIT_BYTES_MAX + STEP_BYTES_MAX;

/// The disk operations on which recording depends. Tests replace them with the operations of a failing disk.
trait Disk: fmt::Debug + Send + Sync {
    /// Allocates a file's bytes.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        allocate(file, bytes)
    }

    /// Writes all bytes at an offset of the file.
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    /// Returns the percentage of the folder's disk that is free for an unprivileged process.
    fn free_percent(&self, folder: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(folder)?;
        Ok(disk.f_bavail.saturating_mul(100) / disk.f_blocks.max(1))
    }

    /// Syncs the file. Returns after everything that was written to the file is on disk.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

/// The operations of the real file system.
#[derive(Debug)]
struct RealDisk;

impl Disk for RealDisk {}

/// Allocates the bytes with `fallocate`, or writes zeros if the file system does not support that.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
            let mut at = 0;
            while at < bytes {
                let piece = usize::try_from(bytes - at).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
                file.write_all_at(ZEROS.get(..piece).unwrap_or(&ZEROS), at)?;
                at += piece as u64;
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The number of low bits of [`Position::number`] that contain the offset.
const OFFSET_BITS: u32 = 32;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// The position at which a record begins. Later records have greater positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    /// The number of the segment.
    pub segment: u64,
    /// The byte offset in the segment.
    pub offset: u64,
}

impl Position {
    /// The position before the first record.
    pub(crate) const START: Self = Self { segment: 0, offset: 0 };

    /// Converts the position to a number that sorts in the same order, which is possible because a segment has less than 4 GiB.
    pub(crate) fn number(self) -> u64 {
        (self.segment << OFFSET_BITS) | (self.offset & OFFSET_MASK)
    }

    /// Converts the number of a position, as [`Position::number`] returns it, back to the position.
    pub(crate) fn from_number(number: u64) -> Self {
        Self {
            segment: number >> OFFSET_BITS,
            offset: number & OFFSET_MASK,
        }
    }

    /// Parses the output of `Display`; `None` for any other string.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (segment, offset) = text.trim().split_once(':')?;
        Some(Self {
            segment: segment.parse().ok()?,
            offset: offset.parse().ok()?,
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.segment, self.offset)
    }
}

/// The part of the journal that is known to be on disk.
#[derive(Clone, Copy, Debug)]
struct Synced {
    decided_end: Position,
    /// The most recent range of positions whose records may be lost, because the disk failed; `None` if the disk has not failed.
    lost: Option<(Position, Position)>,
}

impl Synced {
    fn up_to(decided_end: Position) -> Self {
        Self {
            decided_end,
            lost: None,
        }
    }

    /// Returns the position before which every record is either on disk or recorded as lost.
    fn decided_end(&self) -> Position {
        self.decided_end
    }

    /// Whether a record is either on disk or recorded as lost.
    fn is_decided(&self, position: Position) -> bool {
        position < self.decided_end || self.is_lost(position)
    }

    /// Whether a record is on disk.
    fn is_on_disk(&self, position: Position) -> bool {
        position < self.decided_end && !self.is_lost(position)
    }

    /// Records everything from the last synced position to `end` as lost.
    fn mark_lost(&mut self, end: Position) {
        // Adjacent lost ranges are merged. If ranges are not adjacent, only the most recent one is remembered.
        let from = match self.lost {
            Some((from, to)) if to == self.decided_end => from,
            Some(_) | None => self.decided_end,
        };
        self.lost = Some((from, end));
        self.decided_end = end;
    }

    fn is_lost(&self, position: Position) -> bool {
        self.lost.is_some_and(|(from, to)| from <= position && position < to)
    }
}

/// The device and inode of a file, which are unique while the file is open.
type FileIdentity = (u64, u64);

fn file_identity(meta: &fs::Metadata) -> FileIdentity {
    (meta.dev(), meta.ino())
}

/// The room in the journal that is not reserved. It can be reserved and released without the journal's lock, which is held
/// while a record is written.
#[derive(Debug, Default)]
struct FreeRoom {
    /// The free room in bytes; negative if reserved room was lost.
    bytes: AtomicI64,
    /// Whether room can be reserved without the journal's lock. While it is true, a reservation fails only if there is no room.
    is_open: AtomicBool,
}

impl FreeRoom {
    /// Reserves `bytes` without the journal's lock. Returns `false` if fewer bytes are free, or if the lock is necessary to find
    /// out whether room can be reserved.
    fn reserve_if_open(&self, bytes: u64) -> bool {
        self.is_open.load(Ordering::Acquire) && self.reserve(bytes)
    }

    /// Reserves `bytes`. Returns `false` if fewer bytes are free.
    fn reserve(&self, bytes: u64) -> bool {
        let Ok(bytes) = i64::try_from(bytes) else { return false };
        let left = |free: i64| (free >= bytes).then(|| free - bytes);
        let taken = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
        taken.is_ok()
    }

    /// Whether at least `bytes` are free.
    fn has_room(&self, bytes: u64) -> bool {
        i64::try_from(bytes).is_ok_and(|bytes| self.bytes.load(Ordering::Acquire) >= bytes)
    }

    /// Releases reserved bytes. The caller either does not need these bytes or has written a frame of this size.
    fn release(&self, bytes: u64) {
        self.resize(0, bytes);
    }

    /// Adjusts the free room to a change of the total room (free and reserved) from `before` to `after` bytes.
    fn resize(&self, before: u64, after: u64) {
        self.bytes
            .fetch_add(after.cast_signed().wrapping_sub(before.cast_signed()), Ordering::AcqRel);
    }

    /// Returns the reserved part of the total room `all`, in bytes.
    #[cfg(test)]
    fn promised(&self, all: u64) -> u64 {
        let free = self.bytes.load(Ordering::Acquire);
        u64::try_from(all.cast_signed().saturating_sub(free)).unwrap_or(0)
    }

    /// Sets whether room can be reserved without the journal's lock.
    fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Release);
    }
}

/// Reserved room in the journal. Dropping it releases the unused rest.
#[derive(Debug)]
pub(crate) struct Reservation {
    free: Arc<FreeRoom>,
    remaining: u64,
}

impl Reservation {
    fn new(free: Arc<FreeRoom>, remaining: u64) -> Self {
        Self { free, remaining }
    }

    /// Returns the number of bytes that are still reserved.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    fn grow(&mut self, bytes: u64) {
        self.remaining = self.remaining.saturating_add(bytes);
    }

    fn spend(&mut self, bytes: u64) {
        self.remaining = self.remaining.saturating_sub(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.remaining > 0 {
            self.free.release(self.remaining);
        }
    }
}

/// A sink that reads the journal, and its position.
#[derive(Debug)]
struct Retainer {
    required: bool,
    /// The position before which the sink has all rows.
    passed: Position,
    /// The number of rows that were removed from the journal although the sink lacked them.
    dropped: u64,
}

/// The sinks that read the journal, by name. A segment is retained until these sinks have its rows and settlement no longer needs
/// it.
#[derive(Debug, Default)]
struct Retainers(BTreeMap<&'static str, Retainer>);

impl Retainers {
    /// Creates the entries of the sinks, each with its position at the start of the journal.
    fn new(sinks: &[JournalSink]) -> Self {
        let holder = |sink: &JournalSink| Retainer {
            required: sink.required,
            passed: Position::START,
            dropped: 0,
        };
        Self(sinks.iter().map(|sink| (sink.name, holder(sink))).collect())
    }

    /// Whether the sinks no longer need the row at this position. If the disk is `short` (nearly full), only the required
    /// sinks matter.
    fn can_remove(&self, row: Position, short: bool) -> bool {
        let keeps = |holder: &&Retainer| holder.required || !short;
        self.0.values().filter(keeps).all(|holder| holder.passed > row)
    }

    fn get(&self, sink: &str) -> Option<&Retainer> {
        self.0.get(sink)
    }

    fn get_mut(&mut self, sink: &str) -> Option<&mut Retainer> {
        self.0.get_mut(sink)
    }

    /// Returns the sinks that lack the row at this position, each with its own position.
    fn lagging(&self, row: Position) -> Vec<(&'static str, Position)> {
        let behind = self.0.iter().filter(|(_, holder)| holder.passed <= row);
        behind.map(|(name, holder)| (*name, holder.passed)).collect()
    }
}

/// The state of an open journal, which its handles and its thread share.
#[derive(Debug)]
struct JournalEngine {
    folder: JournalFolder,
    disk: Arc<dyn Disk>,
    /// The room that is not reserved.
    free: Arc<FreeRoom>,
    settings: JournalConfig,
    state: Mutex<WriteState>,
    /// Notified when there is something to sync, and when the journal closes.
    work: Condvar,
    synced: watch::Sender<Synced>,
    /// Notified when more steps are on disk.
    steps_synced: Notify,
    /// Notified when the store has acknowledged steps.
    progress: Notify,
    /// Locked while steps that the store has forgotten are looked up.
    lookup: Mutex<()>,
    failures: AtomicU64,
    lost: AtomicU64,
    damaged: AtomicU64,
}

#[derive(Debug)]
struct WriteState {
    tail: JournalTail,
    contents: JournalContents,
    /// The buffer in which frames are encoded. It is reused.
    buffer: Vec<u8>,
    dirty: bool,
    /// Whether the next housekeeping may have something to do.
    needs_housekeeping: bool,
    /// The accounts that have new steps on disk. An account is removed from this set when settlement is told about it.
    ready: HashSet<SmolStr>,
    /// The progress of removing old segments; `None` before the first housekeeping.
    retention: Option<RetentionProgress>,
    closing: bool,
}

impl JournalEngine {
    fn lock(&self) -> MutexGuard<'_, WriteState> {
        self.state.lock()
    }

    /// Adds the current segment to the list of segments in `contents`, if the list does not have it yet.
    fn register_segment(&self, state: &mut WriteState, now_ms: i64) {
        let begin = Position {
            segment: state.tail.current.number,
            offset: frame::HEADER as u64,
        };
        if !state.contents.segments.contains_key(&begin.segment) {
            state.contents.begin_segment(begin, self.settings.segment_bytes, now_ms);
        }
    }

    /// Makes the thread do its housekeeping within a second.
    fn request_housekeeping(&self, state: &mut WriteState) {
        if !std::mem::replace(&mut state.needs_housekeeping, true) {
            self.work.notify_one();
        }
    }

    /// Checks that the folder and the current segment are still in place. Does nothing if the journal's thread is awake, because
    /// the thread then checks that itself.
    fn check_folder_if_idle(&self) {
        let resting = self.lock().tail.is_idle();
        if resting {
            self.check_folder();
        }
    }

    /// Checks that the folder and the current segment are still in place, and returns whether they are.
    fn check_folder(&self) -> bool {
        let (number, file) = {
            let current = &self.lock().tail.current;
            (current.number, Arc::clone(&current.file))
        };
        let gone = self.folder.missing_path_with(number, &file);
        let mut state = self.lock();
        if gone.as_ref() != state.tail.missing_path() {
            match &gone {
                Some(path) => {
                    let shut = JournalUnavailable::Gone(path.clone());
                    tracing::error!(folder = %self.folder.path.display(), "{shut}");
                }
                None => {
                    tracing::warn!(folder = %self.folder.path.display(), "the journal's folder is back in its place: requests are admitted again");
                }
            }
            state.tail.set_missing(gone.clone());
        }
        gone.is_none()
    }

    /// Returns an error while the folder is not in place. Without this error, records that cannot be read during that time would
    /// be taken for lost.
    fn ensure_present(&self) -> io::Result<()> {
        match self.folder.missing_path() {
            Some(path) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                JournalUnavailable::Gone(path).to_string(),
            )),
            None => Ok(()),
        }
    }
}
