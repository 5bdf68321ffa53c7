//! The records of a node's journal. They suffice to charge every admitted request exactly once, whatever happens to the
//! process, and to repeat to a store what it has forgotten.

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
        consumption::{Modifiers, Part, Row, UsageSource},
        lease::LeaseId,
        step::{Settlement, Step},
    },
    money::NanoUsd,
    wire::usage::Usage,
};

/// The form of the records, in the first byte of each. Not the byte that a frame of nothing is filled with.
const VERSION: u8 = 1;

/// The second byte of a record. What is written for each request has a form of its own, and the rest is JSON.
mod kind {
    /// [`super::Record::Admit`].
    pub(super) const ADMIT: u8 = 1;
    /// [`super::Record::Checkpoints`].
    pub(super) const CHECKPOINTS: u8 = 2;
    /// A step with the settlement of a billed request, which says nothing that its row does not say.
    pub(super) const CHARGE: u8 = 3;
    /// A step with the settlement of a request that is not billed.
    pub(super) const RELEASE: u8 = 4;
    /// Any other step.
    pub(super) const STEP: u8 = 5;
    /// Any other record.
    pub(super) const OTHER: u8 = 6;
}

/// What a row or a checkpoint has of what it may have.
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
    /// The same, of a part.
    pub(super) const PRICED_AS: u64 = 1;
    pub(super) const PRICE_VERSION: u64 = 1 << 1;
}

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Record {
    /// A request is about to be forwarded. A step that settles it follows, if need be at the next start.
    #[serde(skip)]
    Admit(Box<Admitted>),
    /// What running requests have consumed so far.
    #[serde(skip)]
    Checkpoints(Vec<Checkpoint>),
    /// A numbered change of an account: a settlement, or what an operator adds to its balance.
    Step {
        /// The account that changes.
        account: SmolStr,
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
    /// An account's record stands so in the store, from its revision on.
    Account {
        /// The account's name.
        account: SmolStr,
        /// What operators have set.
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

/// What is known of a request at its admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// The row that it has if nothing more is ever known: weir has crashed before its answer's head, and its estimated input is
    /// charged, at the most expensive of its providers and without a cache.
    pub row: Arc<Row>,
    /// The tokens taken from the tokens per minute.
    pub tokens_estimated: u64,
    /// The lease that it was admitted out of, if it was.
    pub lease: Option<LeaseId>,
}

impl Admitted {
    /// The settlement that charges nothing: the request's hold ends.
    pub(crate) fn without_charge(self) -> Settlement {
        let (request, key) = (self.row.request_id.clone(), self.row.key_id.clone());
        Settlement::without_charge(request, key, self.row.admitted_ms, self.tokens_estimated).in_lease(self.lease)
    }
}

/// What a running request has consumed so far.
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
    /// What modifies the price, such as the service tier.
    pub modifiers: Modifiers,
    /// What each model consumed, unless the requested model ran alone in one price tier.
    pub parts: Vec<Part>,
    /// The cost so far.
    pub cost: NanoUsd,
    /// The current provider.
    pub provider: SmolStr,
    /// Milliseconds since the request's arrival.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` before it.
    pub ttft_ms: Option<u64>,
    /// How many attempts at providers were made.
    pub attempts: u32,
}
