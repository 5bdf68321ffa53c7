//! The journal's folder: creates, locks and names it, and recognises it again.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{
    domain::ledger::NodeId,
    journal::{
        error::JournalError,
        identity::{Identity, identity},
    },
};

/// The file with the position up to which the store has acknowledged everything. It only speeds up the start.
pub(super) const ACKNOWLEDGED: &str = "acknowledged";
/// The file with each account's last number and last acknowledged number, as of the last removal of segments.
pub(super) const NUMBERS: &str = "numbers";

/// Rows name accounts and what they use: nobody else's business.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const LOCK: &str = "lock";
/// Lies in the folder of a process that ends, and takes no new requests.
const DRAINING: &str = "draining";
const NODE: &str = "node";
const PLACE: &str = "place";
const MACHINE: &str = "/etc/machine-id";
const ENDING: &str = ".wal";
const INDEX_ENDING: &str = ".idx";
const DIGITS: usize = 12;

/// A folder that this process owns.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) node: NodeId,
    pub(super) identity: Identity,
    /// Held as long as the journal is open.
    lock: File,
}

impl Drop for Folder {
    /// Closing the file would not do: a child that is being started has its descriptors until it runs its own program.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

impl Folder {
    /// Makes the folder if it is missing, locks it and reads its name, which is drawn at the first use.
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
        let here = place(path).map_err(failed)?;
        remove(&path.join(DRAINING)).map_err(failed)?;
        let node = match read(&path.join(NODE)).map_err(failed)? {
            None => {
                let node = NodeId::generate(&mut rand::rng());
                // The place first: a name without a place would be a copy's.
                replace(path, PLACE, here.as_bytes()).map_err(failed)?;
                replace(path, NODE, node.as_str().as_bytes()).map_err(failed)?;
                node
            }
            Some(text) => {
                let node = NodeId::parse(text.trim()).ok_or_else(|| JournalError::Name(path.join(NODE)))?;
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
            identity: identity(&fs::metadata(path).map_err(failed)?),
            lock,
        })
    }

    /// Notes that this process takes no new requests.
    pub(super) fn note_draining(&self) -> io::Result<()> {
        replace(&self.path, DRAINING, b"")
    }

    pub(super) fn segment(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:0DIGITS$}{ENDING}"))
    }

    /// The path of a segment's index.
    pub(super) fn index(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:0DIGITS$}{INDEX_ENDING}"))
    }

    /// Puts an index into its place. Not synced: one that a power cut damages is made again.
    pub(super) fn place_index(&self, number: u64, content: &[u8]) -> io::Result<()> {
        let path = self.index(number);
        let new = path.with_extension("idx.new");
        write(&new, content)?;
        fs::rename(&new, path)
    }

    /// Removes a segment and its index; the index first, for without the other it would say nothing.
    pub(super) fn remove(&self, number: u64) -> io::Result<()> {
        self.remove_index(number)?;
        remove(&self.segment(number))
    }

    /// Removes the index of a segment, if there is one.
    pub(super) fn remove_index(&self, number: u64) -> io::Result<()> {
        remove(&self.index(number))
    }

    /// The numbers of the segments there are, ascending.
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

    /// A new file for a segment.
    pub(super) fn create(&self, number: u64) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.segment(number))
    }

    /// Makes the names in the folder durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Writes a small file as a whole.
    pub(super) fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        replace(&self.path, name, content)
    }

    /// Reads a small file; `None` if there is none, or it is no text.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<String>> {
        read(&self.path.join(name))
    }

    /// Keeps bytes that cannot be read: `quarantine/NNN.wal@OFFSET`, with a number behind it where other bytes of this place
    /// are kept already.
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

/// Whether there is a journal.
pub(super) fn is_journal(path: &Path) -> bool {
    path.join(NODE).exists()
}

/// Whether the process that has this folder has said that it ends.
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

/// Removes a file, if it is there.
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

impl Folder {
    /// The folder's path, if it does not lead to the folder any more.
    pub(super) fn gone(&self) -> Option<PathBuf> {
        let here = fs::metadata(&self.path).is_ok_and(|meta| identity(&meta) == self.identity);
        (!here).then(|| self.path.clone())
    }

    /// The same for the folder and a segment of it that is open.
    pub(super) fn gone_with(&self, number: u64, file: &File) -> Option<PathBuf> {
        let path = self.segment(number);
        self.gone().or_else(|| {
            let there = fs::metadata(&path).map(|meta| identity(&meta));
            let open = file.metadata().map(|meta| identity(&meta));
            let same = matches!((there, open), (Ok(there), Ok(open)) if there == open);
            (!same).then_some(path)
        })
    }
}

/// What a copy of the folder does not share. The device's number is left out: it may change when a machine starts anew.
fn place(path: &Path) -> io::Result<String> {
    let inode = fs::metadata(path)?.ino();
    let machine = fs::read_to_string(MACHINE).unwrap_or_default();
    Ok(format!("inode {inode} machine {}", machine.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_free_although_a_child_still_has_the_descriptor() {
        let place = crate::journal::tests::scratch();
        let folder = Folder::open(place.path()).unwrap();
        let child = folder.lock.try_clone().unwrap();
        assert!(matches!(Folder::open(place.path()), Err(JournalError::InUse(_))));
        drop(folder);
        Folder::open(place.path()).unwrap();
        drop(child);
    }
}
