//! Proves that the rows of a day are the rows that the daily sums include.
//!
//! The rows of a lane and account enter the sums in the order of their numbers. So the sums of an account are those of its rows
//! up to the number that the ledger states for each lane, no matter how many rows arrive in the meantime. Rows without a number
//! are read from a log backend that stores them in the same step as the sums, so the sums include all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    consumption::Row,
    daily_sums::{DailySums, DayTags, SumDifference, SumSubject, Sums, differences},
    tag::Tag,
};
use crate::domain::ledger::ids::NodeId;

/// The sums of an account's day in the ledger, and the sums of the rows of that day that have been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct DayProof {
    ledger_sums: DailySums,
    /// For each lane, the number of its last row in the sums.
    summed: BTreeMap<NodeId, u64>,
    row_sums: DailySums,
    tags: DayTags,
    /// For each lane, the numbers of its rows that have not reached the log backend yet and were added from its tail.
    pending: BTreeMap<NodeId, BTreeSet<u64>>,
    /// For each lane, the number before which all its rows are in the log backend or were added from its tail.
    reached: BTreeMap<NodeId, u64>,
}

/// The result of comparing the rows of a day with its sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProofOutcome {
    /// The differences between rows and sums; empty if the day is proven.
    pub(crate) differences: Vec<SumDifference>,
    /// If anything differs, the lanes that may still deliver rows that the sums include. While there are any, the day is
    /// unfinished.
    pub(crate) behind: Vec<NodeId>,
    /// By how many rows the sums exceed the rows that were read.
    pub(crate) missing: u64,
    /// Whether the sums of the keys add up to those of the account.
    pub(crate) sums_agree: bool,
}

impl DayProof {
    /// Creates a proof of a day from its sums and, for each lane, the number of its last row in them. Both must be of the same
    /// moment.
    pub(crate) fn new(kept: DailySums, summed: BTreeMap<NodeId, u64>) -> Self {
        let mut proof = Self {
            summed,
            ..Self::default()
        };
        proof.replace_sums(kept);
        proof
    }

    /// Replaces the sums of the day with later ones, because rows without a number have arrived.
    pub(crate) fn replace_sums(&mut self, kept: DailySums) {
        // The order of the rows has determined which tags have sums of their own.
        self.tags.extend(own_tags(&kept));
        self.ledger_sums = kept;
    }

    /// Returns the number of rows that the sums include.
    pub(crate) fn requests(&self) -> u64 {
        account_sums(&self.ledger_sums).requests
    }

    /// Returns, for each lane, the number of its last row in the sums.
    pub(crate) fn summed(&self) -> &BTreeMap<NodeId, u64> {
        &self.summed
    }

    /// Records that all rows of a lane before `number` are in the log backend, or were added as pending.
    pub(crate) fn set_reached(&mut self, lane: &NodeId, number: u64) {
        let reached = self.reached.entry(lane.clone()).or_default();
        *reached = number.max(*reached);
    }

    /// Whether all rows of a lane up to its last one in the sums are available.
    pub(crate) fn has_reached(&self, lane: &NodeId) -> bool {
        let reached = self.reached.get(lane).copied().unwrap_or(0);
        self.summed.get(lane).is_none_or(|last| reached > *last)
    }

    /// Adds a row of the day that is pending: it has not reached the log backend yet. Pending rows must be added before the rows
    /// of the log backend.
    pub(crate) fn add_pending(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if self.pending.entry(lane.clone()).or_default().insert(number) {
            self.count(lane, number, row);
        }
    }

    /// Whether a row was added as pending.
    pub(crate) fn is_pending(&self, lane: &NodeId, number: u64) -> bool {
        self.pending.get(lane).is_some_and(|rows| rows.contains(&number))
    }

    /// Adds a row of the day from the log backend. A row that was also pending is included once.
    pub(crate) fn add(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if !self.is_pending(lane, number) {
            self.count(lane, number, row);
        }
    }

    /// Adds a row without a number.
    pub(crate) fn add_unnumbered(&mut self, row: &Row) {
        self.row_sums.add(row, &mut self.tags);
    }

    /// Adds a row if the ledger's sums include it. A row that was moved from another log backend has no lane, and is always
    /// added.
    fn count(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if *lane == NodeId::none() || self.summed.get(lane).is_some_and(|last| number <= *last) {
            self.add_unnumbered(row);
        }
    }

    /// Compares the rows with the sums.
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

    /// Returns the sums of the rows.
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

/// Returns the account's sums over all models.
fn account_sums(sums: &DailySums) -> Sums {
    sum_where(sums, |subject| *subject == SumSubject::Account)
}

/// Whether the sums of the keys add up to those of the account.
fn keys_match_account(kept: &DailySums) -> bool {
    account_sums(kept) == sum_where(kept, |subject| matches!(subject, SumSubject::Key(_)))
}

fn sum_where(sums: &DailySums, takes: fn(&SumSubject) -> bool) -> Sums {
    let taken = sums.iter().filter(|sum| takes(&sum.subject));
    taken.fold(Sums::default(), |all, sum| all.plus(&sum.sums))
}

#[cfg(test)]
mod tests;
