//! The bytes of a segment: its header, and the frames behind it.
//!
//! A frame is the payload's length, a checksum, and the payload. The checksum also covers where the frame stands, so that
//! bytes from another place never look like one. A length of zero ends the data.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use crate::{domain::ledger::NodeId, journal::sizes::RECORD_BYTES_MAX};

/// What stands in front of a payload: its length and the checksum, little endian.
pub const HEAD: usize = 8;
/// What stands in front of the frames.
pub const HEADER: usize = 64;
/// The longest frame, head included.
const FRAME_MAX: u64 = RECORD_BYTES_MAX + HEAD as u64;
/// What fills a frame of nothing: no record is made of it.
const NOTHING: u8 = b' ';
/// The longest frame of nothing, head included.
const FILLER_MAX: u64 = 64 * 1024;

const MAGIC: &[u8; 8] = b"weirwal\n";
const VERSION: u32 = 2;
/// How much is read at once.
const CHUNK: usize = 256 * 1024;
/// How much is read for one frame: most are smaller.
const SINGLE: usize = 4 * 1024;

/// What the header of a segment says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// It was written by this node.
    Own,
    /// It was written by another node, or another version of weir.
    Foreign,
    /// It cannot be read. The frames prove themselves.
    Damaged,
}

/// The header of a segment.
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

/// Reads a header.
pub(super) fn check_header(bytes: &[u8; HEADER], node: &NodeId, number: u64) -> Header {
    let length = MAGIC.len() + 4 + 8 + node.as_str().len();
    // What fills the header up says nothing.
    let said = length + 4;
    if bytes.iter().take(said).eq(header(node, number).iter().take(said)) {
        return Header::Own;
    }
    let whole = bytes
        .split_at_checked(length)
        .is_some_and(|(checked, sum)| sum.starts_with(&crc32fast::hash(checked).to_le_bytes()));
    if whole { Header::Foreign } else { Header::Damaged }
}

/// Fills in the head of a frame that begins at `offset`: `frame` is [`HEAD`] bytes of anything, then the payload.
/// `None` if the payload is empty or longer than a length can say.
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

/// Frames of nothing from one place to another; `None` where not even one fits.
pub(super) fn filler(number: u64, from: u64, to: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut at = from;
    while at < to {
        let left = to - at;
        // What is left behind a frame must do for another one.
        let size = if left > FILLER_MAX { FILLER_MAX / 2 } else { left };
        let mut frame = vec![NOTHING; usize::try_from(size).ok()?];
        seal(&mut frame, number, at)?;
        bytes.append(&mut frame);
        at += size;
    }
    Some(bytes)
}

/// Whether a payload stands in for what was damaged.
pub(super) fn is_nothing(payload: &[u8]) -> bool {
    payload.iter().all(|byte| *byte == NOTHING)
}

fn checksum(length: u32, number: u64, offset: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(&number.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// What stands at a place of a segment.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A complete frame.
    Frame {
        /// Its offset in the segment.
        at: u64,
        /// Its payload, checksum verified.
        payload: &'a [u8],
    },
    /// The segment has no further frames. Whatever stands behind the last one is zero, unless it is damaged.
    End,
    /// What stands here is no frame.
    Bad {
        /// How long the frame says it is, head included.
        claimed: u64,
    },
}

/// Reads the frames of a segment in their order.
pub struct Frames {
    file: Arc<File>,
    number: u64,
    /// The place of the next frame.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Where the buffer's first byte stands in the file.
    start: u64,
    /// How much is read at once.
    chunk: usize,
}

impl Frames {
    /// The frames from `at` on, as far as `end`.
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

    /// The one frame at `at`.
    pub(super) fn single(file: Arc<File>, number: u64, at: u64, end: u64) -> Self {
        Self {
            chunk: SINGLE,
            ..Self::new(file, number, at, end)
        }
    }

    /// Where the next frame begins.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// More of the same segment may be read.
    pub(super) fn extend(&mut self, end: u64) {
        self.end = end;
    }

    /// The next frame. After [`Found::End`] and [`Found::Bad`] the place stays.
    pub fn next_frame(&mut self) -> io::Result<Found<'_>> {
        let left = self.end.saturating_sub(self.at);
        if left < HEAD as u64 {
            // No frame begins here: a segment may be full but for a few bytes.
            return Ok(Found::End);
        }
        let Some((length, sum)) = self.bytes(HEAD)?.and_then(head) else {
            return Ok(Found::Bad { claimed: left });
        };
        if length == 0 {
            return Ok(Found::End);
        }
        let claimed = HEAD as u64 + u64::from(length);
        if claimed > left {
            return Ok(Found::Bad { claimed });
        }
        let (number, at) = (self.number, self.at);
        let Ok(size) = usize::try_from(claimed) else {
            return Ok(Found::Bad { claimed });
        };
        // Asked twice, because what the first answer borrows would have to outlive the change of place.
        let good = self
            .bytes(size)?
            .and_then(|frame| frame.get(HEAD..))
            .is_some_and(|payload| checksum(length, number, at, payload) == sum);
        if !good {
            return Ok(Found::Bad { claimed });
        }
        self.at = at + claimed;
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        let payload = self
            .buffer
            .get(from.saturating_add(HEAD)..from.saturating_add(size))
            .unwrap_or_default();
        Ok(Found::Frame { at, payload })
    }

    /// Goes on to the first sound frame behind the place, where none stands. `false`: there is none, and the place stays.
    /// Each byte may be where it begins; a checksum that covers the place itself tells it from what only looks like one.
    pub fn skip_damage(&mut self) -> io::Result<bool> {
        let bad = self.at;
        // Whatever stood here was a frame of at least one byte.
        let mut at = bad + HEAD as u64 + 1;
        while at + (HEAD as u64) < self.end {
            self.at = at;
            let Some((length, _)) = self.bytes(HEAD)?.and_then(head) else {
                break;
            };
            let plausible = length > 0 && HEAD as u64 + u64::from(length) <= FRAME_MAX;
            if plausible && matches!(self.next_frame()?, Found::Frame { .. }) {
                self.at = at;
                return Ok(true);
            }
            at += 1;
        }
        // What is at hand begins somewhere behind.
        self.buffer.clear();
        (self.start, self.at) = (bad, bad);
        Ok(false)
    }

    /// That many bytes from the current place on; `None` where the file is shorter.
    fn bytes(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
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

fn head(bytes: &[u8]) -> Option<(u32, u32)> {
    let (length, sum) = bytes.split_first_chunk::<4>()?;
    Some((
        u32::from_le_bytes(*length),
        u32::from_le_bytes(*sum.first_chunk::<4>()?),
    ))
}

/// Whether nothing but zeros stands from `at` on. What was set aside and never written is not read, where the file system
/// can tell.
pub(super) fn zeros_from(file: &File, at: u64) -> io::Result<bool> {
    let mut at = at;
    loop {
        let (data, hole) = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => (data, seek(file, SeekFrom::Hole(data)).unwrap_or(u64::MAX)),
            // Nothing but holes.
            Err(Errno::NXIO) => return Ok(true),
            Err(_) => (at, u64::MAX),
        };
        if !zeros_between(file, data, hole)? {
            return Ok(false);
        }
        if hole == u64::MAX {
            return Ok(true);
        }
        at = hole;
    }
}

fn zeros_between(file: &File, at: u64, end: u64) -> io::Result<bool> {
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

/// Where the first zero stands, from `at` on and in front of `end`.
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

/// Fills the buffer as far as the file reaches.
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
