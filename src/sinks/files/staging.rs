//! The staging folder of this machine, with its lock files, and the names of the log's files.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use tempfile::NamedTempFile;

use crate::domain::ledger::NodeId;

/// The prefix of the names of files that are being written.
const PARTIAL: &str = ".partial-";
/// A partial file that has not been written to for a day is abandoned: its writer has died.
const PARTIAL_OLD_MS: i64 = 24 * 3600 * 1000;

/// The folder in which files are written before they are put into the storage. It also has the lock files.
#[derive(Debug)]
pub(super) struct StagingFolder(PathBuf);

impl StagingFolder {
    /// Creates the folder if it does not exist, and checks that it can be written to.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        make_folder(folder)?;
        let workplace = Self(folder.to_owned());
        workplace.new_partial_file()?;
        Ok(workplace)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// A new partial file, which is removed when it is dropped.
    pub(super) fn new_partial_file(&self) -> io::Result<NamedTempFile> {
        new_partial_file_in(&self.0)
    }

    /// Locks a lane: no other writer on this machine writes its rows until the returned file is dropped.
    pub(super) fn lock_lane(&self, node: &NodeId) -> io::Result<File> {
        let file = self.lock_file(node.as_str())?;
        file.lock()?;
        Ok(file)
    }

    /// Locks the housekeeping of the files; `None` if another process of this machine does it.
    pub(super) fn try_lock_housekeeping(&self) -> io::Result<Option<File>> {
        let file = self.lock_file("upkeep")?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    fn lock_file(&self, what: &str) -> io::Result<File> {
        File::create(self.0.join(format!(".lock-{what}")))
    }

    /// Removes partial files left by a crash.
    pub(super) fn remove_partial(&self, now_ms: i64) -> io::Result<()> {
        for name in file_names(&self.0)? {
            let path = self.0.join(&name);
            if name.starts_with(PARTIAL) && is_old(&path, now_ms) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// A new partial file in a folder, which is removed when it is dropped.
pub(super) fn new_partial_file_in(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(PARTIAL).tempfile_in(folder)
}

/// Whether a partial file is abandoned.
fn is_old(path: &Path, now_ms: i64) -> bool {
    let modified = fs::metadata(path).map_or(now_ms, |meta| meta.mtime().saturating_mul(1000));
    now_ms.saturating_sub(modified) > PARTIAL_OLD_MS
}

/// Creates a folder that is private to weir's user: rows name accounts and their usage.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The names in a folder; none if it does not exist.
pub(super) fn file_names(folder: &Path) -> io::Result<Vec<String>> {
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

const ENDING: &str = ".parquet";

/// A file's name, `DAY/NODE-AFTER-UPTO.parquet`: it has the rows of a lane from `after` to below `upto`, and the first row's day.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileName {
    pub(super) day: Date,
    pub(super) node: NodeId,
    pub(super) after: u64,
    pub(super) upto: u64,
}

impl FileName {
    /// The name as text, relative to the storage.
    pub(super) fn name(&self) -> String {
        let Self { day, node, after, upto } = self;
        format!("{day}/{node}-{after:016x}-{upto:016x}{ENDING}")
    }

    /// Parses a name; `None` if it is not that of a log file.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (day, name) = name.split_once('/')?;
        let day = parse_day(day)?;
        let mut parts = name.strip_suffix(ENDING)?.split('-');
        let (node, after, upto) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
        let (node, after, upto) = (NodeId::parse(node)?, number(after)?, number(upto)?);
        let place = Self { day, node, after, upto };
        (parts.next().is_none() && after < upto && place.name().ends_with(name)).then_some(place)
    }

    /// Whether this file has all rows of another file of its day, and more.
    fn is_superset_of(&self, other: &Self) -> bool {
        (self.day, &self.node) == (other.day, &other.node)
            && self.after <= other.after
            && other.upto <= self.upto
            && (self.after, self.upto) != (other.after, other.upto)
    }
}

/// The UTC day of a time.
pub(super) fn day_of(unix_ms: i64) -> Date {
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    time.to_zoned(TimeZone::UTC).date()
}

/// Parses the name of a day's folder.
pub(super) fn parse_day(name: &str) -> Option<Date> {
    name.parse().ok().filter(|day: &Date| day.to_string() == name)
}

/// The files without those that were merged into another one. `all` must be sorted.
pub(super) fn without_merged(all: &[FileName]) -> Vec<FileName> {
    let mut counting: Vec<FileName> = Vec::new();
    for place in all {
        // In the result, both ends of a lane and day ascend, so a file that covers another is next to it.
        counting.pop_if(|last| place.is_superset_of(last));
        if !counting.last().is_some_and(|last| last.is_superset_of(place)) {
            counting.push(place.clone());
        }
    }
    counting
}
