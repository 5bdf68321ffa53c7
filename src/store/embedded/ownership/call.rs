//! What a process that has handed its store over asks its successor. An answer is the method's own result as JSON.

use serde::{Deserialize, Serialize};

use crate::domain::{
    faults::stability::{Hour, Share},
    keys::{key::KeyId, secret::KeyDigest},
    ledger::{Admit, NodeId, OperationId, Step, TopUp},
    wire::{provider_state::StateKey, session_hint::ServedBy},
};

/// One call, named after the method of [`crate::store`]'s traits that it is. A process that ends needs no others: it takes
/// nothing new from operators, and an embedded ledger lends nothing.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::store::embedded) enum Call {
    Find(KeyDigest),
    Touch(Vec<(KeyId, i64)>),
    ChangesSince(u64),
    Recall(Vec<StateKey>),
    Remember(Vec<(StateKey, ServedBy)>, i64),
    Admit(Box<Admit>),
    TopUp(Box<TopUp>),
    Apply(NodeId, String, Vec<Step>, u64),
    Watermark(NodeId, String),
    Renew(NodeId, Vec<String>),
    Release(NodeId, String),
    Operation(String, OperationId),
    Tell(NodeId, Vec<Share>),
    Buckets(Hour, Hour),
}
