//! Tests of the journal.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::*;
use crate::journal::{Disk, RealDisk};
use crate::{
    config::JournalConfig,
    domain::{
        faults::stability::NodeHourCounters,
        keys::KeyId,
        ledger::{
            AccountChange, AdmittedRequest, Checkpoint, Record, Step,
            consumption::{self, PriceModifiers, RequestTransport, Row, UsageSource},
        },
        money::NanoUsd,
        wire::usage::Usage,
    },
    edges::clock,
};

mod damage;
mod failures;
mod indexes;
mod order;
mod retention;
mod room;
mod shares;
mod shut;
pub(crate) mod sinks;

const DAY: Duration = Duration::from_secs(86_400);

fn settings(path: &Path) -> JournalConfig {
    JournalConfig {
        path: path.to_owned(),
        segment_bytes: SEGMENT_BYTES_MIN * 4,
        keep: DAY,
        sync: Duration::from_millis(1),
        sinks: Vec::new(),
    }
}

fn open(path: &Path) -> OpenedJournal {
    Journal::open(&settings(path)).unwrap()
}

/// A folder in memory where there is one: these tests sync often.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn key() -> KeyId {
    KeyId::parse("key_0123456789abcdef").unwrap()
}

pub(crate) fn admitted(request: &str) -> AdmittedRequest {
    let row = Row {
        time_ms: 9_990,
        admitted_ms: 9_990,
        request_id: request.into(),
        account: "acme".into(),
        key_id: key(),
        protocol: "messages".into(),
        model_asked: "m".into(),
        model: "m".into(),
        provider: "p".into(),
        status: 0,
        outcome: consumption::CRASH.into(),
        stream: true,
        tags: Vec::new(),
        usage: Usage::default(),
        usage_source: UsageSource::Estimated,
        parts: Vec::new(),
        modifiers: PriceModifiers::default(),
        price_version: "v".into(),
        cost_nano_usd: NanoUsd::from_nanos(100),
        latency_ms: 20,
        ttft_ms: None,
        hold_nano_usd: Some(NanoUsd::from_nanos(200)),
        attempts: None,
        transport: RequestTransport::Http,
        translated: None,
        losses: Vec::new(),
    };
    AdmittedRequest {
        row: row.into(),
        tokens_estimated: 7,
        lease: None,
    }
}

fn checkpoint(request: &str, status: u16) -> Checkpoint {
    Checkpoint {
        request: request.into(),
        status,
        usage: Usage::default(),
        source: UsageSource::Partial,
        modifiers: PriceModifiers::default(),
        parts: Vec::new(),
        cost: NanoUsd::from_nanos(5),
        provider: "p".into(),
        latency_ms: 1_000,
        ttft_ms: None,
        attempts: 1,
    }
}

fn settle(request: &str) -> AccountChange {
    let settlement = crate::domain::ledger::settlement_after_crash(admitted(request), None);
    AccountChange::Settle(Box::new(settlement))
}

fn step(journal: &Journal, account: &str, change: AccountChange) -> u64 {
    let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
    journal.append_step(account, change, 0, &mut room).unwrap().0
}

/// The stability record is told everything.
pub(crate) fn tell(journal: &Journal) -> Vec<NodeHourCounters> {
    let (shares, position) = journal.take_changed_shares();
    journal.mark_published(position);
    shares
}

/// Keeps house as on the days to come, until what is there now is old.
pub(crate) fn grow_old(journal: &Journal) {
    for half_days in 1..=8 {
        let later = clock::unix_millis() + half_days * crate::domain::ledger::daily_sums::RUN_INTERVAL_MS;
        journal.engine.remove_old(later);
    }
}

fn records(journal: &Journal) -> Vec<(Position, Record)> {
    let mut reader = journal.reader(Position::START);
    std::iter::from_fn(|| reader.read().unwrap()).collect()
}

fn numbers(journal: &Journal, account: &str) -> Vec<u64> {
    let of = |(_, record)| match record {
        Record::Step { account: owner, step } if owner == account => Some(step.seq),
        _ => None,
    };
    records(journal).into_iter().filter_map(of).collect()
}

#[test]
fn a_start_finds_what_was_recorded_and_what_had_not_ended() {
    let folder = scratch();
    let first = open(folder.path());
    let mut room = first.journal.reserve(4 * REQUEST_BYTES).unwrap();
    for request in ["one", "two", "three"] {
        first
            .journal
            .append(&Record::Admit(Box::new(admitted(request))), &mut room)
            .unwrap();
    }
    for status in [0, 200] {
        assert_eq!(first.journal.record_checkpoints(&[checkpoint("three", status)]), 0);
    }
    assert_eq!(
        first
            .journal
            .append_step("acme", settle("one"), 0, &mut room)
            .unwrap()
            .0,
        1
    );
    assert_eq!(
        first
            .journal
            .append_step("acme", settle("none"), 40, &mut room)
            .unwrap()
            .0,
        41
    );
    let before = records(&first.journal);
    assert_eq!(before.len(), 7);
    let node = first.journal.node().clone();
    drop((room, first.journal));

    let second = open(folder.path());
    assert_eq!((second.journal.node(), second.journal.damaged_parts()), (&node, 0));
    let left: Vec<_> = second
        .unsettled
        .iter()
        .map(|(one, last)| (one.row.request_id.as_str(), last.as_ref().map(|last| last.status)))
        .collect();
    assert_eq!(left, [("two", None), ("three", Some(200))]);
    assert_eq!(records(&second.journal), before);
    assert_eq!(step(&second.journal, "acme", AccountChange::nothing()), 42);
    assert_eq!(step(&second.journal, "other", AccountChange::nothing()), 1);
}

#[test]
fn a_folder_has_one_owner_and_a_copy_has_none() {
    let folder = scratch();
    let path = folder.path().join("journal");
    let opened = open(&path);
    let again = Journal::open(&settings(&path)).unwrap_err();
    assert!(
        matches!(&again, JournalError::InUse(which) if *which == path),
        "{again}"
    );
    step(&opened.journal, "acme", AccountChange::nothing());
    drop(opened);
    drop(open(&path));

    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let refused = Journal::open(&settings(&copy)).unwrap_err();
    assert!(
        matches!(refused, JournalError::Copied(_)) && refused.to_string().contains("/place"),
        "{refused}"
    );
    fs::remove_file(copy.join("place")).unwrap();
    assert_eq!(numbers(&open(&copy).journal, "acme"), [1], "adopted");
    fs::remove_file(copy.join("node")).unwrap();
    let refused = Journal::open(&settings(&copy)).unwrap_err();
    assert!(matches!(refused, JournalError::Foreign(_)), "{refused}");
}

#[test]
fn a_record_that_is_too_large_is_refused() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let mut room = journal.reserve(0).unwrap();
    let large = Record::Admit(Box::new(admitted(&"x".repeat(5000))));
    assert!(matches!(
        journal.append(&large, &mut room),
        Err(JournalError::TooLarge { .. })
    ));
    assert_eq!(records(&journal), []);
}

#[tokio::test]
async fn settlements_are_counted_until_they_are_acknowledged() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    for request in ["a", "b", "c"] {
        step(&journal, "acme", settle(request));
    }
    step(&journal, "acme", AccountChange::nothing());
    assert_eq!(
        (
            journal.pending_settlements("acme", &key()),
            journal.unacknowledged_steps()
        ),
        ((3, 3), 4)
    );
    assert!(journal.acknowledge("acme", 2));
    assert_eq!(
        (
            journal.pending_settlements("acme", &key()),
            journal.unacknowledged_steps()
        ),
        ((1, 1), 2)
    );
    assert!(journal.acknowledge("acme", 4));
    journal.wait_until_acknowledged().await;
    assert_eq!(
        (
            journal.pending_settlements("acme", &key()),
            journal.oldest_unacknowledged_ms()
        ),
        ((0, 0), 0)
    );
    let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
    let (_, position) = journal
        .append_step("acme", AccountChange::nothing(), 0, &mut room)
        .unwrap();
    journal.wait_until_synced(position).await.unwrap();
}

#[tokio::test]
async fn so_many_steps_are_at_hand_once_and_all_can_be_read() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let most = accounts::CACHED_MAX;
    let mut room = journal.reserve(STEP_BYTES_MAX).unwrap();
    let mut last = journal.end();
    for _ in 0..most + 2 {
        (_, last) = journal
            .append_step("acme", AccountChange::nothing(), 0, &mut room)
            .unwrap();
    }
    journal.wait_until_synced(last).await.unwrap();
    let first = journal.unsent_in_memory("acme", 2).unwrap();
    assert_eq!(first.steps.iter().map(|step| step.seq).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(journal.unsent_in_memory("acme", 2), None, "given once");
    assert_eq!(journal.unsent("acme", 2).unwrap(), first);
    journal.acknowledge("acme", 2);
    let rest = journal.unsent_in_memory("acme", most - 2).unwrap();
    assert_eq!(rest.steps.len(), most - 2);
    journal.acknowledge("acme", most as u64);
    assert_eq!(journal.unsent_in_memory("acme", 2), None, "more than are kept");
    assert_eq!(journal.unsent("acme", 3).unwrap().steps.len(), 2);
    // Those that are acknowledged make room.
    journal.acknowledge("acme", most as u64 + 2);
    assert_eq!(journal.unsent_in_memory("acme", 2), Some(UnsentSteps::default()));
    for _ in 0..most {
        (_, last) = journal
            .append_step("acme", AccountChange::nothing(), 0, &mut room)
            .unwrap();
    }
    journal.wait_until_synced(last).await.unwrap();
    assert_eq!(journal.unsent_in_memory("acme", most).unwrap().steps.len(), most);
}

#[test]
fn a_running_request_keeps_its_segment() {
    let folder = scratch();
    let journal = open(folder.path()).journal;
    let mut room = journal.reserve(REQUEST_BYTES).unwrap();
    journal
        .append(&Record::Admit(Box::new(admitted("r"))), &mut room)
        .unwrap();
    let mut last = 0;
    while journal.end().segment < 3 {
        last = step(&journal, "acme", settle("x"));
    }
    journal.acknowledge("acme", last);
    tell(&journal);
    let first = folder.path().join("000000000001.wal");
    grow_old(&journal);
    assert!(first.exists());
    let last = step(&journal, "acme", settle("r"));
    journal.acknowledge("acme", last);
    grow_old(&journal);
    assert!(!first.exists());
}

fn quarantined(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join("quarantine")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}
