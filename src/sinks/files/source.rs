//! The source of a log file's bytes: a file of this machine, or an object of a bucket.

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

use super::s3::{BucketObject, ObjectReader};

/// The source of a log file's bytes.
pub(super) enum FileSource {
    File(File),
    Object(BucketObject),
}

/// Reads a source from an offset onwards.
pub(super) enum SourceReader {
    File(BufReader<File>),
    Object(ObjectReader),
}

impl From<File> for FileSource {
    fn from(file: File) -> Self {
        Self::File(file)
    }
}

impl From<BucketObject> for FileSource {
    fn from(object: BucketObject) -> Self {
        Self::Object(object)
    }
}

/// Fetches parts of an object that are about to be read.
pub(super) struct PartFetcher(Option<BucketObject>);

impl PartFetcher {
    /// Fetches parts of this source; does nothing for a local file.
    pub(super) fn for_source(source: &FileSource) -> Self {
        match source {
            FileSource::File(_) => Self(None),
            FileSource::Object(object) => Self(Some(object.clone())),
        }
    }

    /// Fetches a part; it replaces the previous one.
    pub(super) fn fetch(&self, range: Range<u64>) -> Result<()> {
        let brought = self.0.as_ref().map_or(Ok(()), |object| object.prefetch(range));
        Ok(brought?)
    }
}

impl Length for FileSource {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Object(object) => object.length(),
        }
    }
}

impl ChunkReader for FileSource {
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
