//! What a file's name says: whose rows it has, and which.

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
    /// The file's name, below where the files of the log are.
    pub(super) fn name(&self) -> String {
        let Self { day, node, after, upto } = self;
        format!("{day}/{node}-{after:016x}-{upto:016x}{ENDING}")
    }

    /// What a name says; `None`: it is none of a file of the log.
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

    /// Whether all that another file of its day has is in this one, and more.
    fn has_all_of(&self, other: &Self) -> bool {
        (self.day, &self.node) == (other.day, &other.node)
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

/// The day that the files of a day are named after.
pub(super) fn parse_day(name: &str) -> Option<Date> {
    name.parse().ok().filter(|day: &Date| day.to_string() == name)
}

/// Those files that count, of files in their order: not what another one has as well, which has been merged.
pub(super) fn counting(all: &[Place]) -> Vec<Place> {
    let mut counting: Vec<Place> = Vec::new();
    for place in all {
        // Of a lane and day, both ends of those that count ascend: one that has all of another is next to it.
        counting.pop_if(|last| place.has_all_of(last));
        if !counting.last().is_some_and(|last| last.has_all_of(place)) {
            counting.push(place.clone());
        }
    }
    counting
}
