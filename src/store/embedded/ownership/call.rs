//! The calls of a process that has handed its store over to its successor. An answer is the method's own result as JSON.

use serde::{Deserialize, Serialize};

use crate::domain::{
    faults::stability::{Hour, NodeHourCounters},
    keys::{key::KeyId, secret::KeyDigest},
    ledger::{AdmitCall, NodeId, OperationId, Step, TopUp},
    wire::{provider_state::StateKey, session_hint::ServedBy},
};

/// One call, named after its method in the traits of [`crate::store`]. A process that is stopping needs no others: it accepts
/// nothing new from operators, and an embedded ledger grants no leases.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::store::embedded) enum SuccessorCall {
    Find(KeyDigest),
    Touch(Vec<(KeyId, i64)>),
    ChangesSince(u64),
    Recall(Vec<StateKey>),
    Remember(Vec<(StateKey, ServedBy)>, i64),
    Admit(Box<AdmitCall>),
    TopUp(Box<TopUp>),
    Apply(NodeId, String, Vec<Step>, u64),
    Watermark(NodeId, String),
    Renew(NodeId, Vec<String>),
    Release(NodeId, String),
    Operation(String, OperationId),
    Tell(NodeId, Vec<NodeHourCounters>),
    Buckets(Hour, Hour),
}
