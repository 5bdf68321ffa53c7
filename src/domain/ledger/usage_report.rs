//! Usage over some days, by day, model, key or tag: daily sums, grouped for people and programs.

use std::{borrow::Cow, fmt, str::FromStr};

use jiff::{Span, civil::Date};
use thiserror::Error;

use crate::domain::{
    ledger::daily_sums::{DailySum, SumSubject, Sums},
    quick_map::QuickMap,
};

/// The name for tags beyond the limit of a day.
const OTHER: &str = "other";

/// The criterion by which a report is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitBy {
    /// The day on which the requests ended, in UTC.
    Day,
    /// The catalogue model that served.
    Model,
    /// The key.
    Key,
    /// The tag.
    Tag,
}

impl SplitBy {
    /// The name of the criterion, and of its field in a report.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Model => "model",
            Self::Key => "key",
            Self::Tag => "tag",
        }
    }

    /// The name of the line to which a sum belongs.
    pub(super) fn name(self, sum: &DailySum) -> Cow<'_, str> {
        match (self, &sum.subject) {
            (Self::Day, _) => Cow::Owned(date_of_day(sum.day).to_string()),
            (Self::Model, _) => Cow::Borrowed(&sum.model),
            (Self::Key, SumSubject::Key(id)) => Cow::Borrowed(id.as_str()),
            (Self::Tag, SumSubject::Tag(tag)) => Cow::Borrowed(tag.as_str()),
            (Self::Tag, SumSubject::OtherTags) => Cow::Borrowed(OTHER),
            (Self::Key | Self::Tag, _) => Cow::Borrowed(""),
        }
    }
}

impl fmt::Display for SplitBy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The text is not a criterion by which a report is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("day, model, key or tag")]
pub(crate) struct SplitError;

impl FromStr for SplitBy {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Self, SplitError> {
        let all = [Self::Day, Self::Model, Self::Key, Self::Tag];
        all.into_iter().find(|by| by.as_str() == text).ok_or(SplitError)
    }
}

/// Usage over some days: sums by name, and their total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageReport {
    lines: QuickMap<String, Sums>,
    total: Sums,
}

impl UsageReport {
    /// Adds sums to their lines.
    pub(crate) fn add_lines<'a>(&mut self, sums: impl IntoIterator<Item = &'a DailySum>, by: SplitBy) {
        for sum in sums {
            let name = by.name(sum);
            match self.lines.get_mut(name.as_ref()) {
                Some(line) => *line = line.plus(&sum.sums),
                None => {
                    self.lines.insert(name.into_owned(), sum.sums);
                }
            }
        }
    }

    /// Adds sums to the total, which equals the sum of the lines only if each request is in one line.
    pub(crate) fn add_total<'a>(&mut self, sums: impl IntoIterator<Item = &'a DailySum>) {
        self.total = sums.into_iter().fold(self.total, |total, sum| total.plus(&sum.sums));
    }

    /// At most `most` lines: the latest days, else the most expensive names. Ordered by name, or by cost, ascending, where
    /// lines other than days are left out.
    pub(crate) fn lines(&self, by: SplitBy, most: usize) -> impl Iterator<Item = (&str, &Sums)> {
        let mut lines: Vec<(&str, &Sums)> = self.lines.iter().map(|(name, sums)| (name.as_str(), sums)).collect();
        lines.sort_unstable_by_key(|(name, _)| *name);
        let left_out = self.omitted_lines(most);
        if by != SplitBy::Day && left_out > 0 {
            // The most expensive come last, as the latest days do.
            lines.sort_by_key(|(_, sums)| sums.cost_nano_usd);
        }
        lines.into_iter().skip(left_out)
    }

    /// The number of lines left out of a report of `most` lines.
    pub(crate) fn omitted_lines(&self, most: usize) -> usize {
        self.lines.len().saturating_sub(most)
    }

    /// The total.
    pub(crate) fn total(&self) -> &Sums {
        &self.total
    }
}

/// The date of a day counted from the Unix epoch.
pub(crate) fn date_of_day(day: i64) -> Date {
    let epoch = Date::constant(1970, 1, 1);
    let end = if day < 0 { Date::MIN } else { Date::MAX };
    let days = Span::new().try_days(day);
    days.ok().and_then(|days| epoch.checked_add(days).ok()).unwrap_or(end)
}

/// The day of a date, counted from the Unix epoch.
pub(crate) fn day_of_date(date: Date) -> i64 {
    let since = Date::constant(1970, 1, 1).until(date);
    since.map_or(0, |span| i64::from(span.get_days()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{keys::key::KeyId, money::NanoUsd};

    fn sum(day: i64, key: u8, model: &str, cost: i64) -> DailySum {
        DailySum {
            day,
            subject: SumSubject::Key(KeyId::parse(&format!("key_{key:016}")).unwrap()),
            model: model.into(),
            sums: Sums {
                requests: 1,
                cost_nano_usd: NanoUsd::from_nanos(cost),
                ..Sums::default()
            },
        }
    }

    #[test]
    fn sums_are_put_together_by_what_is_asked_for() {
        let sums = [
            sum(20_000, 1, "m", 1),
            sum(20_000, 2, "n", 20),
            sum(20_001, 1, "n", 300),
        ];
        let told = |by| {
            let mut report = UsageReport::default();
            report.add_lines(&sums, by);
            report.add_total(&sums);
            assert_eq!(report.total().cost_nano_usd, NanoUsd::from_nanos(321));
            let lines = report.lines(by, usize::MAX);
            lines
                .map(|(name, sums)| format!("{name} {}", sums.cost_nano_usd.nanos()))
                .collect::<Vec<_>>()
        };
        assert_eq!(told(SplitBy::Day), ["2024-10-04 21", "2024-10-05 300"]);
        assert_eq!(told(SplitBy::Model), ["m 1", "n 320"]);
        assert_eq!(
            told(SplitBy::Key),
            ["key_0000000000000001 301", "key_0000000000000002 20"]
        );
    }

    #[test]
    fn days_and_dates_are_the_same() {
        for number in [-1, 0, 20_000, 47_000] {
            assert_eq!(day_of_date(date_of_day(number)), number);
        }
        assert_eq!(
            (date_of_day(0).to_string(), date_of_day(i64::MAX), date_of_day(i64::MIN)),
            ("1970-01-01".to_owned(), Date::MAX, Date::MIN)
        );
    }

    #[test]
    fn a_report_is_split_by_these_only() {
        assert_eq!("day".parse(), Ok(SplitBy::Day));
        assert_eq!("days".parse::<SplitBy>(), Err(SplitError));
    }
}
