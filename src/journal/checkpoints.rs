//! Checkpoints of all running requests, recorded together: with one write for many of them, not one for each.

use crate::{
    domain::ledger::{Checkpoint, Record},
    edges::clock,
    journal::{frame, handle::Journal, position::Position},
};

/// Frames that wait to be written, one behind the other.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    records: Vec<Record>,
}

impl Batch {
    /// Adds a checkpoint; `false` if its frame would be larger than `max`.
    fn add(&mut self, checkpoint: Checkpoint, max: u64) -> bool {
        let begin = self.bytes.len();
        let record = Record::Checkpoint(Box::new(checkpoint));
        self.bytes.extend([0; frame::HEAD]);
        let encoded = record.write_json(&mut self.bytes);
        let length = self.bytes.len() - begin;
        if encoded.is_err() || length as u64 > max {
            self.bytes.truncate(begin);
            return false;
        }
        self.lengths.push(length);
        self.records.push(record);
        true
    }
}

impl Journal {
    /// Records checkpoints, while there is other room than what requests have reserved; as much at once as the largest frame
    /// may have, because whoever settles meanwhile waits for as long as that takes. Answers with how many could not be recorded.
    pub(crate) fn checkpoint(&self, checkpoints: Vec<Checkpoint>) -> usize {
        let max = self.engine.lock().tail.frame_max();
        let mut batch = Batch::default();
        let mut lost = 0;
        for checkpoint in checkpoints {
            // Encoded outside the lock, which whoever settles waits for.
            lost += usize::from(!batch.add(checkpoint, max));
            if batch.bytes.len() as u64 >= max {
                lost += self.write_batch(std::mem::take(&mut batch));
            }
        }
        lost + self.write_batch(batch)
    }

    fn write_batch(&self, batch: Batch) -> usize {
        let Batch {
            mut bytes,
            lengths,
            records,
        } = batch;
        if records.is_empty() {
            return 0;
        }
        let (folder, size) = (&self.engine.folder, bytes.len() as u64);
        let mut state = self.engine.lock();
        if state.tail.promise(size, folder).is_err() {
            return records.len();
        }
        let now = clock::unix_millis();
        let (mut bytes, mut lengths, mut records) = (bytes.as_mut_slice(), lengths.as_slice(), records.as_slice());
        while !records.is_empty() {
            let mut written = state.tail.write(bytes, lengths, folder);
            if let Err(error) = &written {
                self.failed(error);
                // The disk may take them elsewhere.
                written = state.tail.write(bytes, lengths, folder);
            }
            self.engine.note_begun(&mut state, now);
            let (position, taken) = match written {
                Ok(written) => written,
                Err(error) => {
                    self.failed(&error);
                    break;
                }
            };
            let (Some((now_lengths, next_lengths)), Some((noted, next))) =
                (lengths.split_at_checked(taken), records.split_at_checked(taken))
            else {
                break;
            };
            let mut at = position.offset;
            for (record, length) in noted.iter().zip(now_lengths) {
                let place = Position {
                    segment: position.segment,
                    offset: at,
                };
                at += *length as u64;
                state.contents.note(record, place, at, now, true);
            }
            let done = now_lengths.iter().sum();
            bytes = bytes.get_mut(done..).unwrap_or_default();
            (lengths, records) = (next_lengths, next);
        }
        state.tail.release(size);
        if !state.dirty {
            state.dirty = true;
            self.engine.work.notify_one();
        }
        records.len()
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
            ledger::consumption::{Modifiers, UsageSource},
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
            modifiers: Modifiers::default(),
            parts: Vec::new(),
            cost: NanoUsd::from_nanos(number as i64),
            provider: "p".into(),
            latency_ms: 1_000,
            ttft_ms: None,
            attempts: Some(1),
        }
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
    fn two_thousand_checkpoints_are_a_few_writes() {
        let (folder, segment_bytes, requests) = (scratch(), 8 << 20, 2_000);
        let (journal, disk, room) = running(folder.path(), segment_bytes, requests);
        let before = disk.writes.load(Ordering::Relaxed);
        assert_eq!(journal.checkpoint((0..requests).map(checkpoint).collect()), 0);
        let writes = disk.writes.load(Ordering::Relaxed) - before;
        assert!((1..=4).contains(&writes), "{writes}");
        drop((room, journal));
        let all: Vec<_> = (0..requests as i64).map(Some).collect();
        assert_eq!(costs_found(folder.path(), segment_bytes), all);
    }

    #[test]
    fn checkpoints_go_on_in_the_next_segments() {
        let (folder, segment_bytes, requests) = (scratch(), SEGMENT_BYTES_MIN, 60);
        let (journal, _, room) = running(folder.path(), segment_bytes, requests);
        let before = journal.end().segment;
        assert_eq!(journal.checkpoint((0..requests).map(checkpoint).collect()), 0);
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
        assert_eq!(journal.checkpoint((0..requests).map(checkpoint).collect()), 0);
        assert_eq!(journal.failures(), 1);
        disk.failing.store(usize::MAX, Ordering::Relaxed);
        let later = (0..requests).map(|number| checkpoint(number + 100));
        assert_eq!(journal.checkpoint(later.collect()), requests);
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
        assert_eq!(journal.checkpoint(vec![checkpoint(0), huge, checkpoint(2)]), 1);
        drop((room, journal));
        assert_eq!(costs_found(folder.path(), segment_bytes), [Some(0), None, Some(2)]);
    }
}
