//! Tests of rotations, with which a key gets a new secret.

use super::{Changing, digest, found, id, record, version};
use crate::domain::keys::Rotation;
use crate::domain::keys::{KeyInvalid, KeyRecord, KeyState};
use crate::store::{KeyStore, StoreError};

/// Returns the rotation to the secret with this number.
pub(crate) fn to(number: u8, hint: &str, overlap_until: Option<i64>) -> Rotation {
    Rotation {
        digest: digest(number),
        hint: hint.into(),
        at: 150,
        overlap_until,
    }
}

pub(crate) async fn a_rotated_key_is_found_by_its_new_text_alone(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.revoke(&id(1), 700).await.unwrap();
    store.record_uses(&[(id(1), 150)]).await.unwrap();
    let view = store.rotate(&id(1), &to(2, "abcd", None)).await.unwrap();
    let expected = KeyRecord {
        hint: "abcd".into(),
        revision: 2,
        state: KeyState::Revoked { at: 700 },
        text_since: Some(150),
        ..record(1, 100)
    };
    assert_eq!((&view.record, view.last_used), (&expected, Some(150)));
    assert_eq!(view.digest, digest(2));
    assert_eq!(found(store, 1).await, None);
    assert_eq!(found(store, 2).await, Some(expected));
    // The old secret can be used for another key again.
    store.rotate(&id(1), &to(1, "wxyz", None)).await.unwrap();
    assert_eq!(found(store, 2).await, None);
    assert!(found(store, 1).await.is_some());
}

pub(crate) async fn a_rotated_key_needs_a_digest_of_its_own(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.create(&digest(2), &record(2, 100)).await.unwrap();
    let before = version(store).await;
    let refused = store.rotate(&id(1), &to(2, "abcd", None)).await;
    assert_eq!(refused, Err(StoreError::Duplicate));
    // A rotation to the key's own current secret changes nothing.
    let same = store.rotate(&id(1), &to(1, "abcd", None)).await.unwrap();
    assert_eq!(same.record, record(1, 100));
    assert_eq!(version(store).await, before);
    assert_eq!(found(store, 1).await, Some(record(1, 100)));
    assert_eq!(found(store, 2).await, Some(record(2, 100)));
}

pub(crate) async fn the_text_before_finds_its_key_until_the_next_rotation(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.record_uses(&[(id(1), 150)]).await.unwrap();
    let start = version(store).await;
    let view = store.rotate(&id(1), &to(2, "abcd", Some(900))).await.unwrap();
    assert_eq!((view.digest, view.last_used), (digest(2), Some(150)));
    let key = Some(view.record.clone());
    assert_eq!((found(store, 1).await, found(store, 2).await), (key.clone(), key));
    assert_eq!(view.record.check(&digest(1), 899), Ok(()));
    assert_eq!(view.record.check(&digest(1), 900), Err(KeyInvalid::Replaced));
    assert!(view.has_text(&digest(1), 899) && !view.has_text(&digest(1), 900) && view.has_text(&digest(2), 900));
    // Neither secret can belong to another key, and the former one cannot become this key's current secret again.
    for taken in [1, 2] {
        let made = store.create(&digest(taken), &record(2, 100)).await;
        assert_eq!(made, Err(StoreError::Duplicate));
    }
    let again = store.rotate(&id(1), &to(1, "h", None)).await;
    assert_eq!(again, Err(StoreError::Duplicate));
    // A change of the key keeps both secrets, and caches of both learn of it.
    store.rename(&id(1), "desk").await.unwrap();
    assert_eq!(found(store, 1).await.unwrap().name, "desk");
    store.rotate(&id(1), &to(3, "efgh", Some(950))).await.unwrap();
    assert_eq!(found(store, 1).await, None, "of three texts the first has ended");
    assert!(found(store, 2).await.is_some() && found(store, 3).await.is_some());
    store.create(&digest(1), &record(2, 100)).await.unwrap();
    // A rotation without an overlap ends both secrets.
    store.rotate(&id(1), &to(4, "ijkl", None)).await.unwrap();
    assert!(found(store, 2).await.is_none() && found(store, 3).await.is_none());
    store.rotate(&id(1), &to(5, "mnop", Some(950))).await.unwrap();
    store.remove(&id(1)).await.unwrap();
    assert!(found(store, 4).await.is_none() && found(store, 5).await.is_none());
    let all = [1, 2, 2, 1, 2, 1, 3, 1, 3, 2, 4, 4, 5, 5, 4].map(digest);
    assert_eq!(store.changes_since(start).await.unwrap().digests, Some(all.to_vec()));
}

pub(crate) async fn an_overlap_is_ended_once(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    assert_eq!(store.end_overlap(&id(1)).await.unwrap().record, record(1, 100));
    store.rotate(&id(1), &to(2, "abcd", Some(900))).await.unwrap();
    let start = version(store).await;
    for _ in 0..2 {
        let view = store.end_overlap(&id(1)).await.unwrap();
        assert_eq!((view.record.former, view.record.revision), (None, 2));
        assert_eq!(found(store, 1).await, None);
        assert!(found(store, 2).await.is_some());
    }
    assert_eq!(version(store).await, start + 1, "what has ended is no change");
    let changes = store.changes_since(start).await.unwrap();
    assert_eq!(changes.digests, Some(vec![digest(2), digest(1)]));
}

pub(crate) async fn a_revoked_key_is_that_by_both_texts(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.rotate(&id(1), &to(2, "abcd", Some(900))).await.unwrap();
    let start = version(store).await;
    store.revoke(&id(1), 700).await.unwrap();
    for text in [1, 2] {
        let key = found(store, text).await.unwrap();
        assert_eq!(key.check(&digest(text), 750), Err(KeyInvalid::Revoked));
    }
    let changes = store.changes_since(start).await.unwrap();
    assert_eq!(changes.digests, Some(vec![digest(2), digest(1)]));
}

pub(crate) async fn a_key_is_put_back_with_both_texts(store: &dyn KeyStore) {
    let rotated = record(1, 100).rotated(&digest(1), &to(2, "abcd", Some(900)));
    store.heal(&digest(2), &rotated).await.unwrap();
    let key = Some(rotated.clone());
    assert_eq!((found(store, 1).await, found(store, 2).await), (key.clone(), key));
    // A store that has lost only the rotation.
    store.create(&digest(3), &record(2, 100)).await.unwrap();
    let start = version(store).await;
    let later = record(2, 100).rotated(&digest(3), &to(4, "abcd", Some(900)));
    store.heal(&digest(4), &later).await.unwrap();
    assert_eq!(found(store, 3).await, Some(later.clone()));
    let changes = store.changes_since(start).await.unwrap();
    assert_eq!(changes.digests, Some(vec![digest(3), digest(4)]));
    // A store that has lost the end of the overlap.
    store.heal(&digest(4), &later.overlap_ended()).await.unwrap();
    assert_eq!(found(store, 3).await, None);
    // Another key's secret is not accepted, neither as the current nor as the former one.
    let stranger = KeyRecord {
        revision: 9,
        ..record(2, 100).rotated(&digest(1), &to(5, "abcd", Some(900)))
    };
    assert_eq!(store.heal(&digest(5), &stranger).await, Err(StoreError::Duplicate));
    let stranger = KeyRecord {
        revision: 9,
        ..record(2, 100)
    };
    assert_eq!(store.heal(&digest(1), &stranger).await, Err(StoreError::Duplicate));
    assert!(found(store, 5).await.is_none() && found(store, 4).await.is_some());
}
