//! Reads the records in order, and waits for further ones.

use std::{fs::File, sync::Arc};

use crate::{
    domain::ledger::Record,
    journal::{
        engine::JournalEngine,
        error::JournalError,
        frame::{Found, Frames, HEADER},
        position::Position,
    },
};

/// A place in the journal to read on from. Reading blocks on the disk, seldom for long.
pub(crate) struct Reader {
    engine: Arc<JournalEngine>,
    position: Position,
    frames: Option<(u64, Frames)>,
    scope: Scope,
    /// What is known to be readable; asked for again where it ends.
    extent: Option<Extent>,
}

/// Which records are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All that are written.
    Written,
    /// The steps of which it is decided whether they are on disk.
    StepsOnDisk,
}

/// What of a segment may be read.
#[derive(Clone, Copy)]
struct Extent {
    number: u64,
    end: u64,
    /// Whether more may come.
    open: bool,
}

impl Reader {
    pub(super) fn new(engine: Arc<JournalEngine>, position: Position, scope: Scope) -> Self {
        Self {
            engine,
            position,
            frames: None,
            scope,
            extent: None,
        }
    }

    /// Where it reads on.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// The next record; `None`: there is no further one yet. A record that is damaged is no error: what follows it in its
    /// segment is put into quarantine and passed over.
    ///
    /// # Errors
    /// A segment cannot be read. Reading again tries again.
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
            if let Some(found) = self.frame(&extent)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn frame(&mut self, extent: &Extent) -> Result<Option<(Position, Record)>, JournalError> {
        let path = || self.engine.folder.segment(extent.number);
        let failed = |source| JournalError::io(&path(), source);
        if self.frames.as_ref().is_none_or(|(number, _)| *number != extent.number) {
            let file = File::open(path()).map_err(|error| {
                // It may have been removed since.
                self.extent = None;
                failed(error)
            })?;
            let file = Arc::new(file);
            let frames = Frames::new(file, extent.number, self.position.offset, extent.end);
            self.frames = Some((extent.number, frames));
        }
        let Some((_, frames)) = &mut self.frames else {
            return Ok(None);
        };
        frames.extend(extent.end);
        let record = match frames.next_frame().map_err(failed)? {
            Found::Frame { payload, .. } if self.scope == Scope::StepsOnDisk && !Record::is_step(payload) => {
                self.position.offset = frames.at();
                return Ok(None);
            }
            Found::Frame { payload, .. } => Record::read(payload),
            Found::End | Found::Bad { .. } => {
                self.pass_over(extent)?;
                return Ok(None);
            }
        };
        let position = self.position;
        self.position.offset = frames.at();
        // That one cannot be understood was said at the start, when it was read first.
        Ok(record.map(|record| (position, record)))
    }

    /// What cannot be read is kept aside, and reading goes on behind it.
    fn pass_over(&mut self, extent: &Extent) -> Result<(), JournalError> {
        (self.frames, self.extent) = (None, None);
        let mended = (self.engine).mend(extent.number, self.position.offset, extent.end, extent.open);
        let path = self.engine.folder.segment(extent.number);
        self.position.offset = mended.map_err(|source| JournalError::io(&path, source))?;
        Ok(())
    }

    fn extent(&mut self) -> Option<Extent> {
        let known = self.extent.filter(|extent| {
            extent.number == self.position.segment && (extent.end > self.position.offset || !extent.open)
        });
        if known.is_none() {
            self.extent = self.look();
        }
        self.extent
    }

    fn look(&self) -> Option<Extent> {
        // Asked before the state, so that what is written meanwhile is not taken for what is on disk.
        let synced = self.engine.synced.borrow().to();
        let state = self.engine.lock();
        let (number, segment) = state.contents.segments.range(self.position.segment..).next()?;
        let extent = Extent {
            number: *number,
            end: segment.end,
            open: *number == state.tail.current.number,
        };
        match self.scope {
            Scope::StepsOnDisk if extent.number > synced.segment => None,
            Scope::StepsOnDisk if extent.number == synced.segment => Some(Extent {
                end: extent.end.min(synced.offset),
                open: true,
                ..extent
            }),
            Scope::StepsOnDisk | Scope::Written => Some(extent),
        }
    }
}
