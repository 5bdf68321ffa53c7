//! The format of a segment, which is a header followed by frames, and a reader that returns the records in order.
//!
//! A frame is the length of its payload, a checksum, and the payload. The checksum also covers the frame's position, so bytes
//! from another position are never taken for a frame. A length of zero ends the data.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use crate::{
    domain::ledger::{NodeId, Record},
    journal::{JournalEngine, JournalError, Position, RECORD_BYTES_MAX},
};

/// The size of a frame's head, in bytes: the length of the payload and the checksum, both little endian.
pub const HEAD: usize = 8;
/// The size of a segment's header, in bytes.
pub const HEADER: usize = 64;
/// The maximum size of a frame with its head, in bytes.
const FRAME_MAX: u64 = RECORD_BYTES_MAX + HEAD as u64;
/// The byte that fills the payload of a filler frame. No record consists of this byte only.
const FILLER_BYTE: u8 = b' ';
/// The maximum size of a filler frame with its head, in bytes.
const FILLER_MAX: u64 = 64 * 1024;

const MAGIC: &[u8; 8] = b"weirwal\n";
const VERSION: u32 = 3;
/// The number of bytes that are read from a segment at a time.
const CHUNK: usize = 256 * 1024;
/// The number of bytes that are read at a time when only a single frame is needed. Most frames are smaller.
const SINGLE: usize = 4 * 1024;

/// The result of checking a segment's header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderCheck {
    /// The segment was written by this node.
    Own,
    /// The segment was written by another node or another version of weir.
    Foreign,
    /// The header is damaged. The frames can be read nevertheless, because each has its own checksum.
    Damaged,
}

/// Encodes the header of a segment.
pub(super) fn header(node: &NodeId, number: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let checked = [
        MAGIC.as_slice(),
        &VERSION.to_le_bytes(),
        &number.to_le_bytes(),
        node.as_str().as_bytes(),
    ]
    .concat();
    let sum = crc32fast::hash(&checked).to_le_bytes();
    for (to, from) in bytes.iter_mut().zip(checked.iter().chain(&sum)) {
        *to = *from;
    }
    bytes
}

/// Checks the header of the segment with this number.
pub(super) fn check_header(bytes: &[u8; HEADER], node: &NodeId, number: u64) -> HeaderCheck {
    let length = MAGIC.len() + 4 + 8 + node.as_str().len();
    // The rest of the header is padding.
    let said = length + 4;
    if bytes.iter().take(said).eq(header(node, number).iter().take(said)) {
        return HeaderCheck::Own;
    }
    let whole = bytes
        .split_at_checked(length)
        .is_some_and(|(checked, sum)| sum.starts_with(&crc32fast::hash(checked).to_le_bytes()));
    if whole {
        HeaderCheck::Foreign
    } else {
        HeaderCheck::Damaged
    }
}

/// Fills in the head of a frame that begins at `offset` of the segment `number`. `frame` consists of [`HEAD`] bytes that are
/// overwritten, followed by the payload. Returns `None` if the payload is empty or its length does not fit into a `u32`.
pub fn seal(frame: &mut [u8], number: u64, offset: u64) -> Option<()> {
    let (head, payload) = frame.split_at_mut_checked(HEAD)?;
    let length = u32::try_from(payload.len()).ok().filter(|length| *length > 0)?;
    let sum = checksum(length, number, offset, payload);
    let bytes = length.to_le_bytes().into_iter().chain(sum.to_le_bytes());
    for (to, from) in head.iter_mut().zip(bytes) {
        *to = from;
    }
    Some(())
}

/// Returns filler frames for a range of offsets; `None` if the range is too short for a frame.
pub(super) fn filler(number: u64, from: u64, to: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut at = from;
    while at < to {
        let left = to - at;
        // The remainder must be long enough for another frame.
        let size = if left > FILLER_MAX { FILLER_MAX / 2 } else { left };
        let mut frame = vec![FILLER_BYTE; usize::try_from(size).ok()?];
        seal(&mut frame, number, at)?;
        bytes.append(&mut frame);
        at += size;
    }
    Some(bytes)
}

/// Whether a payload is filler, which replaces damage.
pub(super) fn is_filler(payload: &[u8]) -> bool {
    payload.iter().all(|byte| *byte == FILLER_BYTE)
}

fn checksum(length: u32, number: u64, offset: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// The result of reading a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameOutcome<'a> {
    /// A valid frame.
    Frame {
        /// The frame's offset in its segment.
        at: u64,
        /// The frame's payload, which matches the checksum.
        payload: &'a [u8],
    },
    /// The segment has no further frames. Only zeros follow, unless the segment is damaged.
    End,
    /// The bytes are not a valid frame.
    Bad {
        /// The size of the frame according to its head, including the head.
        claimed: u64,
    },
}

/// Reads the frames of a segment in order.
pub struct FrameReader {
    file: Arc<File>,
    number: u64,
    /// The offset of the next frame.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The offset in the file of the buffer's first byte.
    start: u64,
    /// The number of bytes that are read at a time.
    chunk: usize,
}

impl FrameReader {
    /// Creates a reader of the frames from offset `at` to `end`.
    pub fn new(file: Arc<File>, number: u64, at: u64, end: u64) -> Self {
        Self {
            file,
            number,
            at,
            end,
            buffer: Vec::new(),
            start: at,
            chunk: CHUNK,
        }
    }

    /// Creates a reader of the single frame at offset `at`.
    pub(super) fn single(file: Arc<File>, number: u64, at: u64, end: u64) -> Self {
        Self {
            chunk: SINGLE,
            ..Self::new(file, number, at, end)
        }
    }

    /// Returns the offset of the next frame.
    pub(super) fn next_offset(&self) -> u64 {
        self.at
    }

    /// Sets a new end, after more frames were written to the segment.
    pub(super) fn set_end(&mut self, end: u64) {
        self.end = end;
    }

    /// Reads the next frame. [`FrameOutcome::End`] and [`FrameOutcome::Bad`] leave the offset as it is.
    pub fn next_frame(&mut self) -> io::Result<FrameOutcome<'_>> {
        let left = self.end.saturating_sub(self.at);
        if left < HEAD as u64 {
            // The rest is too short for a frame, because the segment is full.
            return Ok(FrameOutcome::End);
        }
        let Some((length, sum)) = self.peek(HEAD)?.and_then(parse_head) else {
            return Ok(FrameOutcome::Bad { claimed: left });
        };
        if length == 0 {
            return Ok(FrameOutcome::End);
        }
        let claimed = HEAD as u64 + u64::from(length);
        if claimed > left {
            return Ok(FrameOutcome::Bad { claimed });
        }
        let (number, at) = (self.number, self.at);
        let Ok(size) = usize::try_from(claimed) else {
            return Ok(FrameOutcome::Bad { claimed });
        };
        // The frame is checked first and borrowed again below, because `self.at` cannot be changed while it is borrowed.
        let good = self
            .peek(size)?
            .and_then(|frame| frame.get(HEAD..))
            .is_some_and(|payload| checksum(length, number, at, payload) == sum);
        if !good {
            return Ok(FrameOutcome::Bad { claimed });
        }
        self.at = at + claimed;
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        let payload = self
            .buffer
            .get(from.saturating_add(HEAD)..from.saturating_add(size))
            .unwrap_or_default();
        Ok(FrameOutcome::Frame { at, payload })
    }

    /// Moves to the first valid frame after an invalid one. Returns `false`, and does not move, if there is none. The frame can
    /// begin at any byte, because its checksum covers its position and so identifies it.
    pub fn skip_damage(&mut self) -> io::Result<bool> {
        let bad = self.at;
        // The damaged frame had a payload of at least one byte.
        let mut at = bad + HEAD as u64 + 1;
        while at + (HEAD as u64) < self.end {
            self.at = at;
            let Some((length, _)) = self.peek(HEAD)?.and_then(parse_head) else {
                break;
            };
            let plausible = length > 0 && HEAD as u64 + u64::from(length) <= FRAME_MAX;
            if plausible && matches!(self.next_frame()?, FrameOutcome::Frame { .. }) {
                self.at = at;
                return Ok(true);
            }
            at += 1;
        }
        // The buffer begins after `bad`.
        self.buffer.clear();
        (self.start, self.at) = (bad, bad);
        Ok(false)
    }

    /// Returns the next `count` bytes without moving; `None` if the file is shorter.
    fn peek(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        let from = usize::try_from(self.at - self.start).unwrap_or(usize::MAX);
        if self.buffer.len() < from.saturating_add(count) {
            let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
            self.buffer.resize(count.max(self.chunk.min(left)), 0);
            self.start = self.at;
            let read = read_at(&self.file, &mut self.buffer, self.at)?;
            self.buffer.truncate(read);
        }
        let from = usize::try_from(self.at - self.start).unwrap_or(usize::MAX);
        Ok(self.buffer.get(from..from.saturating_add(count)))
    }
}

fn parse_head(bytes: &[u8]) -> Option<(u32, u32)> {
    let (length, sum) = bytes.split_first_chunk::<4>()?;
    Some((
        u32::from_le_bytes(*length),
        u32::from_le_bytes(*sum.first_chunk::<4>()?),
    ))
}

/// Whether a file has only zeros from offset `at` onwards. Ranges that were allocated and never written are not read, if the file
/// system reports them.
pub(super) fn is_zero_from(file: &File, at: u64) -> io::Result<bool> {
    let mut at = at;
    loop {
        let (data, hole) = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => (data, seek(file, SeekFrom::Hole(data)).unwrap_or(u64::MAX)),
            // Only allocated, unwritten ranges follow.
            Err(Errno::NXIO) => return Ok(true),
            Err(_) => (at, u64::MAX),
        };
        if !is_zero_between(file, data, hole)? {
            return Ok(false);
        }
        if hole == u64::MAX {
            return Ok(true);
        }
        at = hole;
    }
}

fn is_zero_between(file: &File, at: u64, end: u64) -> io::Result<bool> {
    let (zeros, mut buffer) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = at;
    while at < end {
        let size = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
        let read = read_at(file, buffer.get_mut(..size).unwrap_or_default(), at)?;
        if buffer.get(..read) != zeros.get(..read) {
            return Ok(false);
        }
        if read < size {
            break;
        }
        at = at.saturating_add(read as u64);
    }
    Ok(true)
}

/// Returns the offset of the first zero byte in a range; `None` if it has none.
pub(super) fn first_zero(file: &File, at: u64, end: u64) -> io::Result<Option<u64>> {
    let mut buffer = vec![0; CHUNK];
    let mut at = at;
    while at < end {
        let size = usize::try_from(end - at).map_or(CHUNK, |left| left.min(CHUNK));
        let read = read_at(file, buffer.get_mut(..size).unwrap_or_default(), at)?;
        if let Some(index) = memchr::memchr(0, buffer.get(..read).unwrap_or_default()) {
            return Ok(Some(at.saturating_add(index as u64)));
        }
        if read < size {
            break;
        }
        at = at.saturating_add(read as u64);
    }
    Ok(None)
}

/// Reads bytes from offset `at` until the buffer is full or the file ends. Returns the number of bytes read.
pub(super) fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads records from a position onwards. Reading blocks on the disk, but usually only briefly.
pub(crate) struct JournalRecordReader {
    engine: Arc<JournalEngine>,
    position: Position,
    frames: Option<(u64, FrameReader)>,
    scope: ReadScope,
    /// The readable part of the current segment. When the reader reaches the end of this part, it determines the part again.
    extent: Option<SegmentExtent>,
}

/// The records that a reader returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadScope {
    /// All records that are written.
    Written,
    /// Only steps, and only those that are on disk or recorded as lost.
    StepsOnDisk,
}

/// The readable part of a segment.
#[derive(Clone, Copy)]
struct SegmentExtent {
    number: u64,
    end: u64,
    /// Whether further frames may be written to the segment.
    open: bool,
}

impl JournalRecordReader {
    pub(super) fn new(engine: Arc<JournalEngine>, position: Position, scope: ReadScope) -> Self {
        Self {
            engine,
            position,
            frames: None,
            scope,
            extent: None,
        }
    }

    /// Returns the position of the next record.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Reads the next record; `None` if no further record can be read yet. Damage is not an error: the reader saves the damaged
    /// bytes in quarantine and skips them.
    ///
    /// # Errors
    /// A segment cannot be read. The next call tries again.
    pub(crate) fn read(&mut self) -> Result<Option<(Position, Record)>, JournalError> {
        while let Some(extent) = self.extent() {
            if extent.number != self.position.segment {
                self.position = Position {
                    segment: extent.number,
                    offset: HEADER as u64,
                };
            }
            if self.position.offset >= extent.end {
                self.extent = None;
                if extent.open {
                    return Ok(None);
                }
                self.position = Position {
                    segment: extent.number + 1,
                    offset: HEADER as u64,
                };
                continue;
            }
            if let Some(found) = self.read_frame(&extent)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn read_frame(&mut self, extent: &SegmentExtent) -> Result<Option<(Position, Record)>, JournalError> {
        let path = || self.engine.folder.segment(extent.number);
        let failed = |source| JournalError::io(&path(), source);
        if self.frames.as_ref().is_none_or(|(number, _)| *number != extent.number) {
            let file = File::open(path()).map_err(|error| {
                // The segment may have been removed in the meantime.
                self.extent = None;
                failed(error)
            })?;
            let file = Arc::new(file);
            let frames = FrameReader::new(file, extent.number, self.position.offset, extent.end);
            self.frames = Some((extent.number, frames));
        }
        let Some((_, frames)) = &mut self.frames else {
            return Ok(None);
        };
        frames.set_end(extent.end);
        let record = match frames.next_frame().map_err(failed)? {
            FrameOutcome::Frame { payload, .. }
                if self.scope == ReadScope::StepsOnDisk && !Record::is_step(payload) =>
            {
                self.position.offset = frames.next_offset();
                return Ok(None);
            }
            FrameOutcome::Frame { payload, .. } => Record::read(payload),
            FrameOutcome::End | FrameOutcome::Bad { .. } => {
                self.skip_damage(extent)?;
                return Ok(None);
            }
        };
        let position = self.position;
        self.position.offset = frames.next_offset();
        // `None` means that the record cannot be decoded, which was logged at the start.
        Ok(record.map(|record| (position, record)))
    }

    /// Saves invalid bytes in quarantine and continues after them.
    fn skip_damage(&mut self, extent: &SegmentExtent) -> Result<(), JournalError> {
        (self.frames, self.extent) = (None, None);
        let mended = (self.engine).repair_damage(extent.number, self.position.offset, extent.end, extent.open);
        let path = self.engine.folder.segment(extent.number);
        self.position.offset = mended.map_err(|source| JournalError::io(&path, source))?;
        Ok(())
    }

    fn extent(&mut self) -> Option<SegmentExtent> {
        let known = self.extent.filter(|extent| {
            extent.number == self.position.segment && (extent.end > self.position.offset || !extent.open)
        });
        if known.is_none() {
            self.extent = self.find_extent();
        }
        self.extent
    }

    fn find_extent(&self) -> Option<SegmentExtent> {
        // `synced` is read before the state. In the other order, a record that is written between the two reads would be
        // taken for one on disk.
        let synced = self.engine.synced.borrow().decided_end();
        let state = self.engine.lock();
        let (number, segment) = state.contents.segments.range(self.position.segment..).next()?;
        let extent = SegmentExtent {
            number: *number,
            end: segment.end,
            open: *number == state.tail.current.number,
        };
        match self.scope {
            ReadScope::StepsOnDisk if extent.number > synced.segment => None,
            ReadScope::StepsOnDisk if extent.number == synced.segment => Some(SegmentExtent {
                end: extent.end.min(synced.offset),
                open: true,
                ..extent
            }),
            ReadScope::StepsOnDisk | ReadScope::Written => Some(extent),
        }
    }
}
