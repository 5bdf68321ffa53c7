//! Spending on each of some days, by model, key, tag or account: daily sums, grouped for charts and comparisons.

use std::{borrow::Cow, ops::RangeInclusive};

use crate::domain::{
    ledger::{daily_sums::DailySum, usage_report::SplitBy},
    money::NanoUsd,
    quick_map::QuickMap,
};

/// The number of days that are compared with as many before them.
pub(crate) const WEEK: usize = 7;

/// Costs by name and day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DailyCosts {
    days: RangeInclusive<i64>,
    /// For each name, the cost of each day.
    names: QuickMap<String, Vec<NanoUsd>>,
}

/// The cost of the last week, with that of the week before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WeekOverWeekCost {
    /// The name.
    pub name: String,
    /// The cost of the last seven days.
    pub cost: NanoUsd,
    /// The cost of the seven days before them.
    pub before: NanoUsd,
}

/// The costs of a name, or `None` and the costs of all names without their own line.
pub(crate) type DailyCostLine<'a> = (Option<&'a str>, Cow<'a, [NanoUsd]>);

impl DailyCosts {
    /// Costs of these days, counted from the Unix epoch; none so far.
    pub(crate) fn new(days: RangeInclusive<i64>) -> Self {
        Self {
            days,
            names: QuickMap::default(),
        }
    }

    /// Adds the costs of sums to the names by which `by` splits them.
    pub(crate) fn add<'a>(&mut self, sums: impl IntoIterator<Item = &'a DailySum>, by: SplitBy) {
        for sum in sums {
            self.add_cost(&by.name(sum), sum.day, sum.sums.cost_nano_usd);
        }
    }

    /// Adds a cost to a name's day; ignored if it is not one of these days.
    pub(crate) fn add_cost(&mut self, name: &str, day: i64, cost: NanoUsd) {
        let place = usize::try_from(day.saturating_sub(*self.days.start()));
        if !self.names.contains_key(name) {
            let none = vec![NanoUsd::ZERO; self.days.clone().count()];
            self.names.insert(name.to_owned(), none);
        }
        let line = self.names.get_mut(name);
        if let Some(sum) = place.ok().and_then(|place| line?.get_mut(place)) {
            *sum = sum.saturating_add(cost);
        }
    }

    pub(crate) fn days(&self) -> RangeInclusive<i64> {
        self.days.clone()
    }

    /// The `most` names with the highest total cost, the most expensive first, then the sum of all others, if there are any.
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
                Some(match rest {
                    None => costs.to_vec(),
                    Some(rest) => rest
                        .iter()
                        .zip(costs.iter())
                        .map(|(one, other)| one.saturating_add(*other))
                        .collect(),
                })
            });
        told.extend(rest.map(|rest| (None, Cow::Owned(rest))));
        told
    }

    /// For each name, the cost of the last week of these days and of the week before.
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

/// The `most` names with the highest cost in the last week, the most expensive first, without those that cost nothing.
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
    use crate::domain::ledger::daily_sums::{SumSubject, Sums};

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
        let told = |most| {
            let lines = costs.most_expensive(most).into_iter();
            lines
                .map(|(name, costs)| (name.map(str::to_owned), costs.into_owned()))
                .collect::<Vec<_>>()
        };
        let name = |name: &str| Some(name.to_owned());
        let [b, a] = [(name("b"), nanos(&[0, 30, 0])), (name("a"), nanos(&[5, 0, 2]))];
        assert_eq!(told(2), [b.clone(), a.clone(), (None, nanos(&[0, 0, 2]))]);
        assert_eq!(
            told(4),
            [b, a, (name("c"), nanos(&[0, 0, 1])), (name("d"), nanos(&[0, 0, 1]))]
        );
        assert_eq!(told(0), [(None, nanos(&[5, 30, 4]))]);
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
