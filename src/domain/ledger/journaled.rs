//! The records of a node's journal. They suffice to charge every admitted request exactly once, whatever happens to the
//! process, and to repeat to a store what it has forgotten.

use serde::{Deserialize, Serialize};

use crate::domain::{
    consumption::{Modifiers, Part, Row, UsageSource},
    key::{KeyId, KeyRecord},
    ledger::Step,
    money::NanoUsd,
    secret::KeyDigest,
    usage::Usage,
};

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// A request is about to be forwarded. A step that settles it follows, if need be at the next start.
    Admit(Box<Admitted>),
    /// What a running request has consumed so far.
    Checkpoint(Box<Checkpoint>),
    /// A numbered change of an account: a settlement, or an operator's.
    Step {
        /// The account that changes.
        account: String,
        /// The numbered change.
        step: Step,
    },
    /// A key stands in the store in this form, from this revision on.
    Key {
        /// The digest under which the key is found.
        digest: KeyDigest,
        /// The key's record.
        record: Box<KeyRecord>,
    },
    /// A key was deleted.
    KeyGone {
        /// The deleted key.
        id: KeyId,
        /// The key's last revision.
        revision: u64,
    },
}

/// A request at its admission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// Its row if it ended now: usage and cost are the estimate of its input, the outcome is `crash`.
    pub row: Row,
    /// The tokens taken from the tokens per minute.
    pub tokens_estimated: u64,
}

/// What a running request has consumed so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// weir's request id.
    pub request: String,
    /// The answer's status; 0 before its head.
    pub status: u16,
    /// The tokens used so far.
    #[serde(flatten)]
    pub usage: Usage,
    /// Whether the usage is reported or estimated.
    pub source: UsageSource,
    /// What modifies the price, such as the service tier.
    #[serde(flatten)]
    pub modifiers: Modifiers,
    /// What each model consumed, unless the requested model ran alone in one price tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// The cost so far.
    pub cost: NanoUsd,
    /// The current provider.
    pub provider: String,
    /// Milliseconds since the request's arrival.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` before it.
    pub ttft_ms: Option<u64>,
}
