//! Tests of leases of budget.

use std::sync::Arc;

use crate::{
    domain::{
        keys::{
            KeyRecord,
            terms::{KeyTerms, RateLimits},
        },
        ledger::{
            AccountChange, AdmitCall, AdmitReply, Denial, LEASE_MS, LimitScope, RateKind, Settlement, Step, TopUp,
            TopUpReply,
            lease::{LeaseAllowance, LeaseCall, LeaseChange, LeaseGrant, LeaseId, LeaseReply, RECALL_MS, RateUse},
        },
        money::NanoUsd,
    },
    store::ledger::contract::{Fixture, key_id, node, record, suspend},
};

fn nanos(amount: i64) -> NanoUsd {
    NanoUsd::from_nanos(amount)
}

fn lease(number: u64) -> LeaseId {
    LeaseId {
        holder: node(7),
        number,
    }
}

fn ask(number: u64, turn: u64, change: LeaseChange) -> LeaseCall {
    LeaseCall {
        lease: lease(number),
        node: node(1),
        account: "acme".into(),
        key: key_id(1),
        revision: 1,
        running: 2,
        used: RateUse::default(),
        free: RateUse::default(),
        places: 0,
        turn,
        change,
    }
}

impl Fixture {
    async fn change(&self, change: AccountChange) {
        let seq = self.store.watermark(&node(1), "acme").await.unwrap() + 1;
        let step = Step { seq, change };
        assert_eq!(self.store.apply(&node(1), "acme", &[step], 0).await, Ok(seq));
    }

    async fn open_with(&self, balance: i64) {
        let balance = nanos(balance);
        let open = AccountChange::Open {
            balance,
            at: 1,
            operation: None,
        };
        self.change(open).await;
    }

    async fn admit(&self, request: &str, estimate: i64) -> AdmitReply {
        self.admit_of(record(1), request, estimate).await
    }

    async fn admit_of(&self, key: KeyRecord, request: &str, estimate: i64) -> AdmitReply {
        let ask = AdmitCall {
            node: node(2),
            request: request.into(),
            key: Arc::new(key),
            estimate: nanos(estimate),
            tokens: 0,
            ended_key: 0,
            ended_account: 0,
        };
        self.store.admit(&ask).await.unwrap()
    }

    async fn lease(&self, number: u64, turn: u64, change: LeaseChange) -> LeaseGrant {
        match self.store.lease(&ask(number, turn, change)).await.unwrap() {
            LeaseReply::Held(leased) => leased,
            other => panic!("not held: {other:?}"),
        }
    }

    async fn held(&self) -> (i64, u64) {
        let view = self.store.account("acme").await.unwrap().unwrap();
        (view.held.nanos(), view.running)
    }
}

/// Returns a settlement of a request that was admitted from a lease.
fn settled(number: u64, at_ms: i64, cost: i64) -> AccountChange {
    AccountChange::Settle(Box::new(Settlement {
        lease: Some(lease(number)),
        request: format!("leased {cost}").into(),
        key: key_id(1),
        at_ms,
        tokens_estimated: 0,
        tokens_used: 0,
        cost: nanos(cost),
        row: None,
    }))
}

pub(crate) async fn a_lease_is_held_charged_and_given_back(fixture: &Fixture) {
    fixture.open_with(16_000).await;
    let grow = LeaseChange::Grow(nanos(600));
    assert_eq!(
        fixture.store.lease(&ask(1, 1, grow)).await,
        Ok(LeaseReply::Refused),
        "the key is not known yet"
    );
    fixture.admit("first", 1_600).await;
    let after = fixture.store.lease(&ask(1, 2, grow)).await;
    assert_eq!(after, Ok(LeaseReply::Gone), "each is refused once");
    let leased = fixture.lease(2, 1, grow).await;
    assert_eq!(
        (leased.grant.hold, leased.since_ms),
        (nanos(600), fixture.clock.now_ms())
    );
    assert_eq!(leased.grant.balance, nanos(16_000));
    assert_eq!(fixture.held().await, (2_200, 3));
    // A call that is repeated has only one effect.
    assert_eq!(fixture.lease(2, 1, grow).await.grant.hold, nanos(600));
    fixture.change(settled(2, leased.grant.at_ms, 250)).await;
    assert_eq!(fixture.held().await, (1_950, 3), "what was left is left");
    assert_eq!(
        fixture.lease(2, 2, LeaseChange::Return(nanos(100))).await.grant.hold,
        nanos(250)
    );
    // A charge that exceeds the lease takes what is left of the lease.
    fixture.change(settled(2, leased.grant.at_ms, 300)).await;
    let nothing = fixture.lease(2, 3, LeaseChange::Return(nanos(0))).await;
    assert_eq!((nothing.grant.hold, nothing.grant.balance), (nanos(0), nanos(15_450)));
    let spent = fixture.store.key_spend("acme", &key_id(1)).await.unwrap();
    assert_eq!((spent.all, spent.held), (nanos(550), nanos(1_600)));
    let ended = fixture.store.lease(&ask(2, 5, LeaseChange::End)).await;
    assert_eq!((ended, fixture.held().await), (Ok(LeaseReply::Gone), (1_600, 1)));
    let late = fixture.store.lease(&ask(2, 4, grow)).await;
    assert_eq!(
        (late, fixture.held().await),
        (Ok(LeaseReply::Gone), (1_600, 1)),
        "it has ended"
    );
    let none = fixture.store.lease(&ask(3, 2, LeaseChange::End)).await;
    assert_eq!((none, fixture.held().await), (Ok(LeaseReply::Gone), (1_600, 1)));
    let late = fixture.store.lease(&ask(3, 1, grow)).await;
    assert_eq!(
        (late, fixture.held().await),
        (Ok(LeaseReply::Gone), (1_600, 1)),
        "before it began"
    );
    // A node that renews nothing has no leases after a while.
    fixture.lease(4, 1, grow).await;
    fixture.clock.advance(LEASE_MS);
    assert_eq!(fixture.held().await, (0, 0));
    let after = fixture.store.lease(&ask(4, 2, LeaseChange::Return(nanos(0)))).await;
    assert_eq!(after, Ok(LeaseReply::Gone));
    fixture.change(settled(4, leased.grant.at_ms, 50)).await;
    let view = fixture.store.account("acme").await.unwrap().unwrap();
    assert_eq!(view.balance, nanos(15_400), "it is charged all the same");
}

pub(crate) async fn leases_stay_far_from_limits_and_come_back_near_one(fixture: &Fixture) {
    fixture.open_with(16_000).await;
    fixture.admit("first", 0).await;
    let grow = |amount| LeaseChange::Grow(nanos(amount));
    assert_eq!(
        fixture.lease(1, 1, grow(4_000)).await.grant.hold,
        nanos(1_000),
        "a sixteenth"
    );
    assert_eq!(
        fixture.store.lease(&ask(2, 1, grow(4_000))).await,
        Ok(LeaseReply::Refused)
    );
    let before = fixture.lease(3, 1, grow(3_000)).await;
    assert_eq!(before.grant.hold, nanos(937));
    // Of the balance, everything except less than the leases' amount is held.
    let AdmitReply::Granted(grant) = fixture.admit("large", 12_500).await else {
        panic!("it is there");
    };
    assert_eq!(grant.hold, nanos(12_500));
    let recalled = fixture.lease(3, 2, LeaseChange::Return(nanos(0))).await;
    assert_ne!(recalled.recall, before.recall);
    assert_eq!(fixture.lease(3, 3, grow(900)).await.grant.hold, nanos(937), "no more");
    assert_eq!(fixture.admit("rest", 9_999).await, granted_hold(&grant, 1_563));
    assert_eq!(fixture.admit("none", 1).await, AdmitReply::Refused(Denial::BalanceHeld));
    let more = TopUp {
        node: node(2),
        request: "rest".into(),
        account: "acme".into(),
        key: key_id(1),
        at_ms: grant.at_ms,
        more: nanos(2_000),
    };
    // The amount that running answers ask for is available as soon as it has been returned.
    assert_eq!(fixture.store.top_up(&more).await, Ok(TopUpReply::Recalling));
    fixture.store.lease(&ask(1, 2, LeaseChange::End)).await.unwrap();
    assert_eq!(fixture.store.top_up(&more).await, Ok(TopUpReply::Granted(nanos(1_000))));
    assert_eq!(fixture.store.top_up(&more).await, Ok(TopUpReply::Recalling));
    fixture.clock.advance(RECALL_MS);
    assert_eq!(
        fixture.store.top_up(&more).await,
        Ok(TopUpReply::Refused),
        "nobody is waited for without end"
    );
    let mark = fixture.lease(3, 4, LeaseChange::Return(nanos(0))).await.recall;
    suspend(&*fixture.store, "acme", true).await;
    assert_ne!(fixture.lease(3, 5, LeaseChange::Return(nanos(0))).await.recall, mark);
}

pub(crate) async fn a_used_up_quota_is_not_put_off_by_leases_of_other_keys(fixture: &Fixture) {
    fixture.open_with(160_000).await;
    let terms = KeyTerms {
        quota: Some(nanos(1_600)),
        ..KeyTerms::default()
    };
    let limited = KeyRecord { terms, ..record(1) };
    let AdmitReply::Granted(grant) = fixture.admit_of(limited, "long", 600).await else {
        panic!("it is there");
    };
    fixture.admit_of(record(2), "other", 0).await;
    let grow = |amount| LeaseChange::Grow(nanos(amount));
    assert_eq!(fixture.lease(1, 1, grow(60)).await.grant.hold, nanos(60));
    let more = TopUp {
        node: node(2),
        request: "long".into(),
        account: "acme".into(),
        key: key_id(1),
        at_ms: grant.at_ms,
        more: nanos(2_000),
    };
    assert_eq!(fixture.store.top_up(&more).await, Ok(TopUpReply::Granted(nanos(940))));
    // All of the quota is held, some of it by a lease that is not returned.
    let mut marks = Vec::new();
    for turn in 1..=2 {
        assert_eq!(fixture.store.top_up(&more).await, Ok(TopUpReply::Recalling));
        let other = LeaseCall {
            key: key_id(2),
            ..ask(2, turn, grow(100))
        };
        match fixture.store.lease(&other).await.unwrap() {
            LeaseReply::Held(leased) => marks.push(leased.recall),
            other => panic!("not held: {other:?}"),
        }
        fixture.clock.advance(RECALL_MS / 2);
    }
    assert_eq!(fixture.store.top_up(&more).await, Ok(TopUpReply::Refused));
    assert_eq!(marks[0], marks[1], "the others' leases were taken back once");
}

fn granted_hold(like: &crate::domain::ledger::Grant, hold: i64) -> AdmitReply {
    AdmitReply::Granted(crate::domain::ledger::Grant {
        hold: nanos(hold),
        ..*like
    })
}

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
