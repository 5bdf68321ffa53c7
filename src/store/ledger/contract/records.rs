//! Tests of the records that operators set for an account. A record is replaced only if the new one is based on it, and is sent
//! again to a store that has lost it.

use std::sync::Arc;

use super::{Fixture, node};
use crate::domain::{
    keys::terms::{AccountTerms, ProviderState, RateLimits, Thresholds},
    ledger::{AccountChange, AccountRecord, Step},
    money::NanoUsd,
};

async fn open(fixture: &Fixture) {
    let change = AccountChange::Open {
        balance: NanoUsd::from_nanos(100),
        at: 50,
        operation: None,
    };
    let opened = fixture
        .store
        .apply(&node(1), "acme", &[Step { seq: 1, change }], 0)
        .await;
    assert_eq!(opened, Ok(1));
}

async fn record(fixture: &Fixture) -> AccountRecord {
    fixture.store.account("acme").await.unwrap().unwrap().record
}

fn rpm(limit: u64) -> AccountTerms {
    AccountTerms {
        rates: RateLimits {
            rpm: Some(limit),
            ..RateLimits::default()
        },
        ..AccountTerms::default()
    }
}

pub(crate) async fn a_record_is_replaced_by_one_that_was_made_from_it(fixture: &Fixture) {
    open(fixture).await;
    let store = &fixture.store;
    let none = AccountRecord::default();
    assert_eq!(record(fixture).await, none);
    let all = AccountTerms {
        low_balance: Some(NanoUsd::from_nanos(-7)),
        provider_state: ProviderState::Any,
        notify: Thresholds::of([50, 100]).ok(),
        rates: RateLimits {
            rpm: Some(1),
            tpm: Some(2),
            concurrency: Some(3),
        },
    };
    let first = none.with_terms(all, true);
    // A call that is repeated because its answer was lost has only one effect.
    for _ in 0..2 {
        assert_eq!(store.set_terms("acme", &none, &first).await, Ok(true));
        assert_eq!(record(fixture).await, first);
    }
    for from in others(&first).into_iter().chain([none]) {
        let to = from.with_terms(rpm(60), false);
        assert_eq!(store.set_terms("acme", &from, &to).await, Ok(false), "{from:?}");
        assert_eq!(record(fixture).await, first);
    }
    let second = first.with_terms(AccountTerms::default(), false);
    assert_eq!(store.set_terms("acme", &first, &second).await, Ok(true));
    assert_eq!(record(fixture).await, second);
    let view = store.account("acme").await.unwrap().unwrap();
    assert_eq!((view.balance, view.created_at), (NanoUsd::from_nanos(100), 50));
    assert_eq!(store.accounts(None, 9).await, Ok(vec![view]));
    // An account that does not exist has the default record. The first other record creates the account.
    assert_eq!(store.set_terms("beta", &first, &second).await, Ok(false));
    assert_eq!(store.account("beta").await, Ok(None));
    assert_eq!(store.set_terms("beta", &none, &first).await, Ok(true));
    let made = store.account("beta").await.unwrap().unwrap();
    assert_eq!((made.record, made.balance, made.created_at), (first, NanoUsd::ZERO, 0));
    let all: Vec<String> = store
        .accounts(None, 9)
        .await
        .unwrap()
        .into_iter()
        .map(|view| view.id)
        .collect();
    assert_eq!(all, ["acme", "beta"]);
}

/// Returns records that each differ from this one in one field, including the revision.
fn others(record: &AccountRecord) -> Vec<AccountRecord> {
    let all = record.terms;
    let terms = [
        AccountTerms {
            low_balance: None,
            ..all
        },
        AccountTerms {
            provider_state: ProviderState::Own,
            ..all
        },
        AccountTerms { notify: None, ..all },
        AccountTerms {
            rates: RateLimits {
                rpm: Some(9),
                ..all.rates
            },
            ..all
        },
        AccountTerms {
            rates: RateLimits { tpm: None, ..all.rates },
            ..all
        },
        AccountTerms {
            rates: RateLimits {
                concurrency: None,
                ..all.rates
            },
            ..all
        },
    ];
    let mut others = terms.map(|terms| AccountRecord { terms, ..*record }).to_vec();
    others.push(AccountRecord {
        suspended: !record.suspended,
        ..*record
    });
    others.push(AccountRecord {
        revision: record.revision + 1,
        ..*record
    });
    others
}

pub(crate) async fn of_two_records_from_one_only_one_holds(fixture: &Fixture) {
    open(fixture).await;
    for round in 0..20 {
        let from = record(fixture).await;
        let set = [rpm(1_000 + round), rpm(2_000 + round)].map(|terms| {
            let (store, to) = (Arc::clone(&fixture.store), from.with_terms(terms, false));
            tokio::spawn(async move { (store.set_terms("acme", &from, &to).await.unwrap(), to) })
        });
        let mut held = Vec::new();
        for set in set {
            let (holds, to) = set.await.unwrap();
            held.extend(holds.then_some(to));
        }
        assert_eq!(held, [record(fixture).await], "round {round}");
    }
}

pub(crate) async fn what_a_store_forgot_of_an_account_is_told_again(fixture: &Fixture) {
    let store = &fixture.store;
    let tell = async |record: AccountRecord| store.heal_terms("acme", &record).await.unwrap();
    let at = |revision, limit, suspended| AccountRecord {
        revision,
        suspended,
        terms: rpm(limit),
    };
    // This also works for an account that the store has lost; the account's steps are sent afterwards.
    for _ in 0..2 {
        tell(at(3, 30, false)).await;
        assert_eq!(record(fixture).await, at(3, 30, false));
    }
    open(fixture).await;
    tell(at(2, 20, true)).await;
    tell(at(3, 31, false)).await;
    assert_eq!(record(fixture).await, at(3, 30, false), "the higher revision wins");
    for _ in 0..2 {
        tell(at(3, 32, true)).await;
        assert_eq!(record(fixture).await, at(4, 30, true), "at the same one a suspension");
    }
    tell(at(5, 50, false)).await;
    assert_eq!(record(fixture).await, at(5, 50, false));
    let balance = store.account("acme").await.unwrap().unwrap().balance;
    assert_eq!(balance, NanoUsd::from_nanos(100));
}
