//! Reads single records at known positions.

use std::{fs::File, io, sync::Arc};

use crate::{
    domain::ledger::Record,
    journal::{
        error::JournalError,
        folder::JournalFolder,
        frame::{FrameOutcome, FrameReader},
        position::Position,
    },
};

/// Reads single records; keeps the segment that was read last open.
#[derive(Default)]
pub(super) struct SegmentFiles {
    last: Option<(u64, Arc<File>)>,
}

impl SegmentFiles {
    /// Reads the record at a position; `None` if it is damaged or missing.
    pub(super) fn read_record(
        &mut self,
        folder: &JournalFolder,
        position: Position,
    ) -> Result<Option<Record>, JournalError> {
        let path = folder.segment(position.segment);
        let failed = |source| JournalError::io(&path, source);
        let file = match self.open(folder, position.segment) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let end = file.metadata().map_err(failed)?.len();
        if position.offset >= end {
            return Ok(None);
        }
        let mut frames = FrameReader::single(file, position.segment, position.offset, end);
        Ok(match frames.next_frame().map_err(failed)? {
            FrameOutcome::Frame { payload, .. } => Record::read(payload),
            FrameOutcome::End | FrameOutcome::Bad { .. } => None,
        })
    }

    fn open(&mut self, folder: &JournalFolder, number: u64) -> io::Result<Arc<File>> {
        if let Some((last, file)) = &self.last
            && *last == number
        {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(File::open(folder.segment(number))?);
        self.last = Some((number, Arc::clone(&file)));
        Ok(file)
    }
}
