//! The end of the journal: the current segment, the spare ones, and how much of them is reserved.
//!
//! A reservation always holds: a frame never spans two segments, so in each segment up to one largest frame may stay
//! unused.

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
        disk::Disk,
        error::JournalShut,
        folder::Folder,
        frame,
        position::Position,
        reservation::FreeRoom,
        sizes::{RECORD_BYTES_MAX, REQUEST_BYTES, SEGMENT_BYTES_MIN},
    },
};

/// The pause before a failed creation of a segment is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// A segment that can take frames.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) file: Arc<File>,
    /// The offset of the next frame.
    pub(super) at: u64,
}

/// The journal's end: the segment being written, the spare ones, and the room promised to requests.
pub(super) struct Tail {
    pub(super) current: Segment,
    spare: VecDeque<Segment>,
    /// What of the room nobody was promised.
    pub(super) free: Arc<FreeRoom>,
    segment_bytes: u64,
    /// No new segment has a lower number.
    least: u64,
    frame_max: u64,
    disk: Arc<dyn Disk>,
    /// When and why a segment could not be created.
    refused: Option<(Instant, String)>,
    /// Files with frames that are not known to be on disk, beside the current one.
    pub(super) unsynced: Vec<Arc<File>>,
    /// Names in the folder are not known to be on disk.
    pub(super) named: bool,
    /// The disk has failed; nothing is reserved until a new segment works.
    broken: bool,
    /// What is not where it was: the folder, or the current segment. Nothing is promised until it is there again.
    gone: Option<PathBuf>,
    /// The thread does not look whether it is: who asks for room does.
    resting: bool,
    /// A write to the current segment has failed: where it stopped is unknown, so what follows goes elsewhere.
    spoilt: bool,
}

impl Tail {
    pub(super) fn new(folder: &Folder, first: u64, segment_bytes: u64, disk: Arc<dyn Disk>) -> io::Result<Self> {
        let segment_bytes = segment_bytes.max(SEGMENT_BYTES_MIN);
        let current = make(folder, first, segment_bytes, &*disk)?;
        let tail = Self {
            current,
            spare: VecDeque::new(),
            free: Arc::default(),
            segment_bytes,
            least: first,
            frame_max: (RECORD_BYTES_MAX + frame::HEAD as u64).min(segment_bytes / 4),
            disk,
            refused: None,
            unsynced: Vec::new(),
            named: true,
            broken: false,
            gone: None,
            resting: false,
            spoilt: false,
        };
        tail.free.grow(0, tail.room());
        tail.open();
        Ok(tail)
    }

    /// Whether room may be promised without the lock.
    fn open(&self) {
        let is_open = !self.resting && !self.broken && self.gone.is_none();
        self.free.open(is_open);
    }

    /// The disk has failed.
    pub(super) fn break_off(&mut self) {
        self.broken = true;
        self.open();
    }

    /// Whether the disk has failed, and no new segment has worked since.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// What is not where it was.
    pub(super) fn gone(&self) -> Option<&PathBuf> {
        self.gone.as_ref()
    }

    /// What is not where it was, from now on.
    pub(super) fn is_gone(&mut self, gone: Option<PathBuf>) {
        self.gone = gone;
        self.open();
    }

    /// Whether the thread looks at nothing while there is nothing to do.
    pub(super) fn is_resting(&self) -> bool {
        self.resting
    }

    /// Whether the thread rests from now on.
    pub(super) fn rest(&mut self, resting: bool) {
        self.resting = resting;
        self.open();
    }

    /// The largest frame, head included.
    pub(super) fn frame_max(&self) -> u64 {
        self.frame_max
    }

    /// The size of the spare segments, in bytes.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.segment_bytes.saturating_mul(self.spare.len() as u64)
    }

    /// How much room is promised.
    #[cfg(test)]
    pub(super) fn promised(&self) -> u64 {
        self.free.promised(self.room())
    }

    fn room(&self) -> u64 {
        self.usable(&self.current).saturating_add(self.room_from(0))
    }

    /// The room in spare segments of at least this number.
    fn room_from(&self, least: u64) -> u64 {
        let spare = self.spare.iter().filter(|segment| segment.number >= least);
        spare.map(|segment| self.usable(segment)).sum()
    }

    fn usable(&self, segment: &Segment) -> u64 {
        let left = self.segment_bytes.saturating_sub(segment.at);
        left.saturating_sub(self.frame_max)
    }

    /// What follows goes to a segment of at least this number. What was promised keeps its room. Says whether the segment is
    /// another one now.
    pub(super) fn leap(&mut self, least: u64, folder: &Folder) -> Result<bool, JournalShut> {
        if self.current.number >= least {
            return Ok(false);
        }
        self.least = self.least.max(least);
        while self.room_from(least) == 0 {
            self.prepare(folder)?;
        }
        // Taken first, so that nobody is promised what is about to be lost.
        let lost = self.room().saturating_sub(self.room_from(least));
        while !self.free.take(lost) {
            self.prepare(folder)?;
        }
        let mut rolled = Ok(());
        while rolled.is_ok() && self.current.number < least {
            rolled = self.roll(folder);
        }
        self.free.give(lost);
        rolled.map_err(|error| JournalShut::Full(error.to_string()))?;
        Ok(true)
    }

    /// Reserves room for that many bytes of frames, each at most [`Tail::frame_max`].
    pub(super) fn promise(&mut self, bytes: u64, folder: &Folder) -> Result<(), JournalShut> {
        if let Some(path) = &self.gone {
            return Err(JournalShut::Gone(path.clone()));
        }
        if self.broken {
            return Err(JournalShut::Failed);
        }
        while !self.free.take(bytes) {
            self.prepare(folder)?;
        }
        Ok(())
    }

    /// Why that many bytes could not be promised now, as far as that is known.
    pub(super) fn shut(&self, bytes: u64) -> Option<JournalShut> {
        if let Some(path) = &self.gone {
            return Some(JournalShut::Gone(path.clone()));
        }
        if self.broken {
            return Some(JournalShut::Failed);
        }
        let (_, reason) = self.refused.as_ref()?;
        (!self.free.has(bytes)).then(|| JournalShut::Full(reason.clone()))
    }

    /// Makes a segment ready before it is needed; also where there is no room, so that nobody has to ask for it to be found
    /// again.
    pub(super) fn prepare_ahead(&mut self, folder: &Folder) {
        let half_full = self.current.at > self.segment_bytes / 2;
        if (self.spare.is_empty() && half_full) || matches!(self.shut(REQUEST_BYTES), Some(JournalShut::Full(_))) {
            // Whoever needs it hears of a failure.
            let _ = self.prepare(folder);
        }
    }

    fn prepare(&mut self, folder: &Folder) -> Result<(), JournalShut> {
        let now = clock::instant();
        if let Some((at, reason)) = &self.refused
            && now.duration_since(*at) < RETRY
        {
            return Err(JournalShut::Full(reason.clone()));
        }
        if let Some(path) = folder.gone() {
            return Err(JournalShut::Gone(path));
        }
        let last = self.spare.back().unwrap_or(&self.current);
        match make(folder, self.least.max(last.number + 1), self.segment_bytes, &*self.disk) {
            Ok(segment) => {
                self.refused = None;
                self.named = true;
                self.free.grow(0, self.usable(&segment));
                self.spare.push_back(segment);
                Ok(())
            }
            Err(error) => {
                let reason = format!("no segment of {} bytes can be made: {error}", self.segment_bytes);
                tracing::error!(folder = %folder.path.display(), %error, "the journal cannot grow");
                self.refused = Some((now, reason.clone()));
                Err(JournalShut::Full(reason))
            }
        }
    }

    /// Writes a frame, whose first [`frame::HEAD`] bytes are filled in, and answers with its position. The room was promised.
    /// After a failure the next one goes to another segment.
    pub(super) fn write(&mut self, frame: &mut [u8], folder: &Folder) -> io::Result<Position> {
        let size = frame.len() as u64;
        // A segment that nothing stands in is tried again: a disk that takes no writes would else be filled with empty ones.
        let spoilt = self.spoilt && self.current.at > frame::HEADER as u64;
        if spoilt || self.segment_bytes.saturating_sub(self.current.at) < size {
            self.roll(folder)?;
        }
        let position = Position {
            segment: self.current.number,
            offset: self.current.at,
        };
        frame::seal(frame, position.segment, position.offset).ok_or(io::ErrorKind::InvalidInput)?;
        let written = self.disk.write(&self.current.file, frame, position.offset);
        self.spoilt = written.is_err();
        if self.spoilt {
            self.break_off();
        }
        written?;
        let room = self.usable(&self.current);
        self.current.at += size;
        self.free.grow(room, self.usable(&self.current));
        Ok(position)
    }

    /// Continues in a fresh segment.
    pub(super) fn roll(&mut self, folder: &Folder) -> io::Result<()> {
        if self.spare.is_empty() {
            self.prepare(folder).map_err(io::Error::other)?;
        }
        let room = self.room();
        if let Some(next) = self.spare.pop_front() {
            let before = std::mem::replace(&mut self.current, next);
            if std::mem::take(&mut self.spoilt) {
                // What the failed write left would look like damage.
                let _ = before.file.set_len(before.at);
            }
            self.unsynced.push(before.file);
        }
        self.free.grow(room, self.room());
        Ok(())
    }

    /// The next segment, made if need be: what shows whether the disk is well again.
    pub(super) fn next(&mut self, folder: &Folder) -> Result<(u64, Arc<File>), JournalShut> {
        if self.spare.is_empty() {
            self.prepare(folder)?;
        }
        let next = self.spare.front().unwrap_or(&self.current);
        Ok((next.number, Arc::clone(&next.file)))
    }

    /// The segment `number` has been synced after the disk failed: what follows goes there, or behind it.
    pub(super) fn well_again(&mut self, number: u64, folder: &Folder) -> io::Result<()> {
        if self.current.number < number {
            self.roll(folder)?;
        }
        self.broken = self.spoilt;
        self.open();
        Ok(())
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = out.debug_struct("Tail");
        fields.field("current", &self.current).finish_non_exhaustive()
    }
}

fn make(folder: &Folder, number: u64, bytes: u64, disk: &dyn Disk) -> io::Result<Segment> {
    // An index that has outlived another segment of this number says nothing of the new one.
    folder.remove_index(number)?;
    let file = folder.create(number)?;
    match begin(&file, &folder.node, number, bytes, disk) {
        Ok(()) => Ok(Segment {
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
