//! Proof that the rows of a day are exactly the rows that its daily sums include.
//!
//! The rows of one lane and account are added to the sums in the order of their numbers. For each lane, the ledger states the
//! number of the last row that the sums include. So the sums can be compared with the rows up to these numbers, even while
//! further rows arrive. Some log backends store each row and its sums in the same step. Only rows from these log backends have no
//! number. So the sums include all rows without a number.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Range, RangeInclusive},
};

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::KeyId,
    ledger::{
        consumption::Row,
        daily_sums::{DailySum, DailySums, DayTags, SumDifference, SumSubject, Sums, day_of, differences},
        ids::{NodeId, Tag},
        period::{COUNTERS_KEPT_MS, Period},
        reports::SpendByKey,
    },
    money::NanoUsd,
};

/// The ledger's sums for an account's day, and the sums of those rows of the day that were read so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct DayProof {
    ledger_sums: DailySums,
    /// For each lane, the number of the last row that the ledger's sums include.
    summed: BTreeMap<NodeId, u64>,
    row_sums: DailySums,
    tags: DayTags,
    /// For each lane, the numbers of the rows that were added as pending, because they are not in the log backend yet.
    pending: BTreeMap<NodeId, BTreeSet<u64>>,
    /// For each lane, a number. All rows of the lane with lower numbers are in the log backend or were added as pending.
    reached: BTreeMap<NodeId, u64>,
}

/// The result of comparing the rows of a day with its sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProofOutcome {
    /// The differences between the rows and the sums. If there are none, the day is proven.
    pub(crate) differences: Vec<SumDifference>,
    /// The lanes with rows that are in the sums, but possibly not in the log backend yet. Empty if there are no differences. If
    /// there are such lanes, the proof cannot be completed yet.
    pub(crate) behind: Vec<NodeId>,
    /// The number of rows in the sums, minus the number of rows that were read. Zero if the difference is negative.
    pub(crate) missing: u64,
    /// Whether the sums of all keys add up to those of the account.
    pub(crate) sums_agree: bool,
}

impl DayProof {
    /// Creates a proof of a day. `kept` contains the sums of the day. `summed` contains, for each lane, the number of the last
    /// row in these sums. Both must be of the same moment.
    pub(crate) fn new(kept: DailySums, summed: BTreeMap<NodeId, u64>) -> Self {
        let mut proof = Self {
            summed,
            ..Self::default()
        };
        proof.replace_sums(kept);
        proof
    }

    /// Replaces the ledger's sums with later ones, because rows without a number have arrived.
    pub(crate) fn replace_sums(&mut self, kept: DailySums) {
        // The ledger's order of rows has determined which tags have sums of their own.
        self.tags.extend(own_tags(&kept));
        self.ledger_sums = kept;
    }

    /// Returns the number of rows that the sums include.
    pub(crate) fn requests(&self) -> u64 {
        account_sums(&self.ledger_sums).requests
    }

    /// Returns, for each lane, the number of the last row that the ledger's sums include.
    pub(crate) fn summed(&self) -> &BTreeMap<NodeId, u64> {
        &self.summed
    }

    /// Records that all rows of a lane before `number` are in the log backend or were added as pending.
    pub(crate) fn set_reached(&mut self, lane: &NodeId, number: u64) {
        let reached = self.reached.entry(lane.clone()).or_default();
        *reached = number.max(*reached);
    }

    /// Whether each row of a lane is in the log backend or was added as pending. Only the rows that the ledger's sums include are
    /// considered.
    pub(crate) fn has_reached(&self, lane: &NodeId) -> bool {
        let reached = self.reached.get(lane).copied().unwrap_or(0);
        self.summed.get(lane).is_none_or(|last| reached > *last)
    }

    /// Adds a row of the day as pending, because the row is not in the log backend yet. All pending rows must be added before the
    /// rows from the log backend.
    pub(crate) fn add_pending(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if self.pending.entry(lane.clone()).or_default().insert(number) {
            self.count(lane, number, row);
        }
    }

    /// Whether a row was added as pending.
    pub(crate) fn is_pending(&self, lane: &NodeId, number: u64) -> bool {
        self.pending.get(lane).is_some_and(|rows| rows.contains(&number))
    }

    /// Adds a row of the day from the log backend. A row that was already added as pending is not added again.
    pub(crate) fn add(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if !self.is_pending(lane, number) {
            self.count(lane, number, row);
        }
    }

    /// Adds a row without a number.
    pub(crate) fn add_unnumbered(&mut self, row: &Row) {
        self.row_sums.add(row, &mut self.tags);
    }

    /// Adds a row if the ledger's sums include it. A row that was copied from another log backend is always added. It is in the
    /// lane for copied rows.
    fn count(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if *lane == NodeId::none() || self.summed.get(lane).is_some_and(|last| number <= *last) {
            self.add_unnumbered(row);
        }
    }

    /// Compares the sums of the rows with the ledger's sums.
    pub(crate) fn verdict(&self) -> ProofOutcome {
        let differences = differences(&self.ledger_sums, &self.row_sums);
        let behind = self.summed.keys().filter(|lane| !self.has_reached(lane)).cloned();
        ProofOutcome {
            behind: if differences.is_empty() {
                Vec::new()
            } else {
                behind.collect()
            },
            missing: self.requests().saturating_sub(account_sums(&self.row_sums).requests),
            sums_agree: keys_match_account(&self.ledger_sums),
            differences,
        }
    }

    /// Returns the sums of the rows that were added.
    pub(crate) fn into_sums(self) -> DailySums {
        self.row_sums
    }
}

/// Returns the tags that have sums of their own.
fn own_tags(kept: &DailySums) -> impl Iterator<Item = Tag> {
    kept.iter().filter_map(|sum| match sum.subject {
        SumSubject::Tag(tag) => Some(tag),
        SumSubject::Account | SumSubject::Key(_) | SumSubject::OtherTags => None,
    })
}

/// Returns the account's sums, added up over all models.
fn account_sums(sums: &DailySums) -> Sums {
    sum_where(sums, |subject| *subject == SumSubject::Account)
}

/// Whether the sums of all keys add up to those of the account.
fn keys_match_account(kept: &DailySums) -> bool {
    account_sums(kept) == sum_where(kept, |subject| matches!(subject, SumSubject::Key(_)))
}

fn sum_where(sums: &DailySums, takes: fn(&SumSubject) -> bool) -> Sums {
    let taken = sums.iter().filter(|sum| takes(&sum.subject));
    taken.fold(Sums::default(), |all, sum| all.plus(&sum.sums))
}

const DAY_MS: i64 = 24 * 3600 * 1000;
/// The maximum age of a counter in days, counted from the first day of its period. A store may have dropped older counters
/// already.
const LOOK_BACK_DAYS: i64 = 45;

/// A day, week or month for which counters are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CountedPeriod {
    /// The first and the last day of the period, in days since the Unix epoch.
    first: i64,
    last: i64,
    pub(crate) period: Period,
}

/// A counter of spending that differs from its expected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CounterDifference {
    /// The key to which the counter belongs; `None` for the account's counter.
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
    /// Returns the periods that contain one of `days` and have begun, except those that ended [`COUNTERS_KEPT_MS`] ago or
    /// earlier. Every store still has the counters of these periods. The earliest period is first.
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

    /// Returns the days of the period, in days since the Unix epoch.
    pub(crate) fn days(&self) -> RangeInclusive<i64> {
        self.first..=self.last
    }

    /// Returns the first day of the period and the day after its last day. A request takes a day at most. So the sums of the
    /// period's days can differ from its counter only by requests that ended on one of these two days.
    pub(crate) fn edges(&self) -> [i64; 2] {
        [self.first, self.last + 1]
    }

    /// Corrects `spent` for a row whose request ended on one of the [`CountedPeriod::edges`]. `spent` was computed from the sums
    /// of the period's days.
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

    /// Returns the keys' counters that differ from the spending computed from daily sums.
    pub(crate) fn differences(&self, counters: &SpendByKey, sums: &SpendByKey) -> Vec<CounterDifference> {
        compare_counters(self.period, counters, sums)
    }
}

/// Returns the keys' counters of total spending that differ from the spending computed from daily sums.
pub(crate) fn total_differences(counters: &SpendByKey, sums: &SpendByKey) -> Vec<CounterDifference> {
    compare_counters(Period::All, counters, sums)
}

/// Returns the difference between the account's counter of total spending and its expected value; `None` if they are equal.
pub(crate) fn account_difference(counter: NanoUsd, expected: NanoUsd, by: CounterBasis) -> Option<CounterDifference> {
    (counter != expected).then_some(CounterDifference {
        key: None,
        period: Period::All,
        counter,
        expected,
        basis: by,
    })
}

fn compare_counters(period: Period, counters: &SpendByKey, sums: &SpendByKey) -> Vec<CounterDifference> {
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

/// Adds each key's costs in daily sums to the key's spending in `spent`.
pub(crate) fn add_daily_sums(spent: &mut SpendByKey, sums: &[DailySum]) {
    for sum in sums {
        if let SumSubject::Key(key) = &sum.subject {
            let of_key = spent.entry(key.clone()).or_default();
            *of_key = of_key.saturating_add(sum.sums.cost_nano_usd);
        }
    }
}

/// Returns the total spending of all keys.
pub(crate) fn total_spend(spent: &SpendByKey) -> NanoUsd {
    spent.values().fold(NanoUsd::ZERO, |all, one| all.saturating_add(*one))
}
