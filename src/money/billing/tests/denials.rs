//! Whether the store confirms a denial.

use super::*;
use crate::{
    domain::ledger::{KeyTerms, LimitScope, QuotaUse, RateKind, RateLimits},
    store::ledger::contract::suspend,
};

const QUOTA: Denial = Denial::QuotaExhausted(QuotaUse {
    quota: NanoUsd::ZERO,
    spent: NanoUsd::ZERO,
    resets_at: None,
});

fn rate(scope: LimitScope, limit: u64) -> Denial {
    Denial::RateLimited {
        scope,
        counted: RateKind::Requests,
        limit,
        retry_after_ms: 700,
        lent: false,
    }
}

async fn change(fixture: &Fixture, change: AccountChange) {
    let seq = fixture.ledger.watermark(&node(9), "acme").await.unwrap() + 1;
    let steps = [Step { seq, change }];
    fixture.ledger.apply(&node(9), "acme", &steps, 0).await.unwrap();
}

#[tokio::test]
async fn an_account_is_refused_until_it_has_money_and_goes_on() {
    let fixture = fixture(0).await;
    let key = record(1);
    let still = async |denial| fixture.billing.engine.denials.confirm(&key, denial).await;
    assert_eq!(still(Denial::BalanceExhausted).await, Some(Denial::BalanceExhausted));
    suspend(&*fixture.ledger, "acme", true).await;
    assert_eq!(still(Denial::BalanceExhausted).await, Some(Denial::AccountSuspended));
    suspend(&*fixture.ledger, "acme", false).await;
    change(
        &fixture,
        AccountChange::Credit {
            amount: nanos(1),
            at: 0,
            operation: None,
        },
    )
    .await;
    assert_eq!(still(Denial::BalanceExhausted).await, None);
    assert_eq!(still(Denial::AccountSuspended).await, None);
    let stranger = KeyRecord {
        account: "nobody".into(),
        ..record(2)
    };
    let denied = fixture
        .billing
        .engine
        .denials
        .confirm(&stranger, Denial::BalanceExhausted)
        .await;
    assert_eq!(denied, Some(Denial::AccountUnknown));
}

#[tokio::test]
async fn a_quota_is_used_up_by_what_was_spent_and_not_by_what_is_held() {
    let fixture = fixture(10_000).await;
    let with = |quota| KeyRecord {
        terms: KeyTerms {
            quota: Some(nanos(quota)),
            ..KeyTerms::default()
        },
        ..record(1)
    };
    let bill = fixture.admit(&with(800), "req_1").await.unwrap();
    assert_eq!(
        fixture.billing.engine.denials.confirm(&with(800), QUOTA).await,
        None,
        "it is held"
    );
    bill.close(&End::Complete, SERVED, consumed(tokens(400, 400)), clock::instant());
    fixture.send().await;
    let denied = fixture.billing.engine.denials.confirm(&with(800), QUOTA).await;
    let spent = QuotaUse {
        quota: nanos(800),
        spent: nanos(800),
        resets_at: None,
    };
    assert_eq!(denied, Some(Denial::QuotaExhausted(spent)));
    assert_eq!(fixture.billing.engine.denials.confirm(&with(801), QUOTA).await, None);
    assert_eq!(fixture.billing.engine.denials.confirm(&record(1), QUOTA).await, None);
}

#[tokio::test]
async fn a_rate_that_was_changed_is_asked_for_anew() {
    let fixture = fixture(10_000).await;
    let mut key = record(1);
    key.terms.rates = RateLimits {
        rpm: Some(3),
        ..RateLimits::default()
    };
    let still = async |denial| fixture.billing.engine.denials.confirm(&key, denial).await;
    assert_eq!(still(rate(LimitScope::Key, 3)).await, Some(rate(LimitScope::Key, 3)));
    assert_eq!(still(rate(LimitScope::Key, 2)).await, None);
    assert_eq!(still(rate(LimitScope::Account, 3)).await, None);
}

#[tokio::test]
async fn a_store_that_is_away_refuses_nobody() {
    let fixture = fixture(0).await;
    fixture.ledger.is(Way::Away);
    let key = record(1);
    for denial in [Denial::BalanceExhausted, QUOTA, rate(LimitScope::Account, 3)] {
        assert_eq!(fixture.billing.engine.denials.confirm(&key, denial).await, None);
    }
}
