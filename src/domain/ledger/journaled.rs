//! What a node's journal records: enough to charge every admitted request exactly once, whatever happens to the process, and
//! to tell a store again what it has forgotten.

use serde::{Deserialize, Serialize};

use crate::domain::{
    consumption::{Modifiers, Part, Row, UsageSource},
    key::{KeyId, KeyRecord},
    ledger::Step,
    money::NanoUsd,
    secret::KeyDigest,
    usage::Usage,
};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// A request is about to be forwarded. A step that settles it follows, from the next start if need be.
    Admit(Box<Admitted>),
    /// What a running request has consumed so far.
    Checkpoint(Box<Checkpoint>),
    /// A numbered change of an account: a settlement, or an operator's.
    Step {
        /// The account.
        account: String,
        /// The change.
        step: Step,
    },
    /// A key stands in the store in this form, from this revision on.
    Key {
        /// Its digest.
        digest: KeyDigest,
        /// Everything else.
        record: Box<KeyRecord>,
    },
    /// A key was deleted.
    KeyGone {
        /// Which.
        id: KeyId,
        /// Its last revision.
        revision: u64,
    },
}

/// A request as it was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// Its row, were it to end now: usage and cost are the estimate of its input, the outcome is `crash`.
    pub row: Row,
    /// The tokens taken from the tokens per minute.
    pub tokens_estimated: u64,
}

/// A running request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Which.
    pub request: String,
    /// The status that its answer has; 0 before its head has come.
    pub status: u16,
    /// What it has consumed.
    #[serde(flatten)]
    pub usage: Usage,
    /// Where those figures come from.
    pub source: UsageSource,
    /// What changes the price.
    #[serde(flatten)]
    pub modifiers: Modifiers,
    /// What each model consumed, where it was not the model asked for alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// What that costs.
    pub cost: NanoUsd,
    /// The provider that serves.
    pub provider: String,
    /// From the request's arrival until now, in milliseconds.
    pub latency_ms: u64,
    /// From the request's arrival to the first content, in milliseconds; `None` if none has come.
    pub ttft_ms: Option<u64>,
}
