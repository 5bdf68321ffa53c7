//! Errors of the journal.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Why nothing can be recorded, so nothing is admitted. The journal works again as soon as the cause has gone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum JournalUnavailable {
    /// There is no room, and no segment can be made.
    #[error("the journal has no room: {0}; free some space on its disk, nothing is served until then")]
    Full(String),
    /// A write or sync failed. The journal opens again when a new segment works.
    #[error("the journal's disk has failed, see the earlier messages; nothing is served until a new segment works")]
    Failed,
    /// The folder or the current segment was removed or replaced: no start would find what is recorded now.
    #[error(
        "{} was removed or replaced while weir runs: nothing is served until it is put back or weir is restarted",
        .0.display()
    )]
    Gone(PathBuf),
}

/// An error of a journal operation.
#[derive(Debug, Error)]
pub(crate) enum JournalError {
    /// Another process uses the folder.
    #[error("another weir process uses the journal {}: stop it, or give this one its own folder (journal.path)", .0.display())]
    InUse(PathBuf),
    /// The folder was created elsewhere.
    #[error("the journal {path} was copied or moved here. If the original is lost for good, delete {path}/place and start again. If it is still in use, delete everything in this copy: the original settles its contents", path = .0.display())]
    Copied(PathBuf),
    /// The file `node` does not contain a node's name.
    #[error("{} does not contain a node's name: restore it from a backup, or move the whole folder away to begin a new journal", .0.display())]
    InvalidNodeName(PathBuf),
    /// A segment of another journal or another version of weir.
    #[error("the journal segment {} was written by another node or another version of weir: move it out of the folder", .0.display())]
    Foreign(PathBuf),
    /// An operation of the file system failed.
    #[error("journal {}: {source}; check that it exists, has space, and that weir may write there", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The journal accepts no records now.
    #[error(transparent)]
    Unavailable(#[from] JournalUnavailable),
    /// The record is larger than a frame may be.
    #[error("a record of {bytes} bytes is too large for the journal: at most {max} are allowed")]
    TooLarge {
        /// The record's size in bytes.
        bytes: u64,
        /// The largest size in bytes.
        max: u64,
    },
    /// The record is a step, which only [`crate::journal::Journal::append_step`] may record.
    #[error("a step must be recorded with append_step, which numbers it")]
    UnnumberedStep,
    /// The disk failed before the record was synced: it may be lost with the next power cut.
    #[error("the journal's disk failed: the record may not be kept")]
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
