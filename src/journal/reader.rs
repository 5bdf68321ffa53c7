//! A reader of the journal's records in their order.

use std::{fs::File, sync::Arc};

use crate::{
    domain::ledger::Record,
    journal::{
        JournalError, Position,
        engine::JournalEngine,
        frame::{FrameOutcome, FrameReader, HEADER},
    },
};

/// Reads records from a position onwards. It blocks on the disk, rarely for long.
pub(crate) struct JournalRecordReader {
    engine: Arc<JournalEngine>,
    position: Position,
    frames: Option<(u64, FrameReader)>,
    scope: ReadScope,
    /// The readable part of the current segment. It is determined again when the reader reaches its end.
    extent: Option<SegmentExtent>,
}

/// The records that a reader returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadScope {
    /// All records that are written.
    Written,
    /// The steps that are either on disk or recorded as lost.
    StepsOnDisk,
}

/// The readable part of a segment.
#[derive(Clone, Copy)]
struct SegmentExtent {
    number: u64,
    end: u64,
    /// Whether more may be written to the segment.
    open: bool,
}

impl JournalRecordReader {
    pub(super) fn new(engine: Arc<JournalEngine>, position: Position, scope: ReadScope) -> Self {
        Self {
            engine,
            position,
            frames: None,
            scope,
            extent: None,
        }
    }

    /// Returns the position of the next record.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Reads the next record; `None` if there is none yet. Damage is not an error: the damaged bytes are saved in quarantine and
    /// skipped.
    ///
    /// # Errors
    /// A segment cannot be read. The next call tries again.
    pub(crate) fn read(&mut self) -> Result<Option<(Position, Record)>, JournalError> {
        while let Some(extent) = self.extent() {
            if extent.number != self.position.segment {
                self.position = Position {
                    segment: extent.number,
                    offset: HEADER as u64,
                };
            }
            if self.position.offset >= extent.end {
                self.extent = None;
                if extent.open {
                    return Ok(None);
                }
                self.position = Position {
                    segment: extent.number + 1,
                    offset: HEADER as u64,
                };
                continue;
            }
            if let Some(found) = self.read_frame(&extent)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn read_frame(&mut self, extent: &SegmentExtent) -> Result<Option<(Position, Record)>, JournalError> {
        let path = || self.engine.folder.segment(extent.number);
        let failed = |source| JournalError::io(&path(), source);
        if self.frames.as_ref().is_none_or(|(number, _)| *number != extent.number) {
            let file = File::open(path()).map_err(|error| {
                // The segment may have been removed in the meantime.
                self.extent = None;
                failed(error)
            })?;
            let file = Arc::new(file);
            let frames = FrameReader::new(file, extent.number, self.position.offset, extent.end);
            self.frames = Some((extent.number, frames));
        }
        let Some((_, frames)) = &mut self.frames else {
            return Ok(None);
        };
        frames.set_end(extent.end);
        let record = match frames.next_frame().map_err(failed)? {
            FrameOutcome::Frame { payload, .. }
                if self.scope == ReadScope::StepsOnDisk && !Record::is_step(payload) =>
            {
                self.position.offset = frames.next_offset();
                return Ok(None);
            }
            FrameOutcome::Frame { payload, .. } => Record::read(payload),
            FrameOutcome::End | FrameOutcome::Bad { .. } => {
                self.skip_damage(extent)?;
                return Ok(None);
            }
        };
        let position = self.position;
        self.position.offset = frames.next_offset();
        // `None` stands for a record that cannot be decoded. It was logged at the start.
        Ok(record.map(|record| (position, record)))
    }

    /// Saves invalid bytes in quarantine and continues after them.
    fn skip_damage(&mut self, extent: &SegmentExtent) -> Result<(), JournalError> {
        (self.frames, self.extent) = (None, None);
        let mended = (self.engine).repair_damage(extent.number, self.position.offset, extent.end, extent.open);
        let path = self.engine.folder.segment(extent.number);
        self.position.offset = mended.map_err(|source| JournalError::io(&path, source))?;
        Ok(())
    }

    fn extent(&mut self) -> Option<SegmentExtent> {
        let known = self.extent.filter(|extent| {
            extent.number == self.position.segment && (extent.end > self.position.offset || !extent.open)
        });
        if known.is_none() {
            self.extent = self.find_extent();
        }
        self.extent
    }

    fn find_extent(&self) -> Option<SegmentExtent> {
        // This is read before the state. Otherwise records that are written in between would be taken for records on disk.
        let synced = self.engine.synced.borrow().decided_end();
        let state = self.engine.lock();
        let (number, segment) = state.contents.segments.range(self.position.segment..).next()?;
        let extent = SegmentExtent {
            number: *number,
            end: segment.end,
            open: *number == state.tail.current.number,
        };
        match self.scope {
            ReadScope::StepsOnDisk if extent.number > synced.segment => None,
            ReadScope::StepsOnDisk if extent.number == synced.segment => Some(SegmentExtent {
                end: extent.end.min(synced.offset),
                open: true,
                ..extent
            }),
            ReadScope::StepsOnDisk | ReadScope::Written => Some(extent),
        }
    }
}
