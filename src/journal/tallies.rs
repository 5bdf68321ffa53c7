//! Counts settled requests for the stability record, by the hour they ended in.

use std::collections::BTreeMap;

use crate::{
    domain::{
        faults::stability::{Bucket, Counters, Hour, Share},
        ledger::consumption::Row,
    },
    journal::position::Position,
};

/// How many hours stay in memory after their segments are gone: twice the published window.
const HOURS_KEPT: i64 = 48;

/// Adds what a row counts to the bucket of its hour, which is made if there is none.
pub(super) fn count<'a>(row: &Row, bucket_of: impl FnOnce(Hour) -> &'a mut Bucket) {
    let Some(counters) = Counters::of(row) else { return };
    let bucket = bucket_of(Hour::of_ms(row.time_ms));
    match bucket.get_mut(row.model.as_str()) {
        Some(known) => known.add(&counters),
        None => {
            bucket.insert(row.model.to_string(), counters);
        }
    }
}

#[derive(Debug)]
struct Tally {
    bucket: Bucket,
    /// The hour has grown since it was last taken.
    changed: bool,
    /// The last segment with a row of the hour.
    segment: u64,
}

impl Tally {
    fn new(segment: u64) -> Self {
        Self {
            bucket: Bucket::new(),
            changed: true,
            segment,
        }
    }

    fn share(&self, hour: Hour) -> Share {
        Share {
            hour,
            bucket: self.bucket.clone(),
        }
    }
}

/// The counts of all hours in memory.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    hours: BTreeMap<Hour, Tally>,
    /// The position of the last row.
    last: Option<Position>,
}

impl Tallies {
    /// Counts a row recorded at a position.
    pub(super) fn row(&mut self, row: &Row, position: Position) {
        count(row, |hour| &mut self.tally(hour, position.segment).bucket);
        self.last = self.last.max(Some(position));
    }

    /// Takes over what a segment counts, whose last row stands at `last`.
    pub(super) fn segment(&mut self, hours: &BTreeMap<Hour, Bucket>, last: Option<Position>) {
        let Some(last) = last else { return };
        for (hour, bucket) in hours {
            let tally = self.tally(*hour, last.segment);
            for (model, counters) in bucket {
                tally.bucket.entry(model.clone()).or_default().add(counters);
            }
        }
        self.last = self.last.max(Some(last));
    }

    fn tally(&mut self, hour: Hour, segment: u64) -> &mut Tally {
        let tally = self.hours.entry(hour).or_insert_with(|| Tally::new(segment));
        tally.changed = true;
        tally.segment = tally.segment.max(segment);
        tally
    }

    /// The position of the last row.
    pub(super) fn last(&self) -> Option<Position> {
        self.last
    }

    /// The hours that grew since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<Share> {
        let changed = self.hours.iter_mut().filter(|(_, tally)| tally.changed);
        changed
            .map(|(hour, tally)| {
                tally.changed = false;
                tally.share(*hour)
            })
            .collect()
    }

    /// All hours in memory, in full.
    pub(super) fn shares(&self) -> Vec<Share> {
        self.hours.iter().map(|(hour, tally)| tally.share(*hour)).collect()
    }

    /// Marks hours as changed again.
    pub(super) fn untold(&mut self, hours: &[Hour]) {
        for hour in hours {
            if let Some(tally) = self.hours.get_mut(hour) {
                tally.changed = true;
            }
        }
    }

    /// A segment is gone, the one at the beginning. Hours that have no row in a later one are forgotten, unless they are
    /// recent or not taken.
    pub(super) fn removed(&mut self, segment: u64, now: Hour) {
        let oldest = now.plus(-HOURS_KEPT);
        self.hours
            .retain(|hour, tally| tally.segment > segment || tally.changed || *hour >= oldest);
    }
}
