//! Whether a path still leads to the same file.

use std::{fs, os::unix::fs::MetadataExt};

/// What a path leads to, for as long as it is open.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(meta: &fs::Metadata) -> Identity {
    (meta.dev(), meta.ino())
}
