//! What is admitted while the ledger is away: no more than this node knows of the key and its account allows.

use super::*;
use crate::domain::faults::refusal::LimitRefusal;
use crate::domain::ledger::{AccountTerms, KeyTerms, LimitScope, RateKind, RateLimits};
use crate::store::ledger::contract::{limit, suspend};

/// One step more of another node.
async fn change(fixture: &Fixture, change: AccountChange) {
    let seq = fixture.ledger.watermark(&node(9), "acme").await.unwrap() + 1;
    let steps = [Step { seq, change }];
    fixture.ledger.apply(&node(9), "acme", &steps, 0).await.unwrap();
}

fn with_terms(number: u8, terms: KeyTerms) -> KeyRecord {
    KeyRecord {
        terms,
        ..record(number)
    }
}

fn with_rates(number: u8, rates: RateLimits) -> KeyRecord {
    let terms = KeyTerms {
        rates,
        ..KeyTerms::default()
    };
    with_terms(number, terms)
}

fn with_quota(number: u8, quota: i64) -> KeyRecord {
    let terms = KeyTerms {
        quota: Some(nanos(quota)),
        ..KeyTerms::default()
    };
    with_terms(number, terms)
}

/// What a request is given; nothing is charged for it when that is dropped.
async fn hold(fixture: &Fixture, key: &KeyRecord, request: &str) -> Result<NanoUsd, NotAdmitted> {
    let bill = fixture.admit(key, request).await?;
    Ok(bill.running.hold())
}

/// A request that costs so much.
async fn spend(fixture: &Fixture, key: &KeyRecord, request: &str, cost: u64) {
    let bill = fixture.admit(key, request).await.unwrap();
    bill.close(&End::Complete, SERVED, consumed(tokens(0, cost)), clock::instant());
}

#[tokio::test]
async fn whoever_was_refused_when_last_seen_has_none() {
    let without_money = fixture(0).await;
    let suspended = fixture(10_000).await;
    assert!(hold(&suspended, &record(1), "r0").await.is_ok());
    suspend(&*suspended.ledger, "acme", true).await;
    let spent = fixture(10_000).await;
    spend(&spent, &with_quota(1, 800), "r0", 800).await;
    spent.send().await;
    let withdrawn = fixture(10_000).await;
    let key = record(1);
    assert!(hold(&withdrawn, &key, "r0").await.is_ok());
    let revoked = KeyRecord {
        revision: key.revision,
        ..key.revoked(1)
    };
    let stranger = fixture(10_000).await;
    let nobody = KeyRecord {
        account: "nobody".into(),
        ..record(1)
    };
    for (fixture, key) in [
        (&without_money, &record(1)),
        (&suspended, &record(1)),
        (&spent, &with_quota(1, 800)),
        (&stranger, &nobody),
    ] {
        let denied = hold(fixture, key, "r1").await;
        assert!(matches!(denied, Err(NotAdmitted::Denied(_))), "{denied:?}");
    }
    withdrawn.billing.engine.grace.on_denied(&revoked, Denial::KeyRevoked);
    for fixture in [&without_money, &suspended, &spent, &withdrawn, &stranger] {
        fixture.ledger.is(Way::Away);
    }
    for (fixture, key) in [
        (&without_money, &record(1)),
        (&suspended, &record(1)),
        (&suspended, &record(2)),
        (&spent, &with_quota(1, 800)),
        (&withdrawn, &revoked),
        (&stranger, &nobody),
    ] {
        for request in ["r2", "r3"] {
            assert_eq!(hold(fixture, key, request).await, Err(Refusal::StoreUnavailable.into()));
        }
    }
    assert!(
        hold(&spent, &record(2), "r4").await.is_ok(),
        "another key of the account"
    );
    assert!(hold(&withdrawn, &record(2), "r4").await.is_ok());
}

#[tokio::test]
async fn an_account_that_was_never_seen_has_none_and_one_that_may_go_on_has_it_again() {
    let fixture = fixture(0).await;
    let key = record(1);
    fixture.ledger.is(Way::Away);
    assert_eq!(hold(&fixture, &key, "r1").await, Err(Refusal::StoreUnavailable.into()));
    fixture.ledger.is(Way::There);
    assert!(hold(&fixture, &key, "r2").await.is_err());
    change(
        &fixture,
        AccountChange::Credit {
            amount: nanos(10_000),
            at: 0,
            operation: None,
        },
    )
    .await;
    fixture.ledger.is(Way::Away);
    assert_eq!(
        hold(&fixture, &key, "r3").await,
        Err(Refusal::StoreUnavailable.into()),
        "nobody has heard of the credit"
    );
    fixture.ledger.is(Way::There);
    assert!(hold(&fixture, &key, "r4").await.is_ok());
    fixture.ledger.is(Way::Away);
    assert!(hold(&fixture, &key, "r5").await.is_ok());
    fixture.billing.account_changed("acme", true);
    assert_eq!(hold(&fixture, &key, "r6").await, Err(Refusal::StoreUnavailable.into()));
}

#[tokio::test]
async fn it_ends_where_the_balance_did_when_it_was_last_told() {
    let fixture = fixture(3_000).await;
    let key = record(1);
    let first = fixture.admit(&key, "r1").await.unwrap();
    spend(&fixture, &record(2), "r2", 1_300).await;
    // The store was told, but has not said so to this node.
    fixture.send().await;
    fixture.ledger.is(Way::Away);
    assert_eq!(hold(&fixture, &record(2), "r3").await, Ok(nanos(700)));
    let second = fixture.admit(&record(2), "r4").await.unwrap();
    assert_eq!(second.running.hold(), nanos(700));
    assert_eq!(
        hold(&fixture, &record(3), "r5").await,
        Err(Refusal::StoreUnavailable.into())
    );
    drop(first);
    assert_eq!(
        hold(&fixture, &record(3), "r6").await,
        Ok(nanos(1_000)),
        "what is held no more"
    );
}

#[tokio::test]
async fn it_ends_where_the_quota_does() {
    let fixture = fixture(100_000).await;
    let key = with_quota(1, 2_000);
    spend(&fixture, &key, "r1", 900).await;
    fixture.send().await;
    spend(&fixture, &key, "r2", 600).await;
    fixture.ledger.is(Way::Away);
    let bill = fixture.admit(&key, "r3").await.unwrap();
    assert_eq!(bill.running.hold(), nanos(500));
    assert_eq!(hold(&fixture, &key, "r4").await, Err(Refusal::StoreUnavailable.into()));
    assert_eq!(
        hold(&fixture, &with_quota(2, 2_000), "r5").await,
        Err(Refusal::StoreUnavailable.into()),
        "what it has spent is not known"
    );
    assert_eq!(hold(&fixture, &record(3), "r6").await, Ok(nanos(1_000)));
}

#[tokio::test]
async fn all_keys_of_an_account_share_its_bound() {
    let fixture = fixture(100_000).await;
    assert!(hold(&fixture, &record(1), "r0").await.is_ok());
    fixture.ledger.is(Way::Away);
    let mut bills = Vec::new();
    for number in 1..=5 {
        let key = record(number);
        while let Ok(bill) = fixture.admit(&key, &format!("r{}", bills.len() + 1)).await {
            bills.push(bill);
        }
    }
    let held = bills
        .iter()
        .fold(nanos(0), |sum, bill| sum.saturating_add(bill.running.hold()));
    assert_eq!(held, nanos(GRACE_ACCOUNT));
    assert_eq!(fixture.billing.grace_committed(), nanos(GRACE_ACCOUNT));
    // What they cost less than was held is free again, what they cost more is not.
    let first = bills.remove(0);
    first.close(&End::Complete, SERVED, consumed(tokens(0, 400)), clock::instant());
    assert_eq!(hold(&fixture, &record(6), "s1").await, Ok(nanos(600)));
    let second = bills.remove(0);
    second.close(&End::Complete, SERVED, consumed(tokens(0, 1_700)), clock::instant());
    assert_eq!(
        hold(&fixture, &record(6), "s2").await,
        Err(Refusal::StoreUnavailable.into())
    );
}

#[tokio::test]
async fn rates_of_key_and_account_hold_by_what_this_node_alone_has_seen() {
    let rpm = RateLimits {
        rpm: Some(3),
        ..RateLimits::default()
    };
    let of_key = with_rates(1, rpm);
    let fixture = fixture(100_000).await;
    assert!(hold(&fixture, &of_key, "r1").await.is_ok());
    fixture.ledger.is(Way::Away);
    for request in ["r2", "r3"] {
        assert!(hold(&fixture, &of_key, request).await.is_ok());
    }
    let limited = |answer, of| {
        matches!(answer, Err(NotAdmitted::Refused(Refusal::Limited(LimitRefusal::Rate {
            scope,
            counted: RateKind::Requests,
            limit: 3,
            retry_after_seconds: 1..=20,
            ..
        }))) if scope == of)
    };
    assert!(limited(hold(&fixture, &of_key, "r4").await, LimitScope::Key));
    fixture.ledger.is(Way::There);
    let terms = AccountTerms {
        rates: rpm,
        ..AccountTerms::default()
    };
    limit(&*fixture.ledger, "acme", terms).await;
    assert!(hold(&fixture, &record(2), "r5").await.is_ok());
    fixture.ledger.is(Way::Away);
    for (key, request) in [(record(2), "r6"), (record(3), "r7")] {
        assert!(hold(&fixture, &key, request).await.is_ok());
    }
    assert!(limited(hold(&fixture, &record(3), "r8").await, LimitScope::Account));
}

#[tokio::test]
async fn as_many_run_at_one_time_as_may() {
    let one = RateLimits {
        concurrency: Some(2),
        ..RateLimits::default()
    };
    let key = with_rates(1, one);
    let fixture = fixture(100_000).await;
    let first = fixture.admit(&key, "r1").await.unwrap();
    fixture.ledger.is(Way::Away);
    let second = fixture.admit(&key, "r2").await.unwrap();
    let limit = LimitRefusal::Concurrency {
        scope: LimitScope::Key,
        limit: 2,
    };
    assert_eq!(hold(&fixture, &key, "r3").await, Err(Refusal::Limited(limit).into()));
    drop(first);
    assert!(hold(&fixture, &key, "r4").await.is_ok());
    drop(second);
}

#[tokio::test]
async fn many_at_once_commit_no_more_than_it() {
    let fixture = Arc::new(fixture(100_000).await);
    assert!(hold(&fixture, &record(1), "r0").await.is_ok());
    fixture.ledger.is(Way::Away);
    let asked = (0..100).map(|number| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move {
            let key = record(1 + number % 4);
            fixture.admit(&key, &format!("r{}", number + 1)).await.ok()
        })
    });
    let mut bills = Vec::new();
    for asked in asked.collect::<Vec<_>>() {
        bills.extend(asked.await.unwrap());
    }
    let held = bills
        .iter()
        .fold(nanos(0), |sum, bill| sum.saturating_add(bill.running.hold()));
    assert_eq!(held, nanos(GRACE_ACCOUNT));
}

#[tokio::test]
async fn a_ledger_that_has_too_much_to_do_is_not_away() {
    let fixture = fixture(100_000).await;
    assert!(hold(&fixture, &record(1), "r1").await.is_ok());
    fixture.ledger.is(Way::Busy);
    assert_eq!(
        hold(&fixture, &record(1), "r2").await,
        Err(Refusal::StoreUnavailable.into())
    );
    assert_eq!(fixture.billing.grace_admissions(), 0);
}
