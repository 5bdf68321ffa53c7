//! The end of the journal: the current segment, the spare segments, and the room that is reserved in them.
//!
//! Reserved room can always be used. A frame never spans two segments, so the end of a segment may be too small for the next
//! frame. Therefore, some room in each segment cannot be reserved: as much as a frame of the maximum size needs.

use std::{
    collections::VecDeque,
    fmt,
    fs::{self, File},
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    domain::ledger::NodeId,
    edges::clock,
    journal::{
        Disk, FreeRoom, JournalUnavailable, Position, RECORD_BYTES_MAX, REQUEST_BYTES, SEGMENT_BYTES_MIN,
        folder::JournalFolder, frame,
    },
};

/// The pause before another attempt to create a segment.
const RETRY: Duration = Duration::from_secs(1);

/// A segment to which frames can be written.
#[derive(Debug)]
pub(super) struct WritableSegment {
    pub(super) number: u64,
    pub(super) file: Arc<File>,
    /// The offset of the next frame.
    pub(super) at: u64,
}

/// The end of the journal: the current segment, the spare segments, and the room that is reserved in them.
pub(super) struct JournalTail {
    pub(super) current: WritableSegment,
    spare: VecDeque<WritableSegment>,
    /// The room that is not reserved.
    pub(super) free: Arc<FreeRoom>,
    segment_bytes: u64,
    /// The lowest number that a new segment may have.
    number_min: u64,
    frame_max: u64,
    disk: Arc<dyn Disk>,
    /// The time and the reason of the last failure to create a segment; `None` if the last attempt succeeded.
    creation_failure: Option<(Instant, String)>,
    /// The files with unsynced frames, except the file of the current segment.
    pub(super) unsynced: Vec<Arc<File>>,
    /// Whether names of new files in the folder are not synced yet.
    pub(super) names_unsynced: bool,
    /// Whether the disk has failed. If so, no room is reserved until a new segment works.
    broken: bool,
    /// The path of the folder or of the current segment, whichever was removed or replaced; `None` if both are in place. While
    /// one of them is missing, no room is reserved.
    missing: Option<PathBuf>,
    /// Whether the journal's thread sleeps. While it sleeps, it does not check the folder, so each reservation checks the folder
    /// instead.
    idle: bool,
    /// Whether the last write to the current segment has failed. If so, an unknown part of the frame may have been written, and
    /// the next frame is written to another segment.
    write_failed: bool,
}

impl JournalTail {
    pub(super) fn new(folder: &JournalFolder, first: u64, segment_bytes: u64, disk: Arc<dyn Disk>) -> io::Result<Self> {
        let segment_bytes = segment_bytes.max(SEGMENT_BYTES_MIN);
        let current = create_segment(folder, first, segment_bytes, &*disk)?;
        let tail = Self {
            current,
            spare: VecDeque::new(),
            free: Arc::default(),
            segment_bytes,
            number_min: first,
            frame_max: (RECORD_BYTES_MAX + frame::HEAD as u64).min(segment_bytes / 4),
            disk,
            creation_failure: None,
            unsynced: Vec::new(),
            names_unsynced: true,
            broken: false,
            missing: None,
            idle: false,
            write_failed: false,
        };
        tail.free.resize(0, tail.room());
        tail.update_open();
        Ok(tail)
    }

    /// Sets [`FreeRoom`]'s `is_open`: whether room can be reserved without the journal's lock.
    fn update_open(&self) {
        let is_open = !self.idle && !self.broken && self.missing.is_none();
        self.free.set_open(is_open);
    }

    /// Records that the disk has failed.
    pub(super) fn mark_broken(&mut self) {
        self.broken = true;
        self.update_open();
    }

    /// Whether the disk has failed, and no new segment has been written successfully since.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns the path of the folder or of the current segment, whichever was removed or replaced; `None` if both are in place.
    pub(super) fn missing_path(&self) -> Option<&PathBuf> {
        self.missing.as_ref()
    }

    /// Sets the path of the folder or the current segment that was removed or replaced; `None` if both are in place.
    pub(super) fn set_missing(&mut self, gone: Option<PathBuf>) {
        self.missing = gone;
        self.update_open();
    }

    /// Whether the journal's thread sleeps. While it sleeps, it does not check the folder.
    pub(super) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Sets whether the thread sleeps.
    pub(super) fn set_idle(&mut self, resting: bool) {
        self.idle = resting;
        self.update_open();
    }

    /// Returns the maximum size of a frame with its head, in bytes.
    pub(super) fn frame_max(&self) -> u64 {
        self.frame_max
    }

    /// Returns the size of the spare segments, in bytes.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.segment_bytes.saturating_mul(self.spare.len() as u64)
    }

    /// Returns the room that is reserved, in bytes.
    #[cfg(test)]
    pub(super) fn promised(&self) -> u64 {
        self.free.promised(self.room())
    }

    fn room(&self) -> u64 {
        self.usable(&self.current).saturating_add(self.room_from(0))
    }

    /// Returns the room in bytes in the spare segments whose number is at least `least`.
    fn room_from(&self, least: u64) -> u64 {
        let spare = self.spare.iter().filter(|segment| segment.number >= least);
        spare.map(|segment| self.usable(segment)).sum()
    }

    fn usable(&self, segment: &WritableSegment) -> u64 {
        let left = self.segment_bytes.saturating_sub(segment.at);
        left.saturating_sub(self.frame_max)
    }

    /// Changes to a segment whose number is at least `least`, unless the current segment already has such a number. Reservations
    /// stay valid. Returns whether the current segment changed.
    pub(super) fn skip_to(&mut self, least: u64, folder: &JournalFolder) -> Result<bool, JournalUnavailable> {
        if self.current.number >= least {
            return Ok(false);
        }
        self.number_min = self.number_min.max(least);
        while self.room_from(least) == 0 {
            self.prepare(folder)?;
        }
        // The room that is about to be lost is reserved first, so that no request gets it.
        let lost = self.room().saturating_sub(self.room_from(least));
        while !self.free.reserve(lost) {
            self.prepare(folder)?;
        }
        let mut rolled = Ok(());
        while rolled.is_ok() && self.current.number < least {
            rolled = self.roll(folder);
        }
        self.free.release(lost);
        rolled.map_err(|error| JournalUnavailable::Full(error.to_string()))?;
        Ok(true)
    }

    /// Reserves `bytes` for frames of at most [`JournalTail::frame_max`] each.
    pub(super) fn reserve(&mut self, bytes: u64, folder: &JournalFolder) -> Result<(), JournalUnavailable> {
        if let Some(path) = &self.missing {
            return Err(JournalUnavailable::Gone(path.clone()));
        }
        if self.broken {
            return Err(JournalUnavailable::Failed);
        }
        while !self.free.reserve(bytes) {
            self.prepare(folder)?;
        }
        Ok(())
    }

    /// Returns why `bytes` cannot be reserved now; `None` if no reason is known.
    pub(super) fn unavailability(&self, bytes: u64) -> Option<JournalUnavailable> {
        if let Some(path) = &self.missing {
            return Some(JournalUnavailable::Gone(path.clone()));
        }
        if self.broken {
            return Some(JournalUnavailable::Failed);
        }
        let (_, reason) = self.creation_failure.as_ref()?;
        (!self.free.has_room(bytes)).then(|| JournalUnavailable::Full(reason.clone()))
    }

    /// Creates a segment before it is needed. If an earlier attempt failed for lack of room, tries again, so that the journal
    /// recovers even if no request arrives.
    pub(super) fn prepare_ahead(&mut self, folder: &JournalFolder) {
        let half_full = self.current.at > self.segment_bytes / 2;
        if (self.spare.is_empty() && half_full)
            || matches!(self.unavailability(REQUEST_BYTES), Some(JournalUnavailable::Full(_)))
        {
            // A failure is reported when the segment is needed.
            let _ = self.prepare(folder);
        }
    }

    fn prepare(&mut self, folder: &JournalFolder) -> Result<(), JournalUnavailable> {
        let now = clock::instant();
        if let Some((at, reason)) = &self.creation_failure
            && now.duration_since(*at) < RETRY
        {
            return Err(JournalUnavailable::Full(reason.clone()));
        }
        if let Some(path) = folder.missing_path() {
            return Err(JournalUnavailable::Gone(path));
        }
        let last = self.spare.back().unwrap_or(&self.current);
        match create_segment(
            folder,
            self.number_min.max(last.number + 1),
            self.segment_bytes,
            &*self.disk,
        ) {
            Ok(segment) => {
                self.creation_failure = None;
                self.names_unsynced = true;
                self.free.resize(0, self.usable(&segment));
                self.spare.push_back(segment);
                Ok(())
            }
            Err(error) => {
                let reason = format!("cannot create a segment of {} bytes: {error}", self.segment_bytes);
                tracing::error!(folder = %folder.path.display(), %error, "cannot create a further journal segment; no request is admitted once the existing segments are full");
                self.creation_failure = Some((now, reason.clone()));
                Err(JournalUnavailable::Full(reason))
            }
        }
    }

    /// Fills in the frame's head, which is its first [`frame::HEAD`] bytes, and writes the frame in reserved room. Returns the
    /// frame's position. After a failure, the next frame is written to another segment.
    pub(super) fn write(&mut self, frame: &mut [u8], folder: &JournalFolder) -> io::Result<Position> {
        let size = frame.len() as u64;
        // An empty segment is tried again. Otherwise a failing disk would be filled with empty segments.
        let spoilt = self.write_failed && self.current.at > frame::HEADER as u64;
        if spoilt || self.segment_bytes.saturating_sub(self.current.at) < size {
            self.roll(folder)?;
        }
        let position = Position {
            segment: self.current.number,
            offset: self.current.at,
        };
        frame::seal(frame, position.segment, position.offset).ok_or(io::ErrorKind::InvalidInput)?;
        let written = self.disk.write(&self.current.file, frame, position.offset);
        self.write_failed = written.is_err();
        if self.write_failed {
            self.mark_broken();
        }
        written?;
        let room = self.usable(&self.current);
        self.current.at += size;
        self.free.resize(room, self.usable(&self.current));
        Ok(position)
    }

    /// Continues in the next segment.
    pub(super) fn roll(&mut self, folder: &JournalFolder) -> io::Result<()> {
        if self.spare.is_empty() {
            self.prepare(folder).map_err(io::Error::other)?;
        }
        let room = self.room();
        if let Some(next) = self.spare.pop_front() {
            let before = std::mem::replace(&mut self.current, next);
            if std::mem::take(&mut self.write_failed) {
                // The remains of the failed write would look like damage.
                let _ = before.file.set_len(before.at);
            }
            self.unsynced.push(before.file);
        }
        self.free.resize(room, self.room());
        Ok(())
    }

    /// Returns the next segment, and creates it if necessary. The caller writes to it to test whether the disk works again.
    pub(super) fn next_segment(&mut self, folder: &JournalFolder) -> Result<(u64, Arc<File>), JournalUnavailable> {
        if self.spare.is_empty() {
            self.prepare(folder)?;
        }
        let next = self.spare.front().unwrap_or(&self.current);
        Ok((next.number, Arc::clone(&next.file)))
    }

    /// Records that the disk works again, because segment `number` has been synced. Writing continues in that segment or a later
    /// one.
    pub(super) fn recover(&mut self, number: u64, folder: &JournalFolder) -> io::Result<()> {
        if self.current.number < number {
            self.roll(folder)?;
        }
        self.broken = self.write_failed;
        self.update_open();
        Ok(())
    }
}

impl fmt::Debug for JournalTail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = out.debug_struct("Tail");
        fields.field("current", &self.current).finish_non_exhaustive()
    }
}

fn create_segment(folder: &JournalFolder, number: u64, bytes: u64, disk: &dyn Disk) -> io::Result<WritableSegment> {
    // The index of an earlier segment with this number does not describe the new one.
    folder.remove_index(number)?;
    let file = folder.create(number)?;
    match begin(&file, &folder.node, number, bytes, disk) {
        Ok(()) => Ok(WritableSegment {
            number,
            file: Arc::new(file),
            at: frame::HEADER as u64,
        }),
        Err(error) => {
            let _ = fs::remove_file(folder.segment(number));
            Err(error)
        }
    }
}

fn begin(file: &File, node: &NodeId, number: u64, bytes: u64, disk: &dyn Disk) -> io::Result<()> {
    disk.allocate(file, bytes)?;
    disk.write(file, &frame::header(node, number), 0)
}
