//! What the journal is told of its sinks, and what it tells of them.

use std::sync::{Arc, atomic::Ordering};

use crate::journal::{
    engine::JournalEngine,
    frame::HEADER,
    handle::Journal,
    position::Position,
    reader::{Reader, Scope},
    rows::row_of,
};

/// Where less of the disk is free, in percent, rows that only optional sinks lack are given up.
const SHORT_PERCENT: u64 = 5;

impl Journal {
    /// A sink has all rows with lower numbers. It may say less than before, if it has lost something.
    pub(crate) fn sink_has(&self, sink: &str, number: u64) {
        if let Some(holder) = self.engine.lock().contents.holders.get_mut(sink) {
            holder.passed = Position::of_number(number);
        }
    }

    /// Up to which number a sink was last known to have all rows.
    pub(crate) fn sink_reached(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        let holder = state.contents.holders.get(sink);
        holder.map_or(0, |holder| holder.passed.number())
    }

    /// How many rows were given up because an optional sink lacked them when the disk was nearly full; since the start.
    pub(crate) fn sink_dropped(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        state.contents.holders.get(sink).map_or(0, |holder| holder.dropped)
    }

    /// What the journal has behind the rows that a sink has, in bytes.
    pub(crate) fn sink_behind_bytes(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        let Some(passed) = state.contents.holders.get(sink).map(|holder| holder.passed) else {
            return 0;
        };
        let segments = state.contents.segments.range(passed.segment..);
        segments
            .map(|(number, segment)| {
                let has = if *number == passed.segment {
                    passed.offset
                } else {
                    HEADER as u64
                };
                segment.end.saturating_sub(has)
            })
            .sum()
    }
}

impl JournalEngine {
    /// Whether the disk is nearly full. Not, if that cannot be told.
    pub(super) fn is_disk_short(&self) -> bool {
        let free = self.disk.free_percent(&self.folder.path);
        free.is_ok_and(|percent| percent < SHORT_PERCENT)
    }

    /// Counts the rows of segments that are about to go, by the sinks that lack them.
    pub(super) fn count_dropped(self: &Arc<Self>, numbers: &[u64]) {
        for number in numbers {
            let last = {
                let state = self.lock();
                state.contents.segments.get(number).and_then(|segment| segment.last_row)
            };
            let Some(offset) = last else { continue };
            let last = Position {
                segment: *number,
                offset,
            };
            let behind = self.lock().contents.holders.behind(last);
            for (sink, passed) in behind {
                let rows = self.rows_in(*number, passed);
                tracing::error!(
                    sink, rows, segment = %self.folder.segment(*number).display(),
                    "the disk is nearly full: rows that this optional sink lacks are removed from the journal"
                );
                if let Some(holder) = self.lock().contents.holders.get_mut(sink) {
                    holder.dropped = holder.dropped.saturating_add(rows);
                }
            }
        }
    }

    /// How many rows a segment has from a position on. Those that cannot be read are not counted.
    fn rows_in(self: &Arc<Self>, number: u64, from: Position) -> u64 {
        let begin = Position {
            segment: number,
            offset: HEADER as u64,
        };
        let mut reader = Reader::new(Arc::clone(self), from.max(begin), Scope::StepsOnDisk);
        let mut rows = 0;
        loop {
            match reader.read() {
                Ok(Some((at, record))) if at.segment == number => rows += u64::from(row_of(record).is_some()),
                Ok(_) => return rows,
                Err(_) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    return rows;
                }
            }
        }
    }
}
