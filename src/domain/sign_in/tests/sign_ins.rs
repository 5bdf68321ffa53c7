//! Tests of a key's sign-ins.

use crate::domain::sign_in::*;

const LIFETIMES: TokenLifetimes = TokenLifetimes {
    access_seconds: 3600,
    sign_in_seconds: 100_000,
};
const DIGEST: KeyDigest = KeyDigest::from_bytes([7; 32]);

fn begin(all: &mut SignIns, key: &KeyId, now: i64) -> IssuedTokens {
    let begun = all.begin((key, DIGEST), &KeyPrefix::default(), &LIFETIMES, now, &mut rand::rng());
    assert!(begun.ended.is_empty(), "{begun:?}");
    begun.outcome
}

fn refresh(all: &mut SignIns, token: &RefreshToken, now: i64) -> StepOutcome<Result<IssuedTokens, RefreshError>> {
    all.refresh(
        token,
        |text| *text == DIGEST,
        &KeyPrefix::default(),
        &LIFETIMES,
        now,
        &mut rand::rng(),
    )
}

fn key() -> KeyId {
    KeyId::generate(&mut rand::rng())
}

#[test]
fn a_refresh_token_is_replaced_and_gives_the_same_once_more_for_a_while() {
    let (mut all, key) = (SignIns::default(), key());
    let first = begin(&mut all, &key, 0);
    let second = refresh(&mut all, &first.refresh, 3000).outcome.unwrap();
    assert_ne!(second.refresh, first.refresh);
    assert_eq!(second.grant.until, 6600);
    let repeated = refresh(&mut all, &first.refresh, 3059).outcome.unwrap();
    assert_eq!(
        repeated.refresh, second.refresh,
        "whoever asked twice goes on with one token"
    );
    assert_ne!(repeated.access, second.access);
    let third = refresh(&mut all, &second.refresh, 6000).outcome.unwrap();
    assert_eq!(all.active(6000).count(), 1);
    assert!(all.contains(&third.refresh) && all.contains(&second.refresh) && !all.contains(&first.refresh));
}

#[test]
fn a_replaced_refresh_token_that_comes_again_ends_the_sign_in() {
    for generation in [1, 2] {
        let (mut all, key) = (SignIns::default(), key());
        let first = begin(&mut all, &key, 0);
        let other = begin(&mut all, &key, 0);
        let mut tokens = vec![first.access.digest()];
        let mut last = first.refresh.clone();
        for round in 1..=generation {
            let next = refresh(&mut all, &last, round).outcome.unwrap();
            tokens.push(next.access.digest());
            last = next.refresh;
        }
        let stolen = refresh(&mut all, &first.refresh, generation + 60);
        assert_eq!(stolen.outcome.err(), Some(RefreshError::Reused), "{generation}");
        assert_eq!(stolen.ended, tokens, "its access tokens end with it");
        assert_eq!(refresh(&mut all, &last, 62).outcome.err(), Some(RefreshError::Unknown));
        assert!(
            refresh(&mut all, &other.refresh, 62).outcome.is_ok(),
            "the other one goes on"
        );
    }
}

#[test]
fn a_sign_in_ends_in_time_however_often_it_is_refreshed() {
    let (mut all, key) = (SignIns::default(), key());
    let mut token = begin(&mut all, &key, 0).refresh;
    for now in (0..100_000).step_by(3000) {
        let tokens = refresh(&mut all, &token, now).outcome.unwrap();
        assert!(tokens.grant.until <= 100_000);
        assert_eq!(tokens.grant.key_digest_at(tokens.grant.until - 1), Some(DIGEST));
        assert_eq!(tokens.grant.key_digest_at(tokens.grant.until), None);
        token = tokens.refresh;
    }
    assert_eq!((all.active(99_999).count(), all.needed_until()), (1, Some(100_000)));
    let late = refresh(&mut all, &token, 100_000);
    assert_eq!(
        (late.outcome.err(), all.active(100_000).count()),
        (Some(RefreshError::Unknown), 0)
    );
}

#[test]
fn a_key_with_another_text_refreshes_nothing() {
    let (mut all, key) = (SignIns::default(), key());
    let token = begin(&mut all, &key, 0).refresh;
    let prefix = KeyPrefix::default();
    let refused = all.refresh(&token, |_| false, &prefix, &LIFETIMES, 1, &mut rand::rng());
    assert_eq!(refused.outcome.err(), Some(RefreshError::Unknown));
}

#[test]
fn beyond_the_most_the_one_that_was_used_longest_ago_ends() {
    let (mut all, key) = (SignIns::default(), key());
    let made: Vec<IssuedTokens> = (0..16).map(|now| begin(&mut all, &key, now)).collect();
    assert_eq!(SIGN_INS_MAX, made.len());
    refresh(&mut all, &made[0].refresh, 20).outcome.unwrap();
    let more = all.begin((&key, DIGEST), &KeyPrefix::default(), &LIFETIMES, 21, &mut rand::rng());
    assert_eq!(more.ended, [made[1].access.digest()]);
    assert_eq!(all.active(21).count(), SIGN_INS_MAX);
    assert!(!all.contains(&made[1].refresh) && all.contains(&more.outcome.refresh));
    assert_eq!(all.end_all().len(), SIGN_INS_MAX + 1);
    assert_eq!((all.active(21).count(), all.needed_until()), (0, None));
}

#[test]
fn access_tokens_of_one_sign_in_do_not_gather() {
    let (mut all, key) = (SignIns::default(), key());
    let first = begin(&mut all, &key, 0);
    let mut token = first.refresh;
    for now in 1..=7 {
        let next = refresh(&mut all, &token, now);
        assert!(next.ended.is_empty(), "{now}");
        token = next.outcome.unwrap().refresh;
    }
    assert_eq!(refresh(&mut all, &token, 8).ended, [first.access.digest()]);
}

#[test]
fn a_document_has_no_token() {
    let (mut all, key) = (SignIns::default(), key());
    let first = begin(&mut all, &key, 0);
    let second = refresh(&mut all, &first.refresh, 1).outcome.unwrap();
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<SignIns>(&text).unwrap(), all);
    for secret in [
        first.access.as_str().to_owned(),
        first.refresh.text(),
        second.refresh.text(),
    ] {
        let end = secret.rsplit('-').next().unwrap();
        assert!(!text.contains(end), "{text}");
    }
}
