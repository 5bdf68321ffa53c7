//! The audit record: who changed what. Each change is one JSON line, which is on disk before the change is made.

mod page;

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Mutex, oneshot},
    task::spawn_blocking,
    time::timeout,
};

use crate::api::node::{AuditPage, AuditedChange};

/// The owner may write, the group may read.
const FILE_MODE: u32 = 0o640;
/// The mode of a folder that is created for the record.
const FOLDER_MODE: u32 = 0o750;

/// How long a change waits until its line is on disk, including the lines before it. After that the change is not made.
const WRITE_WAIT: Duration = Duration::from_secs(5);

/// Why the record cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("audit record {path}: {source}; check that its folder exists and has space, and that weir may write there", path = path.display())]
pub(crate) struct AuditError {
    path: PathBuf,
    source: io::Error,
}

/// The open record; clones share the file.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    /// Held while a line is written, so a hanging disk blocks at most one thread.
    file: Arc<Mutex<File>>,
    wait: Duration,
}

impl Audit {
    /// Opens the file for appending. Creates its folder if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, AuditError> {
        let failed = |source| AuditError {
            path: path.to_owned(),
            source,
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(folder)
                .map_err(failed)?;
        }
        // A FIFO stores nothing, and opening it may block forever.
        if path.metadata().is_ok_and(|there| there.file_type().is_fifo()) {
            return Err(failed(io::Error::other("it is a FIFO: configure a file")));
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(FILE_MODE)
            .open(path)
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(Mutex::new(file)),
            wait: WRITE_WAIT,
        })
    }

    /// A page of changes, the latest first: those before the position `before`, which is the previous page's `next`, or the last
    /// ones.
    pub(crate) async fn read_page(&self, before: Option<u64>) -> Result<AuditPage, AuditError> {
        let path = self.path.clone();
        let reading = spawn_blocking(move || page::read_backwards(&path, before)).await;
        let read = reading.unwrap_or_else(|_| Err(io::Error::other("the reader failed")));
        read.map_err(|source| AuditError {
            path: self.path.clone(),
            source,
        })
    }

    /// Writes one line and waits until it is on disk, at most [`WRITE_WAIT`]. A change whose line cannot be written must not be
    /// made.
    pub(crate) async fn record(&self, change: AuditedChange) -> Result<(), AuditError> {
        let failed = |source| AuditError {
            path: self.path.clone(),
            source,
        };
        let mut line = serde_json::to_vec(&change).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        let writing = async {
            let file = Arc::clone(&self.file).lock_owned().await;
            let (tell, told) = oneshot::channel();
            drop(spawn_blocking(move || append_line(&file, &line, tell)));
            told.await
                .unwrap_or_else(|_| Err(io::Error::other("the writer failed")))
        };
        let late = || Err(io::Error::new(ErrorKind::TimedOut, "the disk is too slow"));
        timeout(self.wait, writing)
            .await
            .unwrap_or_else(|_| late())
            .map_err(failed)
    }
}

/// Appends a line, and removes it if the change will not be made: half a line would corrupt the next one, and a complete line
/// that nobody waits for any more would record a change that was not made.
fn append_line(file: &File, line: &[u8], tell: oneshot::Sender<io::Result<()>>) {
    let length = file.metadata().map(|metadata| metadata.len());
    let written = length.and_then(|length| {
        let mut writer = file;
        let written = writer.write_all(line).and_then(|()| file.sync_data());
        written.inspect_err(|_| {
            let _ = file.set_len(length);
        })?;
        Ok(length)
    });
    match written {
        Ok(length) => {
            if tell.send(Ok(())).is_err() {
                take_back(file, line, length);
            }
        }
        Err(error) => {
            let _heard = tell.send(Err(error));
        }
    }
}

/// Removes a line that was written at `length`, unless another process has appended since: this process's successor or
/// predecessor.
fn take_back(file: &File, line: &[u8], length: u64) {
    let is_last = file.metadata().is_ok_and(|now| now.len() == length + line.len() as u64);
    if is_last {
        let _ = file.set_len(length).and_then(|()| file.sync_data());
    }
}

#[cfg(test)]
mod tests;
