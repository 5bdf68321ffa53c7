//! The receiver's watermarks: a file for each lane of the journal, replaced atomically.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use crate::{domain::ledger::NodeId, sinks::sink::SinkError};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The receiver's watermarks, in a folder with a file for each lane. A file is replaced atomically.
#[derive(Clone, Debug)]
pub(super) struct EventWatermarks {
    folder: PathBuf,
}

impl EventWatermarks {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Reads the watermark of a lane; 0 if there is none or its file is damaged: then the receiver gets all rows in the journal
    /// again.
    pub(super) async fn read(&self, node: &NodeId) -> Result<u64, SinkError> {
        let path = self.folder.join(node.as_str());
        self.blocking(move || match fs::read_to_string(&path) {
            Ok(text) => Ok(number(&text).unwrap_or_else(|| {
                tracing::error!(path = %path.display(), "the file contains no valid number: all events in the journal are posted again");
                0
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) if error.kind() == ErrorKind::InvalidData => Ok(0),
            Err(error) => Err(error),
        })
        .await
    }

    /// Writes the watermark of a lane; returns once it is on disk.
    pub(super) async fn write(&self, node: &NodeId, upto: u64) -> Result<(), SinkError> {
        let (folder, name) = (self.folder.clone(), node.as_str().to_owned());
        self.blocking(move || replace(&folder, &name, upto)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|error| SinkError::Unavailable(format!("{}: {error}", self.folder.display())))
    }
}

/// The number in a file; `None` if its line is incomplete.
fn number(text: &str) -> Option<u64> {
    text.strip_suffix('\n')?.parse().ok()
}

fn replace(folder: &Path, name: &str, upto: u64) -> io::Result<()> {
    // One at a time: an abandoned write still runs to its end, and would rename the file of the next one.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock();
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    let partial = folder.join(format!("{name}.partial"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(&partial)?;
    file.write_all(format!("{upto}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, folder.join(name))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::contract::samples::node;

    #[tokio::test]
    async fn what_was_written_last_is_read_and_damage_means_from_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let progress = EventWatermarks::new(folder.path().join("events"));
        assert_eq!(progress.read(&node(1)).await, Ok(0));
        for upto in [1, u64::MAX, 7] {
            progress.write(&node(1), upto).await.unwrap();
            assert_eq!(progress.read(&node(1)).await, Ok(upto));
        }
        assert_eq!(progress.read(&node(2)).await, Ok(0));
        let file = folder.path().join("events").join(node(1).as_str());
        for damaged in [&b""[..], b"7", b"seven\n", b"\xff\n"] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(progress.read(&node(1)).await, Ok(0), "{damaged:?}");
        }
    }

    #[tokio::test]
    async fn writes_that_nobody_waits_for_do_not_disturb_the_next() {
        let folder = tempfile::tempdir().unwrap();
        for upto in 0..200 {
            let write = || EventWatermarks::new(folder.path().to_owned());
            let (first, second) = (write(), write());
            let left = tokio::spawn(async move { first.write(&node(1), upto).await });
            tokio::task::yield_now().await;
            left.abort();
            assert_eq!(second.write(&node(1), upto).await, Ok(()));
        }
        assert_eq!(
            EventWatermarks::new(folder.path().to_owned()).read(&node(1)).await,
            Ok(199)
        );
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = EventWatermarks::new(file).write(&node(1), 1).await.unwrap_err();
        assert!(refused.to_string().contains("file"), "{refused}");
    }
}
