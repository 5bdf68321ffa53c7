//! Gives a Parquet reader access to an object in a bucket. The end of the object is fetched first, and then only the row groups
//! that are needed.

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

/// The number of bytes at the end of an object that are fetched first. They describe where everything else in the object is.
const TAIL_BYTES: u64 = 64 * 1024;
/// The number of bytes that a sequential reader fetches at once.
const AHEAD_BYTES: u64 = 64 * 1024;

/// An object in a bucket whose end has been fetched. Clones share the fetched data.
#[derive(Clone, Debug)]
pub(in super::super) struct BucketObject(Arc<ObjectState>);

#[derive(Debug)]
struct ObjectState {
    requests: BucketClient,
    key: String,
    length: u64,
    tail: Bytes,
    /// The folder for the file of the prefetched part. That part is on disk, because row groups can be large and many objects can
    /// be open.
    folder: PathBuf,
    prefetched: Mutex<Option<PrefetchedPart>>,
}

/// A prefetched part of an object, in an unnamed file.
#[derive(Clone, Debug)]
struct PrefetchedPart {
    range: Range<u64>,
    file: Arc<File>,
}

impl BucketObject {
    /// Opens an object by fetching its end. Parts are later prefetched into `folder`.
    pub(in super::super) fn open(requests: &BucketClient, key: String, folder: PathBuf) -> io::Result<Self> {
        let tail = requests.read(&key, &format!("-{TAIL_BYTES}"));
        let tail = tail.map_err(|error| object_error(&key, &error))?;
        if tail.begin + tail.bytes.len() as u64 != tail.length {
            return Err(object_error(
                &key,
                &BucketRequestError::Unexpected("the server did not send the end of the object".into()),
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

    /// Returns a copy that has only the end of the object, as if it had just been opened. `None` if the server does not support
    /// ranges, so that more than the end is in memory.
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

    /// Returns the length of the object, in bytes.
    pub(in super::super) fn length(&self) -> u64 {
        self.0.length
    }

    /// Fetches a part that will be read soon. It replaces the previously fetched part.
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

    /// Reads exactly `count` bytes from the offset `begin` on.
    pub(in super::super) fn bytes(&self, begin: u64, count: usize) -> io::Result<Bytes> {
        let end = begin.checked_add(count as u64).filter(|end| *end <= self.0.length);
        if end.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "cannot read {count} bytes of {} from offset {begin} on: the object is shorter",
                    self.0.key
                ),
            ));
        }
        if let Some(tail) = self.0.tail_from(begin) {
            return Ok(tail.slice(..count));
        }
        let mut bytes = vec![0; count];
        self.reader(begin).read_exact(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Creates a reader that begins at the offset `at`.
    pub(in super::super) fn reader(&self, at: u64) -> ObjectReader {
        ObjectReader {
            parts: Arc::clone(&self.0),
            at,
            ahead: Bytes::new(),
        }
    }
}

impl ObjectState {
    /// Returns the bytes from the offset `at` to the end of the object. `None` if they are not all in memory.
    fn tail_from(&self, at: u64) -> Option<Bytes> {
        let begin = self.length - self.tail.len() as u64;
        let skipped = usize::try_from(at.checked_sub(begin)?).ok()?;
        (skipped <= self.tail.len()).then(|| self.tail.slice(skipped..))
    }

    fn prefetched_from(&self, at: u64) -> Option<PrefetchedPart> {
        self.prefetched.lock().clone().filter(|kept| kept.range.contains(&at))
    }

    /// Fetches a part of at most [`PART_BYTES_MAX`] bytes from the bucket.
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
                &BucketRequestError::Unexpected("the server sent another part than the requested one".into()),
            )),
        }
    }
}

/// Reads an object sequentially from an offset on.
pub(in super::super) struct ObjectReader {
    parts: Arc<ObjectState>,
    at: u64,
    /// The next bytes of the object, which have been fetched already.
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

/// Moves as many bytes as possible from `from` to `into`. Returns the number of moved bytes.
fn move_bytes(from: &mut Bytes, into: &mut [u8]) -> usize {
    let count = from.len().min(into.len());
    std::iter::zip(into, from.split_to(count)).for_each(|(to, byte)| *to = byte);
    count
}

/// Converts a failed request for an object into an I/O error that names the object.
pub(in super::super) fn object_error(key: &str, error: &BucketRequestError) -> io::Error {
    let kind = if error.is_not_found() {
        io::ErrorKind::NotFound
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, format!("{key}: {error}"))
}
