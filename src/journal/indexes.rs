//! Writes the indexes of complete segments.

use crate::journal::{engine::JournalEngine, index};

/// The maximum number of indexes written in one round of housekeeping.
const INDEXES_AT_ONCE: usize = 64;

impl JournalEngine {
    /// Writes the indexes of complete segments that are wholly on disk.
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
                    tracing::warn!(%error, index = %self.folder.index(number).display(), "the index of a journal segment cannot be written: the next start reads the segment instead");
                }
            }
        }
        // More segments may need an index.
        self.request_housekeeping(&mut self.lock());
    }
}
