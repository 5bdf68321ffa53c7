//! Questions about usage, from the daily sums.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{accounts::AccountDetails, log::UtcDay, question, values::Usd};
use crate::api::{text_value, values::AccountId};
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        daily_sums::Sums,
        reports::{self, DailyCosts, SplitBy, date_of_day},
        tag::Tag,
    },
    money::NanoUsd,
    wire::usage::Usage,
};

text_value!(SplitBy, "day, model, key or tag");

/// Shows the usage of some days.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowUsage {
    /// Only of this account.
    pub(crate) account: Option<AccountId>,
    /// Only of this key.
    pub(crate) key: Option<KeyId>,
    /// Only of this model, by its name in the catalogue.
    pub(crate) model: Option<String>,
    /// Only of requests with this tag.
    pub(crate) tag: Option<Tag>,
    /// What the lines are split by; days if omitted.
    pub(crate) by: Option<SplitBy>,
    /// The first day, in UTC; if omitted, the report covers 30 days.
    pub(crate) from: Option<UtcDay>,
    /// The day after the last one.
    pub(crate) until: Option<UtcDay>,
    /// If no account is named: only accounts after this one.
    pub(crate) after: Option<String>,
    /// The maximum number of lines.
    pub(crate) most: Option<usize>,
}

question!(ShowUsage => UsagePage: GET "/v1/usage", Viewer);

/// Usage of all requested accounts, or of some of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsagePage {
    /// The costs by day.
    #[serde(flatten)]
    pub(crate) costs: CostsByDay,
    /// What the lines are split by.
    pub(crate) by: SplitBy,
    /// The lines in the order of their names. If some are left out: the latest days, or the lines with the highest costs first.
    pub(crate) usage: Vec<UsageLine>,
    /// The number of lines that are left out.
    pub(crate) left_out: usize,
    /// The total, which counts each request once.
    pub(crate) total: UsageSums,
    /// The last account that is included, if there may be others after it.
    pub(crate) next: Option<String>,
}

/// The sums of rows of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageSums {
    /// The number of rows.
    pub(crate) requests: u64,
    /// The number of rows with another status than 2xx.
    pub(crate) errors: u64,
    /// The cost of the rows.
    pub(crate) cost_usd: Usd,
    /// The cost of the rows.
    pub(crate) cost_nano_usd: NanoUsd,
    /// The counts of the rows.
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
    /// The sum of both.
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

/// A line of a report.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageLine {
    /// The subject of the line.
    #[serde(flatten)]
    pub(crate) of: UsageSubject,
    /// Its usage.
    #[serde(flatten)]
    pub(crate) sums: UsageSums,
}

/// The subject of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UsageSubject {
    /// A day on which requests ended, in UTC.
    Day(String),
    /// A model that served requests.
    Model(String),
    /// A key.
    Key(String),
    /// A tag; `other` for the tags beyond the limit of a day.
    Tag(String),
}

impl UsageSubject {
    /// The subject with this name.
    pub(crate) fn new(by: SplitBy, name: String) -> Self {
        match by {
            SplitBy::Day => Self::Day(name),
            SplitBy::Model => Self::Model(name),
            SplitBy::Key => Self::Key(name),
            SplitBy::Tag => Self::Tag(name),
        }
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Day(name) | Self::Model(name) | Self::Key(name) | Self::Tag(name) => name,
        }
    }
}

impl UsageLine {
    /// The lines of a report.
    pub(crate) fn from_report<'a>(by: SplitBy, lines: impl Iterator<Item = (&'a str, &'a Sums)>) -> Vec<Self> {
        let line = |(name, sums): (&str, &Sums)| Self {
            of: UsageSubject::new(by, name.to_owned()),
            sums: sums.into(),
        };
        lines.map(line).collect()
    }
}

/// The costs of some days.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CostsByDay {
    /// The first day.
    pub(crate) from: UtcDay,
    /// The day after the last one.
    pub(crate) until: UtcDay,
    /// The names with the highest costs, the highest first, followed by the sum of all others, if there are any.
    pub(crate) daily: Vec<CostSeries>,
}

/// The costs of a name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CostSeries {
    /// The name; null: all others.
    pub(crate) name: Option<String>,
    /// The cost of each day.
    pub(crate) cost_nano_usd: Vec<NanoUsd>,
}

impl CostsByDay {
    /// The `most` names with the highest costs, and all others together.
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

/// Shows the totals of all accounts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowOverview {}

question!(ShowOverview => Overview: GET "/v1/overview", Viewer);

/// The totals of all accounts: balances now, and usage today and this month.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Overview {
    /// The number of accounts that are counted.
    pub(crate) accounts: usize,
    /// Whether these are all accounts.
    pub(crate) is_whole: bool,
    /// The number of suspended accounts.
    pub(crate) suspended: usize,
    /// The amount paid in so far.
    pub(crate) paid_in_nano_usd: NanoUsd,
    /// The amount paid in today, in UTC.
    pub(crate) paid_today_nano_usd: NanoUsd,
    /// The amount paid in this month.
    pub(crate) paid_month_nano_usd: NanoUsd,
    /// The sum of their balances.
    pub(crate) balance_nano_usd: NanoUsd,
    /// The holds of running requests.
    pub(crate) held_nano_usd: NanoUsd,
    /// The cost of all requests so far.
    pub(crate) spent_nano_usd: NanoUsd,
    /// The usage of today, in UTC.
    pub(crate) today: UsageSums,
    /// The usage of this month.
    pub(crate) month: UsageSums,
    /// The costs of the last 30 days, by model.
    pub(crate) spent: CostsByDay,
    /// The highest costs of the last seven days.
    pub(crate) dearest: TopCosts,
    /// The number of accounts with a low balance.
    pub(crate) low_count: u64,
    /// The accounts with the lowest balances among them, the lowest first.
    pub(crate) low: Vec<AccountDetails>,
}

/// The highest costs of the last seven days.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TopCosts {
    /// The accounts with the highest costs, the highest first.
    pub(crate) accounts: Vec<WeekCostLine>,
    /// The keys with the highest costs.
    pub(crate) keys: Vec<WeekCostLine>,
    /// The models with the highest costs.
    pub(crate) models: Vec<WeekCostLine>,
}

/// The cost of a week, and of the week before.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WeekCostLine {
    /// The name of the account, key or model.
    pub(crate) name: String,
    /// The cost of the last seven days.
    pub(crate) cost_nano_usd: NanoUsd,
    /// The cost of the seven days before them.
    pub(crate) before_nano_usd: NanoUsd,
}

impl WeekCostLine {
    /// The `most` names with the highest costs.
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
