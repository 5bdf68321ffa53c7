//! Removes old segments. A segment is retained until the store has acknowledged all its steps, the stability record and the sinks
//! have its rows, and it is old enough. If the clock jumps ahead, only the segments of one day are removed at a time.

use std::{io, sync::Arc};

use crate::{
    domain::ledger::daily_sums::RetentionProgress,
    journal::{
        JournalEngine, WriteState,
        folder::{self, NUMBERS},
        index,
    },
};

/// The file with the progress of the removal.
const RETENTION: &str = "retention";
const DAY_MS: i64 = 24 * 3600 * 1000;

impl JournalEngine {
    /// Removes the oldest segments that are no longer needed.
    pub(super) fn remove_old(self: &Arc<Self>, now_ms: i64) {
        self.advance_retention(now_ms);
        let short = self.is_disk_short();
        let (numbers, known) = {
            let state = self.lock();
            let Some(retention) = state.retention else { return };
            let first_kept = retention.first_kept(now_ms);
            let numbers: Vec<u64> = last_days(&state)
                .take_while(|(number, day)| {
                    *number < state.tail.current.number
                        && *day < first_kept
                        && state.contents.is_settled(*number)
                        && state.contents.is_delivered(*number, short)
                })
                .map(|(number, _)| number)
                .collect();
            if numbers.is_empty() {
                return;
            }
            (numbers, state.contents.accounts.numbers())
        };
        self.count_dropped(&numbers);
        let removed = serde_json::to_string(&known).map_err(io::Error::from).and_then(|body| {
            // The step numbers must outlive the steps: an account whose numbers start at 1 again would not be charged.
            self.folder.replace(NUMBERS, folder::with_checksum(&body).as_bytes())?;
            numbers.iter().try_for_each(|number| self.folder.remove(*number))
        });
        match removed {
            Ok(()) => {
                let mut state = self.lock();
                for number in numbers {
                    state.contents.remove_segment(number, now_ms);
                }
            }
            Err(error) => {
                tracing::error!(%error, folder = %self.folder.path.display(), "cannot remove old journal segments");
            }
        }
    }

    /// Advances the progress of the removal. It is written to disk first, so that a later start does not remove another day on
    /// the same day.
    fn advance_retention(&self, now_ms: i64) {
        let keep_days = i64::try_from(self.settings.keep.as_secs()).unwrap_or(i64::MAX) / (DAY_MS / 1000);
        let (before, after) = {
            let state = self.lock();
            let oldest = last_days(&state).next().map(|(_, day)| day);
            let before = state.retention;
            let after = match before.or_else(|| self.read_retention()) {
                Some(retention) => retention.next_run(now_ms, keep_days, oldest),
                None => RetentionProgress::first_run(now_ms, keep_days, oldest),
            };
            (before, after)
        };
        if before == Some(after) {
            return;
        }
        let written = serde_json::to_string(&after).map_err(io::Error::from);
        let written = written.and_then(|body| self.folder.replace(RETENTION, folder::with_checksum(&body).as_bytes()));
        match written {
            Ok(()) => {
                self.lock().retention = Some(after);
                let behind = after.days_behind(now_ms);
                if behind > 0 {
                    tracing::info!(
                        behind_days = behind,
                        "old journal segments are removed only one day at a time, because weir was not running for days or the clock has jumped"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(%error, folder = %self.folder.path.display(), "old journal segments are not removed, because the file `retention` cannot be written");
            }
        }
    }

    fn read_retention(&self) -> Option<RetentionProgress> {
        let text = self.folder.read(RETENTION).ok()??;
        serde_json::from_str(folder::without_checksum(&text)?).ok()
    }
}

/// Returns the segments in their order, each with the day of its last record. The days never decrease, even if the clock was set
/// back.
fn last_days(state: &WriteState) -> impl Iterator<Item = (u64, i64)> {
    let segments = state.contents.segments.iter();
    segments.scan(i64::MIN, |latest, (number, segment)| {
        *latest = segment.last_ms.div_euclid(DAY_MS).max(*latest);
        Some((*number, *latest))
    })
}

/// The maximum number of indexes that are written in one round of housekeeping.
const INDEXES_AT_ONCE: usize = 64;

impl JournalEngine {
    /// Writes the indexes of the segments that are complete and completely on disk.
    pub(super) fn write_indexes(&self) {
        for _ in 0..INDEXES_AT_ONCE {
            let synced = self.synced.borrow().decided_end().segment;
            let Some((number, index)) = self.lock().contents.take_index(synced) else {
                return;
            };
            match index::write(&self.folder, number, &index) {
                Ok(()) => {
                    if let Some(segment) = self.lock().contents.segments.get_mut(&number) {
                        segment.bytes = index.end;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, index = %self.folder.index(number).display(), "cannot write the index of a journal segment: the next start reads the segment instead");
                }
            }
        }
        // More segments may lack an index.
        self.request_housekeeping(&mut self.lock());
    }
}
