//! What a request gets that asks for admission: a bill, a place in a queue, or a refusal.

use super::{presented::*, *};
use crate::{
    domain::{
        faults::refusal::LimitRefusal,
        ledger::{KeyTerms, KeyTermsChange, LimitScope},
    },
    store::contract::Changing,
};

/// The denial of this key that is remembered.
fn remembered(fixture: &Fixture, key: &Presented) -> Option<Denial> {
    let denials = &fixture.billing.engine.denials;
    denials.recall(&key.record.id, clock::instant())
}

#[tokio::test]
async fn a_quota_that_was_raised_elsewhere_is_not_reported_as_spent() {
    let fixture = fixture(100_000).await;
    let key = key(&fixture, 1, quota(800)).await;
    spend(&fixture, &key, 800).await;
    assert_eq!(lookups(&fixture), 1);
    let refused = asked(&fixture, &key, "r1").await.unwrap_err();
    assert_eq!(
        (refused.reason(), lookups(&fixture)),
        ("quota_exhausted", 2),
        "it was read again"
    );
    change_key(&fixture, &key, quota_change(5_000)).await;
    let bill = admitted(&fixture, &key, "r2").await;
    assert_eq!((bill.running.hold(), lookups(&fixture)), (nanos(1_000), 3));
}

#[tokio::test]
async fn what_does_not_depend_on_the_key_is_refused_without_reading_it_again() {
    let fixture = fixture(0).await;
    let key = key(&fixture, 1, KeyTerms::default()).await;
    let refused = asked(&fixture, &key, "r1").await.unwrap_err();
    assert_eq!(refused, Refusal::Limited(LimitRefusal::Balance));
    assert_eq!(lookups(&fixture), 1);
}

#[tokio::test]
async fn a_key_that_was_changed_is_read_again_once() {
    let fixture = fixture(100_000).await;
    let key = key(&fixture, 1, KeyTerms::default()).await;
    let later = KeyRecord {
        revision: key.record.revision + 1,
        ..record(1)
    };
    drop(fixture.admit(&later, "r0").await.unwrap());
    // The ledger knows the later record and the store of keys does not: it is not served on a guess.
    assert_eq!(
        asked(&fixture, &key, "r1").await.unwrap_err(),
        Refusal::StoreUnavailable
    );
    assert_eq!(lookups(&fixture), 2);
    change_key(&fixture, &key, KeyTermsChange::default()).await;
    drop(admitted(&fixture, &key, "r2").await);
    fixture.key_store.revoke(&key.record.id, 1).await.unwrap();
    let revoked = KeyRecord {
        revision: key.record.revision + 2,
        ..record(1)
    };
    drop(fixture.admit(&revoked, "r3").await.unwrap());
    assert_eq!(asked(&fixture, &key, "r4").await.unwrap_err(), Refusal::KeyRevoked);
    fixture.key_store.remove(&key.record.id).await.unwrap();
    assert_eq!(asked(&fixture, &key, "r5").await.unwrap_err(), Refusal::KeyUnknown);
}

#[tokio::test]
async fn a_limit_that_this_node_alone_sees_is_neither_confirmed_nor_remembered() {
    let fixture = fixture(100_000).await;
    let key = key(&fixture, 1, rpm(1)).await;
    drop(admitted(&fixture, &key, "r1").await);
    fixture.ledger.is(Way::Away);
    assert_eq!(
        asked(&fixture, &key, "r2").await.unwrap_err().reason(),
        "requests_limited"
    );
    assert_eq!(lookups(&fixture), 1);
    assert_eq!(remembered(&fixture, &key), None);
}

#[tokio::test]
async fn a_request_waits_for_what_another_holds() {
    let fixture = fixture(1_000).await;
    let key = key(&fixture, 1, KeyTerms::default()).await;
    let running = admitted(&fixture, &key, "r1").await;
    let request_id = SmolStr::from("r2");
    let request = request(key.found(), &request_id);
    let Ok(Admission::Queued(ticket)) = admit(&fixture, &request, |_| {}).await else {
        panic!("all is held")
    };
    assert_eq!(fixture.billing.waiting(), 1);
    let release = async {
        running.close(&End::Complete, SERVED, consumed(tokens(0, 300)), clock::instant());
        fixture.send().await;
    };
    let (bill, ()) = tokio::join!(ticket.wait_for_admission(), release);
    assert_eq!(bill.unwrap().running.hold(), nanos(700), "what is left");
    assert_eq!(fixture.billing.waiting(), 0);
}

#[tokio::test]
async fn a_request_that_has_waited_in_vain_is_refused_for_what_it_waited_for() {
    let fixture = fixture(1_000).await;
    let key = key(&fixture, 1, KeyTerms::default()).await;
    let _running = admitted(&fixture, &key, "r1").await;
    let limits = MoneyConfig {
        held_wait: Duration::from_millis(150),
        ..MONEY
    };
    let request_id = SmolStr::from("r2");
    let request = AdmissionRequest {
        limits: &limits,
        ..request(key.found(), &request_id)
    };
    let Ok(Admission::Queued(ticket)) = admit(&fixture, &request, |_| {}).await else {
        panic!("all is held")
    };
    let held = Refusal::Limited(LimitRefusal::Held {
        scope: LimitScope::Account,
    });
    assert_eq!(ticket.wait_for_admission().await.map(drop), Err(held.clone()));
    assert_eq!(fixture.billing.waiting(), 0);
    // A moment later it may be otherwise, so it is not remembered.
    assert_eq!(remembered(&fixture, &key), None);
    let none = MoneyConfig {
        held_wait: Duration::ZERO,
        ..MONEY
    };
    let request = AdmissionRequest {
        limits: &none,
        ..request
    };
    let refused = admit(&fixture, &request, |_| {}).await;
    assert_eq!(refused.map(drop), Err(held));
}

#[tokio::test]
async fn a_spent_limit_ends_the_waiting_at_once() {
    let fixture = fixture(1_000).await;
    let key = key(&fixture, 1, KeyTerms::default()).await;
    let running = admitted(&fixture, &key, "r1").await;
    let request_id = SmolStr::from("r2");
    let request = request(key.found(), &request_id);
    let Ok(Admission::Queued(ticket)) = admit(&fixture, &request, |_| {}).await else {
        panic!("all is held")
    };
    running.close(&End::Complete, SERVED, consumed(tokens(0, 1_000)), clock::instant());
    fixture.send().await;
    let refused = ticket.wait_for_admission().await.map(drop);
    assert_eq!(refused, Err(Refusal::Limited(LimitRefusal::Balance)));
    assert_eq!(remembered(&fixture, &key), Some(Denial::BalanceExhausted));
}

#[tokio::test]
async fn who_waits_has_the_key_as_it_was_changed_meanwhile() {
    let fixture = fixture(100_000).await;
    let key = key(&fixture, 1, quota(1_000)).await;
    let running = admitted(&fixture, &key, "r1").await;
    let request_id = SmolStr::from("r2");
    let request = request(key.found(), &request_id);
    let Ok(Admission::Queued(ticket)) = admit(&fixture, &request, |_| {}).await else {
        panic!("all of the quota is held")
    };
    change_key(&fixture, &key, quota_change(1_600)).await;
    // The feed has told this node of the change.
    fixture.keys.refetch(&key.digest, clock::instant()).await.unwrap();
    let bill = ticket.wait_for_admission().await.unwrap();
    assert_eq!(bill.running.hold(), nanos(600), "of the raised quota");
    drop(running);
}

#[tokio::test]
async fn a_full_queue_refuses_and_a_dropped_ticket_makes_room() {
    let fixture = fixture(1_000).await;
    let key = key(&fixture, 1, KeyTerms::default()).await;
    let _running = admitted(&fixture, &key, "r0").await;
    let ids: Vec<SmolStr> = (1..=4).map(|number| SmolStr::from(format!("r{number}"))).collect();
    let requests: Vec<AdmissionRequest<'_>> = ids.iter().map(|id| request(key.found(), id)).collect();
    let mut answered = Vec::new();
    let mut tickets = Vec::new();
    for request in requests.iter().take(MONEY.held_waiting_max.account) {
        match admit(&fixture, request, |_| answered.push(&request.request_id)).await {
            Ok(Admission::Queued(ticket)) => tickets.push(ticket),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(answered.len(), 1, "whoever comes behind another asks nobody");
    let last = requests.last().unwrap();
    let held = Refusal::Limited(LimitRefusal::Held {
        scope: LimitScope::Account,
    });
    assert_eq!(admit(&fixture, last, |_| {}).await.map(drop), Err(held));
    tickets.pop();
    assert_eq!(fixture.billing.waiting(), 2);
    assert!(matches!(admit(&fixture, last, |_| {}).await, Ok(Admission::Queued(_))));
}

#[tokio::test]
async fn a_ledger_at_hand_admits_without_waiting() {
    let fixture = fixture(100_000).await;
    let key = key(&fixture, 1, quota(1_500)).await;
    fixture.ledger.is_at_hand(true);
    let (first, second) = (SmolStr::from("r1"), SmolStr::from("r2"));
    let (first, second) = (request(key.found(), &first), request(key.found(), &second));
    let mut answers = 0;
    let AdmissionStart::Decided(Ok(Admission::Admitted(bill))) = fixture.billing.admit(&first, &mut |_| answers += 1)
    else {
        panic!("a bill")
    };
    assert_eq!((bill.running.hold(), answers), (nanos(1_000), 1));
    assert_eq!(fixture.view().await.running, 1);
    // Another node may have changed the key, so it is read again before it is refused or has to wait.
    fixture.ledger.is_at_hand(false);
    spend(&fixture, &key, 1_500).await;
    fixture.ledger.is_at_hand(true);
    let AdmissionStart::Pending(pending) = fixture.billing.admit(&second, &mut |_| answers += 1) else {
        panic!("the key is read again")
    };
    let refused = pending.decide(&mut |_| answers += 1).await;
    assert_eq!((refused.unwrap_err().reason(), answers), ("quota_exhausted", 2));
    assert_eq!(lookups(&fixture), 2);
}

/// What has come of a request, and what was asked and remembered for it.
async fn outcome(fixture: &Fixture, key: &Presented, request_id: &str) -> (Result<Option<i64>, Refusal>, String) {
    let got = asked(fixture, key, request_id).await;
    let hold = match got {
        Ok(Some(bill)) => {
            let hold = bill.running.hold().nanos();
            if hold % 3 > 0 {
                let cost = tokens(0, hold.unsigned_abs() / 2);
                bill.close(&End::Complete, SERVED, consumed(cost), clock::instant());
            }
            Ok(Some(hold))
        }
        Ok(None) => Ok(None),
        Err(refusal) => Err(refusal),
    };
    let view = fixture.view().await;
    let asked = (
        lookups(fixture),
        remembered(fixture, key).is_some(),
        view.balance,
        view.held,
    );
    (hold, format!("{asked:?}"))
}

#[tokio::test]
async fn a_ledger_at_hand_decides_as_one_that_is_asked() {
    for balance in [0, 700, 5_000, 100_000] {
        let (at_hand, asked) = (fixture(balance).await, fixture(balance).await);
        at_hand.ledger.is_at_hand(true);
        let terms = [KeyTerms::default(), quota(1_900), rpm(4), quota(0)];
        for (number, terms) in (1..).zip(terms) {
            let keys = (key(&at_hand, number, terms).await, key(&asked, number, terms).await);
            for turn in 0..9 {
                let request_id = format!("{number}-{turn}");
                let one = outcome(&at_hand, &keys.0, &request_id).await;
                let other = outcome(&asked, &keys.1, &request_id).await;
                assert_eq!(one.1, other.1, "{balance}, {request_id}");
                match (one.0, other.0) {
                    // They say when to come back, by the clock.
                    (Err(one), Err(other)) => assert_eq!(one.reason(), other.reason(), "{balance}, {request_id}"),
                    (one, other) => assert_eq!(one, other, "{balance}, {request_id}"),
                }
                if turn == 5 {
                    at_hand.send().await;
                    asked.send().await;
                    change_key(&at_hand, &keys.0, quota_change(4_000)).await;
                    change_key(&asked, &keys.1, quota_change(4_000)).await;
                }
            }
        }
    }
}
