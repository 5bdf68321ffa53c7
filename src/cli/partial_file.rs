//! The name under which a file is written until it is whole, so that nobody takes a part for all.

use std::path::{Path, PathBuf};

/// `path` with `.partial` behind it: in the same folder, so that renaming it replaces the file in one step.
pub(crate) fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}
