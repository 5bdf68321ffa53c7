//! The tests that every key store must pass. Each engine runs them with the macro `suite!`.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Changes, KeyStore, KeyView, LIST_KEYS_MAX, StoreError};
use crate::domain::keys::change::KeyUpdate;
use crate::domain::keys::secret::KeyDigest;
use crate::domain::keys::{KeyId, KeyRecord, KeyState};
use crate::domain::ledger::{KeyTerms, KeyTermsChange, QuotaReset};
use crate::domain::money::NanoUsd;

pub(crate) use crate::store::contract::changes::*;

mod changes;
pub(crate) mod model;
mod programs;

/// The maximum time for which a test waits for an event.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A new, empty, connected store, and everything that must not be dropped before the store.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn KeyStore>,
    pub(crate) kept: Box<dyn Any + Send>,
}

/// Declares the tests for one engine. With `$open`, each behaviour is a separate test. `$open` is an async function that returns
/// a [`Fixture`]. To skip the test, it prints a message and returns `None`. With `in_turn $join`, all behaviours run within one
/// test. For each behaviour, the async closure `$join` gets the behaviour's name and returns a fixture.
macro_rules! suite {
    ($open:path) => {
        $crate::store::contract::suite! { @all tests $open }
    };
    (in_turn $join:expr) => {
        $crate::store::contract::suite! { @all in_turn $join }
    };
    (@all $how:ident $with:expr) => {
        $crate::store::contract::suite! { @$how $with =>
            a_created_key_is_found_by_its_digest_and_its_id
            a_taken_digest_or_id_is_refused
            an_unknown_id_is_not_found
            lists_are_ordered_by_creation_then_id_and_paged
            an_update_changes_what_it_names_and_nothing_else
            a_change_from_another_state_does_nothing
            a_change_that_is_so_already_succeeds_and_is_none
            an_owner_never_undoes_what_came_between
            of_two_changes_from_one_version_one_is_made
            a_rotated_key_is_found_by_its_new_text_alone
            a_rotated_key_needs_a_digest_of_its_own
            the_text_before_finds_its_key_until_the_next_rotation
            an_overlap_is_ended_once
            a_revoked_key_is_that_by_both_texts
            a_key_is_put_back_with_both_texts
            a_revocation_is_for_good_and_keeps_its_first_time
            a_deleted_key_leaves_nothing_behind
            a_forgotten_key_is_put_back
            a_later_revision_is_taken_over_and_an_earlier_one_is_not
            a_revocation_holds_whatever_a_store_is_told
            a_deleted_key_is_not_put_back
            the_latest_use_wins_and_is_no_change
            the_feed_names_exactly_the_digests_of_every_change
            a_change_nudges
            concurrent_changes_are_all_counted
        }
    };
    (@tests $open:expr => $($behaviour:ident)*) => {
        $(#[tokio::test]
        async fn $behaviour() {
            if let Some(fixture) = $open().await {
                $crate::store::contract::$behaviour(&*fixture.store).await;
                drop(fixture.kept);
            }
        })*
    };
    (@in_turn $join:expr => $($behaviour:ident)*) => {
        $({
            let joined = $join(stringify!($behaviour)).await;
            $crate::store::contract::$behaviour(&*joined.store).await;
        })*
    };
}
pub(crate) use suite;

/// Waits until the condition is true.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            sleep(LOOK_EVERY).await;
        }
    };
    assert!(timeout(DEADLINE, wait).await.is_ok(), "still not so: {what}");
}

pub(crate) fn id(number: u8) -> KeyId {
    KeyId::parse(&format!("key_{number:016}")).unwrap()
}

pub(crate) fn digest(number: u8) -> KeyDigest {
    KeyDigest::from_bytes([number; 32])
}

pub(crate) fn record(number: u8, created_at: i64) -> KeyRecord {
    KeyRecord {
        id: id(number),
        name: format!("name \"{number}\" é"),
        account: "acme".into(),
        created_at,
        expires_at: Some(5_000),
        models: Some(vec!["claude".into()]),
        state: KeyState::Active,
        hint: "wxyz".into(),
        revision: 0,
        terms: KeyTerms::default(),
        former: None,
        text_since: None,
    }
}

pub(crate) async fn found(store: &dyn KeyStore, number: u8) -> Option<KeyRecord> {
    store.find(&digest(number)).await.unwrap().record
}

pub(crate) async fn version(store: &dyn KeyStore) -> u64 {
    store.find(&digest(255)).await.unwrap().version
}

pub(crate) async fn a_created_key_is_found_by_its_digest_and_its_id(store: &dyn KeyStore) {
    assert_eq!(found(store, 1).await, None);
    assert_eq!(store.by_id(&id(1)).await, Ok(None));
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    assert_eq!(found(store, 1).await, Some(record(1, 100)));
    let view = KeyView {
        digest: digest(1),
        record: record(1, 100),
        last_used: None,
    };
    assert_eq!(store.by_id(&id(1)).await, Ok(Some(view)));
    assert_eq!(found(store, 2).await, None);
    assert_eq!(store.by_id(&id(2)).await, Ok(None));
}

pub(crate) async fn a_taken_digest_or_id_is_refused(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let before = version(store).await;
    for (taken_digest, taken_id) in [(1, 2), (2, 1), (1, 1)] {
        let refused = store.create(&digest(taken_digest), &record(taken_id, 200)).await;
        assert_eq!(refused, Err(StoreError::Duplicate));
    }
    assert_eq!(version(store).await, before);
    assert_eq!(found(store, 1).await, Some(record(1, 100)));
    assert_eq!(found(store, 2).await, None);
    assert_eq!(store.list(None, 10).await.unwrap().len(), 1);
}

pub(crate) async fn an_unknown_id_is_not_found(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let before = version(store).await;
    let unknown = id(9);
    assert_eq!(store.rename(&unknown, "desk").await, Err(StoreError::NotFound));
    assert_eq!(
        store.rotate(&unknown, &to(9, "h", None)).await,
        Err(StoreError::NotFound)
    );
    assert_eq!(store.end_overlap(&unknown).await, Err(StoreError::NotFound));
    assert_eq!(store.revoke(&unknown, 1).await, Err(StoreError::NotFound));
    assert_eq!(store.remove(&unknown).await, Err(StoreError::NotFound));
    assert_eq!(store.list(Some(&unknown), 10).await, Err(StoreError::NotFound));
    assert_eq!(version(store).await, before);
}

pub(crate) async fn lists_are_ordered_by_creation_then_id_and_paged(store: &dyn KeyStore) {
    assert_eq!(store.list(None, 10).await, Ok(vec![]));
    for (number, created_at) in [(5, 100), (1, 300), (4, 200), (2, 200), (3, 1_000)] {
        store
            .create(&digest(number), &record(number, created_at))
            .await
            .unwrap();
    }
    let ids = |views: Vec<KeyView>| views.into_iter().map(|view| view.record.id).collect::<Vec<_>>();
    let order: Vec<KeyId> = [5, 2, 4, 1, 3].map(id).into();
    assert_eq!(ids(store.list(None, LIST_KEYS_MAX + 1).await.unwrap()), order);
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = ids(store.list(after.as_ref(), 2).await.unwrap());
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        paged.extend(page);
    }
    assert_eq!(paged, order);
    assert_eq!(store.list(Some(&id(5)), 0).await, Ok(vec![]));
    // A page can begin after a key that has changed, but not after one that was deleted.
    store.revoke(&id(4), 1).await.unwrap();
    assert_eq!(ids(store.list(Some(&id(4)), 9).await.unwrap()), [1, 3].map(id));
    store.remove(&id(4)).await.unwrap();
    assert_eq!(store.list(Some(&id(4)), 9).await, Err(StoreError::NotFound));
}

pub(crate) async fn an_update_changes_what_it_names_and_nothing_else(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.record_uses(&[(id(1), 150)]).await.unwrap();
    let expected = KeyRecord {
        name: "desk".into(),
        revision: 1,
        ..record(1, 100)
    };
    let view = store.rename(&id(1), "desk").await.unwrap();
    assert_eq!((view.record, view.last_used), (expected.clone(), Some(150)));
    assert_eq!(found(store, 1).await, Some(expected.clone()));
    let terms = KeyTerms {
        quota: Some(NanoUsd::MAX),
        reset: QuotaReset::Weekly,
        ..KeyTerms::default()
    };
    let cleared = KeyUpdate {
        expires_at: Some(None),
        models: Some(None),
        name: None,
        terms: KeyTermsChange {
            quota: Some(Some(NanoUsd::MAX)),
            reset: Some(QuotaReset::Weekly),
            ..KeyTermsChange::default()
        },
    };
    let expected = KeyRecord {
        expires_at: None,
        terms,
        models: None,
        revision: 2,
        ..expected
    };
    assert_eq!(store.update(&id(1), &cleared).await.unwrap().record, expected);
    let none = KeyUpdate {
        models: Some(Some(vec![])),
        ..KeyUpdate::default()
    };
    store.update(&id(1), &none).await.unwrap();
    // An empty list allows no model and `None` allows all: a store must not confuse them.
    assert_eq!(found(store, 1).await.unwrap().models, Some(vec![]));
}

pub(crate) async fn a_revocation_is_for_good_and_keeps_its_first_time(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let first = store.revoke(&id(1), 700).await.unwrap();
    assert_eq!(first.record.state, KeyState::Revoked { at: 700 });
    assert_eq!(found(store, 1).await, Some(first.record.clone()));
    let before = version(store).await;
    assert_eq!(store.revoke(&id(1), 900).await, Ok(first.clone()));
    assert_eq!(version(store).await, before, "revoking again is no change");
    let updated = store.rename(&id(1), "desk").await.unwrap();
    assert_eq!(updated.record.state, KeyState::Revoked { at: 700 });
}

pub(crate) async fn a_deleted_key_leaves_nothing_behind(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.record_uses(&[(id(1), 150)]).await.unwrap();
    let before = store.by_id(&id(1)).await.unwrap();
    assert_eq!(store.remove(&id(1)).await, Ok(before));
    assert_eq!(found(store, 1).await, None);
    assert_eq!(store.by_id(&id(1)).await, Ok(None));
    assert_eq!(store.list(None, 10).await, Ok(vec![]));
    let version_before = version(store).await;
    assert_eq!(store.remove(&id(1)).await, Ok(None), "it was deleted before");
    assert_eq!(version(store).await, version_before);
    let again = store.create(&digest(1), &record(1, 100)).await;
    assert_eq!(again, Err(StoreError::Deleted), "its revisions begin anew");
    assert_eq!(version(store).await, version_before);
    let mut above = record(1, 100);
    above.revision = 1_000;
    store.create(&digest(1), &above).await.unwrap();
    assert_eq!(store.by_id(&id(1)).await.unwrap().unwrap().last_used, None);
}

pub(crate) async fn the_latest_use_wins_and_is_no_change(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.create(&digest(2), &record(2, 100)).await.unwrap();
    let before = version(store).await;
    store.record_uses(&[]).await.unwrap();
    store
        .record_uses(&[(id(1), 500), (id(9), 900), (id(1), 400)])
        .await
        .unwrap();
    store.record_uses(&[(id(1), 300), (id(2), 7)]).await.unwrap();
    let used = store
        .list(None, 10)
        .await
        .unwrap()
        .into_iter()
        .map(|view| view.last_used);
    assert_eq!(used.collect::<Vec<_>>(), [Some(500), Some(7)]);
    assert_eq!(store.by_id(&id(9)).await, Ok(None), "an unknown key is passed over");
    assert_eq!(version(store).await, before);
    assert_eq!(found(store, 1).await, Some(record(1, 100)));
}

pub(crate) async fn the_feed_names_exactly_the_digests_of_every_change(store: &dyn KeyStore) {
    let start = version(store).await;
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    store.create(&digest(2), &record(2, 100)).await.unwrap();
    store.rename(&id(1), "desk").await.unwrap();
    store.rotate(&id(1), &to(3, "abcd", None)).await.unwrap();
    store.revoke(&id(2), 1).await.unwrap();
    store.remove(&id(1)).await.unwrap();
    let all = [1, 2, 1, 1, 3, 2, 3].map(digest);
    let changes = |version, digests: &[KeyDigest]| Changes {
        version: start + version,
        digests: Some(digests.to_vec()),
    };
    assert_eq!(store.changes_since(start).await, Ok(changes(6, &all)));
    assert_eq!(store.changes_since(start + 3).await, Ok(changes(6, &all[3..])));
    assert_eq!(store.changes_since(start + 4).await, Ok(changes(6, &all[5..])));
    assert_eq!(store.changes_since(start + 6).await, Ok(changes(6, &[])));
    for ahead in [start + 7, start + 1_000_000] {
        let answer = store.changes_since(ahead).await.unwrap();
        assert_eq!((answer.version, answer.digests), (start + 6, None));
    }
}

pub(crate) async fn a_change_nudges(store: &dyn KeyStore) {
    let mut nudges = store.nudges();
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    for round in 0..3 {
        nudges.mark_unchanged();
        store.rename(&id(1), &format!("desk {round}")).await.unwrap();
        assert!(timeout(DEADLINE, nudges.changed()).await.is_ok(), "round {round}");
    }
}

pub(crate) async fn concurrent_changes_are_all_counted(store: &dyn KeyStore) {
    store.create(&digest(1), &record(1, 100)).await.unwrap();
    let before = version(store).await;
    let (key, rotation) = (id(1), to(2, "abcd", None));
    let (one, two, three) = tokio::join!(
        store.rename(&key, "desk"),
        store.rotate(&key, &rotation),
        store.rename(&key, "lap"),
    );
    let mut revisions = [one, two, three].map(|view| view.unwrap().record.revision);
    revisions.sort_unstable();
    assert_eq!(revisions, [1, 2, 3]);
    let (one, two) = tokio::join!(store.revoke(&key, 7), store.revoke(&key, 8));
    assert_eq!(one.unwrap(), two.unwrap(), "one of them was first");
    assert_eq!(version(store).await, before + 4);
}
