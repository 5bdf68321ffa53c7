//! The name of a file until it is complete, so that nobody mistakes a part for the whole.

use std::path::{Path, PathBuf};

/// `path` with `.partial` appended, the name of a file until it is complete: in the same folder, so that renaming it replaces the
/// file atomically.
pub(crate) fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}
