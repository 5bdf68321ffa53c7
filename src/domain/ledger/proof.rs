//! Whether the rows of a day at the log's home are those that the daily sums count.
//!
//! The rows of a lane and account enter the sums in the order of their numbers. So the sums of an account are those of its rows
//! up to the number that the ledger names for each lane, however many rows come meanwhile.

use std::collections::BTreeMap;

use super::{
    consumption::Row,
    daily_sums::{DailySums, DayTags, Difference, Subject, differences},
    node::NodeId,
};

/// A day of an account, as the ledger has it, and the rows that were read at the home so far.
#[derive(Debug)]
pub(crate) struct DayProof {
    kept: DailySums,
    /// Of each lane the number of its last row in the sums.
    summed: BTreeMap<NodeId, u64>,
    of_rows: DailySums,
    tags: DayTags,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Where the rows do not add up to what the sums say; empty: the day is proven.
    pub(crate) differences: Vec<Difference>,
    /// The lanes that may yet bring rows that the sums count, where anything differs.
    pub(crate) behind: Vec<NodeId>,
}

impl DayProof {
    /// The sums of the day, and up to which number of each lane they go; both of one moment.
    pub(crate) fn new(kept: DailySums, summed: BTreeMap<NodeId, u64>) -> Self {
        // Which tags have sums of their own, the order of the rows has decided.
        let tags = kept.iter().filter_map(|sum| match sum.subject {
            Subject::Tag(tag) => Some(tag),
            Subject::Account | Subject::Key(_) | Subject::OtherTags => None,
        });
        Self {
            tags: tags.collect(),
            kept,
            summed,
            of_rows: DailySums::default(),
        }
    }

    /// Adds a row of the day, unless the sums do not come to it yet. A row that was brought from another home has no lane.
    pub(crate) fn add(&mut self, lane: &NodeId, number: u64, row: &Row) {
        let is_summed = *lane == NodeId::none() || self.summed.get(lane).is_some_and(|last| number <= *last);
        if is_summed {
            self.of_rows.add(row, &mut self.tags);
        }
    }

    /// Compares them. `reached` tells of a lane up to which number the home had its rows, before any row was read there.
    pub(crate) fn verdict(self, reached: &BTreeMap<NodeId, u64>) -> Verdict {
        let differences = differences(&self.kept, &self.of_rows);
        let is_behind = |(lane, last): &(&NodeId, &u64)| reached.get(*lane).copied().unwrap_or(0) <= **last;
        let behind = self.summed.iter().filter(is_behind).map(|(lane, _)| lane.clone());
        Verdict {
            behind: if differences.is_empty() {
                Vec::new()
            } else {
                behind.collect()
            },
            differences,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::ledger::{consumption::row_json::tests::row, daily_sums::TAGS_A_DAY_MAX, tag::Tag};

    fn lane(number: usize) -> NodeId {
        NodeId::parse(&format!("node_{:016}", number + 1)).unwrap()
    }

    /// Rows of two lanes, in the order of their numbers, 10 apart.
    #[derive(Clone, Debug)]
    struct Day {
        lanes: [Vec<Row>; 2],
        /// How many rows of each lane are in the sums, and how many at the home.
        summed: [usize; 2],
        at_home: [usize; 2],
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fault {
        None,
        Deleted,
        Changed,
    }

    fn day() -> impl Strategy<Value = Day> {
        let rows = || prop::collection::vec(row(), 0..12);
        let counts = || (0..12_usize, 0..12_usize);
        (rows(), rows(), counts(), counts()).prop_map(|(first, second, summed, at_home)| {
            let lanes = [first, second].map(|rows| rows.into_iter().map(|row| Row { time_ms: 5, ..row }).collect());
            let lanes: [Vec<Row>; 2] = lanes;
            let within = |counts: (usize, usize)| [counts.0.min(lanes[0].len()), counts.1.min(lanes[1].len())];
            Day {
                summed: within(summed),
                at_home: within(at_home),
                lanes,
            }
        })
    }

    fn verdict(day: &Day, fault: Fault, at: prop::sample::Index, other: &Row) -> (Verdict, bool) {
        let mut kept = DailySums::default();
        let mut tags = DayTags::default();
        let (mut summed, mut reached) = (BTreeMap::new(), BTreeMap::new());
        for (index, rows) in day.lanes.iter().enumerate() {
            let (count, there) = (day.summed[index], day.at_home[index]);
            rows[..count].iter().for_each(|row| kept.add(row, &mut tags));
            if count > 0 {
                summed.insert(lane(index), 10 * count as u64);
            }
            reached.insert(lane(index), 10 * there as u64 + 1);
        }
        let mut proof = DayProof::new(kept, summed);
        let mut rows: Vec<(usize, u64, Row)> = Vec::new();
        for (index, of_lane) in day.lanes.iter().enumerate() {
            let numbered = (1_u64..).zip(&of_lane[..day.at_home[index]]);
            rows.extend(numbered.map(|(number, row)| (index, 10 * number, row.clone())));
        }
        let counted = |(index, number, _): &(usize, u64, Row)| *number <= 10 * day.summed[*index] as u64;
        let places: Vec<usize> = (0..rows.len()).filter(|place| counted(&rows[*place])).collect();
        let mut is_faulty = false;
        if fault != Fault::None && !places.is_empty() {
            let place = places[at.index(places.len())];
            if fault == Fault::Deleted {
                rows.remove(place);
                is_faulty = true;
            } else {
                is_faulty = rows[place].2 != *other;
                rows[place].2 = other.clone();
            }
        }
        for (index, number, row) in rows.iter().rev() {
            proof.add(&lane(*index), *number, row);
        }
        (proof.verdict(&reached), is_faulty)
    }

    proptest! {
        /// It differs if and only if a row was deleted or changed and no lane is behind.
        #[test]
        fn a_day_differs_where_a_row_does_and_is_open_while_a_lane_is_behind(
            day in day(),
            fault in prop::sample::select(vec![Fault::None, Fault::Deleted, Fault::Changed]),
            at: prop::sample::Index,
            other in row(),
        ) {
            let other = Row { time_ms: 5, ..other };
            let (verdict, is_faulty) = verdict(&day, fault, at, &other);
            let behind: Vec<NodeId> = (0..2).filter(|index| day.at_home[*index] < day.summed[*index]).map(lane).collect();
            prop_assert_eq!(verdict.differences.is_empty(), !is_faulty && behind.is_empty(), "{:?}", verdict);
            prop_assert_eq!(&verdict.behind, &behind);
        }
    }

    #[test]
    fn rows_of_another_home_count_and_those_of_an_unknown_lane_do_not() {
        let row: Row = serde_json::from_str(
            r#"{"time_ms":5,"admitted_ms":1,"request_id":"r","account":"acme","key_id":"key_0000000000000001",
            "protocol":"messages","model_asked":"m","model":"m","provider":"p","status":200,"outcome":"ok","stream":true,
            "usage_source":"reported","price_version":"1","cost_nano_usd":7,"latency_ms":12,"ttft_ms":null}"#,
        )
        .unwrap();
        let mut proof = DayProof::new(DailySums::of_day([&row]), BTreeMap::new());
        proof.add(&lane(7), 1, &row);
        proof.add(&NodeId::none(), 1, &row);
        assert_eq!(proof.verdict(&BTreeMap::new()).differences, []);
    }

    #[test]
    fn which_tags_have_sums_of_their_own_is_what_the_sums_say_in_whatever_order_the_rows_come() {
        let rows: Vec<Row> = (0..TAGS_A_DAY_MAX + 20)
            .map(|number| {
                let mut row: Row = serde_json::from_str(
                    r#"{"time_ms":5,"admitted_ms":1,"request_id":"r","account":"acme","key_id":"key_0000000000000001",
                    "protocol":"messages","model_asked":"m","model":"m","provider":"p","status":200,"outcome":"ok",
                    "stream":true,"usage_source":"reported","price_version":"1","cost_nano_usd":7,"latency_ms":12,
                    "ttft_ms":null}"#,
                )
                .unwrap();
                row.tags = vec![Tag::parse(&format!("n={number}")).unwrap()];
                row
            })
            .collect();
        let last = rows.len() as u64;
        let mut proof = DayProof::new(DailySums::of_day(&rows), BTreeMap::from([(lane(1), last)]));
        for (before, row) in rows.iter().enumerate().rev() {
            proof.add(&lane(1), before as u64 + 1, row);
        }
        let verdict = proof.verdict(&BTreeMap::from([(lane(1), last + 1)]));
        assert_eq!(verdict.differences, []);
    }
}
