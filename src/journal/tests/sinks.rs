//! Segments stay for as long as a sink lacks rows of them.

use super::*;
use crate::config::JournalSink;

/// A disk of which so much is free, in percent.
#[derive(Debug)]
struct Free(u64);

impl Disk for Free {
    fn free_percent(&self, _: &Path) -> io::Result<u64> {
        Ok(self.0)
    }
}

/// Opens a journal on a disk of which 4 % are free.
pub(crate) fn open_on_a_short_disk(settings: &JournalConfig) -> Arc<Journal> {
    Journal::open_with(settings, Arc::new(Free(4))).unwrap().journal
}

fn open_for(path: &Path, required: bool, free: u64) -> Arc<Journal> {
    let settings = JournalConfig {
        sinks: vec![JournalSink { name: "sink", required }],
        ..settings(path)
    };
    Journal::open_with(&settings, Arc::new(Free(free))).unwrap().journal
}

/// Records rows in several segments, which nothing else than the sink needs; says how many.
fn settled(journal: &Journal) -> u64 {
    let rows = (1..=400).map(|number| step(journal, "acme", settle(&format!("request {number}"))));
    let last = rows.max().unwrap();
    journal.acknowledge("acme", last);
    tell(journal);
    last
}

fn rows_kept(journal: &Journal) -> usize {
    let mut rows = journal.rows(0);
    std::iter::from_fn(|| rows.read().unwrap()).count()
}

/// Waits until all that is recorded is on disk.
async fn on_disk(journal: &Journal) {
    let end = journal.end();
    journal.wait_until_decided(end.number() - 1).await;
}

#[tokio::test]
async fn rows_that_a_sink_lacks_are_kept_however_old_they_are() {
    let folder = scratch();
    for (required, free) in [(true, 50), (true, 1), (false, 50)] {
        let place = folder.path().join(format!("{required}-{free}"));
        let journal = open_for(&place, required, free);
        let rows = usize::try_from(settled(&journal)).unwrap();
        on_disk(&journal).await;
        assert_eq!(rows_kept(&journal), rows);
        grow_old(&journal);
        assert_eq!(rows_kept(&journal), rows, "required: {required}, {free} % free");
        assert!(journal.sink_lag_bytes("sink") > 0);
        journal.set_sink_position("sink", journal.end().number());
        assert_eq!(journal.sink_lag_bytes("sink"), 0);
        grow_old(&journal);
        assert!(rows_kept(&journal) < rows, "the last segment is written to");
        assert_eq!(journal.sink_dropped_rows("sink"), 0);
    }
}

#[tokio::test]
async fn rows_that_only_an_optional_sink_lacks_are_given_up_with_a_count_when_the_disk_is_nearly_full() {
    let folder = scratch();
    let journal = open_for(folder.path(), false, 4);
    let rows = settled(&journal);
    on_disk(&journal).await;
    let mut reader = journal.rows(0);
    let has = (0..5).filter_map(|_| reader.read().unwrap()).count() as u64;
    journal.set_sink_position("sink", reader.next_number());
    grow_old(&journal);
    let kept = rows_kept(&journal) as u64;
    assert!(kept < rows - has);
    assert_eq!(journal.sink_dropped_rows("sink"), rows - has - kept);
}

#[tokio::test]
async fn steps_that_an_embedded_store_has_not_written_are_kept_also_where_no_row_is_among_them() {
    let folder = scratch();
    let settings = JournalConfig {
        sinks: vec![JournalSink::EMBEDDED_STORE],
        ..settings(folder.path())
    };
    let journal = Journal::open_with(&settings, Arc::new(Free(1))).unwrap().journal;
    let mut last = 0;
    while journal.end().segment < 3 {
        last = step(&journal, "acme", AccountChange::nothing());
    }
    let first = || fs::exists(folder.path().join("000000000001.wal")).unwrap();
    let second = || fs::exists(folder.path().join("000000000002.wal")).unwrap();
    journal.acknowledge("acme", last);
    grow_old(&journal);
    assert!(first(), "the store may have them in memory alone");
    let in_the_second = Position {
        segment: 2,
        offset: frame::HEADER as u64,
    };
    journal.set_sink_position(JournalSink::EMBEDDED_STORE.name, in_the_second.number());
    grow_old(&journal);
    assert!(!first() && second());
    journal.set_sink_position(JournalSink::EMBEDDED_STORE.name, journal.acknowledged_before());
    grow_old(&journal);
    assert!(!second());
}

/// A disk that syncs nothing while this is locked.
#[derive(Debug)]
struct Slow(Arc<Mutex<()>>);

impl Disk for Slow {
    fn sync(&self, file: &File) -> io::Result<()> {
        let _turn = self.0.lock();
        RealDisk.sync(file)
    }
}

#[tokio::test]
async fn only_what_is_on_disk_is_given_to_sinks() {
    let (folder, lock) = (scratch(), Arc::default());
    let disk = Arc::new(Slow(Arc::clone(&lock)));
    let journal = Journal::open_with(&settings(folder.path()), disk).unwrap().journal;
    let held = lock.lock();
    step(&journal, "acme", settle("first"));
    let mut rows = journal.rows(0);
    assert!(rows.read().unwrap().is_none(), "a power cut may take it");
    drop(held);
    on_disk(&journal).await;
    assert!(rows.read().unwrap().is_some());
}
