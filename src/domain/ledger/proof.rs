//! Whether the rows of a day are those that the daily sums count.
//!
//! The rows of a lane and account enter the sums in the order of their numbers. So the sums of an account are those of its rows
//! up to the number that the ledger names for each lane, however many rows come meanwhile. Rows without a number are read where they
//! enter the sums in the same step: all of them count.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    consumption::Row,
    daily_sums::{DailySums, DayTags, Difference, Subject, Sums, differences},
    node::NodeId,
    tag::Tag,
};

/// A day of an account, as the ledger has it, and the rows that were read of it so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct DayProof {
    kept: DailySums,
    /// Of each lane the number of its last row in the sums.
    summed: BTreeMap<NodeId, u64>,
    of_rows: DailySums,
    tags: DayTags,
    /// The numbers of rows on their way to the home.
    on_their_way: BTreeMap<NodeId, BTreeSet<u64>>,
    /// Of each lane a number: all its rows before it are at the home or on their way.
    reached: BTreeMap<NodeId, u64>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Where the rows do not add up to what the sums say; empty: the day is proven.
    pub(crate) differences: Vec<Difference>,
    /// The lanes that may yet bring rows that the sums count, where anything differs: then the day is open.
    pub(crate) behind: Vec<NodeId>,
    /// How many rows the sums count more than there are.
    pub(crate) missing: u64,
    /// Whether the sums of the keys add up to those of the account.
    pub(crate) sums_agree: bool,
}

impl DayProof {
    /// The sums of the day, and up to which number of each lane they go; both of one moment.
    pub(crate) fn new(kept: DailySums, summed: BTreeMap<NodeId, u64>) -> Self {
        let mut proof = Self {
            summed,
            ..Self::default()
        };
        proof.renew(kept);
        proof
    }

    /// Puts later sums of the day in the place of those that it has: rows without a number have come.
    pub(crate) fn renew(&mut self, kept: DailySums) {
        // Which tags have sums of their own, the order of the rows has decided.
        self.tags.extend(own_tags(&kept));
        self.kept = kept;
    }

    /// How many rows the sums count.
    pub(crate) fn requests(&self) -> u64 {
        of_account(&self.kept).requests
    }

    /// Of each lane the number of its last row in the sums.
    pub(crate) fn summed(&self) -> &BTreeMap<NodeId, u64> {
        &self.summed
    }

    /// All rows of a lane before this number are at the home, or among those that are added as on their way.
    pub(crate) fn reaches(&mut self, lane: &NodeId, number: u64) {
        let reached = self.reached.entry(lane.clone()).or_default();
        *reached = number.max(*reached);
    }

    /// Whether the rows of a lane up to its last one in the sums are there.
    pub(crate) fn has_reached(&self, lane: &NodeId) -> bool {
        let reached = self.reached.get(lane).copied().unwrap_or(0);
        self.summed.get(lane).is_none_or(|last| reached > *last)
    }

    /// Adds a row of the day that is on its way to the home. To be done before those of the home are added.
    pub(crate) fn add_on_its_way(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if self.on_their_way.entry(lane.clone()).or_default().insert(number) {
            self.count(lane, number, row);
        }
    }

    /// Whether a row is one of those on their way.
    pub(crate) fn is_on_its_way(&self, lane: &NodeId, number: u64) -> bool {
        self.on_their_way.get(lane).is_some_and(|rows| rows.contains(&number))
    }

    /// Adds a row of the day that is at the home. One that was on its way, too, counts once.
    pub(crate) fn add(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if !self.is_on_its_way(lane, number) {
            self.count(lane, number, row);
        }
    }

    /// Adds a row without a number.
    pub(crate) fn add_unnumbered(&mut self, row: &Row) {
        self.of_rows.add(row, &mut self.tags);
    }

    /// Counts a row, unless the sums do not come to it yet. One that was brought from another home has no lane.
    fn count(&mut self, lane: &NodeId, number: u64, row: &Row) {
        if *lane == NodeId::none() || self.summed.get(lane).is_some_and(|last| number <= *last) {
            self.add_unnumbered(row);
        }
    }

    /// Compares rows and sums.
    pub(crate) fn verdict(&self) -> Verdict {
        let differences = differences(&self.kept, &self.of_rows);
        let behind = self.summed.keys().filter(|lane| !self.has_reached(lane)).cloned();
        Verdict {
            behind: if differences.is_empty() {
                Vec::new()
            } else {
                behind.collect()
            },
            missing: self.requests().saturating_sub(of_account(&self.of_rows).requests),
            sums_agree: agree(&self.kept),
            differences,
        }
    }

    /// What the rows add up to.
    pub(crate) fn into_sums(self) -> DailySums {
        self.of_rows
    }
}

/// The tags that have sums of their own.
fn own_tags(kept: &DailySums) -> impl Iterator<Item = Tag> {
    kept.iter().filter_map(|sum| match sum.subject {
        Subject::Tag(tag) => Some(tag),
        Subject::Account | Subject::Key(_) | Subject::OtherTags => None,
    })
}

/// What the account has, of all models.
fn of_account(sums: &DailySums) -> Sums {
    together(sums, |subject| *subject == Subject::Account)
}

/// Whether what the keys have adds up to what the account has.
fn agree(kept: &DailySums) -> bool {
    of_account(kept) == together(kept, |subject| matches!(subject, Subject::Key(_)))
}

fn together(sums: &DailySums, takes: fn(&Subject) -> bool) -> Sums {
    let taken = sums.iter().filter(|sum| takes(&sum.subject));
    taken.fold(Sums::default(), |all, sum| all.plus(&sum.sums))
}

#[cfg(test)]
mod tests;
