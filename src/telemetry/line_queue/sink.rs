//! What lines are written to: a stream, or the file at a path, which may be renamed at any time, as log rotation does.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The owner writes, the group reads.
const FILE_MODE: u32 = 0o640;

/// What lines are written to.
pub(in crate::telemetry) enum Sink {
    Stream(Box<dyn Write + Send>),
    File(LogFile),
}

/// A file that is followed by its path.
#[derive(Debug)]
pub(in crate::telemetry) struct LogFile {
    file: File,
    path: PathBuf,
    /// It was renamed, and no other can be opened in its place.
    misplaced: bool,
}

impl LogFile {
    /// Opens the file for appending, and creates it 0640 if it is missing. Never waits: a FIFO may have no reader yet.
    pub(in crate::telemetry) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: open(path)?,
            path: path.to_owned(),
            misplaced: false,
        })
    }

    /// Whether `file` is what lies at the path.
    fn is_in_place(&self) -> bool {
        let place = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        match (self.file.metadata(), self.path.metadata()) {
            (Ok(own), Ok(there)) => place(&own) == place(&there),
            // Whoever cannot be asked is left alone, but a path that leads nowhere.
            (_, Err(error)) => error.kind() != ErrorKind::NotFound,
            (Err(_), Ok(_)) => true,
        }
    }

    fn reopen(&mut self) {
        match open(&self.path) {
            Ok(fresh) => {
                self.file = fresh;
                self.misplaced = false;
            }
            // Said once; it is tried again with each look.
            Err(_) if self.misplaced => {}
            Err(error) => {
                self.misplaced = true;
                let path = self.path.display();
                tracing::error!(%path, %error, "a log is not reopened, it is written on to the old file");
            }
        }
    }
}

/// To open a FIFO for writing alone waits for a reader.
fn open(path: &Path) -> io::Result<File> {
    let is_fifo = path.metadata().is_ok_and(|there| there.file_type().is_fifo());
    OpenOptions::new()
        .create(true)
        .append(true)
        .read(is_fifo)
        .mode(FILE_MODE)
        .open(path)
}

impl Sink {
    /// Whether the path leads to another file now, or to none.
    pub(super) fn was_renamed(&self) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::File(file) => !file.is_in_place(),
        }
    }

    /// Opens the file at the path again.
    pub(super) fn reopen(&mut self) {
        if let Self::File(file) = self {
            file.reopen();
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.write(bytes),
            Self::File(file) => file.file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::File(file) => file.file.flush(),
        }
    }
}
