//! Reads an object of a bucket for a Parquet reader: its end first, then the wanted groups of rows.

use std::{
    fs::File,
    io::{self, Read, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::requests::{BucketClient, PART_BYTES_MAX};
use crate::sinks::files::s3::BucketRequestError;

/// The bytes at the end that are read first: they describe where everything else is.
const TAIL_BYTES: u64 = 64 * 1024;
/// The bytes fetched at once by a sequential reader.
const AHEAD_BYTES: u64 = 64 * 1024;

/// An object whose end has been read. Cheap to clone.
#[derive(Clone, Debug)]
pub(in super::super) struct BucketObject(Arc<ObjectState>);

#[derive(Debug)]
struct ObjectState {
    requests: BucketClient,
    key: String,
    length: u64,
    tail: Bytes,
    /// The folder for the prefetched part: it is on disk, because groups of rows may be large and many objects may be open.
    folder: PathBuf,
    prefetched: Mutex<Option<PrefetchedPart>>,
}

/// A prefetched part on disk.
#[derive(Clone, Debug)]
struct PrefetchedPart {
    range: Range<u64>,
    file: Arc<File>,
}

impl BucketObject {
    /// Reads the end of an object. `folder` is for its prefetched parts.
    pub(in super::super) fn open(requests: &BucketClient, key: String, folder: PathBuf) -> io::Result<Self> {
        let tail = requests.read(&key, &format!("-{TAIL_BYTES}"));
        let tail = tail.map_err(|error| object_error(&key, &error))?;
        if tail.begin + tail.bytes.len() as u64 != tail.length {
            return Err(object_error(
                &key,
                &BucketRequestError::Unexpected("it sent something other than the end of the object".into()),
            ));
        }
        Ok(Self(Arc::new(ObjectState {
            requests: requests.clone(),
            key,
            length: tail.length,
            tail: tail.bytes,
            folder,
            prefetched: Mutex::new(None),
        })))
    }

    /// A copy with the end only, as after opening. `None` if more than the end is in memory, from a server that does not support
    /// ranges.
    pub(in super::super) fn with_end_only(&self) -> Option<Self> {
        let parts = &self.0;
        let is_end = parts.tail.len() as u64 <= TAIL_BYTES;
        is_end.then(|| {
            Self(Arc::new(ObjectState {
                requests: parts.requests.clone(),
                key: parts.key.clone(),
                length: parts.length,
                tail: parts.tail.clone(),
                folder: parts.folder.clone(),
                prefetched: Mutex::new(None),
            }))
        })
    }

    /// The length in bytes.
    pub(in super::super) fn length(&self) -> u64 {
        self.0.length
    }

    /// Fetches a part that is about to be read; it replaces the previous one.
    pub(in super::super) fn prefetch(&self, range: Range<u64>) -> io::Result<()> {
        if self.0.tail_from(range.start).is_some() || self.0.prefetched_from(range.start).is_some() {
            return Ok(());
        }
        let mut file = tempfile::tempfile_in(&self.0.folder)?;
        let mut at = range.start;
        while at < range.end {
            let bytes = self.0.fetch(at..range.end.min(at + PART_BYTES_MAX))?;
            file.write_all(&bytes)?;
            at += bytes.len() as u64;
        }
        *self.0.prefetched.lock() = Some(PrefetchedPart {
            range,
            file: Arc::new(file),
        });
        Ok(())
    }

    /// Reads exactly `count` bytes.
    pub(in super::super) fn bytes(&self, begin: u64, count: usize) -> io::Result<Bytes> {
        let end = begin.checked_add(count as u64).filter(|end| *end <= self.0.length);
        if end.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} ends before byte {begin} + {count}", self.0.key),
            ));
        }
        if let Some(tail) = self.0.tail_from(begin) {
            return Ok(tail.slice(..count));
        }
        let mut bytes = vec![0; count];
        self.reader(begin).read_exact(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Reads from an offset onwards.
    pub(in super::super) fn reader(&self, at: u64) -> ObjectReader {
        ObjectReader {
            parts: Arc::clone(&self.0),
            at,
            ahead: Bytes::new(),
        }
    }
}

impl ObjectState {
    /// The end of the object from `at` onwards, if it is in memory.
    fn tail_from(&self, at: u64) -> Option<Bytes> {
        let begin = self.length - self.tail.len() as u64;
        let skipped = usize::try_from(at.checked_sub(begin)?).ok()?;
        (skipped <= self.tail.len()).then(|| self.tail.slice(skipped..))
    }

    fn prefetched_from(&self, at: u64) -> Option<PrefetchedPart> {
        self.prefetched.lock().clone().filter(|kept| kept.range.contains(&at))
    }

    /// Fetches a part of at most [`PART_BYTES_MAX`] from the bucket.
    fn fetch(&self, range: Range<u64>) -> io::Result<Bytes> {
        let text = format!("{}-{}", range.start, range.end.saturating_sub(1));
        let part = self.requests.read(&self.key, &text);
        let part = part.map_err(|error| object_error(&self.key, &error))?;
        let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let skipped = range
            .start
            .checked_sub(part.begin)
            .and_then(|skipped| usize::try_from(skipped).ok());
        let found = skipped.and_then(|skipped| Some(skipped..skipped.checked_add(wanted)?));
        match found {
            Some(found) if part.length == self.length && found.end <= part.bytes.len() => Ok(part.bytes.slice(found)),
            _ => Err(object_error(
                &self.key,
                &BucketRequestError::Unexpected("it sent another part than the requested one".into()),
            )),
        }
    }
}

/// Reads an object from an offset onwards.
pub(in super::super) struct ObjectReader {
    parts: Arc<ObjectState>,
    at: u64,
    /// The bytes from `at` onwards that were fetched already.
    ahead: Bytes,
}

impl Read for ObjectReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.parts.length || into.is_empty() {
            return Ok(0);
        }
        let count = if !self.ahead.is_empty() {
            move_bytes(&mut self.ahead, into)
        } else if let Some(mut tail) = self.parts.tail_from(self.at) {
            move_bytes(&mut tail, into)
        } else if let Some(kept) = self.parts.prefetched_from(self.at) {
            let most = usize::try_from(kept.range.end - self.at)
                .unwrap_or(usize::MAX)
                .min(into.len());
            kept.file
                .read_at(into.get_mut(..most).unwrap_or_default(), self.at - kept.range.start)?
        } else {
            let end = self.parts.length.min(self.at + AHEAD_BYTES);
            self.ahead = self.parts.fetch(self.at..end)?;
            move_bytes(&mut self.ahead, into)
        };
        self.at += count as u64;
        Ok(count)
    }
}

/// Moves as many bytes as possible; returns their number.
fn move_bytes(from: &mut Bytes, into: &mut [u8]) -> usize {
    let count = from.len().min(into.len());
    std::iter::zip(into, from.split_to(count)).for_each(|(to, byte)| *to = byte);
    count
}

/// The error of a request for an object.
pub(in super::super) fn object_error(key: &str, error: &BucketRequestError) -> io::Error {
    let kind = if error.is_not_found() {
        io::ErrorKind::NotFound
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, format!("{key}: {error}"))
}
