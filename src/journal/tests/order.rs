//! The order in the file is the order of the numbers, also under concurrency and over restarts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn numbers_are_dense_and_in_file_order_under_eight_threads() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let journal = &journal;
            scope.spawn(move || {
                for index in 0..100 {
                    let account = ["a", "b", "c"][(thread + index) % 3];
                    step(journal, account, settle("r"));
                }
            });
        }
    });
    let mut all = 0;
    for account in ["a", "b", "c"] {
        let numbers = numbers(&journal, account);
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{account}");
        all += numbers.len();
    }
    assert_eq!(all, 800);
}

#[test]
fn a_reader_follows_the_end() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let mut reader = journal.reader(Position::START);
    for number in 1..600 {
        assert_eq!(reader.read().unwrap(), None);
        step(&journal, "acme", settle("r"));
        let (_, record) = reader.read().unwrap().unwrap();
        assert!(matches!(record, Record::Step { step, .. } if step.seq == number));
    }
    assert!(journal.end().segment > 2);
}

#[test]
fn a_segment_that_is_full_but_for_a_few_bytes_is_sound() {
    let bytes_max = settings(Path::new("")).segment_bytes;
    let record = |request: &str| Record::Admit(Box::new(admitted(request)));
    let empty = {
        let mut bytes = vec![0; frame::HEAD];
        record("").write(&mut bytes).unwrap();
        bytes.len() as u64
    };
    for left in 0..=frame::HEAD as u64 {
        let folder = scratch();
        let journal = open(folder.path()).journal;
        let mut written = 0;
        loop {
            let room = bytes_max - journal.end().offset - left;
            // Frames of equal length, and the last one as long as is needed. An id's length is one byte.
            let id = if room < 2 * empty + 20 { room - empty } else { 10 };
            let request = format!("{written:x>width$}", width = usize::try_from(id).unwrap());
            let mut reserved = journal.reserve(REQUEST_BYTES).unwrap();
            journal.append(&record(&request), &mut reserved).unwrap();
            written += 1;
            if journal.end().offset == bytes_max - left {
                break;
            }
        }
        assert_eq!(journal.end().segment, 1);
        drop(journal);
        let opened = open(folder.path());
        assert_eq!(opened.journal.damaged_parts(), 0, "{left} bytes left");
        assert_eq!(opened.unsettled.len(), written, "{left} bytes left");
    }
}

#[derive(Clone, Debug)]
enum Act {
    Step(usize),
    Admit(usize),
    Acknowledge(usize),
    Open,
    Tidy,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..3_usize).prop_map(Act::Step),
        2 => (1..600_usize).prop_map(Act::Admit),
        2 => (0..3_usize).prop_map(Act::Acknowledge),
        1 => Just(Act::Open),
        1 => Just(Act::Tidy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Restarts, removals and acknowledgements in any order: numbers go on, and no step that is not acknowledged is lost.
    #[test]
    fn nothing_unacknowledged_is_lost(acts in prop::collection::vec(act(), 1..80)) {
        let folder = scratch();
        let mut journal = open(folder.path()).journal;
        let mut last: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let names = ["a", "b", "c"];
        for (index, act) in acts.into_iter().enumerate() {
            match act {
                Act::Step(which) => {
                    let account = last.entry(names[which]).or_default();
                    account.0 += 1;
                    prop_assert_eq!(step(&journal, names[which], settle("r")), account.0);
                }
                Act::Admit(length) => {
                    let mut room = journal.reserve(REQUEST_BYTES).unwrap();
                    let request = format!("{index}{}", "x".repeat(length));
                    journal.append(&Record::Admit(Box::new(admitted(&request))), &mut room).unwrap();
                    journal.append_step("d", settle(&request), 0, &mut room).unwrap();
                }
                Act::Acknowledge(which) => {
                    let account = last.entry(names[which]).or_default();
                    account.1 = account.0;
                    journal.acknowledge(names[which], account.0);
                }
                Act::Open => {
                    drop(journal);
                    let opened = open(folder.path());
                    prop_assert_eq!((opened.journal.damaged_parts(), opened.unsettled.len()), (0, 0));
                    journal = opened.journal;
                    for (name, (_, acknowledged)) in &last {
                        prop_assert!(journal.acknowledge(name, *acknowledged), "more of {} was believed", name);
                    }
                }
                Act::Tidy => {
                    tell(&journal);
                    grow_old(&journal);
                }
            }
            for (name, (last, acknowledged)) in &last {
                let left: Vec<u64> = numbers(&journal, name).into_iter().filter(|seq| seq > acknowledged).collect();
                prop_assert!(left.iter().copied().eq(acknowledged + 1..=*last), "{} {:?}", name, left);
            }
        }
    }
}
