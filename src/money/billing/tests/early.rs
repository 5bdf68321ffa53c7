//! What is refused before its body has been read.

use super::{presented::*, *};
use crate::{
    domain::{
        faults::refusal::LimitRefusal,
        ledger::{KeyTerms, KeyTermsChange, LimitScope, RateKind, RateLimitsChange},
    },
    store::ledger::contract::suspend,
};

const HEAVY: bool = true;
const LIGHT: bool = false;

/// The label of the refusal before the body is read.
async fn early(fixture: &Fixture, key: &Presented, body_is_heavy: bool) -> Option<&'static str> {
    let early = fixture
        .billing
        .refuse_early(key.found(), Operation::Messages, body_is_heavy);
    early.await.err().map(|refusal| refusal.reason())
}

async fn early_count(fixture: &Fixture, key: &Presented) -> Option<&'static str> {
    let early = fixture.billing.refuse_early(key.found(), Operation::CountTokens, HEAVY);
    early.await.err().map(|refusal| refusal.reason())
}

#[tokio::test]
async fn a_key_that_was_denied_is_refused_early_until_the_store_says_otherwise() {
    let fixture = fixture(0).await;
    let key = key(&fixture, 1, KeyTerms::default()).await;
    assert_eq!(early(&fixture, &key, LIGHT).await, None, "nothing is known of it");
    assert!(asked(&fixture, &key, "r1").await.is_err());
    assert_eq!(early(&fixture, &key, LIGHT).await, Some("balance_exhausted"));
    suspend(&*fixture.ledger, "acme", true).await;
    assert_eq!(early(&fixture, &key, LIGHT).await, Some("account_suspended"));
    fixture.ledger.is(Way::Away);
    assert_eq!(early(&fixture, &key, LIGHT).await, None, "nobody confirms it");
    fixture.ledger.is(Way::There);
    // Without an answer it counts as over: the admission decides.
    assert_eq!(early(&fixture, &key, LIGHT).await, None);
    suspend(&*fixture.ledger, "acme", false).await;
    assert!(asked(&fixture, &key, "r2").await.is_err());
    credit(&fixture, 10_000).await;
    assert_eq!(early(&fixture, &key, LIGHT).await, None);
    drop(admitted(&fixture, &key, "r3").await);
    assert_eq!(lookups(&fixture), 1, "the account is not the key's record");
}

#[tokio::test]
async fn a_spent_quota_is_confirmed_by_the_record_that_the_store_has() {
    let fixture = fixture(100_000).await;
    let key = key(&fixture, 1, quota(800)).await;
    spend(&fixture, &key, 800).await;
    assert!(asked(&fixture, &key, "r1").await.is_err());
    assert_eq!(early(&fixture, &key, LIGHT).await, Some("quota_exhausted"));
    change_key(&fixture, &key, quota_change(801)).await;
    assert_eq!(early(&fixture, &key, LIGHT).await, None);
    let asked_for = lookups(&fixture);
    assert_eq!(early(&fixture, &key, LIGHT).await, None);
    assert_eq!(lookups(&fixture), asked_for, "it is forgotten");
}

#[tokio::test]
async fn the_store_is_asked_for_the_money_of_a_heavy_body_unless_it_has_just_vouched_for_it() {
    let fixture = fixture(0).await;
    let key = key(&fixture, 1, KeyTerms::default()).await;
    assert_eq!(early(&fixture, &key, LIGHT).await, None);
    assert_eq!(early(&fixture, &key, HEAVY).await, Some("balance_exhausted"));
    assert_eq!(
        early(&fixture, &key, LIGHT).await,
        Some("balance_exhausted"),
        "it is remembered"
    );
    credit(&fixture, 10_000).await;
    assert_eq!(early(&fixture, &key, HEAVY).await, None);
    drop(admitted(&fixture, &key, "r1").await);
    // What the store said a moment ago holds, though it is not so any more.
    suspend(&*fixture.ledger, "acme", true).await;
    assert_eq!(early(&fixture, &key, HEAVY).await, None);
}

#[tokio::test]
async fn without_the_store_only_what_this_node_has_counted_refuses_early() {
    let fixture = fixture(0).await;
    // Keys that this node has not looked up: so it has no answer of the store, and takes it to be away.
    let (limited, other) = (
        Presented {
            digest: digest(1),
            record: Arc::new(KeyRecord {
                terms: rpm(1),
                ..record(1)
            }),
        },
        Presented {
            digest: digest(2),
            record: Arc::new(record(2)),
        },
    );
    assert!(!fixture.keys.is_store_reachable());
    assert!(asked(&fixture, &other, "r1").await.is_err());
    assert_eq!(early(&fixture, &other, HEAVY).await, None);
    assert_eq!(early_count(&fixture, &other).await, None);
    fixture.billing.count_refused(&limited.record);
    let refused = fixture
        .billing
        .refuse_early(limited.found(), Operation::Messages, LIGHT);
    let Err(Refusal::Limited(limit)) = refused.await else {
        panic!("the rate of one a minute is used up")
    };
    assert!(
        matches!(
            limit,
            LimitRefusal::Rate {
                scope: LimitScope::Key,
                counted: RateKind::Requests,
                limit: 1,
                retry_after_seconds: 1..=60,
                ..
            }
        ),
        "{limit:?}"
    );
}

#[tokio::test]
async fn a_rate_that_was_raised_elsewhere_refuses_nobody_early() {
    let fixture = fixture(100_000).await;
    let key = key(&fixture, 1, rpm(1)).await;
    drop(admitted(&fixture, &key, "r1").await);
    fixture.billing.count_refused(&key.record);
    assert_eq!(early(&fixture, &key, LIGHT).await, Some("requests_limited"));
    let rates = RateLimitsChange {
        rpm: Some(Some(100)),
        ..RateLimitsChange::default()
    };
    let raised = KeyTermsChange {
        rates,
        ..KeyTermsChange::default()
    };
    change_key(&fixture, &key, raised).await;
    assert_eq!(early(&fixture, &key, LIGHT).await, None);
}

#[tokio::test]
async fn a_token_count_is_refused_for_a_spent_quota_and_nothing_else() {
    let fixture = fixture(1_000).await;
    let limited = key(&fixture, 1, quota(800)).await;
    assert_eq!(early_count(&fixture, &limited).await, None);
    spend(&fixture, &limited, 1_000).await;
    assert_eq!(early_count(&fixture, &limited).await, Some("quota_exhausted"));
    // The balance is spent as well.
    let other = key(&fixture, 2, KeyTerms::default()).await;
    assert_eq!(early(&fixture, &other, HEAVY).await, Some("balance_exhausted"));
    assert_eq!(early_count(&fixture, &other).await, None);
    change_key(&fixture, &limited, quota_change(5_000)).await;
    assert_eq!(early_count(&fixture, &limited).await, None);
}
