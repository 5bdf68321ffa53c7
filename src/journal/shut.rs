//! Why the journal accepts no records, and when it does again.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use super::{Journal, REQUEST_BYTES, Shared, folder::Folder};

/// Why nothing can be recorded, so that nothing is admitted. Each ends by itself when its cause does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalShut {
    /// There is no room and none can be made.
    #[error("the journal has no room: {0}; free some space on its disk, nothing is served until then")]
    Full(String),
    /// A write or sync failed. The journal opens again when a new segment works.
    #[error("the journal's disk has failed, see the messages before; nothing is served until a new segment works")]
    Failed,
    /// The folder, or the segment that is written, is not where it was: what would be recorded now would be found by no start.
    #[error(
        "{} was removed or replaced while weir runs: nothing is served until it is put back or weir is started anew",
        .0.display()
    )]
    Gone(PathBuf),
}

/// What a path leads to, for as long as it is open.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(meta: &fs::Metadata) -> Identity {
    (meta.dev(), meta.ino())
}

impl Folder {
    /// The folder's path, if it does not lead to the folder any more.
    pub(super) fn gone(&self) -> Option<PathBuf> {
        let here = fs::metadata(&self.path).is_ok_and(|meta| identity(&meta) == self.identity);
        (!here).then(|| self.path.clone())
    }

    /// The same for the folder and a segment of it that is open.
    fn gone_with(&self, number: u64, file: &File) -> Option<PathBuf> {
        let path = self.segment(number);
        self.gone().or_else(|| {
            let there = fs::metadata(&path).map(|meta| identity(&meta));
            let open = file.metadata().map(|meta| identity(&meta));
            let same = matches!((there, open), (Ok(there), Ok(open)) if there == open);
            (!same).then_some(path)
        })
    }
}

impl Shared {
    /// Looks whether folder and segment are where they were; says whether they are.
    pub(super) fn look(&self) -> bool {
        let (number, file) = {
            let current = &self.lock().tail.current;
            (current.number, Arc::clone(&current.file))
        };
        let gone = self.folder.gone_with(number, &file);
        let mut state = self.lock();
        if gone != state.tail.gone {
            match &gone {
                Some(path) => {
                    let shut = JournalShut::Gone(path.clone());
                    tracing::error!(folder = %self.folder.path.display(), "{shut}");
                }
                None => {
                    tracing::warn!(folder = %self.folder.path.display(), "the journal is where it was again");
                }
            }
            state.tail.gone.clone_from(&gone);
        }
        gone.is_none()
    }

    /// Nothing that is not found counts as lost while the whole folder is away.
    pub(super) fn is_there(&self) -> io::Result<()> {
        match self.folder.gone() {
            Some(path) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                JournalShut::Gone(path).to_string(),
            )),
            None => Ok(()),
        }
    }
}

impl Journal {
    /// Why nothing is admitted now; `None`: a request can be recorded.
    pub fn shut(&self) -> Option<JournalShut> {
        self.shared.lock().tail.shut(REQUEST_BYTES)
    }

    /// How many damaged parts were found since the start, and kept aside.
    pub fn damaged_parts(&self) -> u64 {
        self.shared.damaged.load(Ordering::Relaxed)
    }

    /// How many accounts have steps here, or had some that are not kept any more.
    pub fn accounts_known(&self) -> usize {
        self.shared.lock().contents.accounts.numbers().len()
    }
}
