//! Whatever becomes of the bytes, every record that they leave whole is found, once, and nothing else.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::journal::{
    folder::Folder,
    frame::{self, Found, Frames, HEADER, zeros_from},
    replay::{self, Replayed},
};

/// Two segments of a few steps, and where each record begins and ends in its segment.
struct Template {
    _root: tempfile::TempDir,
    folder: Folder,
    segments: Vec<Vec<u8>>,
    records: Vec<(usize, usize)>,
}

const ACCOUNT: &str = "acme";

impl Template {
    fn new() -> Self {
        let root = scratch();
        let mut records = Vec::new();
        let mut segments = Vec::new();
        for number in 1..=2 {
            let journal = open(root.path()).journal;
            for _ in 0..5 {
                step(&journal, ACCOUNT, Change::Suspend);
                records.push((number - 1, usize::try_from(journal.end().offset).unwrap()));
            }
            let name = root.path().join(format!("{number:012}.wal"));
            // With a good piece of the zeros behind the data.
            segments.push(fs::read(&name).unwrap()[..records.last().unwrap().1 + 64].to_vec());
        }
        let folder = Folder::open(root.path()).unwrap();
        Self {
            _root: root,
            folder,
            segments,
            records,
        }
    }

    /// What a start finds when one segment has other bytes.
    fn replay(&self, which: usize, bytes: &[u8]) -> Replayed {
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

    /// Where the bytes of each record stand: its segment and its range there.
    fn ranges(&self) -> Vec<(usize, Range<usize>)> {
        let starts = [(usize::MAX, 0)].into_iter().chain(self.records.iter().copied());
        let ranges = self.records.iter().zip(starts);
        ranges
            .map(|((segment, end), (before, start))| {
                let start = if before == *segment { start } else { HEADER };
                (*segment, start..*end)
            })
            .collect()
    }

    /// The numbers of the records that are whole when the segment `which` has these bytes.
    fn whole(&self, which: usize, bytes: &[u8]) -> Vec<u64> {
        let is_whole = |(index, (segment, range)): (usize, (usize, Range<usize>))| {
            let whole = segment != which || bytes.get(range.clone()) == self.segments[which].get(range);
            whole.then_some(index as u64 + 1)
        };
        self.ranges().into_iter().enumerate().filter_map(is_whole).collect()
    }

    /// The range of the record that a byte of the segment `which` belongs to.
    fn record_at(&self, which: usize, at: usize) -> Option<Range<usize>> {
        let found = self.ranges().into_iter();
        found
            .map(|(segment, range)| (segment == which && range.contains(&at)).then_some(range))
            .find_map(|range| range)
    }

    fn end(&self, which: usize) -> usize {
        self.records
            .iter()
            .filter(|(segment, _)| *segment == which)
            .map(|(_, end)| *end)
            .max()
            .unwrap()
    }
}

fn found(replayed: &Replayed) -> Vec<u64> {
    replayed
        .contents
        .accounts
        .places(ACCOUNT, 100)
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
            assert_eq!(
                found(&replayed),
                template.whole(which, &whole[..cut]),
                "segment {which} cut at {cut}"
            );
            assert!(replayed.damaged <= 1);
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
        assert_eq!(found(&replayed), template.whole(1, &bytes), "cut at {cut}");
        let kept = quarantined(&template.folder.path).len();
        assert_eq!((replayed.damaged, kept), (0, 0), "cut at {cut}");
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
            assert_eq!(
                found(&replayed),
                template.whole(which, &bytes),
                "segment {which} flipped at {at}"
            );
            if let Some(record) = template.record_at(which, at)
                && record.end < template.end(which)
            {
                assert_eq!(replayed.damaged, 1, "segment {which} flipped at {at}");
                let kept = fs::read(&quarantined(&template.folder.path)[0]).unwrap();
                assert_eq!(kept, bytes[record], "what cannot be believed is kept");
            }
            // What was covered or cut off is no damage any more.
            let again = replay::replay(&template.folder).unwrap();
            assert_eq!((found(&again), again.damaged), (found(&replayed), 0));
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
        let whole = template.whole(which, &bytes);
        prop_assert_eq!(found(&replayed), whole.clone());
        let again = replay::replay(&template.folder).unwrap();
        prop_assert_eq!((found(&again), again.damaged), (whole, 0));
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
        let mut frames = Frames::new(Arc::new(file), 7, 64, 64 + size);
        while frames.at() < 64 + size {
            match frames.next_frame().unwrap() {
                Found::Frame { payload, .. } => assert!(frame::is_nothing(payload)),
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
        step(&journal, ACCOUNT, Change::Suspend);
        ends.push(journal.end());
    }
    let damage = |segment: u64, at: u64| {
        let path = folder.path().join(format!("{segment:012}.wal"));
        let file = fs::File::options().write(true).open(path).unwrap();
        RealDisk.write(&file, b"damage", at).unwrap();
    };
    // One in a complete segment, and one in the segment that is written.
    damage(1, ends[2].offset + 3);
    step(&journal, ACCOUNT, Change::Suspend);
    step(&journal, ACCOUNT, Change::Suspend);
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
    step(&journal, ACCOUNT, Change::Suspend);
    let second = usize::try_from(journal.end().offset).unwrap();
    step(&journal, ACCOUNT, Change::Resume);
    step(&journal, ACCOUNT, Change::Resume);
    drop(journal);
    drop(open(folder.path()));
    let first = folder.path().join("000000000001.wal");
    let mut bytes = fs::read(&first).unwrap();
    bytes[second + 20] ^= 1;
    fs::write(&first, bytes).unwrap();

    let journal = open(folder.path()).journal;
    let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
    assert_eq!(
        journal.append_step(ACCOUNT, Change::Resume, 3, &mut room).unwrap().0,
        4,
        "as the store knows"
    );
    assert!(journal.acknowledged(ACCOUNT, 3));
    assert!(!journal.acknowledged(ACCOUNT, 0), "now it has forgotten everything");
    loop {
        // Reading looks at `synced` too: it must not be borrowed meanwhile, or a sync that comes between waits for ever.
        let last = records(&journal).last().unwrap().0;
        if journal.engine.synced.borrow().has(last) {
            break;
        }
        std::thread::yield_now();
    }
    let unsent = journal.unsent(ACCOUNT, 10).unwrap();
    let nothing = Change::Adjust {
        amount: NanoUsd::ZERO,
        at: 0,
        operation: None,
    };
    let changes: Vec<_> = unsent.steps.into_iter().map(|step| (step.seq, step.change)).collect();
    assert_eq!(
        changes,
        [
            (1, Change::Suspend),
            (2, nothing),
            (3, Change::Resume),
            (4, Change::Resume)
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
        assert!(zeros_from(&file, 4).unwrap());
        assert!(!zeros_from(&file, 3).unwrap());
        for at in [4, 5000, (1 << 20) - 1, (2 << 20) + 77, (3 << 20) - 1] {
            RealDisk.write(&file, b"x", at).unwrap();
            assert!(!zeros_from(&file, 4).unwrap(), "{at}");
            assert!(!zeros_from(&file, at).unwrap(), "{at}");
            assert!(zeros_from(&file, at + 1).unwrap(), "{at}");
            RealDisk.write(&file, &[0], at).unwrap();
        }
        assert!(zeros_from(&file, 4).unwrap());
        assert!(zeros_from(&file, 4 << 20).unwrap(), "behind the end");
    }
}
