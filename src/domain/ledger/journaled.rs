//! The records of a node's journal. They suffice to charge every admitted request exactly once, whatever happens to the
//! process, and to restore what a store has lost.
//!
//! A record's bytes are a byte for the version, one for the kind, then the fields in their order, or JSON. No byte is zero: the
//! space after the end of a segment is zeros, so a write that a crash has cut short can be told from damage
//! (`journal/replay.rs`).
//!
//! - A number has seven bits in a byte, the lowest first. A byte with its highest bit set is followed by another one; the
//!   last byte is its bits plus one.
//! - A signed number is stored as an unsigned one: 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
//! - A text is its length in bytes, then its UTF-8. Each zero is replaced with two bytes that never occur in UTF-8.

mod bytes;
mod read;
#[cfg(test)]
mod tests;
mod written;

pub use read::reread;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::{
        key::{KeyId, KeyRecord},
        secret::KeyDigest,
    },
    ledger::{
        account_record::AccountRecord,
        consumption::{CostShare, PriceModifiers, Row, UsageSource},
        lease::LeaseId,
        step::{Settlement, Step},
    },
    money::NanoUsd,
    wire::usage::Usage,
};

/// The version of the records' form, in the first byte of each. Differs from the filler byte of an empty frame.
const VERSION: u8 = 1;

/// The second byte of a record. Records that are written for each request have a binary form, the others are JSON.
mod kind {
    /// [`super::Record::Admit`].
    pub(super) const ADMIT: u8 = 1;
    /// [`super::Record::Checkpoints`].
    pub(super) const CHECKPOINTS: u8 = 2;
    /// A step with the settlement of a billed request, where the settlement follows from its row.
    pub(super) const CHARGE: u8 = 3;
    /// A step with the settlement of a request that is not billed.
    pub(super) const RELEASE: u8 = 4;
    /// Any other step.
    pub(super) const STEP: u8 = 5;
    /// Any other record.
    pub(super) const OTHER: u8 = 6;
}

/// Flags for the optional fields of a row or a checkpoint.
mod has {
    pub(super) const SERVICE_TIER: u64 = 1;
    pub(super) const SPEED: u64 = 1 << 1;
    pub(super) const GEO: u64 = 1 << 2;
    pub(super) const PARTS: u64 = 1 << 3;
    pub(super) const TTFT: u64 = 1 << 4;
    pub(super) const STREAM: u64 = 1 << 5;
    pub(super) const HOLD: u64 = 1 << 6;
    pub(super) const ATTEMPTS: u64 = 1 << 7;
    pub(super) const TAGS: u64 = 1 << 8;
    pub(super) const LEASE: u64 = 1 << 9;
    /// A flag of a part, like the next one.
    pub(super) const PRICED_AS: u64 = 1;
    pub(super) const PRICE_VERSION: u64 = 1 << 1;
}

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Record {
    /// A request is about to be forwarded. A step that settles it follows, at the latest when weir starts again.
    #[serde(skip)]
    Admit(Box<AdmittedRequest>),
    /// The consumption of running requests so far.
    #[serde(skip)]
    Checkpoints(Vec<Checkpoint>),
    /// A numbered change of an account: a settlement, or an operator's change of its balance.
    Step {
        /// The account that changes.
        account: SmolStr,
        /// The numbered change.
        step: Step,
    },
    /// A key's record in the store, from its revision on.
    Key {
        /// The digest under which the key is found.
        digest: KeyDigest,
        /// The key's record.
        record: Box<KeyRecord>,
    },
    /// An account's record in the store, from its revision on.
    Account {
        /// The account's name.
        account: SmolStr,
        /// Its settings by operators.
        record: AccountRecord,
    },
    /// A key was deleted.
    KeyGone {
        /// The deleted key.
        id: KeyId,
        /// The key's last revision.
        revision: u64,
    },
}

/// A request as known at its admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdmittedRequest {
    /// The row for a crash of weir before the answer's head: charges the estimated input at the most expensive of its providers,
    /// without a cache.
    pub row: Arc<Row>,
    /// The tokens taken from the tokens per minute.
    pub tokens_estimated: u64,
    /// The lease from which it was admitted, if any.
    pub lease: Option<LeaseId>,
}

impl AdmittedRequest {
    /// The settlement that ends the request's hold without a charge.
    pub(crate) fn without_charge(self) -> Settlement {
        let (request, key) = (self.row.request_id.clone(), self.row.key_id.clone());
        Settlement::without_charge(request, key, self.row.admitted_ms, self.tokens_estimated).with_lease(self.lease)
    }
}

/// The consumption of a running request so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// weir's request id.
    pub request: SmolStr,
    /// The answer's status; 0 before its head.
    pub status: u16,
    /// The tokens used so far.
    pub usage: Usage,
    /// Whether the usage is reported or estimated.
    pub source: UsageSource,
    /// The modifiers of the price, such as the service tier.
    pub modifiers: PriceModifiers,
    /// The consumption of each model, unless the requested model ran alone in one price tier.
    pub parts: Vec<CostShare>,
    /// The cost so far.
    pub cost: NanoUsd,
    /// The current provider.
    pub provider: SmolStr,
    /// Milliseconds since the request's arrival.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` before it.
    pub ttft_ms: Option<u64>,
    /// The number of attempts at providers.
    pub attempts: u32,
}
