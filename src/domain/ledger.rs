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

/// How long the holds of a node count that is not heard of any more.
pub const LEASE_MS: i64 = 30_000;

/// A request that wants to be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    /// Who asks: the node whose lease keeps the hold alive.
    pub node: NodeId,
    /// weir's identifier of the request.
    pub request: String,
    /// The key as this node knows it; `record.account` is the account that pays. A store that knows a later revision
    /// answers [`Admission::StaleKey`]; one that knows an earlier one takes this over.
    pub key: KeyRecord,
    /// What the request may cost.
    pub estimate: NanoUsd,
    /// The tokens, input and output, that it may use: taken from the tokens per minute until the settlement corrects it.
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

/// What an admitted request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What is held for it: the estimate, or what was left if that is less. Zero for an estimate of zero.
    pub hold: NanoUsd,
    /// When it was admitted, by the store's clock, in milliseconds since the Unix epoch: decides the periods it counts in.
    pub at_ms: i64,
    /// The account's balance, holds not subtracted.
    pub balance: NanoUsd,
    /// At or below this balance it is low; `None`: never.
    pub low_balance: Option<NanoUsd>,
    /// How the key stands with its quota, in the period of `at_ms`; `None`: it has none.
    pub quota: Option<QuotaStanding>,
    /// Whose state at providers the account's requests may name.
    pub provider_state: ProviderState,
    /// How fast the account may go.
    pub account_rates: Rates,
    /// The last step of this node that the store has applied to the account.
    pub watermark: u64,
}

/// How a key stands with its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStanding {
    /// The quota.
    pub quota: NanoUsd,
    /// What was spent of it in the period; what is held is not part of it.
    pub spent: NanoUsd,
    /// When the period ends, in seconds since the Unix epoch; `None`: never.
    pub resets_at: Option<i64>,
}

/// Why a request is not admitted, in the order in which it is checked. What is spent is final until somebody acts or a
/// period ends; what is only held comes back, all or in part, when running requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The key was withdrawn.
    KeyRevoked,
    /// The key's time is over.
    KeyExpired,
    /// No such account.
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
    /// As many requests are running as may.
    Concurrency {
        /// Whose limit it is.
        scope: Scope,
        /// The limit.
        limit: u64,
    },
    /// Too many requests or tokens in a minute.
    RateLimited {
        /// Whose limit it is.
        scope: Scope,
        /// What is counted.
        counted: Counted,
        /// The limit, per minute.
        limit: u64,
        /// In how many milliseconds the same request would be admitted, if nothing else came in between.
        retry_after_ms: u64,
    },
}

impl Denied {
    /// Whether it is held by running requests only, and not spent.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::BalanceHeld | Self::QuotaHeld(_))
    }
}

/// Whose limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The key's.
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

/// A running request that needs a larger hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopUp {
    /// The node that admitted it.
    pub node: NodeId,
    /// The request.
    pub request: String,
    /// Its account.
    pub account: String,
    /// Its key.
    pub key: KeyId,
    /// When it was admitted ([`Grant::at_ms`]): the quota's period is that one.
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
    /// The store has no hold of this request: it was settled, or the node's lease had ended. It goes on; its settlement will
    /// be charged all the same.
    NoHold,
}

/// One change of an account, with its place among this node's changes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Counts this node's changes of this account from 1. Applied if and only if it is one more than the watermark.
    pub seq: u64,
    /// What changes.
    pub change: Change,
}

/// What changes an account. None of these can be refused: who makes one has checked what can be checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Change {
    /// A request has ended.
    Settle(Box<Settlement>),
    /// The account is made with a balance of zero, if there is none of this name yet; then `balance` is added to it.
    Open {
        /// The first credit; zero or more.
        balance: NanoUsd,
        /// When, in seconds since the Unix epoch.
        at: i64,
        /// Counted once for it, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Money is added.
    Credit {
        /// More than zero.
        amount: NanoUsd,
        /// Counted once for it, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// The balance is corrected, up or down, for a reason that the audit record has.
    Adjust {
        /// Any amount.
        amount: NanoUsd,
        /// Counted once for it, where it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Nothing is admitted any more.
    Suspend,
    /// Requests are admitted again.
    Resume,
    /// Limits are replaced.
    SetTerms {
        /// The new ones.
        terms: AccountTerms,
    },
}

impl Change {
    /// By what it is counted once, if it has that.
    pub fn operation(&self) -> Option<&OperationId> {
        match self {
            Self::Open { operation, .. } | Self::Credit { operation, .. } | Self::Adjust { operation, .. } => {
                operation.as_ref()
            }
            Self::Settle(_) | Self::Suspend | Self::Resume | Self::SetTerms { .. } => None,
        }
    }
}

/// What a request that has ended costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The request, whose hold ends.
    pub request: String,
    /// Its key.
    pub key: KeyId,
    /// When it was admitted, in milliseconds since the Unix epoch: its cost counts in the four periods of that time.
    pub at_ms: i64,
    /// The tokens taken from the tokens per minute at its admission.
    pub tokens_estimated: u64,
    /// The tokens that it used.
    pub tokens_used: u64,
    /// The charge, zero or more.
    pub cost: NanoUsd,
    /// Its row in the consumption log; `None` for a request that is not billed, whose cost is then zero.
    pub row: Option<Row>,
}

/// An account, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// Its name.
    pub id: String,
    /// What is left: all credits and adjustments, less all charges. Holds are not subtracted.
    pub balance: NanoUsd,
    /// All charges so far: the sum of the cost of all its rows.
    pub spent: NanoUsd,
    /// What is held for running requests.
    pub held: NanoUsd,
    /// How many requests are running.
    pub running: u64,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Its limits.
    pub terms: AccountTerms,
    /// When it was made, in seconds since the Unix epoch.
    pub created_at: i64,
}

/// What a key has spent and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySpend {
    /// Ever.
    pub all: NanoUsd,
    /// In the current day.
    pub day: NanoUsd,
    /// In the current week.
    pub week: NanoUsd,
    /// In the current month.
    pub month: NanoUsd,
    /// Held for running requests.
    pub held: NanoUsd,
    /// How many requests are running.
    pub running: u64,
}
