//! Identifies the file that a path leads to.

use std::{fs, os::unix::fs::MetadataExt};

/// The device and inode of a file. Unique while the file is open.
pub(super) type FileIdentity = (u64, u64);

pub(super) fn file_identity(meta: &fs::Metadata) -> FileIdentity {
    (meta.dev(), meta.ino())
}
