//! The thread that syncs records to disk in groups, and prepares and removes segments.

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    edges::clock,
    journal::{
        engine::{JournalEngine, WriteState},
        folder::ACKNOWLEDGED,
        frame,
        position::Position,
        sizes::REQUEST_BYTES,
    },
};

/// How often the thread looks after segments, while there may be something to see to.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// How often it looks meanwhile whether the folder is where it was.
const LOOK: Duration = Duration::from_millis(250);
/// How often it does both where nothing has come up: segments grow old, and disks full.
const REST: Duration = Duration::from_secs(60);

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
        if closing || now.duration_since(looked) >= LOOK {
            (looked, there) = (now, engine.look());
        }
        // In the place of a folder that is gone there may be another one, which is nobody's business.
        if there && (closing || now.duration_since(housekept) >= HOUSEKEEPING) {
            housekept = now;
            keep_house(engine, &mut acknowledged);
        }
        if closing {
            return;
        }
        if synced {
            thread::sleep(engine.settings.sync);
        }
    }
}

/// Waits for something to do; says whether the journal closes.
fn wait(engine: &JournalEngine) -> bool {
    let mut state = engine.lock();
    let idle = |state: &mut WriteState| !state.dirty && !state.closing;
    if state.is_stirred || state.tail.shut(REQUEST_BYTES).is_some() {
        engine.work.wait_while_for(&mut state, idle, LOOK);
    } else {
        state.tail.rest(true);
        let resting = |state: &mut WriteState| idle(state) && !state.is_stirred;
        engine.work.wait_while_for(&mut state, resting, REST);
        state.tail.rest(false);
    }
    state.closing
}

/// Says whether there was anything to sync.
fn sync(engine: &JournalEngine) -> bool {
    let (files, named, end, woken) = {
        let mut state = engine.lock();
        if !state.dirty && !state.tail.named {
            return false;
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
    match flush(engine, &files, named) {
        Ok(()) => {
            engine.synced.send_modify(|synced| synced.to = end);
        }
        Err(error) => {
            // After a failed sync the kernel may have thrown the pages away: a second one proves nothing.
            tracing::error!(%error, folder = %engine.folder.path.display(), "the journal cannot be synced: nothing is admitted until a new segment works");
            engine.lock().tail.break_off();
            lose(engine, end);
        }
    }
    if !woken.is_empty() {
        engine.lock().ready.extend(woken);
        engine.woken.notify_one();
    }
    true
}

fn flush(engine: &JournalEngine, files: &[Arc<File>], named: bool) -> io::Result<()> {
    for file in files {
        engine.disk.sync(file)?;
    }
    if named { engine.folder.sync() } else { Ok(()) }
}

/// What stands in front of `end` and is not on disk yet may be lost.
fn lose(engine: &JournalEngine, end: Position) {
    engine.failures.fetch_add(1, Ordering::Relaxed);
    engine.lock().contents.index_none();
    engine.synced.send_modify(|synced| synced.lose(end));
}

pub(super) fn keep_house(engine: &Arc<JournalEngine>, acknowledged: &mut Option<Position>) {
    {
        let mut state = engine.lock();
        // What is not on disk yet has nothing done for it here.
        state.is_stirred = state.dirty;
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
            Err(error) => tracing::debug!(%error, "the acknowledged position cannot be written"),
        }
    }
    engine.write_indexes();
    engine.remove_old(clock::unix_millis());
}

/// After a failure: goes on in a fresh segment, once that one could be synced. Until then no other is made.
fn recover(engine: &JournalEngine) {
    let (number, file) = {
        let mut state = engine.lock();
        if !state.tail.is_broken() {
            return;
        }
        let Ok(next) = state.tail.next(&engine.folder) else {
            return;
        };
        next
    };
    let header = frame::header(&engine.folder.node, number);
    let synced = (engine.disk.write(&file, &header, 0))
        .and_then(|()| engine.disk.sync(&file))
        .and_then(|()| engine.folder.sync());
    if let Err(error) = synced {
        tracing::error!(%error, "a new journal segment cannot be synced either");
        return;
    }
    let (before, begin) = {
        let mut state = engine.lock();
        if state.tail.well_again(number, &engine.folder).is_err() {
            return;
        }
        engine.note_begun(&mut state, clock::unix_millis());
        state.dirty = true;
        let begin = Position {
            segment: state.tail.current.number,
            offset: frame::HEADER as u64,
        };
        (std::mem::take(&mut state.tail.unsynced), begin)
    };
    if flush(engine, &before, false).is_err() {
        lose(engine, begin);
    }
    tracing::warn!("the journal goes on in a new segment");
}
