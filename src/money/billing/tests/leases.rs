//! Requests that are admitted out of a lease.

use std::sync::atomic::Ordering;

use super::*;
use crate::{
    domain::{
        keys::KeyId,
        ledger::{AdmitCall, AdmitReply},
    },
    money::billing::leases::{KEYS_MAX, LeaseLimits, Leases},
    store::ledger::contract::suspend,
};

const BALANCE: i64 = 100_000_000;

/// A node whose keys get leases from a few requests a second on, and what keeps them.
async fn leasing(balance: i64) -> (Fixture, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    let mut fixture = fixture(balance).await;
    let limits = LeaseLimits {
        requests_per_second: 4,
        max: 2,
    };
    let grace = GraceLimits {
        key: nanos(GRACE),
        account: nanos(GRACE_ACCOUNT),
    };
    fixture.billing = Billing::new(
        fixture.ledger.clone(),
        Arc::clone(&fixture.journal),
        Arc::clone(&fixture.keys),
        grace,
        Some(limits),
    );
    let (stop, stopped) = watch::channel(false);
    let keeping = tokio::spawn(fixture.billing.clone().run(stopped));
    (fixture, stop, keeping)
}

/// Requests one after the other, until one is admitted out of a lease; and how many there were before it.
async fn until_leased(fixture: &Fixture, key: &KeyRecord) -> (Bill, i64) {
    let before = fixture.billing.lease_admissions();
    let (mut leased, mut others) = (None, 0);
    until("a request is admitted out of a lease", async || {
        let request = format!("{} {others}", key.id.as_str());
        let bill = fixture.admit(key, &request).await.unwrap();
        if fixture.billing.lease_admissions() > before {
            leased = Some(bill);
            return true;
        }
        bill.close(&End::Complete, SERVED, consumed(tokens(300, 500)), clock::instant());
        others += 1;
        false
    })
    .await;
    (leased.unwrap(), others)
}

#[tokio::test]
async fn a_request_in_a_lease_is_recorded_with_it_and_charged_to_it() {
    let (fixture, stop, keeping) = leasing(BALANCE).await;
    let key = record(1);
    let (bill, others) = until_leased(&fixture, &key).await;
    let held = fixture.view().await.held;
    let admitted = fixture.records().into_iter().rev().find_map(|record| match record {
        Record::Admit(admitted) => Some(admitted),
        _ => None,
    });
    let lease = admitted.unwrap().lease.unwrap();
    bill.close(&End::Complete, SERVED, consumed(tokens(300, 500)), clock::instant());
    assert_eq!(fixture.settlements().last().unwrap().lease, Some(lease));
    fixture.send().await;
    let view = fixture.view().await;
    assert_eq!(
        (view.balance, view.spent),
        (nanos(BALANCE - 800 * (others + 1)), nanos(800 * (others + 1)))
    );
    assert!(view.held < held, "what it cost is held no more");
    // The node stops, and gives back what it has.
    stop.send_replace(true);
    keeping.await.unwrap();
    let view = fixture.view().await;
    assert_eq!((view.held, view.running), (nanos(0), 0));
    assert_eq!(fixture.billing.running(), 0);
}

#[tokio::test]
async fn a_long_answer_in_a_lease_grows_out_of_it_without_the_store() {
    let (fixture, _stop, _keeping) = leasing(BALANCE).await;
    let key = record(1);
    let (bill, _) = until_leased(&fixture, &key).await;
    fixture.ledger.is(Way::Away);
    bill.sample(clock::instant(), SERVED, consumed(tokens(400, 550)), (550, 0));
    assert!(!bill.running.is_asking(), "it got what it asked for at once");
    assert_eq!(bill.running.hold(), nanos(1_600));
}

#[tokio::test]
async fn an_answer_that_asks_for_more_than_its_lease_has_gets_it_from_the_store() {
    let (fixture, _stop, _keeping) = leasing(BALANCE).await;
    let key = record(1);
    let (bill, _) = until_leased(&fixture, &key).await;
    // Nothing is free of it any more.
    fixture.billing.engine.leases.recall(|_| true);
    bill.sample(clock::instant(), SERVED, consumed(tokens(400, 20_000)), (20_000, 0));
    until("it is answered", async || !bill.running.is_asking()).await;
    assert_eq!(bill.running.hold(), nanos(21_000));
    bill.close(&End::Complete, SERVED, consumed(tokens(400, 20_000)), clock::instant());
    fixture.send().await;
    until("the lease has ended", async || fixture.view().await.held == nanos(0)).await;
}

#[tokio::test]
async fn a_key_that_was_changed_is_not_admitted_by_what_its_lease_knows() {
    let (fixture, _stop, _keeping) = leasing(BALANCE).await;
    let mut key = record(1);
    drop(until_leased(&fixture, &key).await);
    key.revision = 2;
    key.terms.quota = Some(nanos(0));
    let refused = fixture.admit(&key, "later").await;
    assert!(matches!(refused, Err(NotAdmitted::Denied(Denial::QuotaExhausted(_)))));
}

#[tokio::test]
async fn a_suspended_account_has_no_grace_although_its_lease_is_heard_of() {
    let (fixture, _stop, _keeping) = leasing(BALANCE).await;
    let key = record(1);
    let (bill, _) = until_leased(&fixture, &key).await;
    // The charge is not sent, so the lease does not end.
    bill.close(&End::Complete, SERVED, consumed(tokens(300, 500)), clock::instant());
    suspend(&*fixture.ledger, "acme", true).await;
    until("the account is refused", async || {
        let refused = fixture.admit(&key, "later").await;
        matches!(refused, Err(NotAdmitted::Denied(Denial::AccountSuspended)))
    })
    .await;
    let answered = || fixture.ledger.of_leases.load(Ordering::Relaxed);
    let before = answered();
    until("the lease is heard of", async || answered() >= before + 3).await;
    fixture.ledger.is(Way::Away);
    assert!(fixture.admit(&key, "alone").await.is_err());
}

#[tokio::test]
async fn no_more_leases_than_their_limit() {
    let (fixture, _stop, _keeping) = leasing(BALANCE).await;
    for number in 1..=2 {
        drop(until_leased(&fixture, &record(number)).await);
    }
    for number in 0..20 {
        let bill = fixture.admit(&record(3), &format!("third {number}")).await;
        drop(bill.unwrap());
    }
    assert_eq!(fixture.billing.leases().0, 2);
}

/// A key that may ask very fast.
fn with_rates() -> KeyRecord {
    let mut key = record(1);
    key.terms.rates.rpm = Some(100_000);
    key.terms.rates.tpm = Some(1_000_000_000);
    key.terms.rates.concurrency = Some(1_000);
    key
}

#[tokio::test]
async fn a_key_with_rates_far_from_its_limits_is_admitted_out_of_its_lease() {
    let (fixture, stop, keeping) = leasing(BALANCE).await;
    let (bill, _) = until_leased(&fixture, &with_rates()).await;
    bill.close(&End::Complete, SERVED, consumed(tokens(300, 500)), clock::instant());
    fixture.send().await;
    stop.send_replace(true);
    keeping.await.unwrap();
    let view = fixture.view().await;
    assert_eq!((view.held, view.running), (nanos(0), 0));
}

#[tokio::test]
async fn a_key_near_one_of_its_limits_is_asked_for_each_time() {
    for of in 0..3 {
        let (fixture, _stop, _keeping) = leasing(BALANCE).await;
        let mut key = with_rates();
        let rates = &mut key.terms.rates;
        // Far less than half of it is left, or a sixteenth of it is nothing.
        *[&mut rates.rpm, &mut rates.tpm, &mut rates.concurrency][of] = Some([30, 40_000, 12][of]);
        for number in 0..20 {
            drop(fixture.admit(&key, &format!("r{number}")).await.unwrap());
        }
        let asked = || fixture.ledger.of_leases.load(Ordering::Relaxed);
        until("it was asked for a lease", async || asked() > 0).await;
        until("there is none", async || fixture.billing.leases().0 == 0).await;
        assert_eq!(fixture.billing.lease_admissions(), 0, "{of}");
    }
}

#[tokio::test]
async fn one_who_is_refused_for_what_is_held_gets_what_another_node_has_leased() {
    let (fixture, _stop, _keeping) = leasing(BALANCE).await;
    let key = record(1);
    drop(until_leased(&fixture, &key).await);
    let held = |fixture: &Fixture| fixture.billing.leases().1;
    assert!(held(&fixture) > nanos(0));
    // Another node asks for a key of the same account, and all but the lease is held.
    let left = fixture.view().await;
    let all = AdmitCall {
        node: node(8),
        request: "all".into(),
        key: Arc::new(record(2)),
        estimate: left.balance,
        tokens: 0,
        ended_key: 0,
        ended_account: 0,
    };
    fixture.ledger.admit(&all).await.unwrap();
    until("the lease has come back", async || {
        let more = AdmitCall {
            request: "more".into(),
            estimate: nanos(1),
            ..all.clone()
        };
        fixture.send().await;
        matches!(fixture.ledger.admit(&more).await, Ok(AdmitReply::Granted(_)))
    })
    .await;
}

#[test]
fn the_keys_whose_demand_is_counted_are_bounded_and_idle_ones_make_room() {
    let limits = LeaseLimits {
        requests_per_second: 2,
        max: 10,
    };
    let (leases, now) = (Leases::new(Some(limits)), clock::instant());
    let key = |number: usize| KeyRecord {
        id: KeyId::parse(&format!("key_{number:016}")).unwrap(),
        ..record(1)
    };
    let ask_twice = |number, now| {
        for _ in 0..2 {
            assert!(leases.allocate(&key(number), nanos(1), 0, now).is_none());
        }
    };
    for number in 0..KEYS_MAX {
        leases.allocate(&key(number), nanos(1), 0, now);
    }
    ask_twice(KEYS_MAX, now);
    assert!(!leases.has_leases(), "it is not counted");
    let later = now + Duration::from_secs(3);
    assert_eq!(leases.due_calls(&node(1), later), []);
    ask_twice(KEYS_MAX, later);
    assert!(leases.has_leases());
}

#[tokio::test]
async fn a_key_with_a_lease_waits_behind_those_that_wait_already() {
    let (fixture, _stop, _keeping) = leasing(BALANCE).await;
    let key = Arc::new(record(1));
    let (bill, _) = until_leased(&fixture, &key).await;
    let leased = fixture.billing.lease_admissions();
    let others = fixture
        .billing
        .enqueue(&record(2), Denial::BalanceHeld, MONEY.held_waiting_max);
    let found = FoundKey {
        digest: &digest(1),
        record: &key,
    };
    let request_id = SmolStr::from("behind");
    let request = request(found, &request_id);
    let behind = presented::admit(&fixture, &request, |_| panic!("nobody is asked")).await;
    assert!(matches!(behind, Ok(Admission::Queued(_))), "{behind:?}");
    assert_eq!(fixture.billing.lease_admissions(), leased);
    drop((behind, others));
    let admitted = presented::admit(&fixture, &request, |_| {}).await;
    assert!(matches!(admitted, Ok(Admission::Admitted(_))), "{admitted:?}");
    drop(bill);
}
