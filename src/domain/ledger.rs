//! Accounts, quotas and holds: what every ledger store is asked, what it answers, and what changes it.
//!
//! A request's money goes through three steps: [`Admit`] checks everything and puts a hold,
//! [`TopUp`] enlarges the hold while the answer runs, and a [`Step`] with a [`Settlement`] charges what was used and ends
//! the hold. Steps are numbered per account and node; a store applies each exactly once, in order. [`account`] is the
//! reference model that every store obeys.

use serde::{Deserialize, Serialize};

use crate::domain::{
    consumption::Row,
    key::{KeyId, KeyRecord},
    money::NanoUsd,
};

pub mod account;
pub mod crash;
pub mod journaled;
pub mod node;
pub mod operation_id;
pub mod period;
pub mod terms;

pub use account::Account;
pub use crash::{settlement_after_crash, settlement_of_charged};
pub use journaled::{Admitted, Checkpoint, Record};
pub use node::NodeId;
pub use operation_id::OperationId;
pub use terms::{
    AccountTerms, AccountTermsChange, FinishFactor, KeyTerms, KeyTermsChange, OnExhausted, ProviderState, Rates,
    RatesChange, Reset,
};

/// How long a node's holds count without a renewal, in milliseconds.
pub const LEASE_MS: i64 = 30_000;

/// A request for admission, made by `billing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    /// The node that asks; its lease keeps the hold alive.
    pub node: NodeId,
    /// weir's request id.
    pub request: String,
    /// The key as this node knows it; `record.account` is the account that pays. A store that knows a later revision
    /// answers [`Admission::StaleKey`]; one that knows an earlier one takes this over.
    pub key: KeyRecord,
    /// What the request is expected to cost.
    pub estimate: NanoUsd,
    /// The input and output tokens that it is expected to use. They are taken from the tokens per minute until the
    /// settlement corrects them.
    pub tokens: u64,
    /// Requests of this key on this node that have ended, with settlements the store has not acknowledged yet. They do not
    /// count as running.
    pub ended_key: u64,
    /// The same for the whole account.
    pub ended_account: u64,
}

/// The answer to [`Admit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Admitted, with a hold.
    Granted(Grant),
    /// Not admitted; nothing has changed, no limit was used up.
    Refused(Denied),
    /// The key was changed since this node read it: read it again, then ask again.
    StaleKey,
}

/// What an admitted request was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The amount held: the estimate, or what was left if that is less. Zero for an estimate of zero.
    pub hold: NanoUsd,
    /// When it was admitted by the store's clock, in milliseconds since the Unix epoch. Determines the periods that it
    /// counts in.
    pub at_ms: i64,
    /// The balance, holds not subtracted.
    pub balance: NanoUsd,
    /// The balance at or below which it counts as low; `None` if it never does.
    pub low_balance: Option<NanoUsd>,
    /// The key's quota in the period of `at_ms`; `None` if it has none.
    pub quota: Option<QuotaStanding>,
    /// Which state at providers the account's requests may name.
    pub provider_state: ProviderState,
    /// The account's rate and concurrency limits.
    pub account_rates: Rates,
    /// The last step of this node that the store has applied to the account.
    pub watermark: u64,
}

/// A key's quota and what was spent of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStanding {
    /// The quota of the key's terms.
    pub quota: NanoUsd,
    /// What was spent in the current period, without holds.
    pub spent: NanoUsd,
    /// When the period ends, in seconds since the Unix epoch; `None` if it never does.
    pub resets_at: Option<i64>,
}

/// Why a request is not admitted, in the order of the checks. What is spent stays spent until an operator acts or a
/// period ends; what is only held comes back, all or in part, when running requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The key was revoked.
    KeyRevoked,
    /// The key has expired.
    KeyExpired,
    /// There is no such account.
    AccountUnknown,
    /// The account is suspended.
    AccountSuspended,
    /// Nothing is left of the account's balance: `balance <= 0`.
    BalanceExhausted,
    /// Running requests hold what is left of the account's balance: `balance - held <= 0 < balance`.
    BalanceHeld,
    /// The key has spent its quota: `spent >= quota`.
    QuotaExhausted(QuotaStanding),
    /// Running requests hold what is left of the key's quota: `spent < quota <= spent + held`.
    QuotaHeld(QuotaStanding),
    /// The limit of concurrent requests is reached.
    Concurrency {
        /// Whether it is the key's limit or the account's.
        scope: Scope,
        /// The most concurrent requests.
        limit: u64,
    },
    /// A limit per minute is reached.
    RateLimited {
        /// Whether it is the key's limit or the account's.
        scope: Scope,
        /// Whether it limits requests or tokens.
        counted: Counted,
        /// The most requests or tokens per minute.
        limit: u64,
        /// In how many milliseconds the same request would be admitted, if no other came in between.
        retry_after_ms: u64,
    },
}

impl Denied {
    /// Whether the limit is only held by running requests, and not spent.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::BalanceHeld | Self::QuotaHeld(_))
    }
}

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The API key's.
    Key,
    /// The account's.
    Account,
}

/// What a rate limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Requests.
    Requests,
    /// Tokens, input and output.
    Tokens,
}

/// A running request's demand for a larger hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopUp {
    /// The node that admitted it.
    pub node: NodeId,
    /// weir's request id.
    pub request: String,
    /// The account that pays.
    pub account: String,
    /// The key of the request.
    pub key: KeyId,
    /// When it was admitted ([`Grant::at_ms`]). The quota's period is the one of this time.
    pub at_ms: i64,
    /// By how much the hold is to grow.
    pub more: NanoUsd,
}

/// The answer to [`TopUp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToppedUp {
    /// The hold has grown by this much: what was asked for, or what was left; more than zero.
    Granted(NanoUsd),
    /// Nothing is left.
    Refused,
    /// The store has no hold of this request: it was settled, or the node's lease had ended. The request goes on, and
    /// its settlement is charged anyway.
    NoHold,
}

/// One change of an account, with its number among this node's changes of that account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Counts from 1. A store applies the step only if this is its watermark plus one.
    pub seq: u64,
    /// The change itself.
    pub change: Change,
}

/// A change of an account. A store cannot refuse one; whoever makes it checks it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Change {
    /// A request has ended and is charged.
    Settle(Box<Settlement>),
    /// Creates the account with a balance of zero, unless it exists, then adds `balance`.
    Open {
        /// The first credit, zero or more.
        balance: NanoUsd,
        /// The time of creation, in seconds since the Unix epoch.
        at: i64,
        /// If set, the amount counts once for this id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Adds money.
    Credit {
        /// More than zero.
        amount: NanoUsd,
        /// If set, the amount counts once for this id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Corrects the balance, up or down; the reason is in the audit record.
    Adjust {
        /// Any amount.
        amount: NanoUsd,
        /// If set, the amount counts once for this id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Admits no further requests.
    Suspend,
    /// Admits requests again.
    Resume,
    /// Replaces the account's limits.
    SetTerms {
        /// The new limits.
        terms: AccountTerms,
    },
}

impl Change {
    /// The id under which the change counts once, if it has one.
    pub fn operation(&self) -> Option<&OperationId> {
        match self {
            Self::Open { operation, .. } | Self::Credit { operation, .. } | Self::Adjust { operation, .. } => {
                operation.as_ref()
            }
            Self::Settle(_) | Self::Suspend | Self::Resume | Self::SetTerms { .. } => None,
        }
    }
}

/// The charge of a request that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// weir's request id; the request's hold ends.
    pub request: String,
    /// The key of the request.
    pub key: KeyId,
    /// When it was admitted, in milliseconds since the Unix epoch. Its cost counts in the four periods of that time.
    pub at_ms: i64,
    /// The tokens taken from the tokens per minute at admission.
    pub tokens_estimated: u64,
    /// The tokens actually used.
    pub tokens_used: u64,
    /// The charge, zero or more.
    pub cost: NanoUsd,
    /// Its row in the consumption log; `None` for a request that is not billed, whose cost is then zero.
    pub row: Option<Row>,
}

impl Settlement {
    /// The settlement of a billed request.
    pub fn of(row: Row, tokens_estimated: u64) -> Self {
        Self {
            request: row.request_id.clone(),
            key: row.key_id.clone(),
            at_ms: row.admitted_ms,
            tokens_estimated,
            tokens_used: row.usage.input_total().saturating_add(row.usage.output_total()),
            cost: row.cost_nano_usd,
            row: Some(row),
        }
    }

    /// The settlement of a request that is not billed: its hold ends.
    pub fn without_charge(request: String, key: KeyId, at_ms: i64, tokens_estimated: u64) -> Self {
        Self {
            request,
            key,
            at_ms,
            tokens_estimated,
            tokens_used: 0,
            cost: NanoUsd::ZERO,
            row: None,
        }
    }
}

/// An account as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// The account's name.
    pub id: String,
    /// What is left: all credits and adjustments, less all charges. Holds are not subtracted.
    pub balance: NanoUsd,
    /// All charges so far: the sum of the cost of all its rows.
    pub spent: NanoUsd,
    /// What is held for running requests.
    pub held: NanoUsd,
    /// How many requests are running.
    pub running: u64,
    /// No request is admitted.
    pub suspended: bool,
    /// The account's limits.
    pub terms: AccountTerms,
    /// When it was created, in seconds since the Unix epoch.
    pub created_at: i64,
}

/// What a key has spent and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySpend {
    /// Since the key's creation.
    pub all: NanoUsd,
    /// In the current day (UTC).
    pub day: NanoUsd,
    /// In the current ISO week (UTC).
    pub week: NanoUsd,
    /// In the current month (UTC).
    pub month: NanoUsd,
    /// Held for running requests.
    pub held: NanoUsd,
    /// How many requests are running.
    pub running: u64,
}
