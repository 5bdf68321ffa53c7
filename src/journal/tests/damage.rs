//! Whatever becomes of the bytes, every record that they leave whole is found, once, and nothing else.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::journal::{
    folder::JournalFolder,
    frame::{self, FrameOutcome, FrameReader, HEADER, is_zero_from},
    replay::{self, JournalReplay},
};

/// Two segments with a few records of each kind, and where each of them begins and ends in its segment.
struct Template {
    _root: tempfile::TempDir,
    folder: JournalFolder,
    segments: Vec<Vec<u8>>,
    records: Vec<Written>,
}

#[derive(Clone)]
struct Written {
    segment: usize,
    range: Range<usize>,
    /// Its number, if it is a step.
    step: Option<u64>,
}

const ACCOUNT: &str = "acme";

impl Template {
    fn new() -> Self {
        let root = scratch();
        let mut records: Vec<Written> = Vec::new();
        let mut segments = Vec::new();
        for segment in 0..2 {
            let journal = open(root.path()).journal;
            let mut room = journal.reserve(REQUEST_BYTES).unwrap();
            let at = || usize::try_from(journal.end().offset).unwrap();
            let mut write = |record: &mut dyn FnMut() -> Option<u64>| {
                let begin = at();
                let step = record();
                let range = begin..at();
                records.push(Written { segment, range, step });
            };
            for number in 0..3 {
                let request = format!("{segment}-{number}");
                let admission = Record::Admit(Box::new(admitted(&request)));
                write(&mut || journal.append(&admission, &mut room).map(|_| None).unwrap());
                write(&mut || {
                    assert_eq!(
                        journal.record_checkpoints(&[checkpoint(&request, 200), checkpoint("other", 200)]),
                        0
                    );
                    None
                });
                write(&mut || Some(step(&journal, ACCOUNT, settle(&request))));
            }
            write(&mut || Some(step(&journal, ACCOUNT, AccountChange::nothing())));
            let end = at();
            drop((room, journal));
            let name = root.path().join(format!("{:012}.wal", segment + 1));
            let mut bytes = fs::read(&name).unwrap();
            // With a good piece of the zeros behind the data, which a journal that ends well cuts off.
            bytes.resize(end + 64, 0);
            segments.push(bytes);
        }
        let folder = JournalFolder::open(root.path()).unwrap();
        Self {
            _root: root,
            folder,
            segments,
            records,
        }
    }

    /// What a start finds when one segment has other bytes.
    fn replay(&self, which: usize, bytes: &[u8]) -> JournalReplay {
        let _ = fs::remove_dir_all(self.folder.path.join("quarantine"));
        for number in self.folder.segments().unwrap() {
            fs::remove_file(self.folder.segment(number)).unwrap();
        }
        for (index, whole) in self.segments.iter().enumerate() {
            let content = if index == which { bytes } else { whole };
            fs::write(self.folder.segment(index as u64 + 1), content).unwrap();
        }
        replay::replay(&self.folder).unwrap()
    }

    /// The records that are whole when the segment `which` has these bytes.
    fn whole<'a>(&'a self, which: usize, bytes: &'a [u8]) -> impl Iterator<Item = &'a Written> {
        self.records.iter().filter(move |record| {
            let range = record.range.clone();
            record.segment != which || bytes.get(range.clone()) == self.segments[which].get(range)
        })
    }

    /// Asserts that a start has found all records that are whole when the segment `which` has these bytes, and no others; so
    /// does the next start, which finds no damage any more.
    #[track_caller]
    fn assert_found(&self, replayed: &JournalReplay, which: usize, bytes: &[u8], case: &str) {
        let steps: Vec<u64> = self.whole(which, bytes).filter_map(|record| record.step).collect();
        let places: Vec<_> = self
            .whole(which, bytes)
            .map(|record| (record.segment, record.range.start))
            .collect();
        assert_eq!(
            (found(replayed), self.standing()),
            (steps.clone(), places.clone()),
            "{case}"
        );
        let again = replay::replay(&self.folder).unwrap();
        assert_eq!((found(&again), again.damaged), (steps, 0), "{case}, once more");
        assert_eq!(self.standing(), places, "{case}, once more");
    }

    /// The places of the records that stand in the segments, as what reads them finds them.
    fn standing(&self) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        for number in self.folder.segments().unwrap() {
            let file = Arc::new(File::open(self.folder.segment(number)).unwrap());
            let end = file.metadata().unwrap().len();
            let mut frames = FrameReader::new(file, number, HEADER as u64, end);
            while let FrameOutcome::Frame { at, payload } = frames.next_frame().unwrap() {
                if !frame::is_filler(payload) {
                    all.push((usize::try_from(number).unwrap() - 1, usize::try_from(at).unwrap()));
                }
            }
        }
        all
    }

    /// The range of the record that a byte of the segment `which` belongs to.
    fn record_at(&self, which: usize, at: usize) -> Option<Range<usize>> {
        let mut found = self.records.iter().filter(|record| record.segment == which);
        found.find_map(|record| record.range.contains(&at).then(|| record.range.clone()))
    }

    fn end(&self, which: usize) -> usize {
        let records = self.records.iter().filter(|record| record.segment == which);
        records.map(|record| record.range.end).max().unwrap()
    }
}

fn found(replayed: &JournalReplay) -> Vec<u64> {
    replayed
        .contents
        .accounts
        .unacknowledged_positions(ACCOUNT, 100)
        .into_iter()
        .map(|(seq, _)| seq)
        .collect()
}

#[test]
fn a_segment_cut_at_any_byte_gives_what_stands_in_front() {
    let template = Template::new();
    for which in 0..2 {
        let whole = &template.segments[which];
        for cut in 0..whole.len() {
            let replayed = template.replay(which, &whole[..cut]);
            assert!(replayed.damaged <= 1);
            template.assert_found(
                &replayed,
                which,
                &whole[..cut],
                &format!("segment {which} cut at {cut}"),
            );
        }
    }
}

#[test]
fn a_write_that_a_crash_cut_short_is_cut_off_without_a_word() {
    let template = Template::new();
    for cut in HEADER..template.end(1) {
        let mut bytes = template.segments[1].clone();
        bytes[cut..].fill(0);
        let replayed = template.replay(1, &bytes);
        let kept = quarantined(&template.folder.path).len();
        assert_eq!((replayed.damaged, kept), (0, 0), "cut at {cut}");
        template.assert_found(&replayed, 1, &bytes, &format!("cut at {cut}"));
    }
}

#[test]
fn a_flipped_bit_anywhere_takes_no_record_but_its_own() {
    let template = Template::new();
    for which in 0..2 {
        for at in 0..template.segments[which].len() {
            let mut bytes = template.segments[which].clone();
            bytes[at] ^= 1 << (at % 8);
            let replayed = template.replay(which, &bytes);
            if let Some(record) = template.record_at(which, at)
                && record.end < template.end(which)
            {
                assert_eq!(replayed.damaged, 1, "segment {which} flipped at {at}");
                let mut kept = fs::read(&quarantined(&template.folder.path)[0]).unwrap();
                // But for zeros at its end, as the flipped byte may be one.
                kept.resize(record.len(), 0);
                assert_eq!(kept, bytes[record], "what cannot be believed is kept");
            }
            template.assert_found(&replayed, which, &bytes, &format!("segment {which} flipped at {at}"));
        }
    }
}

/// Some bytes of a segment that become others.
#[derive(Clone, Debug)]
struct Fault {
    at: prop::sample::Index,
    bytes: Vec<u8>,
}

fn fault() -> impl Strategy<Value = Fault> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..300),
        (any::<u8>(), 1..300_usize).prop_map(|(byte, count)| vec![byte; count]),
        (1..300_usize).prop_map(|count| vec![0; count]),
        // What looks like the head of a frame.
        (1..400_u32, any::<u32>()).prop_map(|(length, sum)| [length.to_le_bytes(), sum.to_le_bytes()].concat()),
    ];
    (any::<prop::sample::Index>(), bytes).prop_map(|(at, bytes)| Fault { at, bytes })
}

#[test]
fn whatever_bytes_are_damaged_all_other_records_come_back_and_none_is_invented() {
    let template = Template::new();
    let cases = if std::env::var_os("WEIR_FULL").is_some() {
        20_000
    } else {
        500
    };
    let faults = (0..2_usize, prop::collection::vec(fault(), 1..4));
    proptest!(ProptestConfig::with_cases(cases), |((which, faults) in faults)| {
        let mut bytes = template.segments[which].clone();
        for fault in &faults {
            let at = fault.at.index(bytes.len());
            let end = bytes.len().min(at + fault.bytes.len());
            bytes[at..end].copy_from_slice(&fault.bytes[..end - at]);
        }
        let replayed = template.replay(which, &bytes);
        template.assert_found(&replayed, which, &bytes, "faults");
    });
}

/// A disk writes blocks in any order, and a crash leaves those that it has not written as they were.
#[test]
fn blocks_that_did_not_reach_the_disk_take_the_records_in_them_only() {
    let template = Template::new();
    let cases = if std::env::var_os("WEIR_FULL").is_some() {
        20_000
    } else {
        300
    };
    let lost = (
        prop::sample::select(vec![16, 64, 512]),
        prop::collection::vec(any::<bool>(), 1..40),
    );
    proptest!(ProptestConfig::with_cases(cases), |(which in 0..2_usize, (size, lost) in lost)| {
        let mut bytes = template.segments[which].clone();
        let blocks = bytes.chunks_mut(size).zip(lost.iter().cycle());
        for (block, _) in blocks.filter(|(_, lost)| **lost) {
            block.fill(0);
        }
        let replayed = template.replay(which, &bytes);
        template.assert_found(&replayed, which, &bytes, "blocks");
    });
}

#[test]
fn damage_of_any_size_is_covered_by_frames_of_nothing() {
    let folder = scratch();
    for size in [9, 100, 65_536, 65_537, 98_304, 300_000, 1 << 20] {
        let bytes = frame::filler(7, 64, 64 + size).unwrap();
        assert_eq!(bytes.len() as u64, size);
        let file = tempfile::tempfile_in(folder.path()).unwrap();
        RealDisk.write(&file, &bytes, 64).unwrap();
        let mut frames = FrameReader::new(Arc::new(file), 7, 64, 64 + size);
        while frames.next_offset() < 64 + size {
            match frames.next_frame().unwrap() {
                FrameOutcome::Frame { payload, .. } => assert!(frame::is_filler(payload)),
                other => panic!("{size}: {other:?}"),
            }
        }
    }
    assert_eq!(frame::filler(7, 64, 72), None, "a head alone is no frame");
}

#[test]
fn damage_that_comes_while_weir_runs_hides_nothing_either() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let mut ends = Vec::new();
    while journal.end().segment < 2 {
        step(&journal, ACCOUNT, AccountChange::nothing());
        ends.push(journal.end());
    }
    let damage = |segment: u64, at: u64| {
        let path = folder.path().join(format!("{segment:012}.wal"));
        let file = File::options().write(true).open(path).unwrap();
        RealDisk.write(&file, b"damage", at).unwrap();
    };
    // One in a complete segment, and one in the segment that is written.
    damage(1, ends[2].offset + 3);
    step(&journal, ACCOUNT, AccountChange::nothing());
    step(&journal, ACCOUNT, AccountChange::nothing());
    let all = ends.len() as u64 + 2;
    damage(2, ends.last().unwrap().offset + 9);
    let expected: Vec<u64> = (1..=all).filter(|seq| *seq != 4 && *seq != all - 1).collect();
    assert_eq!(numbers(&journal, ACCOUNT), expected);
    assert_eq!(journal.damaged_parts(), 2);
    assert_eq!(numbers(&journal, ACCOUNT), expected, "and again");
    assert_eq!(journal.damaged_parts(), 2);
}

#[test]
fn lost_steps_are_stood_in_for_so_that_later_ones_pass() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let credit = |amount| AccountChange::Credit {
        amount: NanoUsd::from_nanos(amount),
        at: 0,
        operation: None,
    };
    step(&journal, ACCOUNT, credit(1));
    let second = usize::try_from(journal.end().offset).unwrap();
    step(&journal, ACCOUNT, credit(2));
    step(&journal, ACCOUNT, credit(3));
    drop(journal);
    drop(open(folder.path()));
    let first = folder.path().join("000000000001.wal");
    let mut bytes = fs::read(&first).unwrap();
    bytes[second + 20] ^= 1;
    fs::write(&first, bytes).unwrap();

    let journal = open(folder.path()).journal;
    let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
    assert_eq!(
        journal.append_step(ACCOUNT, credit(4), 3, &mut room).unwrap().0,
        4,
        "as the store knows"
    );
    assert!(journal.acknowledge(ACCOUNT, 3));
    assert!(!journal.acknowledge(ACCOUNT, 0), "now it has forgotten everything");
    loop {
        // Reading looks at `synced` too: it must not be borrowed meanwhile, or a sync that comes between waits for ever.
        let last = records(&journal).last().unwrap().0;
        if journal.engine.synced.borrow().is_on_disk(last) {
            break;
        }
        std::thread::yield_now();
    }
    let unsent = journal.unsent(ACCOUNT, 10).unwrap();
    let changes: Vec<_> = unsent.steps.into_iter().map(|step| (step.seq, step.change)).collect();
    assert_eq!(
        changes,
        [
            (1, credit(1)),
            (2, AccountChange::nothing()),
            (3, credit(3)),
            (4, credit(4))
        ]
    );
    assert_eq!(unsent.lost, 1);
}

#[test]
fn a_byte_in_what_was_set_aside_is_found_wherever_it_is() {
    let folder = scratch();
    for set_aside in [true, false] {
        let file = tempfile::tempfile_in(folder.path()).unwrap();
        if set_aside {
            RealDisk.allocate(&file, 3 << 20).unwrap();
        } else {
            file.set_len(3 << 20).unwrap();
        }
        RealDisk.write(&file, b"data", 0).unwrap();
        assert!(is_zero_from(&file, 4).unwrap());
        assert!(!is_zero_from(&file, 3).unwrap());
        for at in [4, 5000, (1 << 20) - 1, (2 << 20) + 77, (3 << 20) - 1] {
            RealDisk.write(&file, b"x", at).unwrap();
            assert!(!is_zero_from(&file, 4).unwrap(), "{at}");
            assert!(!is_zero_from(&file, at).unwrap(), "{at}");
            assert!(is_zero_from(&file, at + 1).unwrap(), "{at}");
            RealDisk.write(&file, &[0], at).unwrap();
        }
        assert!(is_zero_from(&file, 4).unwrap());
        assert!(is_zero_from(&file, 4 << 20).unwrap(), "behind the end");
    }
}
