//! The thread that syncs records to disk in groups, and creates and removes segments.
//!
//! A segment is retained until three conditions are met: the store has acknowledged all steps of the segment, the stability
//! record and the sinks have its rows, and the segment is old enough. If the system clock jumps forward, segments are
//! nevertheless removed gradually: each removal run removes only the segments of one more day, and the runs are at least half a
//! day apart.

use std::{
    fs::File,
    io,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    domain::ledger::daily_sums::RetentionProgress,
    edges::clock,
    journal::{
        JournalEngine, Position, REQUEST_BYTES, WriteState,
        folder::{self, ACKNOWLEDGED, NUMBERS},
        frame, index,
    },
};

/// The interval between two rounds of housekeeping while there may be something to do.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// The interval between two checks that the folder is in place, while there may be something to do.
const FOLDER_CHECK: Duration = Duration::from_millis(250);
/// The interval of housekeeping and of folder checks while nothing is recorded. Both are necessary even during that time, because
/// segments become old and disks become full.
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
            tracing::error!(%error, folder = %engine.folder.path.display(), "cannot sync the journal to disk; no request is admitted until weir has written and synced a new segment");
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

/// Records as lost everything before `end` that is not on disk.
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

/// After a failure of the disk, continues in a new segment as soon as that segment has been synced. Until that succeeds, no
/// further segment is created.
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
        tracing::error!(%error, "cannot write or sync a new journal segment; weir tries again, and admits no request until an attempt succeeds");
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

/// The file that stores the progress of removing old segments.
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
                tracing::error!(%error, folder = %self.folder.path.display(), "cannot remove old journal segments; they occupy disk space until weir can remove them");
            }
        }
    }

    /// Advances the progress of removing old segments. Writes the progress to disk before segments are removed. Otherwise, weir
    /// would remove one more day's segments after a restart on the same day.
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

/// Returns the segments in order, each with the day of its last record. The days never decrease, even if the clock was set
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
    /// Writes the index of each segment that accepts no further frames and is entirely on disk.
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
                    tracing::warn!(%error, index = %self.folder.index(number).display(), "cannot write the index of a journal segment; at its next start, weir reads the segment itself instead");
                }
            }
        }
        // More segments may lack an index.
        self.request_housekeeping(&mut self.lock());
    }
}
