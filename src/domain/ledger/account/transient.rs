//! What of an account is kept in no file, for a process that goes on where another one ends: holds, and how full the buckets
//! of its rate limits are.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{
    Account,
    bucket::Buckets,
    holds::{Hold, LeaseHold},
};
use crate::domain::{keys::key::KeyId, ledger::node::NodeId, money::NanoUsd};

/// What of one account is kept in no file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transient {
    holds: Vec<CarriedHold>,
    buckets: Buckets,
    keys: Vec<(KeyId, Buckets)>,
}

/// What is held for one running request.
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

impl Transient {
    /// Whether there is nothing to carry.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Account {
    /// What is kept in no file.
    pub(crate) fn transient(&self) -> Transient {
        let hold = |(node, request, hold): (&NodeId, &SmolStr, &Hold)| CarriedHold {
            node: node.clone(),
            request: request.clone(),
            key: hold.key.clone(),
            amount: hold.amount,
            at_ms: hold.at_ms,
            lease: hold.lease,
        };
        let full = Buckets::default();
        let keys = self.keys.iter().filter(|(_, key)| *key.buckets() != full);
        Transient {
            holds: self.holds.iter().map(hold).collect(),
            buckets: self.buckets.clone(),
            keys: keys.map(|(id, key)| (id.clone(), key.buckets().clone())).collect(),
        }
    }

    /// The same account as the one that this was taken of. The leases of its nodes begin anew.
    pub(crate) fn take_over(&mut self, transient: Transient, now_ms: i64) {
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
            self.holds.put(&node, &request, hold, now_ms);
        }
        self.buckets = transient.buckets;
        for (id, buckets) in transient.keys {
            self.keys.entry(id).or_default().fill(buckets);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::{
        keys::key::{KeyRecord, KeyState},
        keys::terms::{KeyTerms, Rates},
        ledger::{
            admission::{Admit, AdmitReply, Denial},
            step::{Change, Step},
            top_up::{TopUp, ToppedUp},
        },
    };

    fn ask(node: &NodeId, request: &str) -> Admit {
        Admit {
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
                    rates: Rates {
                        rpm: Some(2),
                        ..Rates::default()
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
        let open = Change::Open {
            balance,
            at: 1,
            operation: None,
        };
        account.apply(&node, &[Step { seq: 1, change: open }], 0);
        let AdmitReply::Granted(first) = account.admit(&ask(&node, "r1"), 1_000) else {
            panic!("not admitted")
        };
        assert_eq!(first.hold, NanoUsd::from_nanos(60));

        let kept = Account::restored(
            account.summary().unwrap().clone(),
            [(
                ask(&node, "r1").key.id.clone(),
                account.key(&ask(&node, "r1").key.id).unwrap().clone(),
            )],
            [],
        );
        let text = serde_json::to_string(&account.transient()).unwrap();
        let mut next = kept;
        next.take_over(serde_json::from_str(&text).unwrap(), 1_000);
        assert_eq!(next.transient(), account.transient());

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
        assert_eq!(next.top_up(&more, 1_001), ToppedUp::Refused, "the hold is there");
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
