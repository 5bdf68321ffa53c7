//! Tests of leases of budget.

mod rates;

use std::sync::Arc;

use super::{Fixture, key_id, node, record, suspend};
use crate::domain::{
    keys::{key::KeyRecord, terms::KeyTerms},
    ledger::{
        AccountChange, AdmitCall, AdmitReply, Denial, LEASE_MS, Settlement, Step, TopUp, TopUpReply,
        lease::{LeaseCall, LeaseChange, LeaseGrant, LeaseId, LeaseReply, RECALL_MS, RateUse},
    },
    money::NanoUsd,
};

pub(crate) use crate::store::ledger::contract::leases::rates::{
    a_lease_has_its_part_of_the_rates_and_gives_it_back, a_lease_has_places_that_others_do_not_get,
    what_a_lease_has_of_a_rate_is_not_filled_up,
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
