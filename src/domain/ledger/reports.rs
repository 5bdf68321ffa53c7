//! Reports of spending and usage for users and programs: the quota of a key, usage by day, model, key or tag, and the views of
//! accounts and keys.

use std::{borrow::Cow, collections::BTreeMap, fmt, ops::RangeInclusive, str::FromStr};

use jiff::{Span, Timestamp, civil::Date};
use serde_json::{Value, json};
use thiserror::Error;

use crate::domain::{
    QuickMap,
    keys::{KeyId, terms::QuotaReset},
    ledger::{
        AccountRecord, KeyTerms, QuotaUse,
        daily_sums::{DailySum, SumSubject, Sums},
        period::{resets_at, spent_percent},
    },
    money::NanoUsd,
};

const CENT_NANOS: i64 = 10_000_000;
/// The percentages of a quota at which the severity becomes `warning` and `critical`. Response headers warn at the same
/// percentages.
const WARNING_PERCENT: i128 = 75;
const CRITICAL_PERCENT: i128 = 95;

/// Returns a report of a key's quota and spending at `now_ms`, the store's time in milliseconds since the Unix epoch. It has the
/// form that Claude Code expects from its own gateway. `GET /protocol` of that gateway describes the form
/// (<https://code.claude.com/docs/en/claude-apps-gateway>). Amounts are in whole cents, rounded down.
pub(crate) fn quota_report(terms: &KeyTerms, spend: &KeySpend, now_ms: i64) -> Value {
    let Some(quota) = terms.quota else {
        let of = |spent: NanoUsd| json!({ "limit": null, "used_credits": cents(spent), "utilization": null });
        let extra = json!({
            "is_enabled": true,
            "monthly_limit": null,
            "used_credits": cents(spend.month),
            "utilization": null,
            "currency": "USD",
            "daily": of(spend.day),
            "weekly": of(spend.week),
        });
        return json!({ "extra_usage": extra, "limits": [] });
    };
    let standing = QuotaUse {
        quota,
        spent: spend.for_reset(terms.reset),
        resets_at: resets_at(terms.reset, now_ms),
    };
    let percent = spent_percent(&standing);
    let percent_told = i64::try_from(percent).unwrap_or(i64::MAX);
    let extra = json!({
        "is_enabled": true,
        "monthly_limit": cents(quota),
        "used_credits": cents(standing.spent),
        "utilization": percent_told,
        "currency": "USD",
    });
    let limit = json!({
        "kind": "spend",
        // A quota that never resets has no period. The client displays no period if the word is not one of its three.
        "group": if terms.reset == QuotaReset::None { "total" } else { terms.reset.as_str() },
        "percent": percent_told,
        "resets_at": standing.resets_at.and_then(rfc3339_time),
        "severity": match percent {
            CRITICAL_PERCENT.. => "critical",
            WARNING_PERCENT.. => "warning",
            _ => "normal",
        },
        "is_active": true,
    });
    json!({ "extra_usage": extra, "limits": [limit] })
}

fn cents(amount: NanoUsd) -> i64 {
    amount.nanos().max(0) / CENT_NANOS
}

/// Formats a time in the form `2027-01-01T00:00:00.000Z`. `unix` is in seconds since the Unix epoch.
fn rfc3339_time(unix: i64) -> Option<String> {
    let at = Timestamp::from_second(unix).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string())
}

/// The name of the line for all tags that have no sums of their own.
const OTHER: &str = "other";

/// The criterion that splits a report into lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitBy {
    /// One line for each day (UTC) on which requests ended.
    Day,
    /// One line for each catalogue model that served requests.
    Model,
    /// One line for each key.
    Key,
    /// One line for each tag.
    Tag,
}

impl SplitBy {
    /// Returns the name of the criterion, which is also the name of a line's field in a report.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Model => "model",
            Self::Key => "key",
            Self::Tag => "tag",
        }
    }

    /// Returns the name of the line to which a sum belongs.
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

/// The error that a string is not the name of a criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("unknown value; give day, model, key or tag")]
pub(crate) struct SplitError;

impl FromStr for SplitBy {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Self, SplitError> {
        let all = [Self::Day, Self::Model, Self::Key, Self::Tag];
        all.into_iter().find(|by| by.as_str() == text).ok_or(SplitError)
    }
}

/// A usage report for some days: the sums of each line, by its name, and the total.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageReport {
    lines: QuickMap<String, Sums>,
    total: Sums,
}

impl UsageReport {
    /// Adds sums to the lines to which they belong.
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

    /// Adds sums to the total. The total equals the sum of the lines only if each request is in exactly one line.
    pub(crate) fn add_total<'a>(&mut self, sums: impl IntoIterator<Item = &'a DailySum>) {
        self.total = sums.into_iter().fold(self.total, |total, sum| total.plus(&sum.sums));
    }

    /// Returns at most `most` lines: the most recent days in a report by day, otherwise the lines with the highest costs. The
    /// lines are sorted by name if the report is by day or no lines are omitted. Otherwise, they are sorted by cost, the lowest
    /// first.
    pub(crate) fn lines(&self, by: SplitBy, most: usize) -> impl Iterator<Item = (&str, &Sums)> {
        let mut lines: Vec<(&str, &Sums)> = self.lines.iter().map(|(name, sums)| (name.as_str(), sums)).collect();
        lines.sort_unstable_by_key(|(name, _)| *name);
        let left_out = self.omitted_lines(most);
        if by != SplitBy::Day && left_out > 0 {
            // The lines with the highest costs are last, as are the most recent days in a report by day.
            lines.sort_by_key(|(_, sums)| sums.cost_nano_usd);
        }
        lines.into_iter().skip(left_out)
    }

    /// Returns the number of lines that are omitted from a report with at most `most` lines.
    pub(crate) fn omitted_lines(&self, most: usize) -> usize {
        self.lines.len().saturating_sub(most)
    }

    /// Returns the total.
    pub(crate) fn total(&self) -> &Sums {
        &self.total
    }
}

/// Converts a number of days since the Unix epoch to a date.
pub(crate) fn date_of_day(day: i64) -> Date {
    let epoch = Date::constant(1970, 1, 1);
    let end = if day < 0 { Date::MIN } else { Date::MAX };
    let days = Span::new().try_days(day);
    days.ok().and_then(|days| epoch.checked_add(days).ok()).unwrap_or(end)
}

/// Converts a date to a number of days since the Unix epoch.
pub(crate) fn day_of_date(date: Date) -> i64 {
    let since = Date::constant(1970, 1, 1).until(date);
    since.map_or(0, |span| i64::from(span.get_days()))
}

/// The spending of each key. Keys without spending are left out.
pub(crate) type SpendByKey = BTreeMap<KeyId, NanoUsd>;

/// An account as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// The account's name.
    pub id: String,
    /// The sum of all credits and adjustments, minus all charges. Holds are not subtracted.
    pub balance: NanoUsd,
    /// The sum of all charges so far, which equals the total cost of the account's rows.
    pub spent: NanoUsd,
    /// The sum of the holds of running requests.
    pub held: NanoUsd,
    /// The number of running requests.
    pub running: u64,
    /// The settings that operators have made for the account.
    pub record: AccountRecord,
    /// The credits and adjustments of today (UTC), by the store's clock.
    pub paid_today: NanoUsd,
    /// The credits and adjustments of this month (UTC), by the store's clock.
    pub paid_this_month: NanoUsd,
    /// The time at which the account was created, in seconds since the Unix epoch.
    pub created_at: i64,
}

impl AccountView {
    /// Whether a payment is due: the balance is at or below the account's low mark, or it is zero or less. With a balance of zero
    /// or less, no request is admitted.
    pub(crate) fn is_low(&self) -> bool {
        self.balance <= self.record.terms.low_balance.unwrap_or_default().max(NanoUsd::ZERO)
    }
}

/// The spending and the holds of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySpend {
    /// The amount spent since the key's creation.
    pub all: NanoUsd,
    /// The amount spent in the current day (UTC).
    pub day: NanoUsd,
    /// The amount spent in the current ISO week (UTC).
    pub week: NanoUsd,
    /// The amount spent in the current month (UTC).
    pub month: NanoUsd,
    /// The amount held for running requests.
    pub held: NanoUsd,
    /// The number of running requests.
    pub running: u64,
}

impl KeySpend {
    /// Returns the amount spent in the current period of a quota with this reset.
    pub(crate) fn for_reset(&self, reset: QuotaReset) -> NanoUsd {
        match reset {
            QuotaReset::None => self.all,
            QuotaReset::Daily => self.day,
            QuotaReset::Weekly => self.week,
            QuotaReset::Monthly => self.month,
        }
    }
}

/// The number of days in each of the two weeks that are compared.
pub(crate) const WEEK: usize = 7;

/// Costs by name and day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DailyCosts {
    days: RangeInclusive<i64>,
    /// For each name, the cost of each day in `days`.
    names: QuickMap<String, Vec<NanoUsd>>,
}

/// The costs for one name in the last seven days and in the seven days before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeekOverWeekCost {
    /// The name of an account, a key, a model or a tag.
    pub name: String,
    /// The cost of the last seven days.
    pub cost: NanoUsd,
    /// The cost in the seven days before the last seven days.
    pub before: NanoUsd,
}

/// The daily costs for a name. The name is `None` for the sum of all names that have no line of their own.
pub(crate) type DailyCostLine<'a> = (Option<&'a str>, Cow<'a, [NanoUsd]>);

impl DailyCosts {
    /// Creates an empty table of costs for a range of days. Days are counted from the Unix epoch.
    pub(crate) fn new(days: RangeInclusive<i64>) -> Self {
        Self {
            days,
            names: QuickMap::default(),
        }
    }

    /// Adds the costs in `sums`. `by` determines the name to which each cost is added.
    pub(crate) fn add<'a>(&mut self, sums: impl IntoIterator<Item = &'a DailySum>, by: SplitBy) {
        for sum in sums {
            self.add_cost(&by.name(sum), sum.day, sum.sums.cost_nano_usd);
        }
    }

    /// Adds `cost` to the cost of `name` on one day. A cost on a day outside the range is ignored.
    pub(crate) fn add_cost(&mut self, name: &str, day: i64, cost: NanoUsd) {
        let place = usize::try_from(day.saturating_sub(*self.days.start()));
        let line = match self.names.get_mut(name) {
            Some(line) => line,
            None => {
                let none = vec![NanoUsd::ZERO; self.days.clone().count()];
                self.names.entry(name.to_owned()).or_insert(none)
            }
        };
        if let Some(sum) = place.ok().and_then(|place| line.get_mut(place)) {
            *sum = sum.saturating_add(cost);
        }
    }

    pub(crate) fn days(&self) -> RangeInclusive<i64> {
        self.days.clone()
    }

    /// Returns the `most` names with the highest total costs, the highest first. If there are further names, their sum is the
    /// last line.
    pub(crate) fn most_expensive(&self, most: usize) -> Vec<DailyCostLine<'_>> {
        let mut lines: Vec<(NanoUsd, &String, &Vec<NanoUsd>)> = self
            .names
            .iter()
            .map(|(name, costs)| (sum(costs), name, costs))
            .collect();
        lines.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
        let (named, others) = lines.split_at_checked(most).unwrap_or((&lines, &[]));
        let mut told: Vec<DailyCostLine<'_>> = named
            .iter()
            .map(|(_, name, costs)| (Some(name.as_str()), Cow::Borrowed(costs.as_slice())))
            .collect();
        let rest = others
            .iter()
            .map(|(_, _, costs)| costs)
            .fold(None, |rest: Option<Vec<NanoUsd>>, costs| {
                let mut rest = rest.unwrap_or_else(|| vec![NanoUsd::ZERO; costs.len()]);
                for (sum, cost) in rest.iter_mut().zip(costs.iter()) {
                    *sum = sum.saturating_add(*cost);
                }
                Some(rest)
            });
        told.extend(rest.map(|rest| (None, Cow::Owned(rest))));
        told
    }

    /// Returns, for each name, the cost of the last seven days in the range and of the seven days before.
    pub(crate) fn weeks(&self) -> impl Iterator<Item = WeekOverWeekCost> {
        self.names.iter().map(|(name, costs)| {
            let week = |weeks_ago: usize| sum(costs.iter().rev().skip(weeks_ago * WEEK).take(WEEK));
            WeekOverWeekCost {
                name: name.clone(),
                cost: week(0),
                before: week(1),
            }
        })
    }
}

/// Returns the `most` names with the highest costs in the last seven days, the highest first. Names without costs are left out.
pub(crate) fn most_expensive_weeks(
    weeks: impl Iterator<Item = WeekOverWeekCost>,
    most: usize,
) -> Vec<WeekOverWeekCost> {
    let mut weeks: Vec<WeekOverWeekCost> = weeks.filter(|week| week.cost > NanoUsd::ZERO).collect();
    weeks.sort_unstable_by(|one, other| other.cost.cmp(&one.cost).then_with(|| one.name.cmp(&other.name)));
    weeks.truncate(most);
    weeks
}

fn sum<'a>(costs: impl IntoIterator<Item = &'a NanoUsd>) -> NanoUsd {
    costs
        .into_iter()
        .fold(NanoUsd::ZERO, |sum, cost| sum.saturating_add(*cost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        keys::KeyId,
        ledger::daily_sums::{SumSubject, Sums},
        money::NanoUsd,
    };

    /// 2026-11-22T12:00:00Z, a Sunday.
    const NOW_MS: i64 = 1_795_348_800_000;

    fn spend(dollars: i64) -> KeySpend {
        let spent = NanoUsd::from_nanos(dollars * 1_000_000_000);
        KeySpend {
            all: spent,
            day: spent,
            week: spent,
            month: spent,
            ..KeySpend::default()
        }
    }

    fn report_json(quota: Option<i64>, reset: QuotaReset, spent: i64) -> Value {
        let terms = KeyTerms {
            quota: quota.map(|dollars| NanoUsd::from_nanos(dollars * 1_000_000_000)),
            reset,
            ..KeyTerms::default()
        };
        quota_report(&terms, &spend(spent), NOW_MS)
    }

    #[test]
    fn a_quota_is_told_in_cents_with_its_period() {
        let monthly = report_json(Some(500), QuotaReset::Monthly, 410);
        assert_eq!(
            monthly,
            json!({
                "extra_usage": {
                    "is_enabled": true, "monthly_limit": 50_000, "used_credits": 41_000, "utilization": 82, "currency": "USD"
                },
                "limits": [{
                    "kind": "spend", "group": "monthly", "percent": 82, "resets_at": "2026-12-01T00:00:00.000Z",
                    "severity": "warning", "is_active": true
                }]
            })
        );
        for (reset, group, resets_at) in [
            (QuotaReset::Daily, "daily", json!("2026-11-23T00:00:00.000Z")),
            (QuotaReset::Weekly, "weekly", json!("2026-11-23T00:00:00.000Z")),
            (QuotaReset::None, "total", Value::Null),
        ] {
            let limit = &report_json(Some(1), reset, 0)["limits"][0];
            assert_eq!((&limit["group"], &limit["resets_at"]), (&json!(group), &resets_at));
        }
        for (spent, severity) in [(74, "normal"), (75, "warning"), (95, "critical"), (200, "critical")] {
            assert_eq!(
                report_json(Some(100), QuotaReset::Daily, spent)["limits"][0]["severity"],
                severity
            );
        }
    }

    #[test]
    fn without_a_quota_only_what_was_spent_is_told() {
        let unlimited = report_json(None, QuotaReset::None, 12);
        let of = json!({ "limit": null, "used_credits": 1200, "utilization": null });
        assert_eq!(unlimited["limits"], json!([]));
        let extra = &unlimited["extra_usage"];
        assert_eq!(
            (&extra["daily"], &extra["weekly"], &extra["used_credits"]),
            (&of, &of, &json!(1200))
        );
        assert_eq!(
            (&extra["monthly_limit"], &extra["utilization"]),
            (&Value::Null, &Value::Null)
        );
    }

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
        let report_json = |by| {
            let mut report = UsageReport::default();
            report.add_lines(&sums, by);
            report.add_total(&sums);
            assert_eq!(report.total().cost_nano_usd, NanoUsd::from_nanos(321));
            let lines = report.lines(by, usize::MAX);
            lines
                .map(|(name, sums)| format!("{name} {}", sums.cost_nano_usd.nanos()))
                .collect::<Vec<_>>()
        };
        assert_eq!(report_json(SplitBy::Day), ["2024-10-04 21", "2024-10-05 300"]);
        assert_eq!(report_json(SplitBy::Model), ["m 1", "n 320"]);
        assert_eq!(
            report_json(SplitBy::Key),
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

    fn nanos(amounts: &[i64]) -> Vec<NanoUsd> {
        amounts.iter().copied().map(NanoUsd::from_nanos).collect()
    }

    fn of_model(day: i64, model: &str, cost: i64) -> DailySum {
        DailySum {
            day,
            subject: SumSubject::Account,
            model: model.into(),
            sums: Sums {
                requests: 1,
                cost_nano_usd: NanoUsd::from_nanos(cost),
                ..Sums::default()
            },
        }
    }

    #[test]
    fn the_dearest_are_told_by_name_and_the_others_together() {
        let mut costs = DailyCosts::new(10..=12);
        costs.add(
            &[
                of_model(10, "a", 1),
                of_model(12, "a", 2),
                of_model(11, "b", 30),
                of_model(12, "c", 1),
                of_model(12, "d", 1),
                of_model(13, "b", 1_000),
            ],
            SplitBy::Model,
        );
        costs.add(&[of_model(10, "a", 4)], SplitBy::Model);
        let report_json = |most| {
            let lines = costs.most_expensive(most).into_iter();
            lines
                .map(|(name, costs)| (name.map(str::to_owned), costs.into_owned()))
                .collect::<Vec<_>>()
        };
        let name = |name: &str| Some(name.to_owned());
        let [b, a] = [(name("b"), nanos(&[0, 30, 0])), (name("a"), nanos(&[5, 0, 2]))];
        assert_eq!(report_json(2), [b.clone(), a.clone(), (None, nanos(&[0, 0, 2]))]);
        assert_eq!(
            report_json(4),
            [b, a, (name("c"), nanos(&[0, 0, 1])), (name("d"), nanos(&[0, 0, 1]))]
        );
        assert_eq!(report_json(0), [(None, nanos(&[5, 30, 4]))]);
    }

    #[test]
    fn a_week_stands_beside_the_week_before() {
        let mut costs = DailyCosts::new(0..=19);
        for day in 0..20 {
            costs.add_cost("steady", day, NanoUsd::from_nanos(1));
        }
        costs.add_cost("new", 19, NanoUsd::from_nanos(9));
        costs.add_cost("gone", 12, NanoUsd::from_nanos(100));
        let week = |name: &str, cost, before| WeekOverWeekCost {
            name: name.to_owned(),
            cost: NanoUsd::from_nanos(cost),
            before: NanoUsd::from_nanos(before),
        };
        assert_eq!(
            most_expensive_weeks(costs.weeks(), 5),
            [week("new", 9, 0), week("steady", 7, 7)]
        );
        assert_eq!(most_expensive_weeks(costs.weeks(), 1), [week("new", 9, 0)]);
    }
}
