//! Keys that clients of this node have presented, what operators change about them, and what their requests get.

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::{
    domain::{
        keys::change::KeyUpdate,
        ledger::{KeyTerms, KeyTermsChange, RateLimits},
    },
    edges::limiter::ClientAddress,
    store::contract::Changing,
};

/// A key as a client of this node has presented it.
pub(super) struct Presented {
    pub(super) digest: KeyDigest,
    pub(super) record: Arc<KeyRecord>,
}

impl Presented {
    pub(super) fn found(&self) -> FoundKey<'_> {
        FoundKey {
            digest: &self.digest,
            record: &self.record,
        }
    }
}

/// A key of the store with these terms, which this node has looked up.
pub(super) async fn key(fixture: &Fixture, number: u8, terms: KeyTerms) -> Presented {
    let record = KeyRecord {
        terms,
        ..record(number)
    };
    fixture.key_store.create(&digest(number), &record).await.unwrap();
    let somebody = || ClientAddress::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let found = fixture.keys.find(&digest(number), clock::instant(), somebody).await;
    Presented {
        digest: digest(number),
        record: found.unwrap().unwrap(),
    }
}

pub(super) fn quota(amount: i64) -> KeyTerms {
    KeyTerms {
        quota: Some(nanos(amount)),
        ..KeyTerms::default()
    }
}

pub(super) fn rpm(limit: u64) -> KeyTerms {
    KeyTerms {
        rates: RateLimits {
            rpm: Some(limit),
            ..RateLimits::default()
        },
        ..KeyTerms::default()
    }
}

/// An operator changes the key at another node.
pub(super) async fn change_key(fixture: &Fixture, key: &Presented, terms: KeyTermsChange) {
    let update = KeyUpdate {
        name: Some("changed".to_owned()),
        terms,
        ..KeyUpdate::default()
    };
    fixture.key_store.update(&key.record.id, &update).await.unwrap();
}

pub(super) fn quota_change(amount: i64) -> KeyTermsChange {
    KeyTermsChange {
        quota: Some(Some(nanos(amount))),
        ..KeyTermsChange::default()
    }
}

pub(super) async fn change_account(fixture: &Fixture, change: AccountChange) {
    let seq = fixture.ledger.watermark(&node(9), "acme").await.unwrap() + 1;
    let steps = [Step { seq, change }];
    fixture.ledger.apply(&node(9), "acme", &steps, 0).await.unwrap();
}

pub(super) async fn credit(fixture: &Fixture, amount: i64) {
    let change = AccountChange::Credit {
        amount: nanos(amount),
        at: 0,
        operation: None,
    };
    change_account(fixture, change).await;
}

/// How often the store was asked for a key.
pub(super) fn lookups(fixture: &Fixture) -> u64 {
    let events = fixture.keys.events();
    events.iter().find(|(name, _)| *name == "miss").unwrap().1
}

/// What billing decides, whether it has to ask for it or not.
pub(super) async fn admit<'a>(
    fixture: &'a Fixture,
    request: &'a AdmissionRequest<'a>,
    mut answered: impl FnMut(Duration),
) -> Result<Admission<'a>, Refusal> {
    match fixture.billing.admit(request, &mut answered) {
        AdmissionStart::Decided(admission) => admission,
        AdmissionStart::Pending(pending) => pending.decide(&mut answered).await,
    }
}

/// What a request gets. One that may wait has got `None`, and leaves the queue.
pub(super) async fn asked(fixture: &Fixture, key: &Presented, request_id: &str) -> Result<Option<Bill>, Refusal> {
    let request_id = SmolStr::from(request_id);
    let mut answers = 0;
    let request = request(key.found(), &request_id);
    let admission = admit(fixture, &request, |_| answers += 1).await;
    let admission = admission.map(|admission| match admission {
        Admission::Admitted(bill) => Some(bill),
        Admission::Queued(_) => None,
    });
    assert!(answers <= 1, "only the first answer is measured: {answers}");
    admission
}

pub(super) async fn admitted(fixture: &Fixture, key: &Presented, request_id: &str) -> Bill {
    let bill = asked(fixture, key, request_id).await.unwrap();
    bill.expect("a bill")
}

/// A request of this key that costs so much.
pub(super) async fn spend(fixture: &Fixture, key: &Presented, cost: u64) {
    let bill = admitted(fixture, key, "spent").await;
    bill.close(&End::Complete, SERVED, consumed(tokens(0, cost)), clock::instant());
    fixture.send().await;
}
