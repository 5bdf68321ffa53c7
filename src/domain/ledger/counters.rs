//! Compares the counters of quotas with the daily sums. Both change in the same step. But a request is in the counters of the
//! periods that contain its admission, and in the daily sums of the day of its end. So both differ by the rows whose two days are
//! in different periods.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::key::KeyId,
    ledger::{
        consumption::Row,
        daily_sums::{DailySum, SumSubject, day_of},
        period::{COUNTERS_KEPT_MS, Period},
        reports::SpendByKey,
    },
    money::NanoUsd,
};

const DAY_MS: i64 = 24 * 3600 * 1000;
/// The maximum number of days since the beginning of a period whose counter may still exist.
const LOOK_BACK_DAYS: i64 = 45;

/// A day, week or month for which counters are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CountedPeriod {
    /// The first and the last day of the period, in days since the Unix epoch.
    first: i64,
    last: i64,
    pub(crate) period: Period,
}

/// A counter that differs from its expected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CounterDifference {
    /// The key; `None` for the account's counter.
    pub(crate) key: Option<KeyId>,
    pub(crate) period: Period,
    /// The value of the counter.
    pub(crate) counter: NanoUsd,
    /// The value that the counter should have.
    pub(crate) expected: NanoUsd,
    /// The source of the expected value.
    pub(crate) basis: CounterBasis,
}

/// The source of the expected value of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CounterBasis {
    /// The daily sums.
    #[serde(rename = "daily sums")]
    Sums,
    /// The counters of the account's keys.
    #[serde(rename = "counters of its keys")]
    Keys,
}

impl CounterBasis {
    /// Returns the name of the source in reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Sums => "daily sums",
            Self::Keys => "counters of its keys",
        }
    }
}

impl CountedPeriod {
    /// Returns the periods that contain one of `days`, have begun, and ended less than [`COUNTERS_KEPT_MS`] ago, the earliest
    /// first. Every store still has the counters of these periods.
    pub(crate) fn kept(days: &Range<i64>, now_ms: i64) -> Vec<Self> {
        let (today, gone) = (
            now_ms.div_euclid(DAY_MS),
            now_ms.saturating_sub(COUNTERS_KEPT_MS).div_euclid(DAY_MS),
        );
        let asked = days.start.max(today - LOOK_BACK_DAYS)..days.end.min(today + 1);
        let all: BTreeSet<Self> = asked.flat_map(Self::of_day).collect();
        all.into_iter().filter(|period| period.last > gone).collect()
    }

    /// Returns the day, the week and the month that contain a day.
    fn of_day(day: i64) -> impl Iterator<Item = Self> {
        let periods = Period::each_at(day.saturating_mul(DAY_MS)).into_iter();
        periods.filter_map(|period| {
            let (first, last) = period.days()?.into_inner();
            Some(Self { first, last, period })
        })
    }

    /// Returns the days of the period, since the Unix epoch.
    pub(crate) fn days(&self) -> RangeInclusive<i64> {
        self.first..=self.last
    }

    /// Returns the first day of the period and the day after its last. Only requests that ended on these days can be in the sums
    /// of the period's days but not in its counter, or the reverse, because a request takes a day at most.
    pub(crate) fn edges(&self) -> [i64; 2] {
        [self.first, self.last + 1]
    }

    /// Corrects the spending computed from the sums of the period's days for a row that ended on one of the period's
    /// [`CountedPeriod::edges`].
    pub(crate) fn correct(&self, spent: &mut SpendByKey, row: &Row) {
        let (ended, admitted) = (day_of(row), row.admitted_ms.div_euclid(DAY_MS));
        let cost = row.cost_nano_usd.clamp(NanoUsd::ZERO, NanoUsd::MAX);
        let more = match (self.days().contains(&ended), self.days().contains(&admitted)) {
            (true, false) => NanoUsd::ZERO.saturating_sub(cost),
            (false, true) => cost,
            (true, true) | (false, false) => return,
        };
        let of_key = spent.entry(row.key_id.clone()).or_default();
        *of_key = of_key.saturating_add(more);
    }

    /// Returns the keys' counters that differ from the sums.
    pub(crate) fn differences(&self, counters: &SpendByKey, sums: &SpendByKey) -> Vec<CounterDifference> {
        differences(self.period, counters, sums)
    }
}

/// Returns the counters of total spending of keys that differ from the sums.
pub(crate) fn total_differences(counters: &SpendByKey, sums: &SpendByKey) -> Vec<CounterDifference> {
    differences(Period::All, counters, sums)
}

/// Returns the difference of the account's counter of total spending from its expected value; `None` if it has that value.
pub(crate) fn account_difference(counter: NanoUsd, expected: NanoUsd, by: CounterBasis) -> Option<CounterDifference> {
    (counter != expected).then_some(CounterDifference {
        key: None,
        period: Period::All,
        counter,
        expected,
        basis: by,
    })
}

fn differences(period: Period, counters: &SpendByKey, sums: &SpendByKey) -> Vec<CounterDifference> {
    let keys: BTreeSet<&KeyId> = counters.keys().chain(sums.keys()).collect();
    let of = |spent: &SpendByKey, key: &KeyId| spent.get(key).copied().unwrap_or_default();
    let compared = keys
        .into_iter()
        .map(|key| (key, of(counters, key), of(sums, key)))
        .filter(|(_, counter, expected)| counter != expected);
    compared
        .map(|(key, counter, expected)| CounterDifference {
            key: Some(key.clone()),
            period,
            counter,
            expected,
            basis: CounterBasis::Sums,
        })
        .collect()
}

/// Adds the keys' costs from daily sums to `spent`.
pub(crate) fn add_daily_sums(spent: &mut SpendByKey, sums: &[DailySum]) {
    for sum in sums {
        if let SumSubject::Key(key) = &sum.subject {
            let of_key = spent.entry(key.clone()).or_default();
            *of_key = of_key.saturating_add(sum.sums.cost_nano_usd);
        }
    }
}

/// Returns the spending of all keys together.
pub(crate) fn total_spend(spent: &SpendByKey) -> NanoUsd {
    spent.values().fold(NanoUsd::ZERO, |all, one| all.saturating_add(*one))
}

#[cfg(test)]
mod tests;
