//! Counters of settled requests for the stability record, by the hour in which the requests ended.

use std::collections::BTreeMap;

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters, NodeHourCounters, StabilityCounters},
        ledger::consumption::Row,
    },
    journal::Position,
};

/// The number of most recent hours whose counters stay in memory even if their segments are removed. It is twice the
/// published window.
const HOURS_KEPT: i64 = 48;

/// Adds a row to the counters of its hour and model. `bucket_of` returns the counters of an hour.
pub(super) fn count<'a>(row: &Row, bucket_of: impl FnOnce(Hour) -> &'a mut ModelCounters) {
    let Some(counters) = StabilityCounters::from_row(row) else {
        return;
    };
    let bucket = bucket_of(Hour::from_unix_ms(row.time_ms));
    match bucket.get_mut(row.model.as_str()) {
        Some(known) => known.add(&counters),
        None => {
            bucket.insert(row.model.to_string(), counters);
        }
    }
}

/// The counters of an hour.
#[derive(Debug)]
struct HourCount {
    bucket: ModelCounters,
    /// Whether the counters have grown since they were last returned.
    changed: bool,
    /// The number of the last segment with a row of the hour.
    segment: u64,
}

impl HourCount {
    fn new(segment: u64) -> Self {
        Self {
            bucket: ModelCounters::new(),
            changed: true,
            segment,
        }
    }

    fn share(&self, hour: Hour) -> NodeHourCounters {
        NodeHourCounters {
            hour,
            bucket: self.bucket.clone(),
        }
    }
}

/// The counters of all hours in memory.
#[derive(Debug, Default)]
pub(super) struct HourlyCounts {
    hours: BTreeMap<Hour, HourCount>,
    /// The position of the last row that the counters include; `None` if they include no row.
    last: Option<Position>,
}

impl HourlyCounts {
    /// Adds a row that was recorded at a position.
    pub(super) fn count_row(&mut self, row: &Row, position: Position) {
        count(row, |hour| &mut self.hour_mut(hour, position.segment).bucket);
        self.last = self.last.max(Some(position));
    }

    /// Adds the counters of a segment. `last` is the position of the segment's last row, or `None` if it has no rows.
    pub(super) fn add_segment(&mut self, hours: &BTreeMap<Hour, ModelCounters>, last: Option<Position>) {
        let Some(last) = last else { return };
        for (hour, bucket) in hours {
            let tally = self.hour_mut(*hour, last.segment);
            for (model, counters) in bucket {
                tally.bucket.entry(model.clone()).or_default().add(counters);
            }
        }
        self.last = self.last.max(Some(last));
    }

    fn hour_mut(&mut self, hour: Hour, segment: u64) -> &mut HourCount {
        let tally = self.hours.entry(hour).or_insert_with(|| HourCount::new(segment));
        tally.changed = true;
        tally.segment = tally.segment.max(segment);
        tally
    }

    /// Returns the position of the last row that the counters include; `None` if they include no row.
    pub(super) fn last(&self) -> Option<Position> {
        self.last
    }

    /// Returns the hours whose counters have grown since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<NodeHourCounters> {
        let changed = self.hours.iter_mut().filter(|(_, tally)| tally.changed);
        changed
            .map(|(hour, tally)| {
                tally.changed = false;
                tally.share(*hour)
            })
            .collect()
    }

    /// Returns the counters of all hours in memory.
    pub(super) fn shares(&self) -> Vec<NodeHourCounters> {
        self.hours.iter().map(|(hour, tally)| tally.share(*hour)).collect()
    }

    /// Marks hours as grown, so that the next call of `take_changed` returns them again.
    pub(super) fn mark_changed(&mut self, hours: &[Hour]) {
        for hour in hours {
            if let Some(tally) = self.hours.get_mut(hour) {
                tally.changed = true;
            }
        }
    }

    /// Removes the counters of old hours, after the segment with the number `segment` was removed. Keeps an hour if a later
    /// segment has rows of it, if it is recent, or if its counters have grown since they were last returned.
    pub(super) fn remove_segment(&mut self, segment: u64, now: Hour) {
        let oldest = now.plus(-HOURS_KEPT);
        self.hours
            .retain(|hour, tally| tally.segment > segment || tally.changed || *hour >= oldest);
    }
}
