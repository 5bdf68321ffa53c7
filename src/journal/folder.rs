//! The folder of a journal and its files. This module creates and locks the folder, gives the node its name, and detects whether
//! the folder is a copy.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    domain::ledger::{NodeId, Record},
    journal::{
        FileIdentity, JournalError, Position, file_identity,
        frame::{FrameOutcome, FrameReader},
    },
};

/// The file that contains a position in the journal. The store has acknowledged all steps before this position. The file is
/// optional and makes a start faster.
pub(super) const ACKNOWLEDGED: &str = "acknowledged";
/// The file with the numbers of each account's last step and last acknowledged step. It is written whenever segments are removed.
pub(super) const NUMBERS: &str = "numbers";

/// The mode of the folder. Only weir's user can access it, because rows name accounts and their usage.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const LOCK: &str = "lock";
/// The file that exists while the process that uses the folder is shutting down and accepts no new requests.
const DRAINING: &str = "draining";
const NODE: &str = "node";
const PLACE: &str = "place";
const MACHINE: &str = "/etc/machine-id";
const ENDING: &str = ".wal";
const INDEX_ENDING: &str = ".idx";
const DIGITS: usize = 12;

/// A journal's folder, which this process has locked.
#[derive(Debug)]
pub(super) struct JournalFolder {
    pub(super) path: PathBuf,
    pub(super) node: NodeId,
    pub(super) identity: FileIdentity,
    /// The lock file, which is locked while the journal is open.
    lock: File,
}

impl Drop for JournalFolder {
    /// Unlocks the folder explicitly. Closing the lock file does not suffice, because a child process has the descriptor open
    /// until it executes its own program.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

impl JournalFolder {
    /// Locks the folder and reads the node's name. Creates the folder if it does not exist, and generates a random name if the
    /// folder contains none.
    pub(super) fn open(path: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError::io(path, source);
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(path)
            .map_err(failed)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path.join(LOCK))
            .map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::InUse(path.to_owned()),
            TryLockError::Error(source) => failed(source),
        })?;
        let here = fingerprint(path).map_err(failed)?;
        remove(&path.join(DRAINING)).map_err(failed)?;
        let node = match read(&path.join(NODE)).map_err(failed)? {
            None => {
                let node = NodeId::generate(&mut rand::rng());
                // The file `place` is written first, so that a crash in between does not leave a name without a place.
                replace(path, PLACE, here.as_bytes()).map_err(failed)?;
                replace(path, NODE, node.as_str().as_bytes()).map_err(failed)?;
                node
            }
            Some(text) => {
                let node = NodeId::parse(text.trim()).ok_or_else(|| JournalError::InvalidNodeName(path.join(NODE)))?;
                match read(&path.join(PLACE)).map_err(failed)? {
                    Some(before) if before.trim() == here.trim() => {}
                    Some(_) => return Err(JournalError::Copied(path.to_owned())),
                    None => replace(path, PLACE, here.as_bytes()).map_err(failed)?,
                }
                node
            }
        };
        Ok(Self {
            path: path.to_owned(),
            node,
            identity: file_identity(&fs::metadata(path).map_err(failed)?),
            lock,
        })
    }

    /// Records in the folder that this process accepts no new requests.
    pub(super) fn mark_draining(&self) -> io::Result<()> {
        replace(&self.path, DRAINING, b"")
    }

    pub(super) fn segment(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:0DIGITS$}{ENDING}"))
    }

    /// Returns the path of a segment's index.
    pub(super) fn index(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:0DIGITS$}{INDEX_ENDING}"))
    }

    /// Writes the index of a segment. The index is not synced: if a power cut damages it, weir writes it again.
    pub(super) fn write_index(&self, number: u64, content: &[u8]) -> io::Result<()> {
        let path = self.index(number);
        let new = path.with_extension("idx.new");
        write(&new, content)?;
        fs::rename(&new, path)
    }

    /// Removes a segment and its index. The index is removed first, because it is useless without its segment.
    pub(super) fn remove(&self, number: u64) -> io::Result<()> {
        self.remove_index(number)?;
        remove(&self.segment(number))
    }

    /// Removes the index of a segment, if it exists.
    pub(super) fn remove_index(&self, number: u64) -> io::Result<()> {
        remove(&self.index(number))
    }

    /// Returns the numbers of all segments, in ascending order.
    pub(super) fn segments(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(ENDING));
            numbers.extend(number.and_then(|digits| digits.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Creates the file of a segment.
    pub(super) fn create(&self, number: u64) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.segment(number))
    }

    /// Syncs the folder, so that the names of its files are on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Replaces a small file atomically and durably.
    pub(super) fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        replace(&self.path, name, content)
    }

    /// Reads a small file; `None` if it does not exist.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<String>> {
        read(&self.path.join(name))
    }

    /// Saves damaged bytes as `quarantine/NNN.wal@OFFSET`, and returns the path. If that file exists with other content, a number
    /// is appended to its name.
    pub(super) fn quarantine(&self, number: u64, offset: u64, content: &[u8]) -> io::Result<PathBuf> {
        let folder = self.path.join("quarantine");
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&folder)?;
        let first = format!("{number:0DIGITS$}{ENDING}@{offset}");
        let mut name = first.clone();
        for further in 2_u64.. {
            match fs::read(folder.join(&name)) {
                Ok(kept) if kept == content => return Ok(folder.join(name)),
                Ok(_) => name = format!("{first}-{further}"),
                Err(_) => break,
            }
        }
        replace(&folder, &name, content)?;
        Ok(folder.join(name))
    }
}

/// Whether the folder contains a journal.
pub(super) fn is_journal(path: &Path) -> bool {
    path.join(NODE).exists()
}

/// Whether the process that uses this folder is shutting down.
pub(super) fn is_draining(path: &Path) -> bool {
    path.join(DRAINING).exists()
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    write(&new, content)?.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// Removes a file, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(path)?;
    file.write_all(content)?;
    Ok(file)
}

impl JournalFolder {
    /// Returns the folder's path if the folder was removed or replaced; `None` if it is still in place.
    pub(super) fn missing_path(&self) -> Option<PathBuf> {
        let here = fs::metadata(&self.path).is_ok_and(|meta| file_identity(&meta) == self.identity);
        (!here).then(|| self.path.clone())
    }

    /// Returns the path of the folder or of the open segment `number`, whichever was removed or replaced; `None` if both are in
    /// place.
    pub(super) fn missing_path_with(&self, number: u64, file: &File) -> Option<PathBuf> {
        let path = self.segment(number);
        self.missing_path().or_else(|| {
            let there = fs::metadata(&path).map(|meta| file_identity(&meta));
            let open = file.metadata().map(|meta| file_identity(&meta));
            let same = matches!((there, open), (Ok(there), Ok(open)) if there == open);
            (!same).then_some(path)
        })
    }
}

/// Returns a fingerprint of the folder. A copy of the folder has another fingerprint. The fingerprint does not include the device
/// number, which may change at a reboot.
fn fingerprint(path: &Path) -> io::Result<String> {
    let inode = fs::metadata(path)?.ino();
    let machine = fs::read_to_string(MACHINE).unwrap_or_default();
    Ok(format!("inode {inode} machine {}", machine.trim()))
}

/// Reads single records. The segment that was read last stays open.
#[derive(Default)]
pub(super) struct SegmentFiles {
    last: Option<(u64, Arc<File>)>,
}

impl SegmentFiles {
    /// Reads the record at a position; `None` if it is damaged or missing.
    pub(super) fn read_record(
        &mut self,
        folder: &JournalFolder,
        position: Position,
    ) -> Result<Option<Record>, JournalError> {
        let path = folder.segment(position.segment);
        let failed = |source| JournalError::io(&path, source);
        let file = match self.open(folder, position.segment) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let end = file.metadata().map_err(failed)?.len();
        if position.offset >= end {
            return Ok(None);
        }
        let mut frames = FrameReader::single(file, position.segment, position.offset, end);
        Ok(match frames.next_frame().map_err(failed)? {
            FrameOutcome::Frame { payload, .. } => Record::read(payload),
            FrameOutcome::End | FrameOutcome::Bad { .. } => None,
        })
    }

    fn open(&mut self, folder: &JournalFolder, number: u64) -> io::Result<Arc<File>> {
        if let Some((last, file)) = &self.last
            && *last == number
        {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(folder.segment(number))?);
        self.last = Some((number, Arc::clone(&file)));
        Ok(file)
    }
}

/// Returns the content of a small file: a line with the checksum of `body`, and then `body`.
pub(super) fn with_checksum(body: &str) -> String {
    format!("{:08x}\n{body}", crc32fast::hash(body.as_bytes()))
}

/// Returns the body of a small file; `None` if it does not match its checksum.
pub(super) fn without_checksum(text: &str) -> Option<&str> {
    let (sum, body) = text.split_once('\n')?;
    (sum == format!("{:08x}", crc32fast::hash(body.as_bytes()))).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_free_although_a_child_still_has_the_descriptor() {
        let place = crate::journal::tests::scratch();
        let folder = JournalFolder::open(place.path()).unwrap();
        let child = folder.lock.try_clone().unwrap();
        assert!(matches!(JournalFolder::open(place.path()), Err(JournalError::InUse(_))));
        drop(folder);
        JournalFolder::open(place.path()).unwrap();
        drop(child);
    }
}
