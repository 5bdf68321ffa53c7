//! Quota periods. A period is a name, fixed at a request's admission. A new period is a new name, so nothing has to be
//! reset.

use jiff::{
    Timestamp, ToSpan,
    civil::Date,
    tz::{Offset, TimeZone},
};
use smol_str::SmolStr;

use crate::domain::keys::terms::Reset;

/// The name of the period that never ends.
pub(crate) const ALL: &str = "all";
/// How long the counter of a period is kept after its end.
pub(crate) const COUNTERS_KEPT_MS: i64 = 7 * 24 * 3600 * 1000;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// The names of the periods that a time lies in, besides [`ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Periods {
    /// The day, such as `d20261121`.
    pub day: SmolStr,
    /// The ISO week, such as `w2026W47`. It begins on Monday, and its year is that of its Thursday.
    pub week: SmolStr,
    /// The month, such as `m202611`.
    pub month: SmolStr,
}

impl Periods {
    /// The periods of a time in milliseconds since the Unix epoch, in UTC.
    pub(crate) fn at(unix_ms: i64) -> Self {
        let date = date(unix_ms);
        let week = date.iso_week_date();
        let ([y1, y2, y3, y4], [m1, m2], [d1, d2]) = (year(date.year()), number(date.month()), number(date.day()));
        let ([v1, v2, v3, v4], [w1, w2]) = (year(week.year()), number(week.week()));
        Self {
            day: name(&[b'd', y1, y2, y3, y4, m1, m2, d1, d2]),
            week: name(&[b'w', v1, v2, v3, v4, b'W', w1, w2]),
            month: name(&[b'm', y1, y2, y3, y4, m1, m2]),
        }
    }

    /// The period that a quota with this reset counts in.
    pub(crate) fn of(&self, reset: Reset) -> &str {
        match reset {
            Reset::None => ALL,
            Reset::Daily => &self.day,
            Reset::Weekly => &self.week,
            Reset::Monthly => &self.month,
        }
    }
}

/// A name out of its digits and letters. Every admission asks for several names, and `format!` takes ten times as long.
fn name(text: &[u8]) -> SmolStr {
    SmolStr::new(str::from_utf8(text).unwrap_or_default())
}

/// A year in four digits.
fn year(year: i16) -> [u8; 4] {
    [1000, 100, 10, 1].map(|place| last_digit(year.unsigned_abs() / place))
}

/// A month, a day or a week in two digits.
fn number(number: i8) -> [u8; 2] {
    [10, 1].map(|place| last_digit(u16::from(number.unsigned_abs()) / place))
}

fn last_digit(number: u16) -> u8 {
    b"0123456789".get(usize::from(number % 10)).copied().unwrap_or(b'0')
}

/// The first second of the next period, since the Unix epoch; `None` for [`Reset::None`].
pub(crate) fn resets_at(reset: Reset, unix_ms: i64) -> Option<i64> {
    let today = date(unix_ms);
    let next = match reset {
        Reset::None => return None,
        Reset::Daily => today.checked_add(1.day()),
        Reset::Weekly => today.checked_add((7 - i64::from(today.weekday().to_monday_zero_offset())).days()),
        Reset::Monthly => today.first_of_month().checked_add(1.month()),
    };
    let midnight = next.ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(midnight.timestamp().as_second())
}

/// Day and month of a time in milliseconds since the Unix epoch, in UTC; both are counted from there.
pub(crate) fn day_and_month(unix_ms: i64) -> (i64, i64) {
    let date = date(unix_ms);
    let month = (i64::from(date.year()) - 1970) * 12 + i64::from(date.month()) - 1;
    (unix_ms.div_euclid(DAY_MS), month)
}

fn date(unix_ms: i64) -> Date {
    let moment =
        Timestamp::from_millisecond(unix_ms).unwrap_or(if unix_ms < 0 { Timestamp::MIN } else { Timestamp::MAX });
    Offset::UTC.to_datetime(moment).date()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn a_moment_lies_in_one_period_of_each_kind() {
        for (moment, day, week, month) in [
            ("2026-11-21T12:00:00Z", "d20261121", "w2026W47", "m202611"),
            ("2026-11-22T23:59:59.999Z", "d20261122", "w2026W47", "m202611"),
            ("2026-11-23T00:00:00Z", "d20261123", "w2026W48", "m202611"),
            ("2026-12-31T23:59:59.999Z", "d20261231", "w2026W53", "m202612"),
            ("2027-01-01T00:00:00Z", "d20270101", "w2026W53", "m202701"),
            ("2028-02-29T00:00:00Z", "d20280229", "w2028W09", "m202802"),
            ("2018-12-31T00:00:00Z", "d20181231", "w2019W01", "m201812"),
        ] {
            let periods = Periods::at(ms(moment));
            assert_eq!(
                (periods.day.as_str(), periods.week.as_str(), periods.month.as_str()),
                (day, week, month),
                "{moment}"
            );
        }
    }

    proptest! {
        #[test]
        fn names_have_all_their_digits(unix_ms in 0..=Timestamp::MAX.as_millisecond()) {
            let (date, periods) = (date(unix_ms), Periods::at(unix_ms));
            let (year, month, day, week) = (date.year(), date.month(), date.day(), date.iso_week_date());
            prop_assert_eq!(periods.day, format!("d{year:04}{month:02}{day:02}"));
            prop_assert_eq!(periods.week, format!("w{:04}W{:02}", week.year(), week.week()));
            prop_assert_eq!(periods.month, format!("m{year:04}{month:02}"));
        }
    }

    #[test]
    fn periods_end_at_midnight() {
        let at = |reset, moment: &str| {
            resets_at(reset, ms(moment)).map(|end| Timestamp::from_second(end).unwrap().to_string())
        };
        assert_eq!(at(Reset::None, "2026-11-21T12:00:00Z"), None);
        assert_eq!(
            at(Reset::Daily, "2026-12-31T23:59:59.999Z").unwrap(),
            "2027-01-01T00:00:00Z"
        );
        assert_eq!(
            at(Reset::Weekly, "2026-11-21T12:00:00Z").unwrap(),
            "2026-11-23T00:00:00Z"
        );
        assert_eq!(
            at(Reset::Weekly, "2026-11-23T00:00:00Z").unwrap(),
            "2026-11-30T00:00:00Z"
        );
        assert_eq!(
            at(Reset::Monthly, "2028-02-29T10:00:00Z").unwrap(),
            "2028-03-01T00:00:00Z"
        );
    }
}
