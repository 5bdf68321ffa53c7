//! Records the checkpoints of all running requests, as many as possible in one record.

use std::sync::Arc;

use crate::{
    domain::ledger::{Checkpoint, Record},
    journal::{error::JournalError, frame, handle::Journal, reservation::Reservation},
};

impl Journal {
    /// Records checkpoints, in room that no request has reserved. Returns the number of checkpoints that could not be recorded.
    ///
    /// They are one record, or several if that would be too large: settlements wait while a record is written.
    pub(crate) fn record_checkpoints(&self, checkpoints: &[Checkpoint]) -> usize {
        if checkpoints.is_empty() {
            return 0;
        }
        let frame_max = usize::try_from(self.engine.lock().tail.frame_max()).unwrap_or(usize::MAX);
        let (mut frame, mut lost, mut rest) = (Vec::new(), 0, checkpoints);
        while !rest.is_empty() {
            // Encoded outside the lock, so that settlements do not wait for it.
            frame.clear();
            frame.extend([0; frame::HEAD]);
            let count = Record::write_checkpoints(rest, frame_max.saturating_sub(frame::HEAD), &mut frame);
            // A checkpoint that is too large is skipped alone.
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

    use super::*;
    use crate::{
        config::JournalConfig,
        domain::{
            ledger::consumption::{PriceModifiers, UsageSource},
            money::NanoUsd,
            wire::usage::Usage,
        },
        journal::{
            REQUEST_BYTES, Reservation, SEGMENT_BYTES_MIN,
            disk::{Disk, RealDisk},
            tests::{admitted, scratch},
        },
    };

    /// Counts writes, and fails those that it is told to.
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

    /// A journal with so many running requests, and the room that they hold.
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

    /// What the next start finds of each request, in order; nothing is damaged.
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
