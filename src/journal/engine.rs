//! What all handles of a journal and its thread share.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, atomic::AtomicU64},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use smol_str::SmolStr;
use tokio::sync::{Notify, watch};

use crate::{
    config::JournalConfig,
    domain::ledger::retention::Retention,
    journal::{
        contents::Contents, disk::Disk, error::JournalShut, folder::Folder, frame, position::Position,
        reservation::FreeRoom, synced::Synced, tail::Tail,
    },
};

/// The state that all handles of a journal share.
#[derive(Debug)]
pub(super) struct JournalEngine {
    pub(super) folder: Folder,
    pub(super) disk: Arc<dyn Disk>,
    /// The room that nobody was promised.
    pub(super) free: Arc<FreeRoom>,
    pub(super) settings: JournalConfig,
    pub(super) state: Mutex<WriteState>,
    /// Signalled when there is something to sync, or the journal closes.
    pub(super) work: Condvar,
    pub(super) synced: watch::Sender<Synced>,
    /// Notified when further steps are on disk.
    pub(super) woken: Notify,
    /// Notified when the store has acknowledged steps.
    pub(super) progress: Notify,
    /// Locked while forgotten steps are looked up.
    pub(super) lookup: Mutex<()>,
    pub(super) failures: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) damaged: AtomicU64,
}

#[derive(Debug)]
pub(super) struct WriteState {
    pub(super) tail: Tail,
    pub(super) contents: Contents,
    /// The frame being encoded; reused.
    pub(super) buffer: Vec<u8>,
    pub(super) dirty: bool,
    /// The next housekeeping may find something to do.
    pub(super) is_stirred: bool,
    /// Accounts with steps on disk that settlement has not picked up.
    pub(super) ready: HashSet<SmolStr>,
    /// How far removal of old segments has gone; `None` before the first housekeeping.
    pub(super) retention: Option<Retention>,
    pub(super) closing: bool,
}

impl JournalEngine {
    pub(super) fn lock(&self) -> MutexGuard<'_, WriteState> {
        self.state.lock()
    }

    /// Notes the current segment, if it was begun since the last call.
    pub(super) fn note_begun(&self, state: &mut WriteState, now_ms: i64) {
        let begin = Position {
            segment: state.tail.current.number,
            offset: frame::HEADER as u64,
        };
        if !state.contents.segments.contains_key(&begin.segment) {
            state.contents.begin(begin, self.settings.segment_bytes, now_ms);
        }
    }

    /// There is something for the thread to see to within a second.
    pub(super) fn stir(&self, state: &mut WriteState) {
        if !std::mem::replace(&mut state.is_stirred, true) {
            self.work.notify_one();
        }
    }

    /// Looks whether folder and segment are where they were, if the thread does not.
    pub(super) fn look_if_resting(&self) {
        let resting = self.lock().tail.is_resting();
        if resting {
            self.look();
        }
    }

    /// Looks whether folder and segment are where they were; says whether they are.
    pub(super) fn look(&self) -> bool {
        let (number, file) = {
            let current = &self.lock().tail.current;
            (current.number, Arc::clone(&current.file))
        };
        let gone = self.folder.gone_with(number, &file);
        let mut state = self.lock();
        if gone.as_ref() != state.tail.gone() {
            match &gone {
                Some(path) => {
                    let shut = JournalShut::Gone(path.clone());
                    tracing::error!(folder = %self.folder.path.display(), "{shut}");
                }
                None => {
                    tracing::warn!(folder = %self.folder.path.display(), "the journal is where it was again");
                }
            }
            state.tail.is_gone(gone.clone());
        }
        gone.is_none()
    }

    /// Nothing that is not found counts as lost while the whole folder is away.
    pub(super) fn is_there(&self) -> io::Result<()> {
        match self.folder.gone() {
            Some(path) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                JournalShut::Gone(path).to_string(),
            )),
            None => Ok(()),
        }
    }
}
