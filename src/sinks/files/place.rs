//! What a file's name says: whose rows it has, and which.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::{Timestamp, civil::Date, tz::TimeZone};

use crate::domain::ledger::NodeId;

const ENDING: &str = ".parquet";

/// The rows of a lane from `after` to before `upto`, of the day of the first of them: `DAY/NODE-AFTER-UPTO.parquet`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) day: Date,
    pub(super) node: NodeId,
    pub(super) after: u64,
    pub(super) upto: u64,
}

impl Place {
    pub(super) fn folder(&self, home: &Path) -> PathBuf {
        home.join(self.day.to_string())
    }

    pub(super) fn path(&self, home: &Path) -> PathBuf {
        let Self { node, after, upto, .. } = self;
        self.folder(home)
            .join(format!("{node}-{after:016x}-{upto:016x}{ENDING}"))
    }

    fn parse(day: Date, name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(ENDING)?.split('-');
        let (node, after, upto) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
        let (node, after, upto) = (NodeId::parse(node)?, number(after)?, number(upto)?);
        (parts.next().is_none() && after < upto).then_some(Self { day, node, after, upto })
    }

    /// Whether all that another file has is in this one, and more.
    fn has_all_of(&self, other: &Self) -> bool {
        self.node == other.node
            && self.after <= other.after
            && other.upto <= self.upto
            && (self.after, self.upto) != (other.after, other.upto)
    }
}

/// The day of a time, in UTC.
pub(super) fn day_of(unix_ms: i64) -> Date {
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    time.to_zoned(TimeZone::UTC).date()
}

/// The days that have a folder, ascending.
pub(super) fn days(home: &Path) -> io::Result<Vec<Date>> {
    let mut days: Vec<Date> = names(home)?.iter().filter_map(|name| name.parse().ok()).collect();
    days.sort_unstable();
    Ok(days)
}

/// All files of a day, by lane and number.
pub(super) fn all_of(home: &Path, day: Date) -> io::Result<Vec<Place>> {
    let names = names(&home.join(day.to_string()))?;
    let mut places: Vec<Place> = names.iter().filter_map(|name| Place::parse(day, name)).collect();
    places.sort_unstable();
    Ok(places)
}

/// Those of them that count: not what another one has as well, after a merge that was cut off.
pub(super) fn of(home: &Path, day: Date) -> io::Result<Vec<Place>> {
    let all = all_of(home, day)?;
    let counts = |place: &&Place| !all.iter().any(|other| other.has_all_of(place));
    Ok(all.iter().filter(counts).cloned().collect())
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
