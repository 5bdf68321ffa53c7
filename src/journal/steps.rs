//! The steps that the store has not acknowledged. [`crate::money::settlement`] sends them, and reports acknowledgements here.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use smol_str::SmolStr;

use crate::{
    domain::{
        QuickMap,
        ledger::{Checkpoint, Record},
    },
    journal::{
        JournalError, Position, Reservation,
        accounts::{RecordedStep, UnsentSteps},
        folder::SegmentFiles,
        frame,
        handle::Journal,
    },
};

impl Journal {
    /// Waits until more steps are on disk, and returns the accounts of these steps. Only one task may call this.
    pub(crate) async fn wait_for_steps(&self) -> HashSet<SmolStr> {
        loop {
            let woken = std::mem::take(&mut self.engine.lock().ready);
            if !woken.is_empty() {
                return woken;
            }
            self.engine.steps_synced.notified().await;
        }
    }

    /// Returns how many steps of an account the store has not acknowledged.
    pub(crate) fn unacknowledged_steps_of(&self, account: &str) -> usize {
        self.engine.lock().contents.accounts.unacknowledged_count(account)
    }

    /// Returns how many steps of an account the store has not acknowledged. Returns `None` if one of these steps must not be
    /// delayed, because something waits for it. Nothing waits for the settlements of requests that were admitted from leases.
    pub(crate) fn patient_steps(&self, account: &str) -> Option<usize> {
        let state = self.engine.lock();
        let accounts = &state.contents.accounts;
        accounts
            .is_patient(account)
            .then(|| accounts.unacknowledged_count(account))
    }

    /// Returns the same as [`Journal::unsent`] if the steps are still in memory; otherwise `None`, and [`Journal::unsent`] must
    /// read them. A step stays in memory until this method returns it.
    pub(crate) fn unsent_in_memory(&self, account: &str, max: usize) -> Option<UnsentSteps> {
        let synced = *self.engine.synced.borrow();
        self.engine.lock().contents.accounts.take_cached(account, max, &synced)
    }

    /// Returns up to `max` steps of an account that are on disk and that the store has not acknowledged. Only steps on disk are
    /// sent. Otherwise, the store could apply a step, and a power cut could then remove that step from the journal. Reading
    /// blocks on the disk, but usually only briefly.
    ///
    /// # Errors
    /// A segment cannot be read. Another attempt may succeed.
    pub(crate) fn unsent(&self, account: &str, max: usize) -> Result<UnsentSteps, JournalError> {
        if self.engine.lock().contents.accounts.is_rewound(account) {
            self.look_up_forgotten()?;
        }
        let synced = *self.engine.synced.borrow();
        let (mut places, acknowledged, last) = {
            let state = self.engine.lock();
            let accounts = &state.contents.accounts;
            let places = accounts.unacknowledged_positions(account, max);
            (places, accounts.watermark(account), accounts.last(account))
        };
        let none_left = places.is_empty();
        places.retain(|(_, position)| synced.is_decided(*position));
        let mut unsent = UnsentSteps::default();
        let mut files = SegmentFiles::default();
        let mut next = acknowledged + 1;
        for (seq, position) in places {
            while next < seq && unsent.steps.len() < max {
                unsent.push_filler(next);
                next += 1;
            }
            if unsent.steps.len() >= max {
                break;
            }
            match files.read_record(&self.engine.folder, position)? {
                Some(Record::Step { account: owner, step }) if owner == account && step.seq == seq => {
                    unsent.steps.push(step);
                    unsent.update_last_row(position);
                }
                _ => unsent.push_filler(seq),
            }
            next = seq + 1;
        }
        // The last steps were lost together with the end of a segment.
        if none_left {
            while next <= last && unsent.steps.len() < max {
                unsent.push_filler(next);
                next += 1;
            }
        }
        if unsent.lost > 0 {
            let engine = &self.engine;
            (engine.ensure_present()).map_err(|source| JournalError::io(&engine.folder.path, source))?;
        }
        Ok(unsent)
    }

    /// Records that the store has applied the account's steps up to `watermark`. Returns `false` if the store has forgotten steps
    /// that it had acknowledged; [`Journal::look_up_forgotten`] finds them again.
    pub(crate) fn acknowledge(&self, account: &str, watermark: u64) -> bool {
        let mut state = self.engine.lock();
        let forward = state.contents.accounts.acknowledge(account, watermark);
        self.engine.request_housekeeping(&mut state);
        drop(state);
        self.engine.progress.notify_waiters();
        forward
    }

    /// Returns the number of the account's last step that the store has acknowledged.
    pub(crate) fn acknowledged_step(&self, account: &str) -> u64 {
        self.engine.lock().contents.accounts.watermark(account)
    }

    /// Returns every account with steps in the journal, with the number of its last step.
    pub(crate) fn last_steps(&self) -> Vec<(SmolStr, u64)> {
        let state = self.engine.lock();
        let names = state.contents.account_names().into_iter();
        names
            .map(|name| {
                let last = state.contents.accounts.last(&name);
                (name, last)
            })
            .collect()
    }

    /// Counts and logs steps that were skipped because they are lost.
    pub(crate) fn report_lost(&self, account: &str, lost: u64) {
        if lost > 0 {
            self.engine.lost.fetch_add(lost, Ordering::Relaxed);
            tracing::error!(
                account,
                lost,
                "some steps of the account are missing in the journal; weir skips them, and the account's balance may be wrong"
            );
        }
    }

    /// Looks up the steps that the store has forgotten, for all accounts in one pass over the segments. Blocks.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub(crate) fn look_up_forgotten(&self) -> Result<(), JournalError> {
        // Only one thread looks up steps at a time. A thread that has waited for the lock may find nothing left to look up.
        let _turn = self.engine.lookup.lock();
        let wanted = self.engine.lock().contents.accounts.missing_ranges();
        if wanted.is_empty() {
            return Ok(());
        }
        let segments: Vec<u64> = {
            let state = self.engine.lock();
            let needed = |steps: &QuickMap<SmolStr, (u64, u64)>| {
                wanted.iter().any(|(name, (above, below))| {
                    steps
                        .get(name)
                        .is_some_and(|(first, last)| last > above && first < below)
                })
            };
            let segments = state.contents.segments.iter();
            segments
                .filter(|(_, segment)| needed(&segment.steps))
                .map(|(number, _)| *number)
                .collect()
        };
        let mut found: HashMap<SmolStr, Vec<RecordedStep>> = HashMap::new();
        for number in segments {
            let mut reader = self.reader(Position {
                segment: number,
                offset: frame::HEADER as u64,
            });
            while let Some((position, record)) = reader.read()? {
                if position.segment != number {
                    break;
                }
                let Record::Step { account, step } = record else {
                    continue;
                };
                let Some((above, below)) = wanted.get(&account) else {
                    continue;
                };
                if step.seq > *above && step.seq < *below {
                    let at_ms = crate::edges::clock::unix_millis();
                    let place = RecordedStep {
                        seq: step.seq,
                        position,
                        at_ms,
                        key: None,
                        is_patient: false,
                        cached_step: None,
                    };
                    found.entry(account).or_default().push(place);
                }
            }
        }
        let mut state = self.engine.lock();
        for (account, (above, _)) in wanted {
            let places = found.remove(&account).unwrap_or_default();
            state.contents.accounts.restore(&account, above, places);
        }
        Ok(())
    }

    /// Returns the names of all accounts with steps in the journal.
    pub(crate) fn account_names(&self) -> Vec<SmolStr> {
        self.engine.lock().contents.account_names()
    }

    /// Returns the last record of each key and of each account in the journal, for a store that may have lost them. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub(crate) fn last_records(&self) -> Result<Vec<Record>, JournalError> {
        let mut positions: Vec<Position> = {
            let state = self.engine.lock();
            let (keys, records) = (&state.contents.keys, &state.contents.records);
            keys.values().chain(records.values()).copied().collect()
        };
        positions.sort_unstable();
        let mut files = SegmentFiles::default();
        let mut last = Vec::new();
        for position in positions {
            last.extend(files.read_record(&self.engine.folder, position)?);
        }
        Ok(last)
    }

    /// Waits until the store has acknowledged all steps that were recorded before the call.
    pub(crate) async fn wait_until_acknowledged(&self) {
        let mut behind = self.engine.lock().contents.accounts.unacknowledged_accounts();
        loop {
            let progress = self.engine.progress.notified();
            tokio::pin!(progress);
            // From here on, no notification is missed.
            progress.as_mut().enable();
            {
                let state = self.engine.lock();
                behind.retain(|(name, last)| state.contents.accounts.watermark(name) < *last);
            }
            if behind.is_empty() {
                return;
            }
            progress.await;
        }
    }
}

impl Journal {
    /// Records checkpoints in room that no request has reserved. Returns the number of checkpoints that could not be recorded.
    ///
    /// All checkpoints are written as one record, or as several if one would be larger than a frame. Settlements wait while a
    /// record is written.
    pub(crate) fn record_checkpoints(&self, checkpoints: &[Checkpoint]) -> usize {
        if checkpoints.is_empty() {
            return 0;
        }
        let frame_max = usize::try_from(self.engine.lock().tail.frame_max()).unwrap_or(usize::MAX);
        let (mut frame, mut lost, mut rest) = (Vec::new(), 0, checkpoints);
        while !rest.is_empty() {
            // The record is encoded outside the lock, so that settlements do not wait for it.
            frame.clear();
            frame.extend([0; frame::HEAD]);
            let count = Record::write_checkpoints(rest, frame_max.saturating_sub(frame::HEAD), &mut frame);
            // A single checkpoint that is too large for a record is skipped.
            let (these, next) = rest.split_at_checked(count.max(1)).unwrap_or((rest, &[]));
            if count == 0 || self.write_checkpoints(&mut frame, these).is_err() {
                lost += these.len();
            }
            rest = next;
        }
        lost
    }

    fn write_checkpoints(&self, frame: &mut [u8], checkpoints: &[Checkpoint]) -> Result<(), JournalError> {
        let mut room = Reservation::new(Arc::clone(&self.engine.free), 0);
        let mut state = self.engine.lock();
        let (position, now) = self.write_frame(&mut state, frame, &mut room)?;
        let end = state.tail.current.at;
        state.contents.add_checkpoints(checkpoints, position, end, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::JournalConfig,
        domain::{
            ledger::consumption::{PriceModifiers, UsageSource},
            money::NanoUsd,
            wire::usage::Usage,
        },
        journal::{
            Disk, REQUEST_BYTES, RealDisk, Reservation, SEGMENT_BYTES_MIN,
            tests::{admitted, scratch},
        },
    };
    use std::{
        fs::File,
        io,
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    /// Counts writes, and fails the selected ones.
    #[derive(Debug, Default)]
    struct Counting {
        writes: AtomicUsize,
        failing: AtomicUsize,
    }

    impl Disk for Counting {
        fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            let fewer = |left: usize| left.checked_sub(1);
            if self
                .failing
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
                .is_ok()
            {
                // Half of it gets there.
                RealDisk.write(file, &bytes[..bytes.len() / 2], at)?;
                return Err(io::Error::other("the disk is broken"));
            }
            RealDisk.write(file, bytes, at)
        }
    }

    fn request(number: usize) -> String {
        format!("req_{number:04}")
    }

    fn checkpoint(number: usize) -> Checkpoint {
        Checkpoint {
            request: request(number).into(),
            status: 200,
            usage: Usage::default(),
            source: UsageSource::Partial,
            modifiers: PriceModifiers::default(),
            parts: Vec::new(),
            cost: NanoUsd::from_nanos(number as i64),
            provider: "p".into(),
            latency_ms: 1_000,
            ttft_ms: None,
            attempts: 1,
        }
    }

    fn checkpoints(numbers: std::ops::Range<usize>) -> Vec<Checkpoint> {
        numbers.map(checkpoint).collect()
    }

    fn settings(path: &Path, segment_bytes: u64) -> JournalConfig {
        JournalConfig {
            path: path.to_owned(),
            segment_bytes,
            keep: Duration::from_secs(86_400),
            sync: Duration::from_millis(1),
            sinks: Vec::new(),
        }
    }

    /// Returns a journal with this number of running requests, and the room reserved for them.
    fn running(path: &Path, segment_bytes: u64, requests: usize) -> (Arc<Journal>, Arc<Counting>, Reservation) {
        let disk = Arc::new(Counting::default());
        let settings = settings(path, segment_bytes);
        let opened = Journal::open_with(&settings, Arc::clone(&disk) as Arc<dyn Disk>).unwrap();
        let mut room = opened.journal.reserve(REQUEST_BYTES).unwrap();
        for number in 0..requests {
            let record = Record::Admit(Box::new(admitted(&request(number))));
            opened.journal.append(&record, &mut room).unwrap();
        }
        (opened.journal, disk, room)
    }

    /// Returns the cost that the next start finds for each request, in order. Checks that nothing is damaged.
    fn costs_found(path: &Path, segment_bytes: u64) -> Vec<Option<i64>> {
        let again = Journal::open(&settings(path, segment_bytes)).unwrap();
        assert_eq!(again.journal.damaged_parts(), 0);
        let last = |(_, last): &(_, Option<Checkpoint>)| last.as_ref().map(|last| last.cost.nanos());
        again.unsettled.iter().map(last).collect()
    }

    #[test]
    fn two_thousand_checkpoints_are_one_record() {
        let (folder, segment_bytes, requests) = (scratch(), 8 << 20, 2_000);
        let (journal, disk, room) = running(folder.path(), segment_bytes, requests);
        let before = disk.writes.load(Ordering::Relaxed);
        assert_eq!(journal.record_checkpoints(&checkpoints(0..requests)), 0);
        assert_eq!(disk.writes.load(Ordering::Relaxed) - before, 1);
        drop((room, journal));
        let all: Vec<_> = (0..requests as i64).map(Some).collect();
        assert_eq!(costs_found(folder.path(), segment_bytes), all);
    }

    #[test]
    fn where_the_last_record_is_damaged_the_one_before_it_counts() {
        let (folder, segment_bytes, requests) = (scratch(), 1 << 20, 20);
        let (journal, _, room) = running(folder.path(), segment_bytes, requests);
        assert_eq!(journal.record_checkpoints(&checkpoints(0..requests)), 0);
        let last = journal.end();
        let later: Vec<_> = (0..requests / 2)
            .map(|number| Checkpoint {
                cost: NanoUsd::from_nanos(1_000),
                ..checkpoint(number)
            })
            .collect();
        assert_eq!(journal.record_checkpoints(&later), 0);
        drop((room, journal));
        let path = folder.path().join(format!("{:012}.wal", last.segment));
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = usize::try_from(last.offset).unwrap() + 100;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let again = Journal::open(&settings(folder.path(), segment_bytes)).unwrap();
        assert_eq!(again.journal.damaged_parts(), 1);
        let found = again
            .unsettled
            .iter()
            .map(|(_, last)| last.as_ref().map(|last| last.cost.nanos()));
        assert!(found.eq((0..requests as i64).map(Some)));
    }

    #[test]
    fn checkpoints_go_on_in_the_next_segments() {
        let (folder, segment_bytes, requests) = (scratch(), SEGMENT_BYTES_MIN, 600);
        let (journal, _, room) = running(folder.path(), segment_bytes, requests);
        let before = journal.end().segment;
        assert_eq!(journal.record_checkpoints(&checkpoints(0..requests)), 0);
        assert!(journal.end().segment > before + 1, "several segments");
        drop((room, journal));
        let all: Vec<_> = (0..requests as i64).map(Some).collect();
        assert_eq!(costs_found(folder.path(), segment_bytes), all);
    }

    #[test]
    fn a_write_that_fails_goes_elsewhere_or_is_counted() {
        let (folder, segment_bytes, requests) = (scratch(), 1 << 20, 50);
        let (journal, disk, room) = running(folder.path(), segment_bytes, requests);
        disk.failing.store(1, Ordering::Relaxed);
        assert_eq!(journal.record_checkpoints(&checkpoints(0..requests)), 0);
        assert_eq!(journal.failures(), 1);
        disk.failing.store(usize::MAX, Ordering::Relaxed);
        assert_eq!(journal.record_checkpoints(&checkpoints(100..100 + requests)), requests);
        drop((room, journal));
        let all: Vec<_> = (0..requests as i64).map(Some).collect();
        assert_eq!(costs_found(folder.path(), segment_bytes), all);
    }

    #[test]
    fn a_checkpoint_that_is_too_large_is_left_out_alone() {
        let (folder, segment_bytes) = (scratch(), SEGMENT_BYTES_MIN);
        let (journal, _, room) = running(folder.path(), segment_bytes, 3);
        let huge = Checkpoint {
            provider: "p".repeat(usize::try_from(segment_bytes).unwrap()).into(),
            ..checkpoint(1)
        };
        assert_eq!(journal.record_checkpoints(&[checkpoint(0), huge, checkpoint(2)]), 1);
        drop((room, journal));
        assert_eq!(costs_found(folder.path(), segment_bytes), [Some(0), None, Some(2)]);
    }
}
