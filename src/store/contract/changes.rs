//! Tests of changes that are made only if the key is still in a certain state.

use async_trait::async_trait;

use super::{digest, found, id, record, to, version};
use crate::domain::keys::change::{ChangeAuthor, ChangePrecondition, KeyChange, KeyChangeError, KeyUpdate};
use crate::domain::keys::key::KeyId;
use crate::domain::keys::key::Rotation;
use crate::domain::ledger::{KeyTermsChange, RateLimitsChange};
use crate::store::{ChangeError, KeyStore, KeyView, StoreError};

/// Changes of a key that are made in any state of the key, as an operator makes them.
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
