//! Tests of changes that are made only if the key is still in a certain state, and of rotations, with which a key gets a new
//! secret.

use async_trait::async_trait;

use crate::{
    domain::{
        keys::{
            KeyId, KeyInvalid, KeyRecord, KeyState, Rotation,
            change::{ChangeAuthor, ChangePrecondition, KeyChange, KeyChangeError, KeyUpdate},
        },
        ledger::{KeyTermsChange, RateLimitsChange},
    },
    store::{
        ChangeError, KeyStore, KeyView, StoreError,
        contract::{digest, found, id, record, version},
    },
};

/// Changes to a key without a precondition, like those that an operator makes.
#[async_trait]
pub(crate) trait Changing: KeyStore {
    async fn make(&self, id: &KeyId, change: KeyChange) -> Result<KeyView, StoreError> {
        whatever(self.change(id, &change, &ChangePrecondition::Anything).await)
    }

    async fn update(&self, id: &KeyId, update: &KeyUpdate) -> Result<KeyView, StoreError> {
        let (update, by) = (update.clone(), ChangeAuthor::Operator);
        self.make(id, KeyChange::Update { update, by }).await
    }

    async fn rename(&self, id: &KeyId, name: &str) -> Result<KeyView, StoreError> {
        let update = KeyUpdate {
            name: Some(name.to_owned()),
            ..KeyUpdate::default()
        };
        self.update(id, &update).await
    }

    async fn rotate(&self, id: &KeyId, rotation: &Rotation) -> Result<KeyView, StoreError> {
        self.make(id, KeyChange::Rotate(rotation.clone())).await
    }

    async fn end_overlap(&self, id: &KeyId) -> Result<KeyView, StoreError> {
        self.make(id, KeyChange::EndOverlap).await
    }

    async fn revoke(&self, id: &KeyId, at: i64) -> Result<KeyView, StoreError> {
        self.make(id, KeyChange::Revoke { at }).await
    }

    async fn remove(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError> {
        whatever(self.delete(id, &ChangePrecondition::Anything).await)
    }
}

impl<S: KeyStore + ?Sized> Changing for S {}

fn whatever<T>(done: Result<T, ChangeError>) -> Result<T, StoreError> {
    done.map_err(|error| match error {
        ChangeError::Store(error) => error,
        ChangeError::NotChanged(why) => panic!("{why}"),
    })
}

fn rpm(by: ChangeAuthor, limit: u64) -> KeyChange {
    let rates = RateLimitsChange {
        rpm: Some(Some(limit)),
        ..RateLimitsChange::default()
    };
    let terms = KeyTermsChange {
        rates,
        ..KeyTermsChange::default()
    };
    let update = KeyUpdate {
        terms,
        ..KeyUpdate::default()
    };
    KeyChange::Update { update, by }
}

pub(crate) async fn a_change_from_another_state_does_nothing(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let old = store.by_id(&id(1)).await.unwrap().unwrap().version();
    let now = store.rotate(&id(1), &to(2, "abcd", Some(900))).await.unwrap();
    let before = version(store).await;
    let stale = |from| match from {
        ChangePrecondition::Version(from) => KeyChangeError::Stale {
            id: id(1),
            from,
            now: now.version(),
        },
        _ => KeyChangeError::OldText,
    };
    // The former secret is still valid, and using it changes nothing.
    for from in [ChangePrecondition::Version(old), ChangePrecondition::Text(digest(1))] {
        for change in [
            rpm(ChangeAuthor::Operator, 10),
            KeyChange::Rotate(to(3, "efgh", None)),
            KeyChange::EndOverlap,
            KeyChange::Revoke { at: 700 },
        ] {
            let refused = store.change(&id(1), &change, &from).await;
            assert_eq!(refused, Err(ChangeError::NotChanged(stale(from))), "{change:?}");
        }
        let refused = store.delete(&id(1), &from).await;
        assert_eq!(refused, Err(ChangeError::NotChanged(stale(from))));
    }
    assert_eq!(version(store).await, before);
    assert_eq!(found(store, 2).await, Some(now.record.clone()));
    let from = ChangePrecondition::Version(now.version());
    let limited = store
        .change(&id(1), &rpm(ChangeAuthor::Operator, 10), &from)
        .await
        .unwrap();
    assert_eq!(limited.record.terms.rates.rpm, Some(10));
    let deleted = store
        .delete(&id(1), &ChangePrecondition::Version(limited.version()))
        .await;
    assert_eq!(deleted, Ok(Some(limited)));
    assert_eq!(store.delete(&id(1), &from).await, Ok(None), "it was deleted before");
}

pub(crate) async fn a_change_that_is_so_already_succeeds_and_is_none(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let old = store.by_id(&id(1)).await.unwrap().unwrap().version();
    for change in [
        rpm(ChangeAuthor::Operator, 10),
        rpm(ChangeAuthor::Owner, 5),
        KeyChange::Rotate(to(2, "abcd", Some(900))),
        KeyChange::EndOverlap,
        KeyChange::Revoke { at: 700 },
    ] {
        let made = store
            .change(&id(1), &change, &ChangePrecondition::Anything)
            .await
            .unwrap();
        let before = version(store).await;
        for from in [
            ChangePrecondition::Anything,
            ChangePrecondition::Version(old),
            ChangePrecondition::Text(digest(9)),
        ] {
            let again = store.change(&id(1), &change, &from).await;
            assert_eq!(again.as_ref(), Ok(&made), "{change:?} from {from:?}");
        }
        assert_eq!(version(store).await, before, "{change:?}");
    }
}

pub(crate) async fn an_owner_never_undoes_what_came_between(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let key = id(1);
    let (owner, text) = (rpm(ChangeAuthor::Owner, 50), ChangePrecondition::Text(digest(1)));
    for round in 0..8 {
        store.make(&key, rpm(ChangeAuthor::Operator, 60)).await.unwrap();
        let operator = rpm(ChangeAuthor::Operator, 30);
        let lowered = store.change(&key, &owner, &text);
        let (lowered, changed) = match round % 2 {
            0 => tokio::join!(lowered, store.make(&key, operator)),
            _ => {
                let (changed, lowered) = tokio::join!(store.make(&key, operator), lowered);
                (lowered, changed)
            }
        };
        changed.unwrap();
        if let Err(refused) = lowered {
            assert_eq!(refused, ChangeError::NotChanged(KeyChangeError::Raises("rpm")));
        }
        let limit = found(store, 1).await.unwrap().terms.rates.rpm;
        assert_eq!(limit, Some(30), "round {round}");
    }
}

pub(crate) async fn of_two_changes_from_one_version_one_is_made(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let (key, before) = (id(1), version(store).await);
    let from = ChangePrecondition::Version(store.by_id(&key).await.unwrap().unwrap().version());
    let changes = [1, 2, 3].map(|limit| rpm(ChangeAuthor::Operator, limit));
    let [one, two, three] = &changes;
    let (one, two, three) = tokio::join!(
        store.change(&key, one, &from),
        store.change(&key, two, &from),
        store.change(&key, three, &from),
    );
    let made: Vec<_> = [one, two, three].into_iter().flatten().collect();
    assert_eq!(made.len(), 1);
    assert_eq!(found(store, 1).await.as_ref(), Some(&made[0].record));
    assert_eq!(version(store).await, before + 1);
}

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
