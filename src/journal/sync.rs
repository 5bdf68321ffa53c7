//! The thread that syncs records to disk in groups, and prepares and removes segments.

use std::{
    fs::File,
    io,
    sync::{Arc, PoisonError, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{ACKNOWLEDGED, Position, Shared, frame};
use crate::clock;

/// How often the thread looks after segments.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// How often it looks whether the folder is where it was.
const LOOK: Duration = Duration::from_millis(250);

/// How far the disk is known to hold what was recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Synced {
    to: Position,
    /// Between these the disk failed: what stands there may be lost.
    failed: Option<(Position, Position)>,
}

impl Synced {
    pub(super) fn up_to(to: Position) -> Self {
        Self { to, failed: None }
    }

    /// In front of it everything is decided.
    pub(super) fn to(&self) -> Position {
        self.to
    }

    /// Whether it is decided what became of a record.
    pub(super) fn knows(&self, position: Position) -> bool {
        position < self.to || self.failed(position)
    }

    /// Whether a record is on disk.
    pub(super) fn has(&self, position: Position) -> bool {
        position < self.to && !self.failed(position)
    }

    /// What stands between what is on disk and `end` may be lost.
    fn lose(&mut self, end: Position) {
        // Ranges that touch become one; of others the last is remembered.
        let from = match self.failed {
            Some((from, to)) if to == self.to => from,
            Some(_) | None => self.to,
        };
        self.failed = Some((from, end));
        self.to = end;
    }

    fn failed(&self, position: Position) -> bool {
        self.failed.is_some_and(|(from, to)| from <= position && position < to)
    }
}

/// Starts the thread. It ends when the journal closes.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || run(&shared))
}

fn run(shared: &Shared) {
    let mut acknowledged = None;
    let (mut housekept, mut looked, mut there) = (clock::instant(), clock::instant(), true);
    loop {
        let closing = wait(shared);
        sync(shared);
        let now = clock::instant();
        if closing || now.duration_since(looked) >= LOOK {
            (looked, there) = (now, shared.look());
        }
        // In the place of a folder that is gone there may be another one, which is nobody's business.
        if there && (closing || now.duration_since(housekept) >= HOUSEKEEPING) {
            housekept = now;
            keep_house(shared, &mut acknowledged);
        }
        if closing {
            return;
        }
        thread::sleep(shared.settings.sync);
    }
}

/// Waits for something to do; says whether the journal closes.
fn wait(shared: &Shared) -> bool {
    let state = shared.lock();
    let idle = |state: &mut super::State| !state.dirty && !state.closing;
    let (state, _) = shared
        .work
        .wait_timeout_while(state, LOOK, idle)
        .unwrap_or_else(PoisonError::into_inner);
    state.closing
}

fn sync(shared: &Shared) {
    let (files, named, end, woken) = {
        let mut state = shared.lock();
        if !state.dirty && !state.tail.named {
            return;
        }
        state.dirty = false;
        let mut files = std::mem::take(&mut state.tail.unsynced);
        files.push(Arc::clone(&state.tail.current.file));
        let end = Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        };
        let woken = state.contents.accounts.take_woken();
        (files, std::mem::take(&mut state.tail.named), end, woken)
    };
    match flush(shared, &files, named) {
        Ok(()) => {
            shared.synced.send_modify(|synced| synced.to = end);
        }
        Err(error) => {
            // After a failed sync the kernel may have thrown the pages away: a second one proves nothing.
            tracing::error!(%error, folder = %shared.folder.path.display(), "the journal cannot be synced: nothing is admitted until a new segment works");
            shared.lock().tail.broken = true;
            lose(shared, end);
        }
    }
    if !woken.is_empty() {
        shared.lock().ready.extend(woken);
        shared.woken.notify_one();
    }
}

fn flush(shared: &Shared, files: &[Arc<File>], named: bool) -> io::Result<()> {
    for file in files {
        shared.disk.sync(file)?;
    }
    if named { shared.folder.sync() } else { Ok(()) }
}

/// What stands in front of `end` and is not on disk yet may be lost.
fn lose(shared: &Shared, end: Position) {
    shared.failures.fetch_add(1, Ordering::Relaxed);
    shared.lock().contents.index_none();
    shared.synced.send_modify(|synced| synced.lose(end));
}

pub(super) fn keep_house(shared: &Shared, acknowledged: &mut Option<Position>) {
    recover(shared);
    shared.lock().tail.prepare_ahead(&shared.folder);
    let position = {
        let state = shared.lock();
        let end = Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        };
        state.contents.accounts.first_position().unwrap_or(end)
    };
    if *acknowledged != Some(position) {
        match shared.folder.replace(ACKNOWLEDGED, position.to_string().as_bytes()) {
            Ok(()) => *acknowledged = Some(position),
            Err(error) => tracing::debug!(%error, "the acknowledged position cannot be written"),
        }
    }
    shared.write_indexes();
    shared.remove_old(clock::unix_millis());
}

/// After a failure: goes on in a fresh segment, once that one could be synced. Until then no other is made.
fn recover(shared: &Shared) {
    let (number, file) = {
        let mut state = shared.lock();
        if !state.tail.broken {
            return;
        }
        let Ok(next) = state.tail.next(&shared.folder) else {
            return;
        };
        next
    };
    let header = frame::header(&shared.folder.node, number);
    let synced = (shared.disk.write(&file, &header, 0))
        .and_then(|()| shared.disk.sync(&file))
        .and_then(|()| shared.folder.sync());
    if let Err(error) = synced {
        tracing::error!(%error, "a new journal segment cannot be synced either");
        return;
    }
    let (before, begin) = {
        let mut state = shared.lock();
        if state.tail.well_again(number, &shared.folder).is_err() {
            return;
        }
        shared.note_begun(&mut state, clock::unix_millis());
        state.dirty = true;
        let begin = Position {
            segment: state.tail.current.number,
            offset: frame::HEADER as u64,
        };
        (std::mem::take(&mut state.tail.unsynced), begin)
    };
    if flush(shared, &before, false).is_err() {
        lose(shared, begin);
    }
    tracing::warn!("the journal goes on in a new segment");
}
