//! A disk that fails: nothing is taken for durable that may not be, nothing that was settled is lost, and it goes on.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::*;

/// A disk whose next so many writes of records, or syncs, fail; all of them, if there is no end to it.
#[derive(Debug, Default)]
struct Failing {
    writes: AtomicU64,
    syncs: AtomicU64,
}

const FOR_GOOD: u64 = u64::MAX;

fn fails(left: &AtomicU64) -> io::Result<()> {
    let fewer = |left: u64| match left {
        0 => None,
        FOR_GOOD => Some(FOR_GOOD),
        _ => Some(left - 1),
    };
    match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer) {
        Ok(_) => Err(io::Error::other("the disk is broken")),
        Err(_) => Ok(()),
    }
}

impl Disk for Failing {
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
        if let Err(error) = fails(&self.writes) {
            // Half of it gets there.
            RealDisk.write(file, &bytes[..bytes.len() / 2], at)?;
            return Err(error);
        }
        RealDisk.write(file, bytes, at)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        fails(&self.syncs)?;
        RealDisk.sync(file)
    }
}

fn on_a_failing_disk(path: &Path) -> (OpenedJournal, Arc<Failing>) {
    let disk = Arc::new(Failing::default());
    let opened = Journal::open_with(&settings(path), Arc::clone(&disk) as Arc<dyn Disk>).unwrap();
    (opened, disk)
}

fn segments(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|ending| ending == "wal"))
        .count()
}

/// Room, as soon as there is some again.
fn room_again(journal: &Journal) -> Reservation {
    loop {
        if let Ok(room) = journal.reserve(REQUEST_BYTES) {
            return room;
        }
        sync::housekeep(&journal.engine, &mut None);
    }
}

#[tokio::test]
async fn a_write_that_fails_once_goes_to_a_fresh_segment() {
    let folder = scratch();
    let (opened, disk) = on_a_failing_disk(folder.path());
    let journal = opened.journal;
    let mut room = journal.reserve(3 * REQUEST_BYTES).unwrap();
    let admit = |room: &mut Reservation, request: &str| {
        let record = Record::Admit(Box::new(admitted(request)));
        journal.append(&record, room).unwrap()
    };
    let first = admit(&mut room, "one");
    admit(&mut room, "two");
    disk.writes.store(1, Ordering::Relaxed);
    let (_, position) = journal.append_step("acme", settle("one"), 0, &mut room).unwrap();
    assert!(position.segment > first.segment);
    assert_eq!(journal.failures(), 1);
    journal.wait_until_synced(position).await.unwrap();
    drop((room_again(&journal), room));
    let kept = records(&journal);
    assert_eq!(kept.len(), 3);
    drop(journal);

    let again = open(folder.path());
    assert_eq!(records(&again.journal), kept);
    let left: Vec<_> = again
        .unsettled
        .iter()
        .map(|(one, _)| one.row.request_id.as_str())
        .collect();
    assert_eq!((left, numbers(&again.journal, "acme")), (vec!["two"], vec![1]));
}

#[tokio::test]
async fn a_disk_that_takes_no_writes_is_told_and_gets_no_new_segments_and_recovers() {
    let folder = scratch();
    let (opened, disk) = on_a_failing_disk(folder.path());
    let journal = opened.journal;
    let mut room = journal.reserve(2 * REQUEST_BYTES).unwrap();
    let record = Record::Admit(Box::new(admitted("one")));
    journal.append(&record, &mut room).unwrap();
    let before = records(&journal);
    disk.writes.store(FOR_GOOD, Ordering::Relaxed);
    for _ in 0..10 {
        let failed = journal.append_step("acme", settle("one"), 0, &mut room).unwrap_err();
        assert!(failed.to_string().contains("the disk is broken"), "{failed}");
    }
    assert_eq!(records(&journal), before, "nothing is recorded");
    assert_eq!(journal.unacknowledged_steps(), 0);
    assert_eq!(journal.failures(), 20, "each was tried in two places");
    assert!(journal.reserve(1).is_err(), "nothing is promised");
    sync::housekeep(&journal.engine, &mut None);
    assert!(journal.reserve(1).is_err());
    assert!(segments(folder.path()) <= 3, "{}", segments(folder.path()));

    disk.writes.store(0, Ordering::Relaxed);
    let (seq, position) = loop {
        if let Ok(recorded) = journal.append_step("acme", settle("one"), 0, &mut room) {
            break recorded;
        }
        std::thread::yield_now();
    };
    assert_eq!(seq, 1, "the number was not used up");
    journal.wait_until_synced(position).await.unwrap();
    drop((room_again(&journal), room, journal));
    let again = open(folder.path());
    assert_eq!((again.unsettled.len(), again.journal.damaged_parts()), (0, 0));
    assert_eq!(numbers(&again.journal, "acme"), [1]);
}

#[test]
fn a_settlement_that_was_not_recorded_is_made_up_for_at_the_next_start() {
    let folder = scratch();
    let (opened, disk) = on_a_failing_disk(folder.path());
    let journal = opened.journal;
    let mut room = journal.reserve(REQUEST_BYTES).unwrap();
    journal
        .append(&Record::Admit(Box::new(admitted("one"))), &mut room)
        .unwrap();
    assert_eq!(journal.record_checkpoints(&[checkpoint("one", 200)]), 0);
    disk.writes.store(FOR_GOOD, Ordering::Relaxed);
    journal.append_step("acme", settle("one"), 0, &mut room).unwrap_err();
    drop((room, journal));
    let again = open(folder.path());
    let left: Vec<_> = again
        .unsettled
        .iter()
        .map(|(one, last)| (one.row.request_id.as_str(), last.as_ref().map(|last| last.status)))
        .collect();
    assert_eq!((left, again.journal.damaged_parts()), (vec![("one", Some(200))], 0));
}

#[tokio::test]
async fn a_sync_that_fails_is_not_durable_and_what_follows_is_in_another_segment() {
    let folder = scratch();
    let (opened, disk) = on_a_failing_disk(folder.path());
    let journal = opened.journal;
    let mut room = journal.reserve(2 * REQUEST_BYTES).unwrap();
    let (_, good) = journal
        .append_step("acme", AccountChange::nothing(), 0, &mut room)
        .unwrap();
    journal.wait_until_synced(good).await.unwrap();
    disk.syncs.store(FOR_GOOD, Ordering::Relaxed);
    let (_, lost) = journal.append_step("acme", settle("r"), 0, &mut room).unwrap();
    assert!(matches!(
        journal.wait_until_synced(lost).await,
        Err(JournalError::NotDurable)
    ));
    journal.wait_until_synced(good).await.unwrap();
    assert!(journal.failures() >= 1);
    assert!(journal.reserve(1).is_err(), "nothing is promised");
    // It is sent all the same: the store may be all that keeps it.
    let unsent = journal.unsent("acme", 10).unwrap();
    assert_eq!((unsent.steps.len(), unsent.lost), (2, 0));
    for _ in 0..5 {
        sync::housekeep(&journal.engine, &mut None);
    }
    assert_eq!(journal.end().segment, 1, "no segment is begun that cannot be synced");
    assert!(segments(folder.path()) <= 2);

    disk.syncs.store(0, Ordering::Relaxed);
    drop(room_again(&journal));
    let (_, after) = journal
        .append_step("acme", AccountChange::nothing(), 0, &mut room)
        .unwrap();
    assert!(after.segment > lost.segment);
    journal.wait_until_synced(after).await.unwrap();
    assert!(matches!(
        journal.wait_until_synced(lost).await,
        Err(JournalError::NotDurable)
    ));
    let failures = journal.failures();
    journal.acknowledge("acme", 3);
    drop((room, journal));
    let index = folder.path().join("000000000001.idx");
    assert!(
        !index.exists(),
        "an index would say that it is all there ({failures} failures)"
    );
    assert_eq!(numbers(&open(folder.path()).journal, "acme"), [1, 2, 3]);
}

#[tokio::test]
async fn a_sync_that_fails_once_leaves_later_records_durable() {
    let folder = scratch();
    let (opened, disk) = on_a_failing_disk(folder.path());
    let journal = opened.journal;
    disk.syncs.store(1, Ordering::Relaxed);
    let mut room = room_again(&journal);
    let (_, lost) = journal.append_step("acme", settle("r"), 0, &mut room).unwrap();
    let first = journal.wait_until_synced(lost).await;
    drop(room_again(&journal));
    let (_, position) = journal.append_step("acme", settle("s"), 0, &mut room).unwrap();
    journal.wait_until_synced(position).await.unwrap();
    assert_eq!(journal.failures(), 1);
    assert!(position.segment > lost.segment || first.is_ok());
}
