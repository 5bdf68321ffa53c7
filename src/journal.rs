//! The journal: this node's own durable record of what it owes to accounts.
//!
//! It is a folder of append-only segments. Each is allocated in full before it is written, so a full disk is found at
//! admission ([`Journal::reserve`]) and never at the end of an answer. A record is in the page cache when
//! [`Journal::append`] returns, so the end of the process loses nothing. It is on disk at most
//! [`crate::config::JournalConfig::sync`] later, so a power cut loses at most that; only operators' changes wait for it
//! ([`Journal::wait_until_synced`]).
//!
//! The journal numbers the steps of each account; their order in the file is the order of their numbers. In memory it keeps
//! the positions of steps that the store has not acknowledged, which [`crate::money::settlement`] sends, and the counts of
//! settled rows by hour and model, for the stability record.

mod accounts;
mod damage;
mod engine;
mod folder;
pub mod frame;
pub(crate) mod handle;
mod hourly_counts;
mod index;
mod reader;
mod replay;
mod retention;
mod sinks;
mod steps;
mod sync;
mod tail;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use thiserror::Error;

use crate::config::JournalSink;

pub(crate) use crate::journal::accounts::UnsentSteps;
pub(crate) use crate::journal::handle::{Journal, OpenedJournal};
pub(crate) use crate::journal::replay::UncertainSettlement;
pub use crate::journal::sinks::NumberedRow;
pub(crate) use crate::journal::sinks::RowReader;

/// Why nothing can be recorded, so nothing is admitted. The journal works again as soon as the cause has gone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum JournalUnavailable {
    /// There is no room, and no segment can be made.
    #[error("the journal has no room: {0}; free some space on its disk, nothing is served until then")]
    Full(String),
    /// A write or sync failed. The journal opens again when a new segment works.
    #[error("the journal's disk has failed, see the earlier messages; nothing is served until a new segment works")]
    Failed,
    /// The folder or the current segment was removed or replaced: no start would find what is recorded now.
    #[error(
        "{} was removed or replaced while weir runs: nothing is served until it is put back or weir is restarted",
        .0.display()
    )]
    Gone(PathBuf),
}

/// An error of a journal operation.
#[derive(Debug, Error)]
pub(crate) enum JournalError {
    /// Another process uses the folder.
    #[error("another weir process uses the journal {}: stop it, or give this one its own folder (journal.path)", .0.display())]
    InUse(PathBuf),
    /// The folder was created elsewhere.
    #[error("the journal {path} was copied or moved here. If the original is lost for good, delete {path}/place and start again. If it is still in use, delete everything in this copy: the original settles its contents", path = .0.display())]
    Copied(PathBuf),
    /// The file `node` does not contain a node's name.
    #[error("{} does not contain a node's name: restore it from a backup, or move the whole folder away to begin a new journal", .0.display())]
    InvalidNodeName(PathBuf),
    /// A segment of another journal or another version of weir.
    #[error("the journal segment {} was written by another node or another version of weir: move it out of the folder", .0.display())]
    Foreign(PathBuf),
    /// An operation of the file system failed.
    #[error("{}: {source}; check that it exists, has space, and that weir may write there", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The journal accepts no records now.
    #[error(transparent)]
    Unavailable(#[from] JournalUnavailable),
    /// The record is larger than a frame may be.
    #[error("a record of {bytes} bytes is too large for the journal: at most {max} are allowed")]
    TooLarge {
        /// The record's size in bytes.
        bytes: u64,
        /// The largest size in bytes.
        max: u64,
    },
    /// The record is a step, which only [`crate::journal::Journal::append_step`] may record.
    #[error("a step must be recorded with append_step, which numbers it")]
    UnnumberedStep,
    /// The disk failed before the record was synced: it may be lost with the next power cut.
    #[error("the journal's disk failed: the record may not be kept")]
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

/// The largest record, in bytes.
pub(crate) const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// The smallest segment that can be configured.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 4096;
/// The largest frame of a [`crate::domain::ledger::Record::Admit`] with the maximum number of tags and texts of at most 128
/// bytes each.
pub(crate) const ADMIT_BYTES_MAX: u64 = 2560;
/// The largest frame of a settlement with such texts. It also suffices for one with the maximum number of parts and texts of at
/// most 40 bytes each.
pub(crate) const STEP_BYTES_MAX: u64 = 2560;
/// The room reserved for a request: its admission and its settlement. A larger record takes more room if there is any.
pub(crate) const REQUEST_BYTES: u64 = ADMIT_BYTES_MAX + STEP_BYTES_MAX;

/// The disk operations that records depend on. Tests replace them with a failing disk.
trait Disk: fmt::Debug + Send + Sync {
    /// Allocates a file's bytes.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        allocate(file, bytes)
    }

    /// Writes all bytes at an offset.
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    /// The percentage of the folder's disk that is free for an unprivileged process.
    fn free_percent(&self, folder: &Path) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(folder)?;
        Ok(disk.f_bavail.saturating_mul(100) / disk.f_blocks.max(1))
    }

    /// Returns once everything written to the file is on disk.
    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

/// The file system.
#[derive(Debug)]
struct RealDisk;

impl Disk for RealDisk {}

/// Allocates the bytes with `fallocate`, or writes zeros if the file system does not support it.
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

/// The bits of a position's number that are its offset.
const OFFSET_BITS: u32 = 32;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// Where a record begins. Later records have greater positions.
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

    /// The position as one number that sorts in the same order: a segment has less than 4 GiB.
    pub(crate) fn number(self) -> u64 {
        (self.segment << OFFSET_BITS) | (self.offset & OFFSET_MASK)
    }

    /// The inverse of [`Position::number`].
    pub(crate) fn from_number(number: u64) -> Self {
        Self {
            segment: number >> OFFSET_BITS,
            offset: number & OFFSET_MASK,
        }
    }

    /// Parses the text that `Display` writes.
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

/// The extent of the journal that is known to be on disk.
#[derive(Clone, Copy, Debug)]
struct Synced {
    decided_end: Position,
    /// The range in which the disk failed: its records may be lost.
    lost: Option<(Position, Position)>,
}

impl Synced {
    fn up_to(decided_end: Position) -> Self {
        Self {
            decided_end,
            lost: None,
        }
    }

    /// Every record before this position is either on disk or counted as lost.
    fn decided_end(&self) -> Position {
        self.decided_end
    }

    /// Whether a record is either on disk or counted as lost.
    fn is_decided(&self, position: Position) -> bool {
        position < self.decided_end || self.is_lost(position)
    }

    /// Whether a record is on disk.
    fn is_on_disk(&self, position: Position) -> bool {
        position < self.decided_end && !self.is_lost(position)
    }

    /// Counts everything from the last synced position to `end` as lost.
    fn mark_lost(&mut self, end: Position) {
        // Adjacent ranges are merged; otherwise only the last one is remembered.
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

/// The device and inode of a file. Unique while the file is open.
type FileIdentity = (u64, u64);

fn file_identity(meta: &fs::Metadata) -> FileIdentity {
    (meta.dev(), meta.ino())
}

/// The room that is not reserved. It is reserved and released without the journal's lock, under which others write.
#[derive(Debug, Default)]
struct FreeRoom {
    /// Negative if reserved room was lost.
    bytes: AtomicI64,
    /// Only a lack of room can prevent a reservation.
    is_open: AtomicBool,
}

impl FreeRoom {
    /// Reserves `bytes`. Returns `false` if fewer are free, or if the cause of a refusal must be found under the lock.
    fn reserve_if_open(&self, bytes: u64) -> bool {
        self.is_open.load(Ordering::Acquire) && self.reserve(bytes)
    }

    /// Reserves `bytes`; returns `false` if fewer are free.
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

    /// Releases bytes that were reserved and are not needed, or have been written.
    fn release(&self, bytes: u64) {
        self.resize(0, bytes);
    }

    /// Adjusts for a change of the total room, free and reserved.
    fn resize(&self, before: u64, after: u64) {
        self.bytes
            .fetch_add(after.cast_signed().wrapping_sub(before.cast_signed()), Ordering::AcqRel);
    }

    /// The reserved part of the total room.
    #[cfg(test)]
    fn promised(&self, all: u64) -> u64 {
        let free = self.bytes.load(Ordering::Acquire);
        u64::try_from(all.cast_signed().saturating_sub(free)).unwrap_or(0)
    }

    /// Sets whether room may be reserved without the journal's lock.
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

    /// The bytes that are still reserved.
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

/// The position of a sink.
#[derive(Debug)]
struct Retainer {
    required: bool,
    /// The sink has all rows before this position.
    passed: Position,
    /// The number of rows that were removed although the sink lacked them.
    dropped: u64,
}

/// The sinks that read the journal, by name. Segments are kept for them in addition to settlement.
#[derive(Debug, Default)]
struct Retainers(BTreeMap<&'static str, Retainer>);

impl Retainers {
    /// Creates the sinks, all at the journal's start.
    fn new(sinks: &[JournalSink]) -> Self {
        let holder = |sink: &JournalSink| Retainer {
            required: sink.required,
            passed: Position::START,
            dropped: 0,
        };
        Self(sinks.iter().map(|sink| (sink.name, holder(sink))).collect())
    }

    /// Whether every sink that may keep the row's segment has the row: only required sinks may if the disk is `short`.
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

    /// The sinks that lack the row at a position, with their own positions.
    fn lagging(&self, row: Position) -> Vec<(&'static str, Position)> {
        let behind = self.0.iter().filter(|(_, holder)| holder.passed <= row);
        behind.map(|(name, holder)| (*name, holder.passed)).collect()
    }
}
