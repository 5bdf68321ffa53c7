//! The periods for which spending is counted. A request belongs to the periods that contain the time of its admission. Each
//! period has its own counters, so no counter has to be reset.
//!
//! In memory, a period is a variant with a number. In stores, journals and JSON, a period is a string that contains its name.

use std::{
    fmt,
    ops::{Range, RangeInclusive},
    str::FromStr,
};

use jiff::{
    Timestamp,
    civil::{Date, ISOWeekDate, Time, Weekday},
    tz::Offset,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::domain::{keys::terms::QuotaReset, ledger::QuotaUse};

/// The time for which the counters of a period are retained after the period's end, in milliseconds.
pub(crate) const COUNTERS_KEPT_MS: i64 = 7 * 24 * 3600 * 1000;
const DAY_S: i64 = 24 * 3600;
const DAY_MS: i64 = DAY_S * 1000;
/// The days from year 1 to year 9999, in days since the Unix epoch. A time before them belongs to the first day, and a time after
/// them to the last.
const DAYS: RangeInclusive<i64> = -719_162..=2_932_895;

/// A period in UTC. The order of periods is the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Period {
    /// All time. The period has no end.
    All,
    /// A day, as the number of days since the Unix epoch.
    Day(i32),
    /// A month, as the number of months since January 1970.
    Month(i32),
    /// An ISO week, as the number of weeks since the week of the Unix epoch. It begins on Monday, and belongs to the year that
    /// contains its Thursday.
    Week(i32),
}

/// The error that a string is not the name of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the text is not the name of a period, such as `all`, `d20261121`, `w2026W47` or `m202611`")]
pub struct PeriodError;

impl Period {
    /// Returns the period that contains `unix_ms`, for a quota with this reset. `unix_ms` is in milliseconds since the Unix
    /// epoch.
    pub(crate) fn of(reset: QuotaReset, unix_ms: i64) -> Self {
        let day = day_at(unix_ms);
        match reset {
            QuotaReset::None => Self::All,
            QuotaReset::Daily => Self::Day(day),
            QuotaReset::Weekly => Self::Week(week_of(day)),
            QuotaReset::Monthly => Self::Month(month_of(day)),
        }
    }

    /// Returns the four periods that contain a time: all time, and the day, the week and the month.
    pub(crate) fn each_at(unix_ms: i64) -> [Self; 4] {
        [
            QuotaReset::None,
            QuotaReset::Daily,
            QuotaReset::Weekly,
            QuotaReset::Monthly,
        ]
        .map(|reset| Self::of(reset, unix_ms))
    }

    /// Whether the period contains a day, in days since the Unix epoch.
    pub(crate) fn contains_day(self, day: i32) -> bool {
        match self {
            Self::All => true,
            Self::Day(number) => number == day,
            Self::Week(number) => number == week_of(day),
            Self::Month(number) => number == month_of(day),
        }
    }

    /// Returns the days of the period, in days since the Unix epoch; `None` for [`Period::All`].
    pub(crate) fn days(self) -> Option<RangeInclusive<i64>> {
        match self {
            Self::All => None,
            Self::Day(number) => Some(number.into()..=number.into()),
            Self::Week(number) => {
                let monday = monday_of(number);
                Some(monday..=monday + 6)
            }
            Self::Month(number) => {
                let first = |number| day_of(first_of_month(number)?);
                Some(first(number)?..=first(number.saturating_add(1))? - 1)
            }
        }
    }
}

/// Formats the period as its name, such as `all`, `d20261121`, `m202611` or `w2026W47`.
impl fmt::Display for Period {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::All => out.write_str("all"),
            Self::Day(number) => {
                let date = date(number.into());
                write!(out, "d{:04}{:02}{:02}", date.year(), date.month(), date.day())
            }
            Self::Month(number) => {
                let date = first_of_month(number).unwrap_or(Date::MAX);
                write!(out, "m{:04}{:02}", date.year(), date.month())
            }
            Self::Week(number) => {
                let week = date(monday_of(number)).iso_week_date();
                write!(out, "w{:04}W{:02}", week.year(), week.week())
            }
        }
    }
}

impl FromStr for Period {
    type Err = PeriodError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = parse_lenient(name).filter(|period| period.to_string() == name);
        found.ok_or(PeriodError)
    }
}

impl From<Period> for String {
    fn from(period: Period) -> Self {
        period.to_string()
    }
}

impl TryFrom<String> for Period {
    type Error = PeriodError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

/// Parses the name of a period, but may also accept strings that are not exactly the name of a period.
fn parse_lenient(name: &str) -> Option<Period> {
    let year = || name.get(1..5)?.parse().ok();
    let number = |places: Range<usize>| name.get(places)?.parse().ok();
    let day = |date: Date| i32::try_from(day_of(date)?).ok();
    match name.as_bytes().first()? {
        b'a' => Some(Period::All),
        b'd' => day(Date::new(year()?, number(5..7)?, number(7..9)?).ok()?).map(Period::Day),
        b'm' => day(Date::new(year()?, number(5..7)?, 1).ok()?).map(|day| Period::Month(month_of(day))),
        b'w' => {
            let week = ISOWeekDate::new(year()?, number(6..8)?, Weekday::Monday).ok()?;
            day(week.date()).map(|day| Period::Week(week_of(day)))
        }
        _ => None,
    }
}

/// Returns the time at which the next period begins, in seconds since the Unix epoch; `None` for [`QuotaReset::None`].
pub(crate) fn resets_at(reset: QuotaReset, unix_ms: i64) -> Option<i64> {
    let days = Period::of(reset, unix_ms).days()?;
    Some((days.end() + 1) * DAY_S)
}

/// Returns the day that contains `unix_ms`, in days since the Unix epoch.
pub(crate) fn day_at(unix_ms: i64) -> i32 {
    let day = unix_ms.div_euclid(DAY_MS).clamp(*DAYS.start(), *DAYS.end());
    i32::try_from(day).unwrap_or(0)
}

/// Returns the day and the month (UTC) that contain `unix_ms`, in days and in months since the Unix epoch.
pub(crate) fn day_and_month(unix_ms: i64) -> (i64, i64) {
    let day = day_at(unix_ms);
    (day.into(), month_of(day).into())
}

/// Returns the number of the week that contains a day. The Unix epoch was a Thursday.
fn week_of(day: i32) -> i32 {
    (day + 3).div_euclid(7)
}

/// Returns the first day of a week, in days since the Unix epoch.
fn monday_of(week: i32) -> i64 {
    i64::from(week) * 7 - 3
}

/// Returns the number of the month that contains a day.
fn month_of(day: i32) -> i32 {
    let date = date(day.into());
    (i32::from(date.year()) - 1970) * 12 + i32::from(date.month()) - 1
}

fn first_of_month(month: i32) -> Option<Date> {
    let year = i16::try_from(1970 + month.div_euclid(12)).ok()?;
    let month = i8::try_from(month.rem_euclid(12) + 1).ok()?;
    Date::new(year, month, 1).ok()
}

fn date(day: i64) -> Date {
    let day = day.clamp(*DAYS.start(), *DAYS.end());
    let midnight = Timestamp::from_second(day * DAY_S).unwrap_or_default();
    Offset::UTC.to_datetime(midnight).date()
}

fn day_of(date: Date) -> Option<i64> {
    let midnight = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()?;
    Some(midnight.as_second().div_euclid(DAY_S))
}

/// A header's name, in lower case, and its value.
pub(crate) type SpendHeader = (&'static str, String);

/// The prefix of all headers about limits: those in this file, and those that a provider sends.
pub(crate) const PREFIX: &str = "anthropic-ratelimit-";

const STATUS: &str = "anthropic-ratelimit-unified-status";
const RESET: &str = "anthropic-ratelimit-unified-reset";
const CLAIM: &str = "anthropic-ratelimit-unified-representative-claim";
const OVERAGE_STATUS: &str = "anthropic-ratelimit-unified-overage-status";
const OVERAGE_RESET: &str = "anthropic-ratelimit-unified-overage-reset";
const UTILIZATION: &str = "anthropic-ratelimit-unified-overage-utilization";
const THRESHOLD: &str = "anthropic-ratelimit-unified-overage-surpassed-threshold";
const PERIOD: &str = "anthropic-ratelimit-unified-overage-period";
const DISABLED_REASON: &str = "anthropic-ratelimit-unified-overage-disabled-reason";

/// The percentages of a quota at which a client gets a warning, the highest first.
const WARNED_FROM_PERCENT: [i128; 2] = [95, 75];

/// Returns the headers of a successful answer. They state the part of the quota that was already spent when the request was
/// admitted. They contain a warning if that part has reached 75 % or 95 %.
pub(crate) fn success_headers(standing: &QuotaUse) -> Vec<SpendHeader> {
    let percent = spent_percent(standing);
    let surpassed = WARNED_FROM_PERCENT.into_iter().find(|from| percent >= *from);
    let status = if surpassed.is_some() {
        "allowed_warning"
    } else {
        "allowed"
    };
    let mut headers = vec![
        (STATUS, status.to_owned()),
        (CLAIM, "overage".to_owned()),
        (OVERAGE_STATUS, status.to_owned()),
        (UTILIZATION, ratio(percent)),
    ];
    headers.extend(surpassed.map(|from| (THRESHOLD, ratio(from))));
    headers.extend(reset_headers(standing));
    headers
}

/// Returns the headers of a refusal whose reason is that a key's quota is used up. `representative-claim` and `overage-status`
/// are left out, because with them Claude Code would display a message of its own.
pub(crate) fn spent_quota_headers(standing: &QuotaUse, reset: QuotaReset) -> Vec<SpendHeader> {
    let mut headers = rejected_headers("org_spend_cap_reached");
    headers.push((UTILIZATION, ratio(spent_percent(standing))));
    headers.push((THRESHOLD, ratio(100)));
    headers.extend(reset_headers(standing));
    if reset != QuotaReset::None {
        headers.push((PERIOD, reset.as_str().to_owned()));
    }
    headers
}

/// Returns the headers of a refusal whose reason is that an account's balance is used up. They contain no time at which the
/// client can retry, because that time is unknown.
pub(crate) fn spent_balance_headers() -> Vec<SpendHeader> {
    rejected_headers("out_of_credits")
}

/// Returns the headers of a refusal whose reason is that an account is not allowed to spend anything.
pub(crate) fn disabled_account_headers() -> Vec<SpendHeader> {
    rejected_headers("org_level_disabled")
}

/// Returns the headers that are common to the refusals because of a used-up quota, a used-up balance or a disabled account. One
/// of these headers states `reason`. Clients that are signed in to a gateway need this header: Claude Code displays the message
/// of a 429 unchanged only if the answer states a reason.
fn rejected_headers(reason: &str) -> Vec<SpendHeader> {
    vec![(STATUS, "rejected".to_owned()), (DISABLED_REASON, reason.to_owned())]
}

fn reset_headers(standing: &QuotaUse) -> impl Iterator<Item = SpendHeader> {
    let at = standing.resets_at.map(|at| at.to_string());
    [RESET, OVERAGE_RESET]
        .into_iter()
        .filter_map(move |name| Some((name, at.clone()?)))
}

/// Returns the percentage of the quota that was spent; 100 for a quota of zero. It is rounded down, so that no threshold is
/// reported too early.
pub(super) fn spent_percent(standing: &QuotaUse) -> i128 {
    let (spent, quota) = (i128::from(standing.spent.nanos()), i128::from(standing.quota.nanos()));
    match quota {
        ..=0 => 100,
        quota => spent.max(0) * 100 / quota,
    }
}

/// Formats a percentage as a fraction: 75 as `0.75`, 90 as `0.9`, and 100 as `1`.
fn ratio(percent: i128) -> String {
    let (whole, hundredths) = (percent / 100, percent % 100);
    match (hundredths, hundredths % 10) {
        (0, _) => whole.to_string(),
        (_, 0) => format!("{whole}.{}", hundredths / 10),
        _ => format!("{whole}.{hundredths:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::money::NanoUsd;
    use proptest::prelude::*;

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
            ("1969-12-31T23:59:59.999Z", "d19691231", "w1970W01", "m196912"),
        ] {
            let names = Period::each_at(ms(moment)).map(|period| period.to_string());
            assert_eq!(names, ["all", day, week, month], "{moment}");
        }
    }

    /// What jiff says of a moment, by its own calendar.
    fn names_at(unix_ms: i64) -> [String; 4] {
        let date = Offset::UTC
            .to_datetime(Timestamp::from_millisecond(unix_ms).unwrap())
            .date();
        let week = date.iso_week_date();
        let (year, month) = (date.year(), date.month());
        [
            "all".to_owned(),
            format!("d{year:04}{month:02}{:02}", date.day()),
            format!("w{:04}W{:02}", week.year(), week.week()),
            format!("m{year:04}{month:02}"),
        ]
    }

    proptest! {
        #[test]
        fn names_are_those_of_the_calendar_and_are_read_again(
            unix_ms in DAYS.start() * DAY_MS..Timestamp::MAX.as_millisecond(),
        ) {
            let periods = Period::each_at(unix_ms);
            prop_assert_eq!(periods.map(|period| period.to_string()), names_at(unix_ms));
            for period in periods {
                prop_assert_eq!(period.to_string().parse(), Ok(period));
                let json = serde_json::to_string(&period).unwrap();
                prop_assert_eq!(serde_json::from_str::<Period>(&json).unwrap(), period);
            }
        }

        #[test]
        fn periods_are_ordered_as_their_names(one in 0..4_000_000_000_000_i64, other in 0..4_000_000_000_000_i64) {
            for one in Period::each_at(one) {
                for other in Period::each_at(other) {
                    prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
                }
            }
        }

        #[test]
        fn a_period_has_the_days_between_its_first_and_its_last(unix_ms in -60_000_000_000_000..90_000_000_000_000_i64, off in -40..40_i32) {
            let day = day_at(unix_ms);
            for period in Period::each_at(unix_ms) {
                prop_assert!(period.contains_day(day));
                let other = day + off;
                let is_within = period.days().is_none_or(|days| days.contains(&other.into()));
                prop_assert_eq!(period.contains_day(other), is_within, "{} and {}", period, other);
            }
        }
    }

    #[test]
    fn times_without_a_date_count_on_the_first_or_the_last_day() {
        let names = |unix_ms| Period::each_at(unix_ms).map(|period| period.to_string());
        assert_eq!(names(i64::MIN), ["all", "d00010101", "w0001W01", "m000101"]);
        assert_eq!(names(i64::MAX), ["all", "d99991230", "w9999W52", "m999912"]);
    }

    #[test]
    fn what_names_no_period_is_none() {
        for wrong in [
            "",
            "al",
            "all ",
            "d",
            "d2026112",
            "d202611211",
            "d20261131",
            "d2026+121",
            "m202613",
            "m2026",
            "w2026W54",
            "w2026W4",
            "w2026-47",
            "x20261121",
            "dé261121",
        ] {
            assert_eq!(wrong.parse::<Period>(), Err(PeriodError), "{wrong}");
        }
    }

    #[test]
    fn periods_end_at_midnight() {
        let at = |reset, moment: &str| {
            resets_at(reset, ms(moment)).map(|end| Timestamp::from_second(end).unwrap().to_string())
        };
        assert_eq!(at(QuotaReset::None, "2026-11-21T12:00:00Z"), None);
        assert_eq!(
            at(QuotaReset::Daily, "2026-12-31T23:59:59.999Z").unwrap(),
            "2027-01-01T00:00:00Z"
        );
        assert_eq!(
            at(QuotaReset::Weekly, "2026-11-21T12:00:00Z").unwrap(),
            "2026-11-23T00:00:00Z"
        );
        assert_eq!(
            at(QuotaReset::Weekly, "2026-11-23T00:00:00Z").unwrap(),
            "2026-11-30T00:00:00Z"
        );
        assert_eq!(
            at(QuotaReset::Monthly, "2028-02-29T10:00:00Z").unwrap(),
            "2028-03-01T00:00:00Z"
        );
        assert_eq!(
            at(QuotaReset::Monthly, "2026-12-01T00:00:00Z").unwrap(),
            "2027-01-01T00:00:00Z"
        );
    }

    fn standing(spent: i64, quota: i64, resets_at: Option<i64>) -> QuotaUse {
        QuotaUse {
            quota: NanoUsd::from_nanos(quota),
            spent: NanoUsd::from_nanos(spent),
            resets_at,
        }
    }

    fn value(headers: &[SpendHeader], name: &str) -> Option<String> {
        let name = format!("anthropic-ratelimit-unified-{name}");
        let found: Vec<&SpendHeader> = headers.iter().filter(|(found, _)| *found == name).collect();
        assert!(found.len() <= 1, "{name} twice");
        found.first().map(|(_, value)| value.clone())
    }

    #[test]
    fn a_success_tells_how_near_the_limit_is() {
        for (spent, utilization, threshold) in [
            (0, "0", None),
            (1_000, "0.1", None),
            (7_499, "0.74", None),
            (7_500, "0.75", Some("0.75")),
            (9_499, "0.94", Some("0.75")),
            (9_500, "0.95", Some("0.95")),
            (9_999, "0.99", Some("0.95")),
            (15_100, "1.51", Some("0.95")),
        ] {
            let headers = success_headers(&standing(spent, 10_000, Some(1_796_083_200)));
            let status = if threshold.is_some() {
                "allowed_warning"
            } else {
                "allowed"
            };
            for (name, expected) in [
                ("status", Some(status)),
                ("overage-status", Some(status)),
                ("representative-claim", Some("overage")),
                ("overage-utilization", Some(utilization)),
                ("overage-surpassed-threshold", threshold),
                ("reset", Some("1796083200")),
                ("overage-reset", Some("1796083200")),
            ] {
                assert_eq!(value(&headers, name).as_deref(), expected, "{spent} {name}");
            }
        }
    }

    #[test]
    fn a_spent_quota_is_told_as_claude_codes_own_gateway_tells_it() {
        let headers = spent_quota_headers(&standing(151, 100, Some(1_796_083_200)), QuotaReset::Monthly);
        let expected = [
            ("status", "rejected"),
            ("overage-disabled-reason", "org_spend_cap_reached"),
            ("overage-utilization", "1.51"),
            ("overage-surpassed-threshold", "1"),
            ("reset", "1796083200"),
            ("overage-reset", "1796083200"),
            ("overage-period", "monthly"),
        ];
        assert_eq!(headers.len(), expected.len());
        for (name, text) in expected {
            assert_eq!(value(&headers, name).as_deref(), Some(text), "{name}");
        }
    }

    #[test]
    fn what_does_not_reset_has_no_time_and_no_period() {
        let never = standing(100, 100, None);
        for headers in [
            success_headers(&never),
            spent_quota_headers(&never, QuotaReset::None),
            spent_balance_headers(),
            disabled_account_headers(),
        ] {
            for name in ["reset", "overage-reset", "overage-period"] {
                assert_eq!(value(&headers, name), None, "{headers:?}");
            }
        }
    }

    #[test]
    fn any_figures_make_a_ratio() {
        for (spent, quota, utilization) in [
            (0, 0, "1"),
            (-5, 10, "0"),
            (1, i64::MAX, "0"),
            (i64::MAX, 1, "9223372036854775807"),
            (i64::MAX, i64::MAX, "1"),
        ] {
            let headers = success_headers(&standing(spent, quota, None));
            assert_eq!(value(&headers, "overage-utilization").as_deref(), Some(utilization));
        }
    }
}
