//! The folder of this machine in which files are made, and where who is at work is said.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::domain::ledger::NodeId;

/// The name of a file that is being written begins so.
const PARTIAL: &str = ".partial-";
/// One that has not been written to for so long is none any more: its writer has died.
const PARTIAL_OLD_MS: i64 = 24 * 3600 * 1000;

/// A folder that is weir's alone.
#[derive(Debug)]
pub(super) struct Workplace(PathBuf);

impl Workplace {
    /// Makes the folder if it is not there, and finds out whether it can be written to.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        make_folder(folder)?;
        let workplace = Self(folder.to_owned());
        workplace.partial()?;
        Ok(workplace)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// A file that is going to be written; gone if nobody keeps it.
    pub(super) fn partial(&self) -> io::Result<NamedTempFile> {
        partial_in(&self.0)
    }

    /// Nobody else of this machine writes rows of the lane until the answer is dropped.
    pub(super) fn lock(&self, node: &NodeId) -> io::Result<File> {
        let file = self.lock_file(node.as_str())?;
        file.lock()?;
        Ok(file)
    }

    /// The turn of whoever looks after the files; `None`: another process of this machine is at it.
    pub(super) fn turn(&self) -> io::Result<Option<File>> {
        let file = self.lock_file("upkeep")?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    fn lock_file(&self, what: &str) -> io::Result<File> {
        File::create(self.0.join(format!(".lock-{what}")))
    }

    /// Removes what a crash has left of files that were being written.
    pub(super) fn remove_partial(&self, now_ms: i64) -> io::Result<()> {
        for name in names(&self.0)? {
            let path = self.0.join(&name);
            if name.starts_with(PARTIAL) && is_old(&path, now_ms) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// A file that is going to be written, in a folder; gone if nobody keeps it.
pub(super) fn partial_in(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(PARTIAL).tempfile_in(folder)
}

/// Whether a file was last changed long ago.
fn is_old(path: &Path, now_ms: i64) -> bool {
    let modified = fs::metadata(path).map_or(now_ms, |meta| meta.mtime().saturating_mul(1000));
    now_ms.saturating_sub(modified) > PARTIAL_OLD_MS
}

/// Rows name accounts and what they use: nobody else's business.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The names in a folder; none where there is no folder.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}
