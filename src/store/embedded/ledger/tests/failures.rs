//! A disk that refuses.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, Database, StorageBackend};

use super::*;
use crate::store::embedded::ledger::FAILING_MAX_MS;
use crate::store::embedded::ledger::file::{DatabaseOpener, LedgerFile};

/// A file on a disk that can be full.
#[derive(Debug)]
struct FullDisk {
    file: FileBackend,
    full: Arc<AtomicBool>,
}

impl FullDisk {
    fn room(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

impl StorageBackend for FullDisk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.room()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

fn on_a_disk(folder: &Path, full: &Arc<AtomicBool>, clock: &TestClock) -> EmbeddedLedger {
    let (path, full) = (folder.join("ledger.redb"), Arc::clone(full));
    let place = path.clone();
    let opening: DatabaseOpener = Box::new(move || {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&place);
        let disk = FullDisk {
            file: FileBackend::new(file.unwrap()).unwrap(),
            full: Arc::clone(&full),
        };
        let opened = Database::builder().create_with_backend(disk);
        opened.map_err(|error| StoreOpenError::File {
            path: place.clone(),
            reason: error.to_string(),
        })
    });
    let (file, accounts) = LedgerFile::open_by(&path, opening).unwrap();
    let signals = Arc::default();
    let books = AccountTable::new(file, accounts, Arc::clone(&signals));
    EmbeddedLedger {
        folder: PathBuf::new(),
        ownership: Ownership::new(books),
        now_ms: clock.source(),
        epochs: watch::channel(0).0,
        signals,
    }
}

#[tokio::test]
async fn a_disk_that_was_full_loses_nothing_and_is_used_again() {
    let (folder, full) = (tempfile::tempdir().unwrap(), Arc::<AtomicBool>::default());
    let store = on_a_disk(folder.path(), &full, &TestClock::new());
    let steps = journal(40);
    store.apply(&node(1), "acme", &steps[..20], 0).await.unwrap();
    store.flush().await.unwrap();
    full.store(true, Ordering::SeqCst);
    store.apply(&node(1), "acme", &steps[..30], 0).await.unwrap();
    for _ in 0..3 {
        assert!(matches!(store.flush().await, Err(StoreError::Unavailable(_))));
        // Nobody waits for the disk.
        assert!(matches!(store.admit(&ask("a", 1)).await, Ok(AdmitReply::Granted(_))));
        assert_eq!(store.watermark(&node(1), "acme").await, Ok(30));
    }
    store.release(&node(1), "acme").await.unwrap();
    full.store(false, Ordering::SeqCst);
    store.apply(&node(1), "acme", &steps, 0).await.unwrap();
    store.flush().await.unwrap();
    let before = lasting(&store).await;
    assert_eq!(before.2[0], 41);
    assert_eq!(requests(&before.3), [(TODAY - 1, 13), (TODAY, 27)]);
    drop(store);
    assert_eq!(lasting(&opened(folder.path())).await, before);
}

#[tokio::test]
async fn nothing_counts_as_written_before_it_is() {
    let (folder, full) = (tempfile::tempdir().unwrap(), Arc::<AtomicBool>::default());
    let store = on_a_disk(folder.path(), &full, &TestClock::new());
    store.apply(&node(1), "acme", &journal(3), 0).await.unwrap();
    let (before, mut upkeep) = (lasting(&store).await, Upkeep::default());
    full.store(true, Ordering::SeqCst);
    assert!(!store.turn(&mut upkeep).await);
    // It is due again without a further change.
    store.signals.wait_until_due(Duration::ZERO, START_MS).await;
    full.store(false, Ordering::SeqCst);
    assert!(store.turn(&mut upkeep).await);
    drop(store);
    assert_eq!(lasting(&opened(folder.path())).await, before);
}

#[tokio::test]
async fn steps_stay_in_the_journal_while_the_file_has_not_been_written_for_a_minute() {
    let (folder, full, clock) = (
        tempfile::tempdir().unwrap(),
        Arc::<AtomicBool>::default(),
        TestClock::new(),
    );
    let store = on_a_disk(folder.path(), &full, &clock);
    let steps = journal(40);
    let apply = async |many: usize| store.apply(&node(1), "acme", &steps[..many], 0).await;
    assert_eq!(apply(20).await, Ok(20));
    full.store(true, Ordering::SeqCst);
    assert!(store.flush().await.is_err());
    clock.advance(FAILING_MAX_MS - 1);
    assert_eq!(apply(30).await, Ok(30));
    for _ in 0..2 {
        clock.advance(1);
        assert!(matches!(apply(40).await, Err(StoreError::Unavailable(_))));
        assert!(store.flush().await.is_err(), "it counts from the first failure");
    }
    assert_eq!(store.watermark(&node(1), "acme").await, Ok(30));
    full.store(false, Ordering::SeqCst);
    store.flush().await.unwrap();
    assert_eq!(apply(40).await, Ok(40));
}

#[tokio::test]
async fn a_day_stays_in_memory_as_long_as_the_file_lacks_something_of_it() {
    let (folder, full) = (tempfile::tempdir().unwrap(), Arc::<AtomicBool>::default());
    let store = on_a_disk(folder.path(), &full, &TestClock::new());
    store.apply(&node(1), "acme", &journal(9), 0).await.unwrap();
    let before = lasting(&store).await;
    full.store(true, Ordering::SeqCst);
    assert!(store.flush().await.is_err());
    store.close_days();
    let days = TODAY - 1..=TODAY;
    let kept = store.sums("acme", days.clone(), &SumSelector::Keys).await;
    assert_eq!(
        kept,
        Ok(before.3.select(&days, &SumSelector::Keys)),
        "nobody waits for the disk"
    );
    full.store(false, Ordering::SeqCst);
    store.flush().await.unwrap();
    store.close_days();
    assert_eq!(lasting(&store).await, before);
}

#[tokio::test]
async fn damage_in_any_place_is_an_error_or_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    store.apply(&node(1), "acme", &journal(60), 0).await.unwrap();
    store.flush().await.unwrap();
    let before = lasting(&store).await;
    let whole = std::fs::read(folder.path().join("ledger.redb")).unwrap();
    drop(store);
    for place in (0..512).step_by(31).chain((512..whole.len()).step_by(4099)).take(120) {
        let mut damaged = whole.clone();
        let end = whole.len().min(place + 64);
        damaged[place..end].fill(0xA5);
        let image = tempfile::tempdir().unwrap();
        std::fs::write(image.path().join("ledger.redb"), &damaged).unwrap();
        let Ok(store) = EmbeddedLedger::open(image.path(), TestClock::new().source()) else {
            continue;
        };
        // What opens has all the money. A damaged sum may be found only when it is read.
        assert_eq!(store.accounts(None, 9).await.unwrap(), before.0, "byte {place}");
        assert_eq!(
            store.key_spend("acme", &key_id(1)).await.unwrap(),
            before.1,
            "byte {place}"
        );
        let days = TODAY - 1..=TODAY;
        for of in [
            SumSelector::One(SumSubject::Account),
            SumSelector::Keys,
            SumSelector::Tags,
        ] {
            if let Ok(sums) = store.sums("acme", days.clone(), &of).await {
                assert_eq!(sums, before.3.select(&days, &of), "byte {place}");
            }
        }
    }
}
