//! The operations on an account's balance, as far as the account remembers them, and the sums of an account's payments by day and
//! month.
//!
//! An account remembers the last [`OPERATIONS_MAX`] operations, in the order in which they were applied. If a remembered
//! operation is repeated, by any node and with any amount, it has no effect. An operation that is no longer remembered is treated
//! as new.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::KeyId,
    ledger::{
        account::{
            Account, bounded,
            bucket::RateBuckets,
            holds::{Hold, LeaseHold},
            sum,
        },
        ids::{NodeId, OperationId},
        period::day_and_month,
    },
    money::NanoUsd,
};

/// The maximum number of operations that an account remembers.
pub(crate) const OPERATIONS_MAX: usize = 1000;

/// A remembered operation and its amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedOperation {
    /// The operation's id.
    pub id: OperationId,
    /// The amount that was added to the balance; negative if it was subtracted.
    pub amount: NanoUsd,
}

/// The most recent operations on an account's balance. They are remembered so that repeated operations are detected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations(VecDeque<RecordedOperation>);

impl Operations {
    /// Remembers an operation, and returns whether it is new. An operation without an id is always new.
    pub(super) fn record(&mut self, id: Option<&OperationId>, amount: NanoUsd) -> bool {
        let Some(id) = id else { return true };
        if self.amount(id).is_some() {
            return false;
        }
        self.0.push_back(RecordedOperation { id: id.clone(), amount });
        if self.0.len() > OPERATIONS_MAX {
            self.0.pop_front();
        }
        true
    }

    /// Returns the amount of a remembered operation; `None` if the operation is not remembered.
    pub(crate) fn amount(&self, id: &OperationId) -> Option<NanoUsd> {
        // A search suffices, because there are few operations and lookups are rare.
        self.0.iter().find(|one| one.id == *id).map(|one| one.amount)
    }

    /// Returns all remembered operations, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RecordedOperation> {
        self.0.iter()
    }
}

impl FromIterator<RecordedOperation> for Operations {
    fn from_iter<I: IntoIterator<Item = RecordedOperation>>(recorded: I) -> Self {
        Self(recorded.into_iter().collect())
    }
}

/// The upper limit for the time of a payment, in seconds since the Unix epoch. Only earlier times are accepted. The limit is in
/// the year 8307.
const TIMES_END_S: i64 = 200_000_000_000;

/// The sums of an account's payments on the most recent day that has payments, and in the most recent month that has payments.
/// Payments are credits and adjustments. The time of a payment is the time of the operator's request. The sums do not depend on
/// the order in which payments arrive, or on how often a journal is sent to the store. Days and months are in UTC, counted from
/// the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PaidIn {
    pub day: i64,
    pub of_day: NanoUsd,
    pub month: i64,
    pub of_month: NanoUsd,
}

impl PaidIn {
    /// Adds a payment to the sums of its day and month. A payment whose time is unknown is not added. If a sum is for a later day
    /// or month than the payment, the payment is not added to this sum.
    pub(super) fn add(&mut self, amount: NanoUsd, at: i64) {
        if !(1..TIMES_END_S).contains(&at) {
            return;
        }
        let (day, month) = day_and_month(at * 1000);
        (self.day, self.of_day) = later((self.day, self.of_day), (day, amount));
        (self.month, self.of_month) = later((self.month, self.of_month), (month, amount));
    }

    /// Returns the sums of the payments of the current day and of the current month.
    pub(crate) fn sums_at(&self, now_ms: i64) -> (NanoUsd, NanoUsd) {
        let (day, month) = day_and_month(now_ms);
        let of = |known, period, amount| if known == period { amount } else { NanoUsd::ZERO };
        (of(self.day, day, self.of_day), of(self.month, month, self.of_month))
    }
}

/// Returns the later of two periods with its sum. If the periods are equal, the amount is added to the known sum.
fn later((known, paid): (i64, NanoUsd), (period, amount): (i64, NanoUsd)) -> (i64, NanoUsd) {
    match period.cmp(&known) {
        std::cmp::Ordering::Less => (known, paid),
        std::cmp::Ordering::Equal => (known, sum(paid, amount)),
        std::cmp::Ordering::Greater => (period, bounded(amount)),
    }
}

/// The part of an account's state that is not stored in a file: the holds and the rate buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolatileState {
    holds: Vec<CarriedHold>,
    buckets: RateBuckets,
    keys: Vec<(KeyId, RateBuckets)>,
}

/// A hold, with its node and its request id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CarriedHold {
    node: NodeId,
    request: SmolStr,
    key: KeyId,
    amount: NanoUsd,
    at_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseHold>,
}

impl VolatileState {
    /// Whether there is no state to hand over.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Account {
    /// Returns the state that is not stored in a file.
    pub(crate) fn volatile_state(&self) -> VolatileState {
        let hold = |(node, request, hold): (&NodeId, &SmolStr, &Hold)| CarriedHold {
            node: node.clone(),
            request: request.clone(),
            key: hold.key.clone(),
            amount: hold.amount,
            at_ms: hold.at_ms,
            lease: hold.lease,
        };
        let full = RateBuckets::default();
        let keys = self.keys.iter().filter(|(_, key)| *key.buckets() != full);
        VolatileState {
            holds: self.holds.iter().map(hold).collect(),
            buckets: self.buckets.clone(),
            keys: keys.map(|(id, key)| (id.clone(), key.buckets().clone())).collect(),
        }
    }

    /// Restores the state that another process has handed over. The node leases begin again at `now_ms`.
    pub(crate) fn restore_volatile_state(&mut self, transient: VolatileState, now_ms: i64) {
        for carried in transient.holds {
            let CarriedHold {
                node,
                request,
                key,
                amount,
                at_ms,
                lease,
            } = carried;
            let hold = Hold {
                key,
                amount,
                at_ms,
                lease,
            };
            self.holds.insert(&node, &request, hold, now_ms);
        }
        self.buckets = transient.buckets;
        for (id, buckets) in transient.keys {
            self.keys.entry(id).or_default().set_buckets(buckets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        keys::{
            KeyRecord, KeyState,
            terms::{KeyTerms, RateLimits},
        },
        ledger::{AccountChange, AdmitCall, AdmitReply, Denial, Step, TopUp, TopUpReply},
    };
    use proptest::prelude::*;
    use std::sync::Arc;

    const NOVEMBER_S: i64 = 1_793_664_000;

    fn paid(payments: &[(i64, i64)]) -> PaidIn {
        let mut paid = PaidIn::default();
        for (amount, at) in payments {
            paid.add(NanoUsd::from_nanos(*amount), *at);
        }
        paid
    }

    fn at(paid: &PaidIn, second: i64) -> (i64, i64) {
        let (today, month) = paid.sums_at(second * 1000);
        (today.nanos(), month.nanos())
    }

    #[test]
    fn a_new_day_and_a_new_month_begin_with_nothing() {
        let day = 86_400;
        let mut sums = paid(&[
            (5, NOVEMBER_S + day),
            (3, NOVEMBER_S + day + 1),
            (-2, NOVEMBER_S + day + 2),
        ]);
        assert_eq!(at(&sums, NOVEMBER_S + day + 3), (6, 6));
        assert_eq!(at(&sums, NOVEMBER_S + 2 * day), (0, 6));
        assert_eq!(at(&sums, NOVEMBER_S + 40 * day), (0, 0));
        sums.add(NanoUsd::from_nanos(7), NOVEMBER_S + 2 * day);
        assert_eq!(at(&sums, NOVEMBER_S + 2 * day), (7, 13));
        sums.add(NanoUsd::from_nanos(9), NOVEMBER_S + 40 * day);
        assert_eq!(at(&sums, NOVEMBER_S + 40 * day), (9, 9));
        for unknown in [0, -5, i64::MAX, i64::MIN] {
            sums.add(NanoUsd::from_nanos(1), unknown);
        }
        assert_eq!(
            at(&sums, NOVEMBER_S + 40 * day),
            (9, 9),
            "a time that is none counts nowhere"
        );
    }

    proptest! {
        #[test]
        fn the_order_of_payments_does_not_matter(
            payments in prop::collection::vec((-1_000_000_i64..1_000_000, NOVEMBER_S..NOVEMBER_S + 100 * 86_400), 0..12),
            turns in any::<u64>(),
        ) {
            let mut other = payments.clone();
            if !other.is_empty() {
                let turns = usize::try_from(turns % 97).unwrap() % other.len();
                other.rotate_left(turns);
                other.reverse();
            }
            prop_assert_eq!(paid(&payments), paid(&other));
        }
    }

    fn ask(node: &NodeId, request: &str) -> AdmitCall {
        AdmitCall {
            node: node.clone(),
            request: request.into(),
            key: Arc::new(KeyRecord {
                id: KeyId::parse("key_0123456789abcdef").unwrap(),
                name: "n".to_owned(),
                account: "a".into(),
                created_at: 0,
                expires_at: None,
                models: None,
                state: KeyState::Active,
                hint: String::new(),
                revision: 1,
                terms: KeyTerms {
                    rates: RateLimits {
                        rpm: Some(2),
                        ..RateLimits::default()
                    },
                    ..KeyTerms::default()
                },
                former: None,
                text_since: None,
            }),
            estimate: NanoUsd::from_nanos(60),
            tokens: 1,
            ended_key: 0,
            ended_account: 0,
        }
    }

    #[test]
    fn who_takes_over_knows_what_runs_and_how_fast_it_was_asked() {
        let node = NodeId::generate(&mut rand::rng());
        let mut account = Account::default();
        let balance = NanoUsd::from_nanos(100);
        let open = AccountChange::Open {
            balance,
            at: 1,
            operation: None,
        };
        account.apply(&node, &[Step { seq: 1, change: open }], 0);
        let AdmitReply::Granted(first) = account.admit(&ask(&node, "r1"), 1_000) else {
            panic!("not admitted")
        };
        assert_eq!(first.hold, NanoUsd::from_nanos(60));

        let kept = Account::from_stored(
            account.summary().unwrap().clone(),
            [(
                ask(&node, "r1").key.id.clone(),
                account.key(&ask(&node, "r1").key.id).unwrap().clone(),
            )],
            [],
        );
        let text = serde_json::to_string(&account.volatile_state()).unwrap();
        let mut next = kept;
        next.restore_volatile_state(serde_json::from_str(&text).unwrap(), 1_000);
        assert_eq!(next.volatile_state(), account.volatile_state());

        let AdmitReply::Granted(second) = next.admit(&ask(&node, "r2"), 1_001) else {
            panic!("not admitted")
        };
        assert_eq!(second.hold, NanoUsd::from_nanos(40), "what the first left");
        let more = TopUp {
            node: node.clone(),
            request: "r1".into(),
            account: "a".into(),
            key: ask(&node, "r1").key.id.clone(),
            at_ms: 1_000,
            more: NanoUsd::from_nanos(1),
        };
        assert_eq!(next.top_up(&more, 1_001), TopUpReply::Refused, "the hold is there");
        account.apply(&node, &[], 0);
        let mut other = account.clone();
        assert!(matches!(other.admit(&ask(&node, "r2"), 1_001), AdmitReply::Granted(_)));
        let third = next.admit(&ask(&node, "r3"), 1_002);
        assert!(
            matches!(third, AdmitReply::Refused(Denial::BalanceHeld)),
            "nothing is left: {third:?}"
        );
    }
}
