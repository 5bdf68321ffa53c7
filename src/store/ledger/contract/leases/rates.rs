//! Tests of the part of a key's rates and concurrency that leases get.

use super::{Fixture, ask, nanos};
use crate::{
    domain::{
        keys::{
            key::KeyRecord,
            terms::{KeyTerms, RateLimits},
        },
        ledger::{
            AdmitReply, Denial, LEASE_MS, LimitScope, RateKind,
            lease::{LeaseAllowance, LeaseCall, LeaseChange, LeaseGrant, LeaseReply, RateUse},
        },
    },
    store::ledger::contract::record,
};

fn rated(requests: u64, tokens: u64) -> RateUse {
    RateUse { requests, tokens }
}

fn with_rates(rates: RateLimits) -> KeyRecord {
    let terms = KeyTerms {
        rates,
        ..KeyTerms::default()
    };
    KeyRecord { terms, ..record(1) }
}

impl Fixture {
    async fn paced(&self, turn: u64, used: RateUse, free: RateUse, change: LeaseChange) -> LeaseGrant {
        let ask = LeaseCall {
            used,
            free,
            ..ask(1, turn, change)
        };
        match self.store.lease(&ask).await.unwrap() {
            LeaseReply::Held(leased) => leased,
            other => panic!("not held: {other:?}"),
        }
    }

    /// Makes requests until one is refused. Returns their number and the reason.
    async fn until_refused(&self, key: &KeyRecord, what: &str) -> (u64, Denial) {
        for request in 0..1_000 {
            match self.admit_of(key.clone(), &format!("{what} {request}"), 0).await {
                AdmitReply::Granted(_) => {}
                AdmitReply::Refused(denied) => return (request, denied),
                AdmitReply::StaleKey => panic!("the key has not changed"),
            }
        }
        panic!("nothing is refused")
    }
}

pub(crate) async fn a_lease_has_its_part_of_the_rates_and_gives_it_back(fixture: &Fixture) {
    fixture.open_with(1_600_000).await;
    let key = with_rates(RateLimits {
        rpm: Some(177),
        tpm: Some(1_600),
        concurrency: None,
    });
    fixture.admit_of(key.clone(), "first", 1).await;
    let allowance = |requests, tokens| LeaseAllowance {
        requests: Some(requests),
        tokens: Some(tokens),
        places: None,
    };
    let grow = LeaseChange::Grow(nanos(60));
    let stays = LeaseChange::Return(nanos(0));
    let first = fixture.paced(1, rated(0, 0), rated(20, 60), grow).await;
    assert_eq!(
        first.allowance,
        allowance(11, 60),
        "a sixteenth of 176, and all that was wanted"
    );
    let used = fixture.paced(2, rated(3, 20), rated(20, 60), stays).await;
    assert_eq!(used.allowance, allowance(11, 60), "nothing more was asked for");
    let more = fixture.paced(3, rated(3, 20), rated(10, 60), grow).await;
    assert_eq!(more.allowance, allowance(13, 80));
    let less = fixture.paced(4, rated(3, 20), rated(1, 0), stays).await;
    assert_eq!(less.allowance, allowance(4, 20), "the rest went back");
    assert_eq!(
        fixture.paced(4, rated(9, 9), rated(9, 9), grow).await.allowance,
        allowance(4, 20),
        "twice"
    );
    // Of 177 one is admitted and four are given.
    let denied = |lent| Denial::RateLimited {
        scope: LimitScope::Key,
        counted: RateKind::Requests,
        limit: 177,
        retry_after_ms: 339,
        lent,
    };
    assert_eq!(fixture.until_refused(&key, "a").await, (172, denied(true)));
    let recalled = fixture.paced(5, rated(3, 20), rated(1, 0), stays).await;
    assert_ne!(recalled.recall, less.recall, "all of it is to come back");
    fixture.clock.advance(60_000);
    let all = fixture.until_refused(&key, "b").await.0;
    assert_eq!(all, 177, "its holder was not heard of");
}

pub(crate) async fn what_a_lease_has_of_a_rate_is_not_filled_up(fixture: &Fixture) {
    fixture.open_with(1_600_000).await;
    let key = with_rates(RateLimits {
        rpm: Some(160),
        ..RateLimits::default()
    });
    fixture.admit_of(key.clone(), "first", 1).await;
    let leased = fixture
        .paced(1, rated(0, 0), rated(9, 0), LeaseChange::Grow(nanos(60)))
        .await;
    assert_eq!(leased.allowance.requests, Some(9));
    fixture.clock.advance(LEASE_MS / 2);
    let leased = fixture
        .paced(2, rated(4, 0), rated(9, 0), LeaseChange::Return(nanos(0)))
        .await;
    assert_eq!(leased.allowance.requests, Some(9));
    let (granted, denied) = fixture.until_refused(&key, "a").await;
    assert_eq!(granted, 151, "160 less all that was lent until now");
    assert!(denied.is_held());
    let end = LeaseCall {
        used: rated(5, 0),
        ..ask(1, 3, LeaseChange::End)
    };
    assert_eq!(fixture.store.lease(&end).await, Ok(LeaseReply::Gone));
    let (granted, denied) = fixture.until_refused(&key, "b").await;
    assert_eq!(granted, 4, "what was not used came back");
    assert!(!denied.is_held());
}

pub(crate) async fn a_lease_has_places_that_others_do_not_get(fixture: &Fixture) {
    fixture.open_with(1_600_000).await;
    let key = with_rates(RateLimits {
        concurrency: Some(49),
        ..RateLimits::default()
    });
    fixture.admit_of(key.clone(), "first", 1).await;
    let at = |turn, running, places, change| LeaseCall {
        running,
        places,
        ..ask(1, turn, change)
    };
    let grow = LeaseChange::Grow(nanos(60));
    let places = async |ask: LeaseCall| match fixture.store.lease(&ask).await.unwrap() {
        LeaseReply::Held(leased) => leased.allowance.places,
        other => panic!("not held: {other:?}"),
    };
    assert_eq!(places(at(1, 0, 9, grow)).await, Some(3), "a sixteenth of 48");
    assert_eq!(fixture.held().await.1, 1, "what runs is told as it is");
    assert_eq!(places(at(2, 3, 5, grow)).await, Some(5));
    assert_eq!(places(at(3, 3, 4, LeaseChange::Return(nanos(0)))).await, Some(4));
    assert_eq!(fixture.held().await.1, 4);
    let denied = |lent| Denial::Concurrency {
        scope: LimitScope::Key,
        limit: 49,
        lent,
    };
    assert_eq!(fixture.until_refused(&key, "a").await, (44, denied(true)));
    assert_eq!(places(at(4, 3, 3, LeaseChange::Return(nanos(0)))).await, Some(3));
    assert_eq!(fixture.until_refused(&key, "b").await, (1, denied(false)));
    let end = at(5, 0, 0, LeaseChange::End);
    assert_eq!(fixture.store.lease(&end).await, Ok(LeaseReply::Gone));
    assert_eq!(fixture.until_refused(&key, "c").await, (3, denied(false)));
}
