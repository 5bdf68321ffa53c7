//! The thread that syncs records to disk in groups, and creates and removes segments.

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    edges::clock,
    journal::{JournalEngine, Position, REQUEST_BYTES, WriteState, folder::ACKNOWLEDGED, frame},
};

/// The interval between two rounds of housekeeping while there may be something to do.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// The interval between two checks that the folder is in place, while there may be something to do.
const FOLDER_CHECK: Duration = Duration::from_millis(250);
/// The interval of both while nothing happens. They are still necessary then, because segments become old and disks become full.
const IDLE: Duration = Duration::from_secs(60);

/// Starts the thread. It ends when the journal closes.
pub(super) fn start(engine: Arc<JournalEngine>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || run(&engine))
}

fn run(engine: &Arc<JournalEngine>) {
    let mut acknowledged = None;
    let (mut housekept, mut looked, mut there) = (clock::instant(), clock::instant(), true);
    loop {
        let closing = wait(engine);
        let synced = sync(engine);
        let now = clock::instant();
        if closing || now.duration_since(looked) >= FOLDER_CHECK {
            (looked, there) = (now, engine.check_folder());
        }
        // If the folder was replaced, the new one must not be touched.
        if there && (closing || now.duration_since(housekept) >= HOUSEKEEPING) {
            housekept = now;
            housekeep(engine, &mut acknowledged);
        }
        if closing {
            return;
        }
        if synced {
            thread::sleep(engine.settings.sync);
        }
    }
}

/// Waits until there is something to do. Returns whether the journal is closing.
fn wait(engine: &JournalEngine) -> bool {
    let mut state = engine.lock();
    let idle = |state: &mut WriteState| !state.dirty && !state.closing;
    if state.needs_housekeeping || state.tail.unavailability(REQUEST_BYTES).is_some() {
        engine.work.wait_while_for(&mut state, idle, FOLDER_CHECK);
    } else {
        state.tail.set_idle(true);
        let resting = |state: &mut WriteState| idle(state) && !state.needs_housekeeping;
        engine.work.wait_while_for(&mut state, resting, IDLE);
        state.tail.set_idle(false);
    }
    state.closing
}

/// Syncs everything that was written. Returns whether there was anything to sync.
fn sync(engine: &JournalEngine) -> bool {
    let (files, named, end, woken) = {
        let mut state = engine.lock();
        if !state.dirty && !state.tail.names_unsynced {
            return false;
        }
        state.dirty = false;
        let mut files = std::mem::take(&mut state.tail.unsynced);
        files.push(Arc::clone(&state.tail.current.file));
        let end = Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        };
        let woken = state.contents.accounts.take_changed();
        (files, std::mem::take(&mut state.tail.names_unsynced), end, woken)
    };
    match flush(engine, &files, named) {
        Ok(()) => {
            engine.synced.send_modify(|synced| synced.decided_end = end);
        }
        Err(error) => {
            // After a failed sync the kernel may have dropped the pages, so a second sync would prove nothing.
            tracing::error!(%error, folder = %engine.folder.path.display(), "cannot sync the journal to disk: no request is admitted until a new segment works");
            engine.lock().tail.mark_broken();
            mark_lost(engine, end);
        }
    }
    if !woken.is_empty() {
        engine.lock().ready.extend(woken);
        engine.steps_synced.notify_one();
    }
    true
}

fn flush(engine: &JournalEngine, files: &[Arc<File>], named: bool) -> io::Result<()> {
    for file in files {
        engine.disk.sync(file)?;
    }
    if named { engine.folder.sync() } else { Ok(()) }
}

/// Records everything before `end` that is not on disk as lost.
fn mark_lost(engine: &JournalEngine, end: Position) {
    engine.failures.fetch_add(1, Ordering::Relaxed);
    engine.lock().contents.cancel_indexes();
    engine.synced.send_modify(|synced| synced.mark_lost(end));
}

pub(super) fn housekeep(engine: &Arc<JournalEngine>, acknowledged: &mut Option<Position>) {
    {
        let mut state = engine.lock();
        // Records that are not on disk yet need the next housekeeping.
        state.needs_housekeeping = state.dirty;
    }
    recover(engine);
    engine.lock().tail.prepare_ahead(&engine.folder);
    let position = {
        let state = engine.lock();
        let end = Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        };
        state.contents.accounts.first_position().unwrap_or(end)
    };
    if *acknowledged != Some(position) {
        match engine.folder.replace(ACKNOWLEDGED, position.to_string().as_bytes()) {
            Ok(()) => *acknowledged = Some(position),
            Err(error) => tracing::debug!(%error, "cannot write the journal's file `acknowledged`"),
        }
    }
    engine.write_indexes();
    engine.remove_old(clock::unix_millis());
}

/// After a failure of the disk, continues in a new segment as soon as that has been synced. Until then no further segment is
/// created.
fn recover(engine: &JournalEngine) {
    let (number, file) = {
        let mut state = engine.lock();
        if !state.tail.is_broken() {
            return;
        }
        let Ok(next) = state.tail.next_segment(&engine.folder) else {
            return;
        };
        next
    };
    let header = frame::header(&engine.folder.node, number);
    let synced = (engine.disk.write(&file, &header, 0))
        .and_then(|()| engine.disk.sync(&file))
        .and_then(|()| engine.folder.sync());
    if let Err(error) = synced {
        tracing::error!(%error, "cannot write or sync a new journal segment either: no request is admitted");
        return;
    }
    let (before, begin) = {
        let mut state = engine.lock();
        if state.tail.recover(number, &engine.folder).is_err() {
            return;
        }
        engine.register_segment(&mut state, clock::unix_millis());
        state.dirty = true;
        let begin = Position {
            segment: state.tail.current.number,
            offset: frame::HEADER as u64,
        };
        (std::mem::take(&mut state.tail.unsynced), begin)
    };
    if flush(engine, &before, false).is_err() {
        mark_lost(engine, begin);
    }
    tracing::warn!("the journal's disk works again: the journal continues in a new segment");
}
