//! Questions about what was used, from the daily sums.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{accounts::Account, log::Day, names::AccountId, question, schema::text_value, values::Usd};
use crate::domain::{
    keys::key::KeyId,
    ledger::{
        daily_costs::{self, DailyCosts},
        daily_sums::Sums,
        tag::Tag,
        usage_report::{SplitBy, date},
    },
    money::NanoUsd,
    wire::usage::Usage,
};

text_value!(SplitBy, "day, model, key or tag");

/// Tells what was used on some days.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowUsage {
    /// Of this account alone.
    pub(crate) account: Option<AccountId>,
    /// Of this key alone.
    pub(crate) key: Option<KeyId>,
    /// Of this model alone, by its name in the catalogue.
    pub(crate) model: Option<String>,
    /// Of requests with this tag alone.
    pub(crate) tag: Option<Tag>,
    /// What each line is of; days unless it is named.
    pub(crate) by: Option<SplitBy>,
    /// The first day, in UTC; the last 30 days unless it is named.
    pub(crate) from: Option<Day>,
    /// The first day that is too late.
    pub(crate) until: Option<Day>,
    /// Where no account is named: of those behind this one.
    pub(crate) after: Option<String>,
    /// The most lines.
    pub(crate) most: Option<usize>,
}

question!(ShowUsage => UsagePage: GET "/v1/usage", Viewer);

/// What was used, of all accounts that were asked about or of some of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsagePage {
    /// What was spent day by day.
    #[serde(flatten)]
    pub(crate) costs: CostsByDay,
    /// What each line is of.
    pub(crate) by: SplitBy,
    /// The lines by their names: of days the latest. Where lines are left out and they are not of days, by their costs.
    pub(crate) usage: Vec<UsageLine>,
    /// How many lines are left out.
    pub(crate) left_out: usize,
    /// All of it, each request once.
    pub(crate) total: UsageSums,
    /// The last account that was asked about, where there may be others behind it.
    pub(crate) next: Option<String>,
}

/// What rows of the log add up to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageSums {
    /// How many there are.
    pub(crate) requests: u64,
    /// How many of them have another status than 2xx.
    pub(crate) errors: u64,
    /// Their cost.
    pub(crate) cost_usd: Usd,
    /// Their cost.
    pub(crate) cost_nano_usd: NanoUsd,
    /// Their counts.
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
    /// Both together.
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
    /// Whose line it is.
    #[serde(flatten)]
    pub(crate) of: LineOf,
    /// What was used.
    #[serde(flatten)]
    pub(crate) sums: UsageSums,
}

/// What a line is of, by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LineOf {
    /// A day on which requests ended, in UTC.
    Day(String),
    /// A model that served.
    Model(String),
    /// A key.
    Key(String),
    /// A tag; `other` for those beyond the limit of a day.
    Tag(String),
}

impl LineOf {
    /// What has this name.
    pub(crate) fn new(by: SplitBy, name: String) -> Self {
        match by {
            SplitBy::Day => Self::Day(name),
            SplitBy::Model => Self::Model(name),
            SplitBy::Key => Self::Key(name),
            SplitBy::Tag => Self::Tag(name),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Day(name) | Self::Model(name) | Self::Key(name) | Self::Tag(name) => name,
        }
    }
}

impl UsageLine {
    /// Lines of a report.
    pub(crate) fn all<'a>(by: SplitBy, lines: impl Iterator<Item = (&'a str, &'a Sums)>) -> Vec<Self> {
        let line = |(name, sums): (&str, &Sums)| Self {
            of: LineOf::new(by, name.to_owned()),
            sums: sums.into(),
        };
        lines.map(line).collect()
    }
}

/// What was spent on some days.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CostsByDay {
    /// The first day.
    pub(crate) from: Day,
    /// The first day that is too late.
    pub(crate) until: Day,
    /// The dearest names, the dearest first, and behind them all others together, if there are any.
    pub(crate) daily: Vec<CostLine>,
}

/// The costs of a name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CostLine {
    /// The name; null: all others.
    pub(crate) name: Option<String>,
    /// The cost of each day.
    pub(crate) cost_nano_usd: Vec<NanoUsd>,
}

impl CostsByDay {
    /// The `most` dearest names one by one.
    pub(crate) fn of(costs: &DailyCosts, most: usize) -> Self {
        let days = costs.days();
        let line = |(name, costs): daily_costs::CostLine<'_>| CostLine {
            name: name.map(str::to_owned),
            cost_nano_usd: costs.into_owned(),
        };
        Self {
            from: Day(date(*days.start())),
            until: Day(date(days.end().saturating_add(1))),
            daily: costs.dearest(most).into_iter().map(line).collect(),
        }
    }
}

/// Tells what all accounts come to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowOverview {}

question!(ShowOverview => Overview: GET "/v1/overview", Viewer);

/// What all accounts come to: balances now, what was used today and this month.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Overview {
    /// How many accounts are counted.
    pub(crate) accounts: usize,
    /// Whether there are no others.
    pub(crate) is_whole: bool,
    /// How many of them are suspended.
    pub(crate) suspended: usize,
    /// What was ever paid in.
    pub(crate) paid_in_nano_usd: NanoUsd,
    /// What was paid in today, in UTC.
    pub(crate) paid_today_nano_usd: NanoUsd,
    /// What was paid in this month.
    pub(crate) paid_month_nano_usd: NanoUsd,
    /// Their balances.
    pub(crate) balance_nano_usd: NanoUsd,
    /// The holds of running requests.
    pub(crate) held_nano_usd: NanoUsd,
    /// The cost of all requests so far.
    pub(crate) spent_nano_usd: NanoUsd,
    /// What was used today, in UTC.
    pub(crate) today: UsageSums,
    /// What was used this month.
    pub(crate) month: UsageSums,
    /// What was spent in the last 30 days, by model.
    pub(crate) spent: CostsByDay,
    /// What cost most in the last seven days.
    pub(crate) dearest: Dearest,
    /// How many accounts have a low balance.
    pub(crate) low_count: u64,
    /// Those with the lowest balances, the lowest first.
    pub(crate) low: Vec<Account>,
}

/// What cost most in the last seven days.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Dearest {
    /// The accounts, the dearest first.
    pub(crate) accounts: Vec<WeekCost>,
    /// The keys.
    pub(crate) keys: Vec<WeekCost>,
    /// The models.
    pub(crate) models: Vec<WeekCost>,
}

/// A cost beside the one before.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WeekCost {
    /// Whose it is.
    pub(crate) name: String,
    /// The cost of the last seven days.
    pub(crate) cost_nano_usd: NanoUsd,
    /// The cost of the seven days before them.
    pub(crate) before_nano_usd: NanoUsd,
}

impl WeekCost {
    /// The `most` that cost most.
    pub(crate) fn dearest(costs: &DailyCosts, most: usize) -> Vec<Self> {
        let week = |week: daily_costs::WeekCost| Self {
            name: week.name,
            cost_nano_usd: week.cost,
            before_nano_usd: week.before,
        };
        let weeks = daily_costs::dearest_weeks(costs.weeks(), most);
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
        let lines = UsageLine::all(SplitBy::Model, [("m", &sums)].into_iter());
        let told = serde_json::to_string(&lines).unwrap();
        assert_eq!(
            told,
            r#"[{"model":"m","requests":2,"errors":1,"cost_usd":"1.50","cost_nano_usd":1500000000,"output_text":3}]"#
        );
        let read: Vec<UsageLine> = serde_json::from_str(&told).unwrap();
        assert_eq!(read[0].of, LineOf::Model("m".to_owned()));
        assert_eq!(read[0].sums, UsageSums::from(&sums));
    }
}
