//! A start with indexes finds what a start without them finds, and reads less.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use smol_str::SmolStr;

use super::*;
use crate::{
    domain::ledger::AccountRecord,
    journal::{
        folder::JournalFolder,
        frame::HEADER,
        index::{self, JournalContents, RunningRequest, SegmentSummary},
        replay::{self, JournalReplay},
    },
};

const ACCOUNTS: [&str; 3] = ["a", "b", "c"];

/// End, bytes, steps, running requests, age and last row.
type Segment = (u64, u64, BTreeMap<SmolStr, (u64, u64)>, u64, i64, Option<u64>);

/// All that a start knows, in a form that can be compared.
#[derive(Debug, PartialEq)]
struct Known {
    segments: BTreeMap<u64, Segment>,
    running: BTreeMap<SmolStr, RunningRequest>,
    keys: BTreeMap<KeyId, Position>,
    records: BTreeMap<SmolStr, Position>,
    shares: Vec<NodeHourCounters>,
    last_row: Option<Position>,
    accounts: BTreeMap<SmolStr, (u64, u64)>,
    places: Vec<(u64, Vec<(u64, Position)>)>,
    unacknowledged: u64,
    unsettled: Vec<(AdmittedRequest, Option<Checkpoint>)>,
    next: u64,
}

fn known(replayed: JournalReplay) -> Known {
    let JournalContents {
        segments,
        accounts,
        running,
        keys,
        records,
        hourly_counts: tallies,
        ..
    } = replayed.contents;
    let segment = |(number, one): (u64, SegmentSummary)| {
        let steps = one.steps.into_iter().collect();
        (
            number,
            (one.end, one.bytes, steps, one.running, one.last_ms, one.last_row),
        )
    };
    let places = |name: &&str| {
        (
            accounts.watermark(name),
            accounts.unacknowledged_positions(name, usize::MAX),
        )
    };
    Known {
        segments: segments.into_iter().map(segment).collect(),
        running: running.into_iter().collect(),
        keys: keys.into_iter().collect(),
        records: records.into_iter().collect(),
        shares: tallies.shares(),
        last_row: tallies.last(),
        places: ACCOUNTS.iter().map(places).collect(),
        accounts: accounts.numbers(),
        unacknowledged: accounts.unacknowledged(),
        unsettled: replayed.unsettled,
        next: replayed.next_segment,
    }
}

fn indexes(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "idx"))
        .collect();
    all.sort();
    all
}

fn overwrite(folder: &Path, number: u64, at: usize) {
    let path = folder.join(format!("{number:012}.wal"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[at..at + 64].fill(b'x');
    fs::write(&path, bytes).unwrap();
}

fn admit(journal: &Journal, request: &str) -> Position {
    let mut room = journal.reserve(REQUEST_BYTES).unwrap();
    let record = Record::Admit(Box::new(admitted(request)));
    journal.append(&record, &mut room).unwrap()
}

/// Settles requests until a segment of that number is begun; all steps are acknowledged.
fn fill(journal: &Journal, segment: u64) {
    while journal.end().segment < segment {
        let last = step(journal, "acme", settle("none"));
        journal.acknowledge("acme", last);
    }
    tell(journal);
}

/// Eight complete segments; a request of the first is still running, its last checkpoint stands in the third.
fn eight_segments(folder: &Path) -> Vec<Position> {
    let journal = open(folder).journal;
    let admitted = admit(&journal, "long");
    admit(&journal, "short");
    fill(&journal, 3);
    let checkpointed = journal.end();
    let reached = Checkpoint {
        provider: "p".repeat(100).into(),
        ..checkpoint("long", 200)
    };
    assert_eq!(journal.record_checkpoints(&[reached]), 0);
    fill(&journal, 5);
    let last = step(&journal, "acme", settle("short"));
    journal.acknowledge("acme", last);
    fill(&journal, 9);
    vec![admitted, checkpointed]
}

#[test]
fn a_start_does_not_read_complete_segments_but_for_requests_that_still_run() {
    let folder = scratch();
    let places = eight_segments(folder.path());
    assert_eq!(places[1].segment, 3);
    assert_eq!(indexes(folder.path()).len(), 8);
    // Damage in them goes unnoticed, but not where the running request's records stand.
    for number in 1..=8 {
        overwrite(folder.path(), number, HEADER + 4 * 1024);
    }
    let replayed = replay::replay(&JournalFolder::open(folder.path()).unwrap()).unwrap();
    assert_eq!(
        (replayed.segments_read.as_slice(), replayed.damaged),
        ([9].as_slice(), 0)
    );
    let (request, last) = &replayed.unsettled[0];
    assert_eq!(replayed.unsettled.len(), 1);
    assert_eq!(
        (request.row.request_id.as_str(), last.as_ref().unwrap().status),
        ("long", 200)
    );
    assert!(replayed.contents.running.values().eq([&RunningRequest {
        admitted: places[0],
        checkpoint: Some(places[1])
    }]));

    for index in indexes(folder.path()) {
        fs::remove_file(index).unwrap();
    }
    let replayed = replay::replay(&JournalFolder::open(folder.path()).unwrap()).unwrap();
    assert_eq!((replayed.segments_read.len(), replayed.damaged), (9, 8));
}

#[test]
fn segments_with_steps_that_are_not_acknowledged_are_read() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    fill(&journal, 4);
    step(&journal, "late", AccountChange::nothing());
    fill(&journal, 7);
    drop(journal);
    let replayed = replay::replay(&JournalFolder::open(folder.path()).unwrap()).unwrap();
    assert_eq!(replayed.segments_read, [4, 5, 6, 7]);
    assert_eq!(replayed.contents.accounts.unacknowledged_positions("late", 9).len(), 1);
}

#[test]
fn a_damaged_index_or_one_of_another_segment_is_made_again() {
    let folder = scratch();
    eight_segments(folder.path());
    let owned = JournalFolder::open(folder.path()).unwrap();
    let good: Vec<_> = (1..=8).map(|number| index::read(&owned, number).unwrap()).collect();
    let path = |number: u64| owned.index(number);
    let mut flipped = fs::read(path(2)).unwrap();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    fs::write(path(2), flipped).unwrap();
    fs::write(path(3), "").unwrap();
    fs::remove_file(path(4)).unwrap();
    fs::copy(path(6), path(5)).unwrap();
    let cut = File::options().write(true).open(owned.segment(7)).unwrap();
    cut.set_len(good[6].end - 1).unwrap();
    for number in 2..=5 {
        assert_eq!(index::read(&owned, number), None, "{number}");
    }
    assert_eq!(index::read(&owned, 7), None, "not as long as it says");
    drop(owned);

    let opened = open(folder.path());
    assert_eq!(
        (
            opened.journal.damaged_parts(),
            opened.unsettled.len(),
            opened.possibly_settled.len()
        ),
        (1, 0, 1),
        "in the segment that was cut the settlement may have stood"
    );
    drop(opened);
    let owned = JournalFolder::open(folder.path()).unwrap();
    for (number, before) in (1..).zip(&good) {
        let again = index::read(&owned, number).unwrap();
        assert_eq!(again == *before, number != 7, "{number}");
    }
}

#[test]
fn an_index_that_names_records_that_are_not_there_is_not_believed() {
    let folder = scratch();
    let places = eight_segments(folder.path());
    overwrite(folder.path(), 3, usize::try_from(places[1].offset).unwrap() + 20);
    let opened = open(folder.path());
    assert_eq!(opened.journal.damaged_parts(), 1);
    assert!(
        matches!(opened.unsettled.as_slice(), [(_, None)]),
        "{:?}",
        opened.unsettled
    );
    assert_eq!(quarantined(folder.path()).len(), 1);
}

#[test]
fn an_index_goes_with_its_segment() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    fill(&journal, 4);
    drop(journal);
    assert_eq!(indexes(folder.path()).len(), 3);
    let journal = open(folder.path()).journal;
    tell(&journal);
    grow_old(&journal);
    drop(journal);
    assert_eq!(indexes(folder.path()), Vec::<PathBuf>::new());
}

#[derive(Clone, Debug)]
enum Act {
    Admit(usize),
    Checkpoint(usize),
    /// Whether it is billed, and the hour.
    Settle(usize, Option<i64>),
    Change(usize),
    Key(u8),
    Record(u8),
    Acknowledge(usize),
    Open,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..24_usize).prop_map(Act::Admit),
        4 => (0..24_usize).prop_map(Act::Checkpoint),
        6 => (0..24_usize, prop::option::weighted(0.8, 0..4_i64)).prop_map(|(which, hour)| Act::Settle(which, hour)),
        2 => (0..3_usize).prop_map(Act::Change),
        1 => (0..4_u8).prop_map(Act::Key),
        1 => (0..4_u8).prop_map(Act::Record),
        2 => (0..3_usize).prop_map(Act::Acknowledge),
        1 => Just(Act::Open),
    ]
}

fn key_gone(which: u8, revision: u64) -> Record {
    let id = KeyId::parse(&format!("key_012345678901234{which}")).unwrap();
    Record::KeyGone { id, revision }
}

fn run(journal: &Journal, act: &Act, round: usize, last: &mut HashMap<&str, u64>) {
    let mut room = journal.reserve(2 * REQUEST_BYTES).unwrap();
    // An id is of one run of the process, as real ones are.
    let request = |which: &usize| format!("{}-{which}", round / 40);
    let mut step = |account: usize, change: AccountChange| {
        let account = ACCOUNTS[account % 3];
        let (seq, _) = journal.append_step(account, change, 0, &mut room).unwrap();
        last.insert(account, seq);
    };
    match act {
        Act::Admit(which) => {
            let record = Record::Admit(Box::new(admitted(&request(which))));
            journal.append(&record, &mut room).unwrap();
        }
        Act::Checkpoint(which) => {
            assert_eq!(journal.record_checkpoints(&[checkpoint(&request(which), 200)]), 0);
        }
        Act::Settle(which, hour) => {
            let mut settlement = crate::domain::ledger::settlement_after_crash(admitted(&request(which)), None);
            settlement.row = settlement.row.zip(*hour).map(|(mut row, hour)| {
                Arc::make_mut(&mut row).time_ms = hour * 3_600_000;
                row
            });
            step(*which, AccountChange::Settle(Box::new(settlement)));
        }
        Act::Change(which) => step(*which, AccountChange::nothing()),
        Act::Key(which) => {
            journal.append(&key_gone(*which, round as u64), &mut room).unwrap();
        }
        Act::Record(which) => {
            let record = AccountRecord {
                revision: round as u64,
                ..AccountRecord::default()
            };
            let account = format!("account-{which}").into();
            journal.append(&Record::Account { account, record }, &mut room).unwrap();
        }
        Act::Acknowledge(which) => {
            let account = ACCOUNTS[*which];
            journal.acknowledge(account, last.get(account).copied().unwrap_or(0));
        }
        Act::Open => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn indexes_say_what_the_segments_say(acts in prop::collection::vec(act(), 20..240), settled: bool) {
        let folder = scratch();
        let mut journal = open(folder.path()).journal;
        let mut last: HashMap<&str, u64> = HashMap::new();
        for (round, act) in acts.iter().enumerate() {
            if matches!(act, Act::Open) {
                drop(journal);
                journal = open(folder.path()).journal;
                for (account, last) in &last {
                    journal.acknowledge(account, *last);
                }
            }
            run(&journal, act, round, &mut last);
        }
        if settled {
            for (account, last) in &last {
                journal.acknowledge(account, *last);
            }
        }
        let end = journal.end().segment;
        drop(journal);
        let owned = JournalFolder::open(folder.path()).unwrap();
        // The first one removes segments that nothing was written to.
        replay::replay(&owned).unwrap();
        let with = replay::replay(&owned).unwrap();
        if settled {
            prop_assert!(with.segments_read.iter().all(|number| *number == end), "{:?} of {}", with.segments_read, end);
        }
        for index in indexes(folder.path()) {
            fs::remove_file(index).unwrap();
        }
        let without = replay::replay(&owned).unwrap();
        prop_assert_eq!(without.segments_read.len(), without.contents.segments.len());
        prop_assert_eq!(known(with), known(without));
    }
}
