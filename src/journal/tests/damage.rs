//! Whatever becomes of the bytes, what stands in front of the fault is found, once, and nothing else.

use super::*;
use crate::journal::{
    folder::Folder,
    frame::{HEADER, zeros_from},
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

    /// The numbers that must be found when the segment `which` is good only in front of `good`.
    fn expected(&self, which: usize, good: usize) -> Vec<u64> {
        let found = |(index, (segment, end)): (usize, &(usize, usize))| {
            (*segment != which || *end <= good).then_some(index as u64 + 1)
        };
        self.records.iter().enumerate().filter_map(found).collect()
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
                template.expected(which, cut),
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
        assert_eq!(found(&replayed), template.expected(1, cut), "cut at {cut}");
        let kept = quarantined(&template.folder.path).len();
        assert_eq!((replayed.damaged, kept), (0, 0), "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_anywhere_takes_nothing_in_front_of_it() {
    let template = Template::new();
    for which in 0..2 {
        for at in 0..template.segments[which].len() {
            let mut bytes = template.segments[which].clone();
            bytes[at] ^= 1 << (at % 8);
            let replayed = template.replay(which, &bytes);
            let good = if at < HEADER { usize::MAX } else { at };
            assert_eq!(
                found(&replayed),
                template.expected(which, good),
                "segment {which} flipped at {at}"
            );
            if (HEADER..template.end(which) - 200).contains(&at) {
                assert_eq!(replayed.damaged, 1, "segment {which} flipped at {at}");
                let kept = fs::read(&quarantined(&template.folder.path)[0]).unwrap();
                assert!(kept.len() > 150, "what cannot be believed is kept");
            }
            // What was cut off stays cut off.
            let again = replay::replay(&template.folder).unwrap();
            assert_eq!((found(&again), again.damaged), (found(&replayed), 0));
        }
    }
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
    assert!(!journal.acknowledged(ACCOUNT, 0), "now it has forgotten everything");
    while !journal.shared.synced.borrow().has(records(&journal).last().unwrap().0) {
        std::thread::yield_now();
    }
    let unsent = journal.unsent(ACCOUNT, 10).unwrap();
    let nothing = Change::Adjust {
        amount: NanoUsd::ZERO,
        operation: None,
    };
    let changes: Vec<_> = unsent.steps.into_iter().map(|step| (step.seq, step.change)).collect();
    assert_eq!(
        changes,
        [
            (1, Change::Suspend),
            (2, nothing.clone()),
            (3, nothing),
            (4, Change::Resume)
        ]
    );
    assert_eq!(unsent.lost, 2);
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
