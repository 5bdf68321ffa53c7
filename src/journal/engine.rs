//! The state of an open journal, which its handles and its thread share.

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
    domain::ledger::daily_sums::RetentionProgress,
    journal::{
        Disk, FreeRoom, JournalUnavailable, Position, Synced, folder::JournalFolder, frame, index::JournalContents,
        tail::JournalTail,
    },
};

/// The state of an open journal, which its handles and its thread share.
#[derive(Debug)]
pub(super) struct JournalEngine {
    pub(super) folder: JournalFolder,
    pub(super) disk: Arc<dyn Disk>,
    /// The room that is not reserved.
    pub(super) free: Arc<FreeRoom>,
    pub(super) settings: JournalConfig,
    pub(super) state: Mutex<WriteState>,
    /// Notified when there is something to sync, and when the journal closes.
    pub(super) work: Condvar,
    pub(super) synced: watch::Sender<Synced>,
    /// Notified when more steps are on disk.
    pub(super) steps_synced: Notify,
    /// Notified when the store has acknowledged steps.
    pub(super) progress: Notify,
    /// Locked while steps that the store has forgotten are looked up.
    pub(super) lookup: Mutex<()>,
    pub(super) failures: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) damaged: AtomicU64,
}

#[derive(Debug)]
pub(super) struct WriteState {
    pub(super) tail: JournalTail,
    pub(super) contents: JournalContents,
    /// The buffer in which frames are encoded. It is reused.
    pub(super) buffer: Vec<u8>,
    pub(super) dirty: bool,
    /// Whether the next housekeeping may have something to do.
    pub(super) needs_housekeeping: bool,
    /// The accounts with steps on disk that settlement has not taken yet.
    pub(super) ready: HashSet<SmolStr>,
    /// The progress of removing old segments; `None` before the first housekeeping.
    pub(super) retention: Option<RetentionProgress>,
    pub(super) closing: bool,
}

impl JournalEngine {
    pub(super) fn lock(&self) -> MutexGuard<'_, WriteState> {
        self.state.lock()
    }

    /// Adds the current segment to the contents if it is new since the last call.
    pub(super) fn register_segment(&self, state: &mut WriteState, now_ms: i64) {
        let begin = Position {
            segment: state.tail.current.number,
            offset: frame::HEADER as u64,
        };
        if !state.contents.segments.contains_key(&begin.segment) {
            state.contents.begin_segment(begin, self.settings.segment_bytes, now_ms);
        }
    }

    /// Makes the thread do its housekeeping within a second.
    pub(super) fn request_housekeeping(&self, state: &mut WriteState) {
        if !std::mem::replace(&mut state.needs_housekeeping, true) {
            self.work.notify_one();
        }
    }

    /// Checks that the folder and the current segment are still in place, unless the thread is awake and checks that itself.
    pub(super) fn check_folder_if_idle(&self) {
        let resting = self.lock().tail.is_idle();
        if resting {
            self.check_folder();
        }
    }

    /// Checks that the folder and the current segment are still in place, and returns whether they are.
    pub(super) fn check_folder(&self) -> bool {
        let (number, file) = {
            let current = &self.lock().tail.current;
            (current.number, Arc::clone(&current.file))
        };
        let gone = self.folder.missing_path_with(number, &file);
        let mut state = self.lock();
        if gone.as_ref() != state.tail.missing_path() {
            match &gone {
                Some(path) => {
                    let shut = JournalUnavailable::Gone(path.clone());
                    tracing::error!(folder = %self.folder.path.display(), "{shut}");
                }
                None => {
                    tracing::warn!(folder = %self.folder.path.display(), "the journal's folder is back in its place: requests are admitted again");
                }
            }
            state.tail.set_missing(gone.clone());
        }
        gone.is_none()
    }

    /// Returns an error while the folder is not in place, because a record that is not found in that time is not lost.
    pub(super) fn ensure_present(&self) -> io::Result<()> {
        match self.folder.missing_path() {
            Some(path) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                JournalUnavailable::Gone(path).to_string(),
            )),
            None => Ok(()),
        }
    }
}
