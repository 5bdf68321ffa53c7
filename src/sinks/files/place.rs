//! The names of the log's files.

use jiff::{Timestamp, civil::Date, tz::TimeZone};

use crate::domain::ledger::NodeId;

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
