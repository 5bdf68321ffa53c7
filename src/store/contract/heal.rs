//! Tests of sending records to a store again that it may have lost.

use super::{Changing, digest, found, id, record, version};
use crate::domain::keys::key::{KeyRecord, KeyState};
use crate::store::{KeyStore, StoreError};

fn at_revision(revision: u64, name: &str) -> KeyRecord {
    KeyRecord {
        name: name.into(),
        revision,
        ..record(1, 100)
    }
}

pub(crate) async fn a_forgotten_key_is_put_back(store: &dyn KeyStore) {
    let start = version(store).await;
    let told = at_revision(3, "desk");
    store.heal(&digest(1), &told).await.unwrap();
    assert_eq!(found(store, 1).await, Some(told.clone()));
    assert_eq!(version(store).await, start + 1);
    store.heal(&digest(1), &told).await.unwrap();
    assert_eq!(version(store).await, start + 1, "told again is no news");
    assert_eq!(
        store.heal(&digest(1), &record(2, 100)).await,
        Err(StoreError::Duplicate)
    );
    assert_eq!(store.by_id(&id(2)).await, Ok(None));
}

pub(crate) async fn a_later_revision_is_taken_over_and_an_earlier_one_is_not(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.record_uses(&[(id(1), 150)]).await.unwrap();
    let start = version(store).await;
    // The later record also has another secret.
    let later = at_revision(4, "desk");
    store.heal(&digest(2), &later).await.unwrap();
    assert_eq!(found(store, 1).await, None);
    assert_eq!(found(store, 2).await, Some(later.clone()));
    assert_eq!(store.by_id(&id(1)).await.unwrap().unwrap().last_used, Some(150));
    let changes = store.changes_since(start).await.unwrap();
    assert_eq!(changes.digests, Some(vec![digest(1), digest(2)]));
    for revision in [0, 3, 4] {
        store.heal(&digest(1), &at_revision(revision, "lap")).await.unwrap();
    }
    assert_eq!(version(store).await, start + 1);
    assert_eq!(found(store, 2).await, Some(later));
}

pub(crate) async fn a_revocation_holds_whatever_a_store_is_told(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.revoke(&id(1), 700).await.unwrap();
    // An active key of a later revision, from a history that another node has seen.
    for _ in 0..2 {
        store.heal(&digest(1), &at_revision(5, "desk")).await.unwrap();
        let key = found(store, 1).await.unwrap();
        assert_eq!((key.name.as_str(), key.revision), ("desk", 6));
        assert_eq!(key.state, KeyState::Revoked { at: 700 });
    }
    // The reverse case: the store was changed after it had lost the revocation.
    store.create(&digest(2), &record(2, 100)).await.unwrap();
    for name in ["desk", "lap", "desk"] {
        store.rename(&id(2), name).await.unwrap();
    }
    let revoked = record(2, 100).revoked(800);
    store.heal(&digest(2), &revoked).await.unwrap();
    let key = found(store, 2).await.unwrap();
    assert_eq!((key.state, key.revision), (KeyState::Revoked { at: 800 }, 4));
}

pub(crate) async fn a_deleted_key_is_not_put_back(store: &dyn KeyStore) {
    for number in [1, 2, 3] {
        store.create(&digest(number), &record(number, 100)).await.unwrap();
    }
    let start = version(store).await;
    store.remove(&id(1)).await.unwrap();
    // A key that exists at this revision; one that the store never had; one that has a later revision.
    store.rename(&id(3), "desk").await.unwrap();
    store.heal_gone(&id(2), 0).await.unwrap();
    store.heal_gone(&id(4), 7).await.unwrap();
    store.heal_gone(&id(3), 0).await.unwrap();
    for _ in 0..2 {
        for number in [1, 2, 4] {
            store.heal(&digest(number), &record(number, 100)).await.unwrap();
            assert_eq!(found(store, number).await, None);
        }
        store.heal_gone(&id(2), 0).await.unwrap();
    }
    assert!(found(store, 3).await.is_some());
    assert_eq!(version(store).await, start + 3, "what is gone already is no change");
}
