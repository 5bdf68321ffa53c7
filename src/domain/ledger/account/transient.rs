//! The state of an account that is in no file, to be handed over to a successor process: the holds, and the levels of the rate
//! buckets.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{
    Account,
    bucket::RateBuckets,
    holds::{Hold, LeaseHold},
};
use crate::domain::{keys::key::KeyId, ledger::ids::NodeId, money::NanoUsd};

/// The state of one account that is in no file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolatileState {
    holds: Vec<CarriedHold>,
    buckets: RateBuckets,
    keys: Vec<(KeyId, RateBuckets)>,
}

/// A hold, with its node and its request.
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
    /// Whether there is nothing to hand over.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Account {
    /// Returns the state that is in no file.
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

    /// Restores the state that another process has handed over. The node leases start again from now.
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
    use std::sync::Arc;

    use super::*;
    use crate::domain::{
        keys::{
            key::{KeyRecord, KeyState},
            terms::{KeyTerms, RateLimits},
        },
        ledger::{
            admission::{AdmitCall, AdmitReply, Denial, TopUp, TopUpReply},
            step::{AccountChange, Step},
        },
    };

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
