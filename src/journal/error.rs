//! Errors of the journal.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Why nothing can be recorded, so that nothing is admitted. Each ends by itself when its cause does.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum JournalShut {
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

/// Why the journal did not do as asked.
#[derive(Debug, Error)]
pub(crate) enum JournalError {
    /// Another process uses the folder.
    #[error("another weir process has the journal {} open, stop it first or give this one a folder of its own (journal.path)", .0.display())]
    InUse(PathBuf),
    /// The folder is not where it was made.
    #[error("the journal {path} was copied or moved here. If the original is lost for good, delete {path}/place and start again. If it is still in use, delete everything in this copy: the original settles what is in it", path = .0.display())]
    Copied(PathBuf),
    /// The file with the node's name holds something else.
    #[error("{} does not hold a node's name: restore it from a backup, or move the whole folder away to begin a new journal", .0.display())]
    Name(PathBuf),
    /// A segment of another journal.
    #[error("the journal segment {} was written by another node or another version of weir, move it out of the folder", .0.display())]
    Foreign(PathBuf),
    /// An operation of the file system failed.
    #[error("journal {}: {source}; check that it exists, has space, and that weir may write there", path.display())]
    Io {
        /// The folder or file that it concerned.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The journal accepts no records now.
    #[error(transparent)]
    Shut(#[from] JournalShut),
    /// The record is larger than a frame may be.
    #[error("a record of {bytes} bytes is too large for the journal, {max} are allowed")]
    TooLarge {
        /// The record's size in bytes.
        bytes: u64,
        /// The largest size in bytes.
        max: u64,
    },
    /// The record is a step; only [`crate::journal::Journal::append_step`] numbers them.
    #[error("a step is recorded with append_step, which numbers it")]
    Numbered,
    /// The record may be lost with the next power cut: the disk failed while it was to be written.
    #[error("the journal's disk failed, the record may not be kept")]
    NotDurable,
}

impl JournalError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}
