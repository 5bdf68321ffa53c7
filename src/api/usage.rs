//! Requests of the admin API about usage, which are answered from the daily sums.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{accounts::AccountDetails, log::UtcDay, question, values::Usd};
use crate::api::{text_value, values::AccountId};
use crate::domain::{
    keys::KeyId,
    ledger::{
        daily_sums::Sums,
        ids::Tag,
        reports::{self, DailyCosts, SplitBy, date_of_day},
    },
    money::NanoUsd,
    wire::usage::Usage,
};

text_value!(SplitBy, "day, model, key or tag");

/// Returns the usage of some days, split into lines.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowUsage {
    /// Only the usage of the account with this name.
    pub(crate) account: Option<AccountId>,
    /// Only the usage of the key with this id.
    pub(crate) key: Option<KeyId>,
    /// Only the usage of the model with this name in the catalogue.
    pub(crate) model: Option<String>,
    /// Only the usage of requests with this tag.
    pub(crate) tag: Option<Tag>,
    /// What each line is about: a day, a model, a key or a tag; a day if omitted.
    pub(crate) by: Option<SplitBy>,
    /// The first day, in UTC; if omitted, the report covers 30 days.
    pub(crate) from: Option<UtcDay>,
    /// The day after the last day, in UTC; tomorrow if omitted.
    pub(crate) until: Option<UtcDay>,
    /// The name of an account. If `account` is omitted, only accounts whose names sort after this name are included.
    pub(crate) after: Option<String>,
    /// The maximum number of lines; unlimited if omitted.
    pub(crate) most: Option<usize>,
}

question!(ShowUsage => UsagePage: GET "/v1/usage", Viewer);

/// The usage of the requested accounts. One page includes at most 32 accounts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsagePage {
    /// The costs by day.
    #[serde(flatten)]
    pub(crate) costs: CostsByDay,
    /// What each line is about: a day, a model, a key or a tag.
    pub(crate) by: SplitBy,
    /// The lines of the report. A report by day is sorted by day; if lines are left out, the most recent days remain. Any other
    /// report is sorted by name if no lines are left out. Otherwise, the lines with the highest costs remain, and the report is
    /// sorted by cost, the lowest first.
    pub(crate) usage: Vec<UsageLine>,
    /// The number of lines that are left out.
    pub(crate) left_out: usize,
    /// The total, in which each request is included once.
    pub(crate) total: UsageSums,
    /// The name of the last account that is included, if further accounts may follow. To get them, send this name as `after`.
    pub(crate) next: Option<String>,
}

/// Sums over rows of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageSums {
    /// The number of rows.
    pub(crate) requests: u64,
    /// The number of rows whose status is not 2xx.
    pub(crate) errors: u64,
    /// The cost of the rows in USD.
    pub(crate) cost_usd: Usd,
    /// The cost of the rows in nano-USD.
    pub(crate) cost_nano_usd: NanoUsd,
    /// The rows' numbers of tokens and calls, by kind.
    #[serde(flatten)]
    pub(crate) usage: Usage,
}

impl From<&Sums> for UsageSums {
    fn from(sums: &Sums) -> Self {
        Self {
            requests: sums.requests,
            errors: sums.errors,
            cost_usd: Usd(sums.cost_nano_usd),
            cost_nano_usd: sums.cost_nano_usd,
            usage: sums.usage,
        }
    }
}

impl UsageSums {
    /// Returns the sum of these sums and `other`.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let sums = |of: &Self| Sums {
            requests: of.requests,
            errors: of.errors,
            cost_nano_usd: of.cost_nano_usd,
            usage: of.usage,
            ..Sums::default()
        };
        Self::from(&sums(self).plus(&sums(other)))
    }
}

/// A line of a usage report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageLine {
    /// The day, model, key or tag that the line is about.
    #[serde(flatten)]
    pub(crate) of: UsageSubject,
    /// The usage of this day, model, key or tag.
    #[serde(flatten)]
    pub(crate) sums: UsageSums,
}

/// The day, model, key or tag that a line is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UsageSubject {
    /// A day in UTC, on which requests ended.
    Day(String),
    /// The name of a model that served requests.
    Model(String),
    /// The id of a key.
    Key(String),
    /// A tag, or `other` for all tags without separate sums. The number of tags with separate sums per day is limited.
    Tag(String),
}

impl UsageSubject {
    /// Builds the subject with this name, of the kind `by`.
    pub(crate) fn new(by: SplitBy, name: String) -> Self {
        match by {
            SplitBy::Day => Self::Day(name),
            SplitBy::Model => Self::Model(name),
            SplitBy::Key => Self::Key(name),
            SplitBy::Tag => Self::Tag(name),
        }
    }

    /// Returns the name of the day, model, key or tag.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Day(name) | Self::Model(name) | Self::Key(name) | Self::Tag(name) => name,
        }
    }
}

impl UsageLine {
    /// Converts the lines of a report.
    pub(crate) fn from_report<'a>(by: SplitBy, lines: impl Iterator<Item = (&'a str, &'a Sums)>) -> Vec<Self> {
        let line = |(name, sums): (&str, &Sums)| Self {
            of: UsageSubject::new(by, name.to_owned()),
            sums: sums.into(),
        };
        lines.map(line).collect()
    }
}

/// The costs of consecutive days, by the name of a model, key or tag.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CostsByDay {
    /// The first day, in UTC.
    pub(crate) from: UtcDay,
    /// The day after the last day, in UTC.
    pub(crate) until: UtcDay,
    /// The names with the highest costs, and each name's cost on each day. The name with the highest cost comes first. If there
    /// are other names, the sum of their costs follows as the last entry.
    pub(crate) daily: Vec<CostSeries>,
}

/// The cost per day of one name (a model, key or tag), or of several names together.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CostSeries {
    /// The name; null: all names that are not listed.
    pub(crate) name: Option<String>,
    /// The cost of each day, in nano-USD.
    pub(crate) cost_nano_usd: Vec<NanoUsd>,
}

impl CostsByDay {
    /// Selects the `most` names with the highest costs, and sums up all others.
    pub(crate) fn from_costs(costs: &DailyCosts, most: usize) -> Self {
        let days = costs.days();
        let line = |(name, costs): reports::DailyCostLine<'_>| CostSeries {
            name: name.map(str::to_owned),
            cost_nano_usd: costs.into_owned(),
        };
        Self {
            from: UtcDay(date_of_day(*days.start())),
            until: UtcDay(date_of_day(days.end().saturating_add(1))),
            daily: costs.most_expensive(most).into_iter().map(line).collect(),
        }
    }
}

/// Returns the totals of all accounts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowOverview {}

question!(ShowOverview => Overview: GET "/v1/overview", Viewer);

/// The totals of all accounts: balances now, and usage of today and of this month.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Overview {
    /// The number of accounts that are included in the totals.
    pub(crate) accounts: usize,
    /// Whether all accounts are included in the totals.
    pub(crate) is_whole: bool,
    /// The number of suspended accounts.
    pub(crate) suspended: usize,
    /// The amount paid in so far, in nano-USD.
    pub(crate) paid_in_nano_usd: NanoUsd,
    /// The amount paid in today (UTC), in nano-USD.
    pub(crate) paid_today_nano_usd: NanoUsd,
    /// The amount that was paid in during this month (UTC), in nano-USD.
    pub(crate) paid_month_nano_usd: NanoUsd,
    /// The sum of the accounts' balances, in nano-USD.
    pub(crate) balance_nano_usd: NanoUsd,
    /// The money that is set aside for running requests, in nano-USD.
    pub(crate) held_nano_usd: NanoUsd,
    /// The cost of all requests so far, in nano-USD.
    pub(crate) spent_nano_usd: NanoUsd,
    /// The usage of today (UTC).
    pub(crate) today: UsageSums,
    /// The usage of this month (UTC).
    pub(crate) month: UsageSums,
    /// The costs of the last 30 days, by model.
    pub(crate) spent: CostsByDay,
    /// The highest costs of the last seven days.
    pub(crate) dearest: TopCosts,
    /// The number of accounts with a low balance.
    pub(crate) low_count: u64,
    /// The accounts with the lowest balances among those with a low balance, the lowest first.
    pub(crate) low: Vec<AccountDetails>,
}

/// The accounts, keys and models with the highest costs of the last seven days.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TopCosts {
    /// The accounts with the highest costs, the highest first.
    pub(crate) accounts: Vec<WeekCostLine>,
    /// The keys with the highest costs, the highest first.
    pub(crate) keys: Vec<WeekCostLine>,
    /// The models with the highest costs, the highest first.
    pub(crate) models: Vec<WeekCostLine>,
}

/// The cost of the last seven days and of the seven days before, for one account, key or model.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WeekCostLine {
    /// The name of the account or model, or the id of the key.
    pub(crate) name: String,
    /// The cost of the last seven days, in nano-USD.
    pub(crate) cost_nano_usd: NanoUsd,
    /// The cost of the seven days before, in nano-USD.
    pub(crate) before_nano_usd: NanoUsd,
}

impl WeekCostLine {
    /// Returns the `most` names with the highest costs of the last seven days.
    pub(crate) fn most_expensive(costs: &DailyCosts, most: usize) -> Vec<Self> {
        let week = |week: reports::WeekOverWeekCost| Self {
            name: week.name,
            cost_nano_usd: week.cost,
            before_nano_usd: week.before,
        };
        let weeks = reports::most_expensive_weeks(costs.weeks(), most);
        weeks.into_iter().map(week).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_what_it_is_of_and_reads_back() {
        let sums = Sums {
            requests: 2,
            errors: 1,
            cost_nano_usd: NanoUsd::from_nanos(1_500_000_000),
            usage: Usage {
                output_text: 3,
                ..Usage::default()
            },
            ..Sums::default()
        };
        let lines = UsageLine::from_report(SplitBy::Model, [("m", &sums)].into_iter());
        let told = serde_json::to_string(&lines).unwrap();
        assert_eq!(
            told,
            r#"[{"model":"m","requests":2,"errors":1,"cost_usd":"1.50","cost_nano_usd":1500000000,"output_text":3}]"#
        );
        let read: Vec<UsageLine> = serde_json::from_str(&told).unwrap();
        assert_eq!(read[0].of, UsageSubject::Model("m".to_owned()));
        assert_eq!(read[0].sums, UsageSums::from(&sums));
    }
}
