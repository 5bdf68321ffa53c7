//! Reads an object of a bucket as a Parquet reader wants it: the end first, then the groups of rows that are wanted.

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

use super::{
    error::RequestError,
    requests::{PART_BYTES_MAX, Requests},
};

/// So much of the end is read first: what stands there says where all the rest is.
const TAIL_BYTES: u64 = 64 * 1024;
/// What is read at once by who reads on without having said how much.
const AHEAD_BYTES: u64 = 64 * 1024;

/// An object whose end has been read. Cheap to clone.
#[derive(Clone, Debug)]
pub(in super::super) struct Object(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    requests: Requests,
    key: String,
    length: u64,
    tail: Bytes,
    /// Where a part is kept that is read next: on disk, because groups of rows may be large, and many objects may be open.
    folder: PathBuf,
    kept: Mutex<Option<Kept>>,
}

/// A part on disk.
#[derive(Clone, Debug)]
struct Kept {
    range: Range<u64>,
    file: Arc<File>,
}

impl Object {
    /// Reads the end. `folder` is where parts of it are kept while they are read.
    pub(in super::super) fn open(requests: &Requests, key: String, folder: PathBuf) -> io::Result<Self> {
        let tail = requests.read(&key, &format!("-{TAIL_BYTES}"));
        let tail = tail.map_err(|error| failed(&key, &error))?;
        if tail.begin + tail.bytes.len() as u64 != tail.length {
            return Err(failed(
                &key,
                &RequestError::Odd("something else than the end of the object".into()),
            ));
        }
        Ok(Self(Arc::new(Parts {
            requests: requests.clone(),
            key,
            length: tail.length,
            tail: tail.bytes,
            folder,
            kept: Mutex::new(None),
        })))
    }

    /// The same object as it is when it has just been opened. `None`: more than its end is here, from a server that knows no parts.
    pub(in super::super) fn with_end_alone(&self) -> Option<Self> {
        let parts = &self.0;
        let is_end = parts.tail.len() as u64 <= TAIL_BYTES;
        is_end.then(|| {
            Self(Arc::new(Parts {
                requests: parts.requests.clone(),
                key: parts.key.clone(),
                length: parts.length,
                tail: parts.tail.clone(),
                folder: parts.folder.clone(),
                kept: Mutex::new(None),
            }))
        })
    }

    /// How many bytes it has.
    pub(in super::super) fn length(&self) -> u64 {
        self.0.length
    }

    /// Brings a part here that is going to be read, in place of the one before.
    pub(in super::super) fn keep(&self, range: Range<u64>) -> io::Result<()> {
        if self.0.tail_from(range.start).is_some() || self.0.kept_from(range.start).is_some() {
            return Ok(());
        }
        let mut file = tempfile::tempfile_in(&self.0.folder)?;
        let mut at = range.start;
        while at < range.end {
            let bytes = self.0.asked(at..range.end.min(at + PART_BYTES_MAX))?;
            file.write_all(&bytes)?;
            at += bytes.len() as u64;
        }
        *self.0.kept.lock() = Some(Kept {
            range,
            file: Arc::new(file),
        });
        Ok(())
    }

    /// Exactly these bytes.
    pub(in super::super) fn bytes(&self, begin: u64, count: usize) -> io::Result<Bytes> {
        let end = begin.checked_add(count as u64).filter(|end| *end <= self.0.length);
        if end.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} ends before byte {begin} and {count} more", self.0.key),
            ));
        }
        if let Some(tail) = self.0.tail_from(begin) {
            return Ok(tail.slice(..count));
        }
        let mut bytes = vec![0; count];
        self.reader(begin).read_exact(&mut bytes)?;
        Ok(bytes.into())
    }

    /// Reads on from there.
    pub(in super::super) fn reader(&self, at: u64) -> ObjectReader {
        ObjectReader {
            parts: Arc::clone(&self.0),
            at,
            ahead: Bytes::new(),
        }
    }
}

impl Parts {
    /// The end from there on, if it is known.
    fn tail_from(&self, at: u64) -> Option<Bytes> {
        let begin = self.length - self.tail.len() as u64;
        let skipped = usize::try_from(at.checked_sub(begin)?).ok()?;
        (skipped <= self.tail.len()).then(|| self.tail.slice(skipped..))
    }

    fn kept_from(&self, at: u64) -> Option<Kept> {
        self.kept.lock().clone().filter(|kept| kept.range.contains(&at))
    }

    /// Asks the bucket for a part of at most [`PART_BYTES_MAX`].
    fn asked(&self, range: Range<u64>) -> io::Result<Bytes> {
        let text = format!("{}-{}", range.start, range.end.saturating_sub(1));
        let part = self.requests.read(&self.key, &text);
        let part = part.map_err(|error| failed(&self.key, &error))?;
        let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let skipped = range
            .start
            .checked_sub(part.begin)
            .and_then(|skipped| usize::try_from(skipped).ok());
        let found = skipped.and_then(|skipped| Some(skipped..skipped.checked_add(wanted)?));
        match found {
            Some(found) if part.length == self.length && found.end <= part.bytes.len() => Ok(part.bytes.slice(found)),
            _ => Err(failed(
                &self.key,
                &RequestError::Odd("a part that was not asked for".into()),
            )),
        }
    }
}

/// Reads an object on from a place.
pub(in super::super) struct ObjectReader {
    parts: Arc<Parts>,
    at: u64,
    /// What has been read from the bucket beyond there.
    ahead: Bytes,
}

impl Read for ObjectReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.parts.length || into.is_empty() {
            return Ok(0);
        }
        let count = if !self.ahead.is_empty() {
            take(&mut self.ahead, into)
        } else if let Some(mut tail) = self.parts.tail_from(self.at) {
            take(&mut tail, into)
        } else if let Some(kept) = self.parts.kept_from(self.at) {
            let most = usize::try_from(kept.range.end - self.at)
                .unwrap_or(usize::MAX)
                .min(into.len());
            kept.file
                .read_at(into.get_mut(..most).unwrap_or_default(), self.at - kept.range.start)?
        } else {
            let end = self.parts.length.min(self.at + AHEAD_BYTES);
            self.ahead = self.parts.asked(self.at..end)?;
            take(&mut self.ahead, into)
        };
        self.at += count as u64;
        Ok(count)
    }
}

/// Moves as many bytes as there are, and fit.
fn take(from: &mut Bytes, into: &mut [u8]) -> usize {
    let count = from.len().min(into.len());
    std::iter::zip(into, from.split_to(count)).for_each(|(to, byte)| *to = byte);
    count
}

/// What went wrong with an object.
pub(in super::super) fn failed(key: &str, error: &RequestError) -> io::Error {
    let kind = if error.is_gone() {
        io::ErrorKind::NotFound
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, format!("{key}: {error}"))
}
