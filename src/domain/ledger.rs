//! Accounts, quotas, holds and leases: the calls and changes that every ledger store implements, and the replies to them.
//!
//! Three calls handle the money of a request. [`AdmitCall`] checks every limit and places a hold. [`TopUp`] enlarges the hold
//! while the answer is running. A [`Step`] with a [`Settlement`] charges the request and ends the hold. Steps are numbered per
//! account and node, and a store applies each step exactly once, in order. The terms of an account, and whether it is suspended,
//! are in its [`AccountRecord`], which is always replaced completely. [`account`] is the reference model for every store.

pub(crate) mod account;
pub(crate) mod calibration;
pub(crate) mod consumption;
pub(crate) mod daily_sums;
pub(crate) mod ids;
pub(crate) mod journaled;
pub(crate) mod lease;
pub(crate) mod log_query;
pub(crate) mod period;
pub(crate) mod proof;
pub(crate) mod reports;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    Version,
    keys::{KeyId, KeyRecord},
    ledger::{consumption::Row, lease::LeaseId},
    money::NanoUsd,
};

pub use crate::domain::keys::terms::KeyTerms;
#[cfg(test)]
pub(crate) use crate::domain::keys::terms::KeyTermsChange;
pub(crate) use crate::domain::keys::terms::{
    AccountTerms, AccountTermsChange, FinishFactor, OnExhausted, ProviderState, QuotaReset, RateLimits,
    RateLimitsChange,
};
pub(crate) use crate::domain::ledger::account::{Account, operations::VolatileState};
#[cfg(test)]
pub(crate) use crate::domain::ledger::ids::LEASE_MS;
pub use crate::domain::ledger::ids::NodeId;
pub(crate) use crate::domain::ledger::ids::OperationId;
pub(crate) use crate::domain::ledger::journaled::{AdmittedRequest, Checkpoint, Record};
pub(crate) use crate::domain::ledger::journaled::{settlement_after_crash, settlement_of_charged};
pub(crate) use crate::domain::ledger::log_query::LogDay;
pub(crate) use crate::domain::ledger::reports::{AccountView, KeySpend, SpendByKey};

/// The settings that operators have made for an account. A change replaces the complete record in the store, but only if the
/// stored record is the one on which the change is based.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// The number of changes; 0 if nothing was ever set for the account.
    pub revision: u64,
    /// Whether the account is suspended. All requests of a suspended account are refused.
    pub suspended: bool,
    /// The account's limits.
    pub terms: AccountTerms,
}

impl AccountRecord {
    /// Returns the record with these terms and this suspension state. The revision rises by one, unless nothing changes.
    #[must_use]
    pub(crate) fn with_terms(&self, terms: AccountTerms, suspended: bool) -> Self {
        if (terms, suspended) == (self.terms, self.suspended) {
            return *self;
        }
        Self {
            revision: self.revision.saturating_add(1),
            suspended,
            terms,
        }
    }

    /// Compares this record, which is in a store, with `told`, the record in a journal. Returns the record that replaces the one
    /// in the store, or `None` if the store's record stays. The higher revision wins. Records with the same revision differ only
    /// if a failover has lost one of two changes; in this case, a suspension wins.
    pub(crate) fn healed(&self, told: &Self) -> Option<Self> {
        if told.revision > self.revision {
            return Some(*told);
        }
        // Neither record has this combination of limits and suspension, so the result gets a new revision.
        let is_suspended = told.revision == self.revision && told.suspended && !self.suspended;
        is_suspended.then(|| self.with_terms(self.terms, true))
    }

    /// Returns the version of this record. An operator's change can name a version. Such a change is made only if the record has
    /// the named version at that time.
    pub(crate) fn version(&self) -> Version {
        let content = serde_json::to_vec(&(self.suspended, &self.terms)).unwrap_or_default();
        Version::new(self.revision, crc32fast::hash(&content))
    }
}

/// A numbered change of an account. Each node numbers its own changes of the account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The number of the step, starting from 1. A store applies the step only if this number is one higher than that of the last
    /// applied step.
    pub seq: u64,
    /// The change of the account.
    pub change: AccountChange,
}

impl Step {
    /// Whether the step includes a row of the consumption log.
    pub(crate) fn has_row(&self) -> bool {
        matches!(&self.change, AccountChange::Settle(settlement) if settlement.row.is_some())
    }
}

/// A change of an account. A store cannot refuse a change, so the caller must check it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum AccountChange {
    /// Charges a request that has ended.
    Settle(Box<Settlement>),
    /// Adds `balance` to the account's balance. If the account does not exist, it is first created with a balance of zero.
    Open {
        /// The initial credit, zero or more.
        balance: NanoUsd,
        /// The time of the account's creation, in seconds since the Unix epoch.
        at: i64,
        /// The operation's id. The amount is added only once for each id. `None` if the amount is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Adds money to the balance.
    Credit {
        /// The credit, more than zero.
        amount: NanoUsd,
        /// The time at which the credit was requested, in seconds since the Unix epoch; 0 if unknown.
        #[serde(default, skip_serializing_if = "is_unknown")]
        at: i64,
        /// The operation's id. The amount is added only once for each id. `None` if the amount is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Raises or lowers the balance to correct it. The reason is in the audit record.
    Adjust {
        /// The amount; negative to lower the balance.
        amount: NanoUsd,
        /// The time at which the adjustment was requested, in seconds since the Unix epoch; 0 if unknown.
        #[serde(default, skip_serializing_if = "is_unknown")]
        at: i64,
        /// The operation's id. The amount is added only once for each id. `None` if the amount is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_unknown(at: &i64) -> bool {
    *at == 0
}

impl AccountChange {
    /// Returns a change without effect. Its step gets the number of a lost step, so that later steps can be applied.
    pub(crate) const fn nothing() -> Self {
        Self::Adjust {
            amount: NanoUsd::ZERO,
            at: 0,
            operation: None,
        }
    }

    /// Returns the id of the operation; `None` if the change has no id. A change with an id is made only once.
    pub fn operation(&self) -> Option<&OperationId> {
        match self {
            Self::Open { operation, .. } | Self::Credit { operation, .. } | Self::Adjust { operation, .. } => {
                operation.as_ref()
            }
            Self::Settle(_) => None,
        }
    }
}

/// The charge of a request that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The request id that weir has assigned. The settlement ends this request's hold.
    pub request: SmolStr,
    /// The key of the request.
    pub key: KeyId,
    /// The time of the request's admission, in milliseconds since the Unix epoch. The cost is added to the four periods that
    /// contain this time.
    pub at_ms: i64,
    /// The number of tokens that admission has deducted from the limit of tokens per minute.
    pub tokens_estimated: u64,
    /// The number of tokens that the request has used.
    pub tokens_used: u64,
    /// The charge, zero or more.
    pub cost: NanoUsd,
    /// The lease from which the request was admitted. The cost is deducted from it. `None` if the request has a hold of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The request's row in the consumption log. `None` if the request is not billed, and so costs nothing.
    pub row: Option<Arc<Row>>,
}

impl Settlement {
    /// Creates the settlement of a billed request.
    pub fn of(row: impl Into<Arc<Row>>, tokens_estimated: u64) -> Self {
        let row = row.into();
        Self {
            request: row.request_id.clone(),
            key: row.key_id.clone(),
            at_ms: row.admitted_ms,
            tokens_estimated,
            tokens_used: tokens_of(&row),
            cost: row.cost_nano_usd,
            lease: None,
            row: Some(row),
        }
    }

    /// Creates the settlement of a request that is not billed. It ends the request's hold.
    pub fn without_charge(request: SmolStr, key: KeyId, at_ms: i64, tokens_estimated: u64) -> Self {
        Self {
            request,
            key,
            at_ms,
            tokens_estimated,
            tokens_used: 0,
            cost: NanoUsd::ZERO,
            lease: None,
            row: None,
        }
    }

    /// Whether the settlement equals [`Settlement::of`] for this row, except for the estimate and the lease.
    pub(crate) fn matches_row(&self, row: &Row) -> bool {
        self.at_ms == row.admitted_ms
            && self.cost == row.cost_nano_usd
            && self.tokens_used == tokens_of(row)
            && self.request == row.request_id
            && self.key == row.key_id
    }

    /// Whether the settlement has the form that [`Settlement::without_charge`] creates.
    pub(crate) fn is_free(&self) -> bool {
        self.row.is_none() && self.cost == NanoUsd::ZERO && self.tokens_used == 0
    }

    /// Returns the settlement with `lease`, the lease from which the request was admitted. `lease` is `None` for a request with
    /// its own hold.
    pub(crate) fn with_lease(self, lease: Option<LeaseId>) -> Self {
        Self { lease, ..self }
    }
}

/// Returns the number of tokens that the row's request has used.
fn tokens_of(row: &Row) -> u64 {
    row.usage.input_total().saturating_add(row.usage.output_total())
}

/// The call to a store before a request is forwarded. The store checks all limits and places a hold. The module `billing` makes
/// this call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmitCall {
    /// The calling node. The hold is live while this node renews its node lease.
    pub node: NodeId,
    /// The request id that weir has assigned.
    pub request: SmolStr,
    /// The key's record at this node. The account in this record pays. If the store has a later revision, it replies
    /// [`AdmitReply::StaleKey`]. If the store has an earlier revision, it adopts this record.
    pub key: Arc<KeyRecord>,
    /// The expected cost of the request.
    pub estimate: NanoUsd,
    /// The expected input and output tokens. Admission deducts them from the limit of tokens per minute, and the settlement
    /// corrects the deduction.
    pub tokens: u64,
    /// The number of this node's unacknowledged requests with the key. Such a request has ended, but the store has not
    /// acknowledged its settlement. It does not count as running.
    pub ended_key: u64,
    /// The number of this node's unacknowledged requests on the account. Such a request has ended, but the store has not
    /// acknowledged its settlement. It does not count as running.
    pub ended_account: u64,
}

/// The reply to an [`AdmitCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmitReply {
    /// The request is admitted, with a hold.
    Granted(Grant),
    /// The request is refused. The call has no effect on any limit.
    Refused(Denial),
    /// The node's record of the key is out of date. The node must read the key again and repeat the call.
    StaleKey,
}

/// The hold of an admitted request, and the state of its key and account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The held amount: the estimate, or the remaining money if that is less. Zero if the estimate is zero.
    pub hold: NanoUsd,
    /// The time of the admission by the store's clock, in milliseconds since the Unix epoch. The request belongs to the periods
    /// that contain this time.
    pub at_ms: i64,
    /// The account's balance. Holds are not subtracted.
    pub balance: NanoUsd,
    /// The low mark: the account's balance is low if it is at or below this amount. `None` if it is never low.
    pub low_balance: Option<NanoUsd>,
    /// The use of the key's quota in the period that contains `at_ms`; `None` if the key has no quota.
    pub quota: Option<QuotaUse>,
    /// The setting that determines which state at a provider the account's requests can refer to.
    pub provider_state: ProviderState,
    /// The account's rate and concurrency limits.
    pub account_rates: RateLimits,
    /// The number of the last step of this node that the store has applied to the account.
    pub watermark: u64,
}

/// A key's quota, and the amount spent in the current period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUse {
    /// The quota in the key's terms.
    pub quota: NanoUsd,
    /// The amount spent in the current period, not including holds.
    pub spent: NanoUsd,
    /// The time at which the period ends, in seconds since the Unix epoch; `None` if it never ends.
    pub resets_at: Option<i64>,
}

/// The reason why a request is not admitted. The variants are in the order of the checks. Money that was spent becomes available
/// again only if an operator acts or a new period begins. Held money can become available when running requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denial {
    /// The key was revoked.
    KeyRevoked,
    /// The key has expired.
    KeyExpired,
    /// The account does not exist.
    AccountUnknown,
    AccountSuspended,
    /// The account's balance is used up: `balance <= 0`.
    BalanceExhausted,
    /// Running requests hold the whole balance of the account: `balance > 0` and `balance - held <= 0`.
    BalanceHeld,
    /// The key's quota is used up: `spent >= quota`.
    QuotaExhausted(QuotaUse),
    /// Running requests hold the whole unspent part of the key's quota: `spent < quota` and `spent + held >= quota`.
    QuotaHeld(QuotaUse),
    /// The limit of concurrent requests is reached.
    Concurrency {
        /// Whether the limit belongs to the key or to the account.
        scope: LimitScope,
        /// The maximum number of concurrent requests.
        limit: u64,
        /// Whether leases have free slots of this limit. If so, these leases are being recalled.
        #[serde(default)]
        lent: bool,
    },
    /// A limit of requests or tokens per minute is reached.
    RateLimited {
        /// Whether the limit belongs to the key or to the account.
        scope: LimitScope,
        /// Whether the limit counts requests or tokens.
        counted: RateKind,
        /// The maximum number of requests or tokens per minute.
        limit: u64,
        /// The number of milliseconds after which the same request would be admitted if no other request arrives in the meantime.
        retry_after_ms: u64,
        /// Whether leases have an unused part of this limit. If so, these leases are being recalled.
        #[serde(default)]
        lent: bool,
    },
}

impl Denial {
    /// Whether running requests or leases have the money, the rate or the slot that the request needs. If so, it may become
    /// available soon.
    pub const fn is_held(self) -> bool {
        match self {
            Self::BalanceHeld | Self::QuotaHeld(_) => true,
            Self::Concurrency { lent, .. } | Self::RateLimited { lent, .. } => lent,
            Self::KeyRevoked
            | Self::KeyExpired
            | Self::AccountUnknown
            | Self::AccountSuspended
            | Self::BalanceExhausted
            | Self::QuotaExhausted(_) => false,
        }
    }

    /// Whether a change of the key's record can end the denial. Nothing can end a revocation.
    pub const fn depends_on_key(self) -> bool {
        match self {
            Self::KeyExpired | Self::QuotaExhausted(_) | Self::QuotaHeld(_) => true,
            Self::Concurrency { scope, .. } | Self::RateLimited { scope, .. } => matches!(scope, LimitScope::Key),
            Self::KeyRevoked
            | Self::AccountUnknown
            | Self::AccountSuspended
            | Self::BalanceExhausted
            | Self::BalanceHeld => false,
        }
    }
}

/// Whether a limit belongs to a key or to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LimitScope {
    /// The limit belongs to the API key.
    Key,
    /// The limit belongs to the account.
    Account,
}

/// Whether a limit per minute counts requests or tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RateKind {
    Requests,
    /// Input and output tokens together.
    Tokens,
}

/// The call to a store to enlarge the hold of a running request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUp {
    /// The node that admitted the request. For a request admitted from a lease, this is the holder of the lease.
    pub node: NodeId,
    /// The request id that weir has assigned. For a request admitted from a lease, this is the name of the lease's hold, and the
    /// lease grows.
    pub request: SmolStr,
    /// The account that pays.
    pub account: SmolStr,
    /// The key of the request.
    pub key: KeyId,
    /// The time of the request's admission ([`Grant::at_ms`]), which determines the period of the quota.
    pub at_ms: i64,
    /// The amount by which the hold should grow.
    pub more: NanoUsd,
}

/// The reply to a [`TopUp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopUpReply {
    /// The hold has grown by this amount, which is more than zero. It is the requested amount, or the remaining money if that is
    /// less.
    Granted(NanoUsd),
    /// The balance or the quota is used up.
    Refused,
    /// The remaining money is in leases, which are being recalled. The node should repeat the call shortly afterwards.
    Recalling,
    /// The store has no hold for this request, because the request was settled or the node lease has lapsed. The request
    /// continues, and will be charged by its settlement.
    NoHold,
}
