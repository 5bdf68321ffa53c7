//! The records of a node's journal. They suffice to charge every admitted request exactly once, whatever happens to the
//! process, and to repeat to a store what it has forgotten.

mod read;
mod written;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::{
        key::{KeyId, KeyRecord},
        secret::KeyDigest,
    },
    ledger::{
        consumption::{Modifiers, Part, Request, RequestEnd, Row, UsageSource},
        lease::LeaseId,
        step::Step,
    },
    money::NanoUsd,
    wire::usage::Usage,
};

/// The outcome in the row of a request that was running when weir crashed.
pub(crate) const CRASH: &str = "crash";

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Record {
    /// A request is about to be forwarded. A step that settles it follows, if need be at the next start.
    Admit(Box<Admitted>),
    /// What a running request has consumed so far.
    Checkpoint(Box<Checkpoint>),
    /// A numbered change of an account: a settlement, or an operator's.
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
    /// A key was deleted.
    KeyGone {
        /// The deleted key.
        id: KeyId,
        /// The key's last revision.
        revision: u64,
    },
}

/// What is known of a request at its admission. Written as the row that it has if nothing more is ever known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "AdmittedForm", into = "AdmittedForm")]
pub(crate) struct Admitted {
    /// What its row takes from the admission.
    pub request: Request,
    /// The preferred provider.
    pub provider: SmolStr,
    /// The version of that provider's price.
    pub price_version: SmolStr,
    /// The estimate of its input, in tokens.
    pub input_tokens: u64,
    /// What that costs at the most expensive of its providers, without a cache.
    pub input_cost: NanoUsd,
    /// Milliseconds from its arrival to its admission.
    pub latency_ms: u64,
    /// The tokens taken from the tokens per minute.
    pub tokens_estimated: u64,
    /// The lease that it was admitted out of, if it was.
    pub lease: Option<LeaseId>,
}

/// The written form of [`Admitted`].
#[derive(Serialize, Deserialize)]
struct AdmittedForm {
    row: Row,
    tokens_estimated: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseId>,
}

impl Admitted {
    /// The request, and its end if nothing more is ever known: a crash, for which the estimated input is charged.
    pub(super) fn unfinished(self) -> (Request, RequestEnd) {
        let end = RequestEnd {
            time_ms: self.request.admitted_ms,
            provider: self.provider,
            status: 0,
            outcome: CRASH,
            usage: Usage {
                input_uncached: self.input_tokens,
                ..Usage::default()
            },
            usage_source: UsageSource::Estimated,
            parts: Vec::new(),
            modifiers: Modifiers::default(),
            price_version: self.price_version,
            cost: self.input_cost,
            latency_ms: self.latency_ms,
            ttft_ms: None,
            attempts: None,
        };
        (self.request, end)
    }
}

impl From<Admitted> for AdmittedForm {
    fn from(mut admitted: Admitted) -> Self {
        let (tokens_estimated, lease) = (admitted.tokens_estimated, admitted.lease.take());
        let (request, end) = admitted.unfinished();
        Self {
            row: Row::new(request, end),
            tokens_estimated,
            lease,
        }
    }
}

impl From<AdmittedForm> for Admitted {
    fn from(form: AdmittedForm) -> Self {
        let AdmittedForm {
            row,
            tokens_estimated,
            lease,
        } = form;
        Self {
            request: Request {
                admitted_ms: row.admitted_ms,
                id: row.request_id,
                account: row.account,
                key: row.key_id,
                protocol: row.protocol,
                model_asked: row.model_asked,
                model: row.model,
                stream: row.stream,
                tags: row.tags,
                hold: row.hold_nano_usd,
            },
            provider: row.provider,
            price_version: row.price_version,
            input_tokens: row.usage.input_uncached,
            input_cost: row.cost_nano_usd,
            latency_ms: row.latency_ms,
            tokens_estimated,
            lease,
        }
    }
}

/// What a running request has consumed so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// weir's request id.
    pub request: SmolStr,
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
    pub provider: SmolStr,
    /// Milliseconds since the request's arrival.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` before it.
    pub ttft_ms: Option<u64>,
    /// How many attempts at providers were made; `None` in one of an earlier weir.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}
