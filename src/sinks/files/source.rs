//! What a file of the log is read from: a file of this machine, or an object of a bucket.

use std::{
    fs::File,
    io::{BufReader, Read},
    ops::Range,
};

use bytes::Bytes;
use parquet::{
    errors::Result,
    file::reader::{ChunkReader, Length},
};

use super::s3::{Object, ObjectReader};

/// Where the bytes of a file are.
pub(super) enum Source {
    File(File),
    Object(Object),
}

/// Reads on from a place in them.
pub(super) enum SourceReader {
    File(BufReader<File>),
    Object(ObjectReader),
}

impl From<File> for Source {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl From<Object> for Source {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

/// Brings parts of a file near that are going to be read.
pub(super) struct Near(Option<Object>);

impl Near {
    /// For the parts of this source.
    pub(super) fn to(source: &Source) -> Self {
        match source {
            Source::File(_) => Self(None),
            Source::Object(object) => Self(Some(object.clone())),
        }
    }

    /// Brings a part near, in place of the one before.
    pub(super) fn bring(&self, range: Range<u64>) -> Result<()> {
        let brought = self.0.as_ref().map_or(Ok(()), |object| object.keep(range));
        Ok(brought?)
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Object(object) => object.length(),
        }
    }
}

impl ChunkReader for Source {
    type T = SourceReader;

    fn get_read(&self, start: u64) -> Result<SourceReader> {
        match self {
            Self::File(file) => file.get_read(start).map(SourceReader::File),
            Self::Object(object) => Ok(SourceReader::Object(object.reader(start))),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        match self {
            Self::File(file) => file.get_bytes(start, length),
            Self::Object(object) => Ok(object.bytes(start, length)?),
        }
    }
}

impl Read for SourceReader {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::File(file) => file.read(into),
            Self::Object(object) => object.read(into),
        }
    }
}
