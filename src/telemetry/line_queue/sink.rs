//! The sink of lines: a stream, or the file at a path, which log rotation may rename at any time.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The owner writes, the group reads.
const FILE_MODE: u32 = 0o640;

/// The stream or file that lines are written to.
pub(in crate::telemetry) enum LineSink {
    Stream(Box<dyn Write + Send>),
    File(ReopenableFile),
}

/// The file at a path; opened again after the file was renamed.
#[derive(Debug)]
pub(in crate::telemetry) struct ReopenableFile {
    file: File,
    path: PathBuf,
    /// Whether the file was renamed and no new one can be opened at the path.
    misplaced: bool,
}

impl ReopenableFile {
    /// Opens the file for appending, and creates it 0640 if it is missing. Never waits: a FIFO may have no reader yet.
    pub(in crate::telemetry) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: open(path)?,
            path: path.to_owned(),
            misplaced: false,
        })
    }

    /// Whether `file` is still the file at the path.
    fn is_in_place(&self) -> bool {
        let place = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        match (self.file.metadata(), self.path.metadata()) {
            (Ok(own), Ok(there)) => place(&own) == place(&there),
            // Without an answer the file is kept, unless nothing is at the path.
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
            // Logged once; each check tries again.
            Err(_) if self.misplaced => {}
            Err(error) => {
                self.misplaced = true;
                let path = self.path.display();
                tracing::error!(%path, %error, "a log file cannot be opened again; lines still go to the old file");
            }
        }
    }
}

/// Opens the file for appending. A FIFO is opened for reading as well, since opening it only for writing would wait for a reader.
fn open(path: &Path) -> io::Result<File> {
    let is_fifo = path.metadata().is_ok_and(|there| there.file_type().is_fifo());
    OpenOptions::new()
        .create(true)
        .append(true)
        .read(is_fifo)
        .mode(FILE_MODE)
        .open(path)
}

impl LineSink {
    /// Whether the path now leads to another file, or to none.
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

impl Write for LineSink {
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
