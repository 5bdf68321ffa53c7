//! Tracks the positions of the sinks that read the journal.

use std::sync::{Arc, atomic::Ordering};

use crate::journal::{
    engine::JournalEngine,
    frame::HEADER,
    handle::Journal,
    position::Position,
    reader::{JournalRecordReader, ReadScope},
    rows::row_of,
};

/// Below this percentage of free disk space, the journal does not keep rows that only optional sinks lack.
const SHORT_PERCENT: u64 = 5;

impl Journal {
    /// Sets a sink's position: it has all rows with lower numbers. A sink that has lost rows may go back.
    pub(crate) fn set_sink_position(&self, sink: &str, number: u64) {
        if let Some(holder) = self.engine.lock().contents.retainers.get_mut(sink) {
            holder.passed = Position::from_number(number);
        }
    }

    /// A sink's last known position: it had all rows with lower numbers.
    pub(crate) fn sink_position(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        let holder = state.contents.retainers.get(sink);
        holder.map_or(0, |holder| holder.passed.number())
    }

    /// The number of rows removed since the start that an optional sink lacked, because the disk was nearly full.
    pub(crate) fn sink_dropped_rows(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        state.contents.retainers.get(sink).map_or(0, |holder| holder.dropped)
    }

    /// The size of the journal after a sink's position, in bytes.
    pub(crate) fn sink_lag_bytes(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        let Some(passed) = state.contents.retainers.get(sink).map(|holder| holder.passed) else {
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
    /// Whether the disk is nearly full; `false` if that cannot be determined.
    pub(super) fn is_disk_short(&self) -> bool {
        let free = self.disk.free_percent(&self.folder.path);
        free.is_ok_and(|percent| percent < SHORT_PERCENT)
    }

    /// Counts the rows of segments about to be removed, for each sink that lacks them.
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
            let behind = self.lock().contents.retainers.lagging(last);
            for (sink, passed) in behind {
                let rows = self.count_rows(*number, passed);
                tracing::error!(
                    sink, rows, segment = %self.folder.segment(*number).display(),
                    "the disk is nearly full: rows that this optional sink lacks are removed from the journal"
                );
                if let Some(holder) = self.lock().contents.retainers.get_mut(sink) {
                    holder.dropped = holder.dropped.saturating_add(rows);
                }
            }
        }
    }

    /// Counts the rows of a segment from a position onwards, as far as they can be read.
    fn count_rows(self: &Arc<Self>, number: u64, from: Position) -> u64 {
        let begin = Position {
            segment: number,
            offset: HEADER as u64,
        };
        let mut reader = JournalRecordReader::new(Arc::clone(self), from.max(begin), ReadScope::StepsOnDisk);
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
