//! Tests of the embedded store and of its file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};

use tempfile::TempDir;

use super::EmbeddedStore;
use super::file::StoreFile;
use crate::domain::keys::KeyState;
use crate::domain::wire::provider_state::StateKey;
use crate::store::contract::{Changing, Fixture, digest, id, record, suite, to, until};
use crate::store::{KeyStore, KeyView, LIST_KEYS_MAX, StoreOpenError, sessions};

const FILE_NAME: &str = "keys.redb";
/// Every how many bytes a file is damaged, one place at a time.
const DAMAGE_STRIDE: usize = 4099;
/// And in how many places at most.
const DAMAGES_MAX: usize = 400;

async fn open() -> Option<Fixture> {
    let folder = tempfile::tempdir().unwrap();
    Some(Fixture {
        store: Arc::new(EmbeddedStore::open(folder.path()).unwrap()),
        kept: Box::new(folder),
    })
}

suite!(open);

#[tokio::test]
async fn sessions_are_remembered_by_their_latest_word() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let now = crate::edges::clock::unix_seconds();
    sessions::contract::sessions_are_remembered_by_their_latest_word(&store, now).await;
}

#[tokio::test]
async fn web_sessions_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    sessions::web_sessions_contract::web_sessions_are_kept(&store).await;
}

#[tokio::test]
async fn a_session_is_forgotten_after_its_lifetime_and_the_older_half_beyond_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let (file, ..) = StoreFile::open(folder.path()).unwrap();
    for number in 0..=8_u8 {
        let now = i64::from(number);
        file.commit_sessions(&[(StateKey([number; 16]), "p/c".to_owned())], now, now + 100, 8)
            .unwrap();
    }
    let known = |now: i64| {
        let states: Vec<[u8; 16]> = (0..=8).map(|number| [number; 16]).collect();
        let found = file.sessions(states.iter().map(<[u8; 16]>::as_slice), now).unwrap();
        let numbers = found.iter().zip(0..=8).filter(|(text, _)| text.is_some());
        numbers.map(|(_, number)| number).collect::<Vec<u8>>()
    };
    assert_eq!(known(8), [5, 6, 7, 8]);
    assert_eq!(known(107), [8]);
}

/// A store with a used, a revoked, a rotated and a deleted key.
async fn filled(folder: &Path) -> EmbeddedStore {
    let store = EmbeddedStore::open(folder).unwrap();
    for number in 1..=4 {
        store.create(&digest(number), &record(number, 100)).await.unwrap();
    }
    store
        .record_uses(&[(id(1), 700), (id(2), 800), (id(4), 900)])
        .await
        .unwrap();
    store.revoke(&id(2), 750).await.unwrap();
    store.rotate(&id(3), &to(33, "abcd", Some(900))).await.unwrap();
    store.remove(&id(4)).await.unwrap();
    store
}

async fn all(store: &EmbeddedStore) -> Vec<KeyView> {
    store.list(None, LIST_KEYS_MAX).await.unwrap()
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path()).await;
    let before = all(&store).await;
    drop(store);
    let store = EmbeddedStore::open(folder.path()).unwrap();
    assert_eq!(all(&store).await, before);
    let [used, revoked, rotated] = &before[..] else {
        panic!("three keys are left")
    };
    assert_eq!(used.last_used, Some(700));
    assert_eq!(revoked.last_used, Some(800));
    assert_eq!(revoked.record.state, KeyState::Revoked { at: 750 });
    for text in [3, 33] {
        assert_eq!(
            store.find(&digest(text)).await.unwrap().record.as_ref(),
            Some(&rotated.record)
        );
    }
    assert_eq!(store.find(&digest(4)).await.unwrap().record, None);
}

#[tokio::test]
async fn a_copy_taken_while_it_is_open_has_all_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path()).await;
    // What the disk holds at this moment is what a process killed now leaves behind.
    for number in 10..20 {
        store.create(&digest(number), &record(number, 200)).await.unwrap();
        let image = tempfile::tempdir().unwrap();
        fs::copy(folder.path().join(FILE_NAME), image.path().join(FILE_NAME)).unwrap();
        let recovered = EmbeddedStore::open(image.path()).unwrap();
        assert_eq!(all(&recovered).await, all(&store).await);
    }
}

#[tokio::test]
async fn a_store_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path()).unwrap();
    let second = EmbeddedStore::open(folder.path()).err().unwrap();
    assert!(matches!(second, StoreOpenError::InUse(_)), "{second}");
    drop(store);
    EmbeddedStore::open(folder.path()).unwrap();
}

#[tokio::test]
async fn others_may_not_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    let _store = EmbeddedStore::open(&path).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&path.join(FILE_NAME))), (0o700, 0o600));
}

#[tokio::test]
async fn a_change_goes_on_when_its_caller_goes_away() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path()).await;
    {
        let key = id(1);
        let mut revoke = store.revoke(&key, 990);
        let _ = revoke.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    until("the key is revoked", async || {
        let view = store.by_id(&id(1)).await.unwrap().unwrap();
        view.record.state == KeyState::Revoked { at: 990 }
    })
    .await;
}

/// Opens a file of this content. A panic fails the test with the place of the damage.
fn open_content(content: &[u8], what: &str) -> (Result<EmbeddedStore, StoreOpenError>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(FILE_NAME), content).unwrap();
    let opened = catch_unwind(AssertUnwindSafe(|| EmbeddedStore::open(folder.path())));
    match opened {
        Ok(opened) => (opened, folder),
        Err(_) => panic!("panicked: {what}"),
    }
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path()).await);
    let whole = fs::read(folder.path().join(FILE_NAME)).unwrap();
    let mut headless = whole.clone();
    headless[..512].fill(0);
    let cases: [(&str, &[u8]); 5] = [
        ("a word", b"not a store"),
        ("text", &b"not a store\n".repeat(1000)),
        ("no header", &headless),
        ("half of it", &whole[..whole.len() / 2]),
        ("one page of it", &whole[..4096]),
    ];
    for (what, content) in cases {
        let refused = open_content(content, what).0.err();
        assert!(
            matches!(
                refused,
                Some(StoreOpenError::Corrupt { .. } | StoreOpenError::File { .. })
            ),
            "{what}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn damage_in_any_place_is_an_error_or_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let store = filled(folder.path()).await;
    let before = all(&store).await;
    let left_by_a_crash = fs::read(folder.path().join(FILE_NAME)).unwrap();
    drop(store);
    let closed = fs::read(folder.path().join(FILE_NAME)).unwrap();
    for (state, whole) in [("closed", closed), ("crashed", left_by_a_crash)] {
        let header = (0..512).step_by(7);
        for place in header
            .chain((512..whole.len()).step_by(DAMAGE_STRIDE))
            .take(DAMAGES_MAX)
        {
            let mut damaged = whole.clone();
            damaged[place..whole.len().min(place + 64)].fill(0xA5);
            let what = format!("{state}, byte {place}");
            // Damage to unused pages and to the map of free ones is no loss; then the keys are whole.
            if let (Ok(store), _folder) = open_content(&damaged, &what) {
                assert_eq!(all(&store).await, before, "{what}");
                store.revoke(&id(1), 1).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_file_of_a_later_format_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path()).await);
    {
        let database = redb::Database::open(folder.path().join(FILE_NAME)).unwrap();
        let transaction = database.begin_write().unwrap();
        let table: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
        transaction.open_table(table).unwrap().insert("format", 2).unwrap();
        transaction.commit().unwrap();
    }
    let refused = EmbeddedStore::open(folder.path()).err().unwrap();
    assert!(refused.to_string().contains("has format 2"), "{refused}");
}

#[tokio::test]
async fn an_unreadable_record_is_named_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path()).await);
    {
        let database = redb::Database::open(folder.path().join(FILE_NAME)).unwrap();
        let transaction = database.begin_write().unwrap();
        let table: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("keys");
        let mut keys = transaction.open_table(table).unwrap();
        keys.insert(id(1).as_str(), &b"{\"private\":1}"[..]).unwrap();
        drop(keys);
        transaction.commit().unwrap();
    }
    let refused = EmbeddedStore::open(folder.path()).err().unwrap().to_string();
    assert!(
        refused.contains(id(1).as_str()) && !refused.contains("private"),
        "{refused}"
    );
}
