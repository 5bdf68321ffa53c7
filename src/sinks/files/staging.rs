//! The folder in which this machine prepares log files before they are published, its lock files, and the names of log files.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use tempfile::NamedTempFile;

use crate::domain::ledger::NodeId;

/// The prefix of the names of partial files, which are still being written.
const PARTIAL: &str = ".partial-";
/// The age in milliseconds from which on a partial file is abandoned. Nothing was written to it for a day, so its writer has
/// died.
const PARTIAL_OLD_MS: i64 = 24 * 3600 * 1000;

/// The folder in which log files are written before they are put into the storage. It also contains the lock files.
#[derive(Debug)]
pub(super) struct StagingFolder(PathBuf);

impl StagingFolder {
    /// Opens the folder, after creating it if it does not exist, and checks that it can be written to.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        make_folder(folder)?;
        let workplace = Self(folder.to_owned());
        workplace.new_partial_file()?;
        Ok(workplace)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Creates a partial file in this folder. It is removed when the returned value is dropped.
    pub(super) fn new_partial_file(&self) -> io::Result<NamedTempFile> {
        new_partial_file_in(&self.0)
    }

    /// Locks a lane: no other writer on this machine writes the lane's rows until the returned file is dropped. Waits for the
    /// lock.
    pub(super) fn lock_lane(&self, node: &NodeId) -> io::Result<File> {
        let file = self.lock_file(node.as_str())?;
        file.lock()?;
        Ok(file)
    }

    /// Locks the housekeeping of the log files until the returned file is dropped. `None` if another process of this machine has
    /// the lock.
    pub(super) fn try_lock_housekeeping(&self) -> io::Result<Option<File>> {
        let file = self.lock_file("upkeep")?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    fn lock_file(&self, what: &str) -> io::Result<File> {
        File::create(self.0.join(format!(".lock-{what}")))
    }

    /// Removes abandoned partial files, which a crash has left.
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

/// Creates a partial file in a folder. It is removed when the returned value is dropped.
pub(super) fn new_partial_file_in(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(PARTIAL).tempfile_in(folder)
}

/// Returns whether a partial file is abandoned.
fn is_old(path: &Path, now_ms: i64) -> bool {
    let modified = fs::metadata(path).map_or(now_ms, |meta| meta.mtime().saturating_mul(1000));
    now_ms.saturating_sub(modified) > PARTIAL_OLD_MS
}

/// Creates a folder that only weir's user can access, because rows name accounts and their usage.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Returns the names in a folder. Returns no names if the folder does not exist.
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

/// The name of a log file, `DAY/NODE-AFTER-UPTO.parquet`. The file has the rows of the lane `node` whose numbers are at least
/// `after` and less than `upto`. `day` is the day on which the first of them ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileName {
    pub(super) day: Date,
    pub(super) node: NodeId,
    pub(super) after: u64,
    pub(super) upto: u64,
}

impl FileName {
    /// Formats the name as a path relative to the storage.
    pub(super) fn name(&self) -> String {
        let Self { day, node, after, upto } = self;
        format!("{day}/{node}-{after:016x}-{upto:016x}{ENDING}")
    }

    /// Parses a path relative to the storage. `None` if it is not the name of a log file.
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

    /// Returns whether this file has all rows of another file of the same day and lane, and more.
    fn is_superset_of(&self, other: &Self) -> bool {
        (self.day, &self.node) == (other.day, &other.node)
            && self.after <= other.after
            && other.upto <= self.upto
            && (self.after, self.upto) != (other.after, other.upto)
    }
}

/// Returns the day of a time (UTC).
pub(super) fn day_of(unix_ms: i64) -> Date {
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    time.to_zoned(TimeZone::UTC).date()
}

/// Parses the name of a day's folder. `None` if it is not one.
pub(super) fn parse_day(name: &str) -> Option<Date> {
    name.parse().ok().filter(|day: &Date| day.to_string() == name)
}

/// Returns the files that were not merged into another one of `all`. `all` must be sorted.
pub(super) fn without_merged(all: &[FileName]) -> Vec<FileName> {
    let mut counting: Vec<FileName> = Vec::new();
    for place in all {
        // In the result, `after` and `upto` of the files of a lane and day both ascend. Therefore a file that has all rows of
        // another one is adjacent to it.
        counting.pop_if(|last| place.is_superset_of(last));
        if !counting.last().is_some_and(|last| last.is_superset_of(place)) {
            counting.push(place.clone());
        }
    }
    counting
}
