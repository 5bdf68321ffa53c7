//! What quotas count beside the daily sums: the counters of keys, by period, are changed in the same step as the sums, but a
//! request counts in the periods of its admission there, and on the day of its end here. The rows whose days differ are the only
//! difference.

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::key::KeyId,
    ledger::{
        consumption::Row,
        daily_sums::{DailySum, Subject, day_of},
        period::{COUNTERS_KEPT_MS, Period},
        view::Spent,
    },
    money::NanoUsd,
};

const DAY_MS: i64 = 24 * 3600 * 1000;
/// No period that is over for as long as counters are kept has begun later than so many days ago.
const LOOK_BACK_DAYS: i64 = 45;

/// A day, a week or a month that counters are kept of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CountedPeriod {
    /// Its first and its last day, counted from the Unix epoch.
    first: i64,
    last: i64,
    pub(crate) period: Period,
}

/// A counter that is not what it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CounterDifference {
    /// Whose; `None`: the account's.
    pub(crate) key: Option<KeyId>,
    pub(crate) period: Period,
    /// What it says.
    pub(crate) counter: NanoUsd,
    /// What it should say.
    pub(crate) expected: NanoUsd,
    /// What it is compared with.
    pub(crate) by: Basis,
}

/// What a counter is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Basis {
    /// The daily sums.
    #[serde(rename = "daily sums")]
    Sums,
    /// The counters of the account's keys.
    #[serde(rename = "counters of its keys")]
    Keys,
}

impl Basis {
    /// The words for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Sums => "daily sums",
            Self::Keys => "counters of its keys",
        }
    }
}

impl CountedPeriod {
    /// The periods that have one of these days, have begun, and have not been over for so long that a store may have dropped their
    /// counters; the earliest first.
    pub(crate) fn kept(days: &Range<i64>, now_ms: i64) -> Vec<Self> {
        let (today, gone) = (
            now_ms.div_euclid(DAY_MS),
            now_ms.saturating_sub(COUNTERS_KEPT_MS).div_euclid(DAY_MS),
        );
        let asked = days.start.max(today - LOOK_BACK_DAYS)..days.end.min(today + 1);
        let all: BTreeSet<Self> = asked.flat_map(Self::of_day).collect();
        all.into_iter().filter(|period| period.last > gone).collect()
    }

    /// The day, the week and the month that a day lies in.
    fn of_day(day: i64) -> impl Iterator<Item = Self> {
        let periods = Period::each_at(day.saturating_mul(DAY_MS)).into_iter();
        periods.filter_map(|period| {
            let (first, last) = period.days()?.into_inner();
            Some(Self { first, last, period })
        })
    }

    /// Its days.
    pub(crate) fn days(&self) -> RangeInclusive<i64> {
        self.first..=self.last
    }

    /// The days on which requests ended that count in it here and not there: its first, and the one behind it. A request
    /// takes a day at most.
    pub(crate) fn edges(&self) -> [i64; 2] {
        [self.first, self.last + 1]
    }

    /// Puts right what the sums of its days say of the key of a row that ended on one of its edges.
    pub(crate) fn correct(&self, spent: &mut Spent, row: &Row) {
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

    /// What differs.
    pub(crate) fn differences(&self, counters: &Spent, sums: &Spent) -> Vec<CounterDifference> {
        differences(self.period, counters, sums)
    }
}

/// What differs of what keys have ever spent.
pub(crate) fn differences_of_all(counters: &Spent, sums: &Spent) -> Vec<CounterDifference> {
    differences(Period::All, counters, sums)
}

/// The account's counter of all that it has ever spent, beside what it should say.
pub(crate) fn difference_of_account(counter: NanoUsd, expected: NanoUsd, by: Basis) -> Option<CounterDifference> {
    (counter != expected).then_some(CounterDifference {
        key: None,
        period: Period::All,
        counter,
        expected,
        by,
    })
}

fn differences(period: Period, counters: &Spent, sums: &Spent) -> Vec<CounterDifference> {
    let keys: BTreeSet<&KeyId> = counters.keys().chain(sums.keys()).collect();
    let of = |spent: &Spent, key: &KeyId| spent.get(key).copied().unwrap_or_default();
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
            by: Basis::Sums,
        })
        .collect()
}

/// Adds what daily sums say of keys.
pub(crate) fn add(spent: &mut Spent, sums: &[DailySum]) {
    for sum in sums {
        if let Subject::Key(key) = &sum.subject {
            let of_key = spent.entry(key.clone()).or_default();
            *of_key = of_key.saturating_add(sum.sums.cost_nano_usd);
        }
    }
}

/// What all keys have spent.
pub(crate) fn total(spent: &Spent) -> NanoUsd {
    spent.values().fold(NanoUsd::ZERO, |all, one| all.saturating_add(*one))
}

#[cfg(test)]
mod tests;
