//! Tests of `change`.

use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::domain::keys::KeyState;
use crate::domain::keys::terms::{KeyTerms, QuotaReset, RateLimits, RateLimitsChange};
use crate::domain::money::NanoUsd;

fn digest(number: u8) -> KeyDigest {
    KeyDigest::from_bytes([number; 32])
}

fn key() -> KeyView {
    let record = KeyRecord {
        id: KeyId::parse("key_0000000000000001").unwrap(),
        name: "laptop".into(),
        account: "acme".into(),
        created_at: 100,
        expires_at: Some(200),
        models: None,
        state: KeyState::Active,
        hint: "wxyz".into(),
        revision: 4,
        terms: KeyTerms::default(),
        former: None,
        text_since: None,
    };
    KeyView {
        digest: digest(1),
        record,
        last_used: Some(150),
    }
}

fn update(by: ChangeAuthor, terms: KeyTermsChange) -> KeyChange {
    let update = KeyUpdate {
        terms,
        ..KeyUpdate::default()
    };
    KeyChange::Update { update, by }
}

fn rpm(by: ChangeAuthor, rpm: Option<u64>) -> KeyChange {
    let rates = RateLimitsChange {
        rpm: Some(rpm),
        ..RateLimitsChange::default()
    };
    update(
        by,
        KeyTermsChange {
            rates,
            ..KeyTermsChange::default()
        },
    )
}

fn rotation(number: u8, overlap_until: Option<i64>) -> KeyChange {
    KeyChange::Rotate(Rotation {
        digest: digest(number),
        hint: "abcd".into(),
        at: 150,
        overlap_until,
    })
}

fn some_update() -> impl Strategy<Value = KeyUpdate> {
    let limit = || option::of(option::of(0..4_u64));
    let texts = (
        option::of("[ab]"),
        option::of(option::of(198..202_i64)),
        option::of(option::of("[ab]")),
    );
    let rates =
        (limit(), limit(), limit()).prop_map(|(rpm, tpm, concurrency)| RateLimitsChange { rpm, tpm, concurrency });
    let reset = option::of(prop_oneof![Just(QuotaReset::None), Just(QuotaReset::Daily)]);
    (texts, rates, option::of(option::of(0..4_i64)), reset).prop_map(
        |((name, expires_at, model), rates, quota, reset)| KeyUpdate {
            name,
            expires_at,
            models: model.map(|model| model.map(|name| vec![name])),
            terms: KeyTermsChange {
                quota: quota.map(|quota| quota.map(NanoUsd::from_nanos)),
                reset,
                rates,
                ..KeyTermsChange::default()
            },
        },
    )
}

fn some_change() -> impl Strategy<Value = KeyChange> {
    prop_oneof![
        3 => some_update().prop_map(|update| KeyChange::Update { update, by: ChangeAuthor::Operator }),
        3 => some_update().prop_map(|update| KeyChange::Update { update, by: ChangeAuthor::Owner }),
        2 => (0..4_u8, option::of(0..9_i64)).prop_map(|(number, until)| rotation(number, until)),
        1 => Just(KeyChange::EndOverlap),
        1 => (0..9_i64).prop_map(|at| KeyChange::Revoke { at }),
    ]
}

/// A key after these changes, as far as they are made.
fn changed(changes: &[KeyChange]) -> KeyView {
    changes.iter().fold(key(), |key, change| {
        let after = key.apply_change(change, &ChangePrecondition::Anything);
        after.unwrap_or(key)
    })
}

#[test]
fn a_change_from_another_version_or_text_is_refused() {
    let key = key();
    let lower = rpm(ChangeAuthor::Operator, Some(10));
    let seen = ChangePrecondition::Version(key.version());
    let after = key.apply_change(&lower, &seen).unwrap();
    let other = rpm(ChangeAuthor::Operator, Some(20));
    let stale = KeyChangeError::Stale {
        id: key.record.id.clone(),
        from: key.version(),
        now: after.version(),
    };
    assert_eq!(after.apply_change(&other, &seen), Err(stale.clone()));
    assert_eq!(after.check_precondition(&seen), Err(stale.clone()));
    let (id, from, now) = (&key.record.id, key.version(), after.version());
    assert_eq!(
        stale.to_string(),
        format!(
            "nothing was changed, because key {id} now has version {now} and not version {from}; `weir key show {id}` prints the current values"
        )
    );
    for from in [
        ChangePrecondition::Anything,
        ChangePrecondition::Version(now),
        ChangePrecondition::Text(digest(1)),
    ] {
        assert_eq!(
            after.apply_change(&other, &from).unwrap().record.terms.rates.rpm,
            Some(20)
        );
    }
    assert_eq!(
        after.apply_change(&other, &ChangePrecondition::Text(digest(2))),
        Err(KeyChangeError::OldText)
    );
    // The former text changes nothing either, although it is good.
    let rotated = after
        .apply_change(&rotation(2, Some(900)), &ChangePrecondition::Text(digest(1)))
        .unwrap();
    assert_eq!(
        rotated.apply_change(&rotation(3, None), &ChangePrecondition::Text(digest(1))),
        Err(KeyChangeError::OldText)
    );
}

#[test]
fn an_owner_is_compared_with_the_key_as_it_is() {
    let key = key()
        .apply_change(&rpm(ChangeAuthor::Operator, Some(60)), &ChangePrecondition::Anything)
        .unwrap();
    let lower = rpm(ChangeAuthor::Owner, Some(50));
    assert_eq!(
        key.apply_change(&lower, &ChangePrecondition::Anything)
            .unwrap()
            .record
            .terms
            .rates
            .rpm,
        Some(50)
    );
    let meanwhile = key
        .apply_change(&rpm(ChangeAuthor::Operator, Some(30)), &ChangePrecondition::Anything)
        .unwrap();
    assert_eq!(
        meanwhile.apply_change(&lower, &ChangePrecondition::Anything),
        Err(KeyChangeError::Raises("rpm"))
    );
    assert_eq!(
        key.apply_change(&rpm(ChangeAuthor::Owner, None), &ChangePrecondition::Anything),
        Err(KeyChangeError::Raises("rpm"))
    );
}

#[test]
fn a_period_needs_a_quota_and_a_text_is_no_former_one() {
    let daily = |quota| {
        let terms = KeyTermsChange {
            reset: Some(QuotaReset::Daily),
            quota,
            ..KeyTermsChange::default()
        };
        update(ChangeAuthor::Operator, terms)
    };
    let refused = key().apply_change(&daily(None), &ChangePrecondition::Anything);
    assert_eq!(refused, Err(KeyChangeError::ResetWithoutQuota));
    let with_quota = Some(Some(NanoUsd::from_nanos(1)));
    assert!(
        key()
            .apply_change(&daily(with_quota), &ChangePrecondition::Anything)
            .is_ok()
    );
    let rotated = key()
        .apply_change(&rotation(2, Some(900)), &ChangePrecondition::Anything)
        .unwrap();
    assert_eq!(rotated.digests().collect::<Vec<_>>(), [digest(2), digest(1)]);
    assert_eq!(
        rotated.apply_change(&rotation(1, None), &ChangePrecondition::Anything),
        Err(KeyChangeError::TextReused)
    );
}

#[test]
fn a_version_is_of_the_content_and_not_of_the_use() {
    let used = KeyView {
        last_used: Some(999),
        ..key()
    };
    assert_eq!(used.version(), key().version());
    let mut renamed = key();
    renamed.record.name = "desk".into();
    let retold = KeyView {
        digest: digest(2),
        ..key()
    };
    // Two nodes that have each made revision 5 after a failover.
    assert_ne!(renamed.version(), key().version());
    assert_ne!(retold.version(), key().version());
    assert!(key().version().to_string().starts_with("4-"));
}

proptest! {
    #[test]
    fn a_change_that_is_made_again_changes_nothing(before in prop::collection::vec(some_change(), 0..6), change in some_change()) {
        let key = changed(&before);
        if let Ok(after) = key.apply_change(&change, &ChangePrecondition::Anything) {
            let stale = ChangePrecondition::Version(Version::new(0, 0));
            for from in [ChangePrecondition::Anything, stale, ChangePrecondition::Text(digest(9))] {
                prop_assert_eq!(after.apply_change(&change, &from), Ok(after.clone()));
            }
            let is_same = after == key;
            prop_assert_eq!(after.version() == key.version(), is_same);
            prop_assert_eq!(after.record.revision, key.record.revision + u64::from(!is_same));
            prop_assert_eq!((after.record.id, after.last_used), (key.record.id, key.last_used));
        }
    }

    #[test]
    fn an_owner_raises_no_limit_whatever_came_before(before in prop::collection::vec(some_change(), 0..6), update in some_update()) {
        let key = changed(&before);
        let change = KeyChange::Update { update, by: ChangeAuthor::Owner };
        if let Ok(after) = key.apply_change(&change, &ChangePrecondition::Text(key.digest)) {
            let limits = |record: &KeyRecord| {
                let KeyTerms { quota, rates: RateLimits { rpm, tpm, concurrency }, .. } = record.terms;
                let rates = [rpm, tpm, concurrency].map(|limit| limit.map_or(i128::MAX, i128::from));
                let quota = quota.map_or(i128::MAX, |quota| i128::from(quota.nanos()));
                let end = record.expires_at.map_or(i128::MAX, i128::from);
                [rates[0], rates[1], rates[2], quota, end]
            };
            for (old, new) in limits(&key.record).into_iter().zip(limits(&after.record)) {
                prop_assert!(new <= old);
            }
        }
    }

    #[test]
    fn an_update_touches_what_it_names(update in some_update()) {
        let key = key();
        let change = KeyChange::Update { update: update.clone(), by: ChangeAuthor::Operator };
        if let Ok(after) = key.apply_change(&change, &ChangePrecondition::Anything) {
            let (before, after) = (key.record, after.record);
            prop_assert_eq!(after.terms, update.terms.apply(before.terms));
            prop_assert_eq!(after.name, update.name.unwrap_or(before.name));
            prop_assert_eq!(after.expires_at, update.expires_at.unwrap_or(before.expires_at));
            prop_assert_eq!(after.models, update.models.unwrap_or(before.models));
            prop_assert_eq!((after.account, after.state, after.hint), (before.account, before.state, before.hint));
        }
    }
}
