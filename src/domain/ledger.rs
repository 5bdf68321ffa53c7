//! Accounts, quotas, holds and leases: the calls, replies and changes that every ledger store implements.
//!
//! The money of a request goes through three calls. [`AdmitCall`] checks every limit and places a hold. [`TopUp`] enlarges the
//! hold while the answer runs. A [`Step`] with a [`Settlement`] charges the request and ends the hold. Steps are numbered per
//! account and node, and a store applies each exactly once, in order. The terms and the state of an account are its
//! [`AccountRecord`], which is always replaced completely. [`account`] is the reference model that every store follows.

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

/// The settings of an account by operators. A store replaces them completely, and only if its record is the one on which the
/// change is based.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRecord {
    /// The number of changes; 0 for an account of which nothing was set.
    pub revision: u64,
    /// Whether the account is suspended, so that all its requests are refused.
    pub suspended: bool,
    /// The account's limits.
    pub terms: AccountTerms,
}

impl AccountRecord {
    /// Returns the record with these limits and this state. Its revision is one higher, unless nothing changes.
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

    /// Compares this record of a store with `told`, the record that a journal has. Returns the record that the store must store,
    /// or `None` if the store's own record stays. The higher revision wins. At the same revision, a suspension wins, because a
    /// failover has lost one of two changes.
    pub(crate) fn healed(&self, told: &Self) -> Option<Self> {
        if told.revision > self.revision {
            return Some(*told);
        }
        // Neither side had this combination, so it gets a new revision.
        let is_suspended = told.revision == self.revision && told.suspended && !self.suspended;
        is_suspended.then(|| self.with_terms(self.terms, true))
    }

    /// Returns the version of this record. Operators name it in a change that must apply to exactly this record.
    pub(crate) fn version(&self) -> Version {
        let content = serde_json::to_vec(&(self.suspended, &self.terms)).unwrap_or_default();
        Version::new(self.revision, crc32fast::hash(&content))
    }
}

/// A change of an account, with its number among the changes by the same node to the same account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The number of the step, starting from 1. A store applies the step only if the number is the store's watermark plus one.
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

/// A change of an account. A store cannot refuse a change, so the caller checks it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum AccountChange {
    /// A request has ended and is charged.
    Settle(Box<Settlement>),
    /// Creates the account with a balance of zero, unless it exists, and then adds `balance`.
    Open {
        /// The first credit, zero or more.
        balance: NanoUsd,
        /// The time of the creation, in seconds since the Unix epoch.
        at: i64,
        /// An id, under which the amount is added only once; `None` if it is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Adds money to the balance.
    Credit {
        /// The amount, more than zero.
        amount: NanoUsd,
        /// The time at which the credit was requested, in seconds since the Unix epoch; 0 if unknown.
        #[serde(default, skip_serializing_if = "is_unknown")]
        at: i64,
        /// An id, under which the amount is added only once; `None` if it is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
    /// Corrects the balance, up or down. The reason is in the audit record.
    Adjust {
        /// The amount; negative to lower the balance.
        amount: NanoUsd,
        /// The time at which the adjustment was requested, in seconds since the Unix epoch; 0 if unknown.
        #[serde(default, skip_serializing_if = "is_unknown")]
        at: i64,
        /// An id, under which the amount is added only once; `None` if it is always added.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        operation: Option<OperationId>,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_unknown(at: &i64) -> bool {
    *at == 0
}

impl AccountChange {
    /// Returns a change without effect. It takes the number of a lost step, so that later steps can be applied.
    pub(crate) const fn nothing() -> Self {
        Self::Adjust {
            amount: NanoUsd::ZERO,
            at: 0,
            operation: None,
        }
    }

    /// Returns the id under which the change is made only once; `None` if it has none.
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
    /// The request id that weir has assigned. The request's hold ends.
    pub request: SmolStr,
    /// The key of the request.
    pub key: KeyId,
    /// The time of the request's admission, in milliseconds since the Unix epoch. The cost belongs to the four periods that
    /// contain this time.
    pub at_ms: i64,
    /// The number of tokens that were taken from the tokens per minute at admission.
    pub tokens_estimated: u64,
    /// The number of tokens that were used.
    pub tokens_used: u64,
    /// The charge, zero or more.
    pub cost: NanoUsd,
    /// The lease from which the request was admitted, and from which the cost is taken. `None` if the request has a hold of its
    /// own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseId>,
    /// The request's row in the consumption log; `None` for a request that is not billed and costs nothing.
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

    /// Whether the settlement equals [`Settlement::of`] this row, apart from the estimate and the lease.
    pub(crate) fn matches_row(&self, row: &Row) -> bool {
        self.at_ms == row.admitted_ms
            && self.cost == row.cost_nano_usd
            && self.tokens_used == tokens_of(row)
            && self.request == row.request_id
            && self.key == row.key_id
    }

    /// Whether the settlement is one that [`Settlement::without_charge`] creates.
    pub(crate) fn is_free(&self) -> bool {
        self.row.is_none() && self.cost == NanoUsd::ZERO && self.tokens_used == 0
    }

    /// Returns the same settlement with the lease from which the request was admitted, if any.
    pub(crate) fn with_lease(self, lease: Option<LeaseId>) -> Self {
        Self { lease, ..self }
    }
}

/// Returns the number of tokens that the row's request has used.
fn tokens_of(row: &Row) -> u64 {
    row.usage.input_total().saturating_add(row.usage.output_total())
}

/// The call to a store before a request is forwarded. The store checks all limits and places a hold. `billing` makes this call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmitCall {
    /// The calling node. Its node lease keeps the hold alive.
    pub node: NodeId,
    /// The request id that weir has assigned.
    pub request: SmolStr,
    /// The key's record as this node has it; `record.account` pays. A store with a later revision replies
    /// [`AdmitReply::StaleKey`], and a store with an earlier one adopts this one.
    pub key: Arc<KeyRecord>,
    /// The expected cost of the request.
    pub estimate: NanoUsd,
    /// The expected input and output tokens. They are taken from the tokens per minute until the settlement corrects them.
    pub tokens: u64,
    /// The number of this node's requests of the key that have ended and whose settlements the store has not acknowledged. They
    /// do not count as running.
    pub ended_key: u64,
    /// The number of this node's requests of the account that have ended and whose settlements the store has not acknowledged.
    /// They do not count as running.
    pub ended_account: u64,
}

/// The reply to an [`AdmitCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmitReply {
    /// The request is admitted, with a hold.
    Granted(Grant),
    /// The request is refused. Nothing has changed, and no limit was used up.
    Refused(Denial),
    /// The key was changed since this node read it. The node must read it and make the call again.
    StaleKey,
}

/// The hold of an admitted request, and the state of its key and account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The held amount: the estimate, or the remaining money if that is less. It is zero for an estimate of zero.
    pub hold: NanoUsd,
    /// The time of the admission by the store's clock, in milliseconds since the Unix epoch. The request belongs to the periods
    /// that contain this time.
    pub at_ms: i64,
    /// The account's balance, from which holds are not subtracted.
    pub balance: NanoUsd,
    /// The balance at or below which the account's balance counts as low; `None` if it never does.
    pub low_balance: Option<NanoUsd>,
    /// The use of the key's quota in the period of `at_ms`; `None` if the key has no quota.
    pub quota: Option<QuotaUse>,
    /// The state at providers that the account's requests may name.
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
    /// The amount spent in the current period, without holds.
    pub spent: NanoUsd,
    /// The time at which the period ends, in seconds since the Unix epoch; `None` if it never ends.
    pub resets_at: Option<i64>,
}

/// Why a request is not admitted, in the order of the checks. Spent money stays spent until an operator acts or a period ends.
/// Held money is released, completely or in part, when running requests end.
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
    /// Running requests hold the rest of the account's balance: `balance - held <= 0 < balance`.
    BalanceHeld,
    /// The key's quota is used up: `spent >= quota`.
    QuotaExhausted(QuotaUse),
    /// Running requests hold the rest of the key's quota: `spent < quota <= spent + held`.
    QuotaHeld(QuotaUse),
    /// The limit of concurrent requests is reached.
    Concurrency {
        /// Whether it is the key's limit or the account's.
        scope: LimitScope,
        /// The maximum number of concurrent requests.
        limit: u64,
        /// Whether leases have free slots of this limit, which are being recalled.
        #[serde(default)]
        lent: bool,
    },
    /// A limit per minute is reached.
    RateLimited {
        /// Whether it is the key's limit or the account's.
        scope: LimitScope,
        /// Whether it limits requests or tokens.
        counted: RateKind,
        /// The maximum number of requests or tokens per minute.
        limit: u64,
        /// The number of milliseconds after which the same request would be admitted if no other request came before.
        retry_after_ms: u64,
        /// Whether leases have an unused part of this limit, which is being recalled.
        #[serde(default)]
        lent: bool,
    },
}

impl Denial {
    /// Whether running requests hold, or leases have, the money, rate or slot that is lacking, so that it may soon be free.
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

    /// Whether a change of the key's record can end the denial. A revocation is final.
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

/// Whether a limit is that of a key or of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LimitScope {
    /// The limit is that of the API key.
    Key,
    /// The limit is that of the account.
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
    /// The node that admitted the request, or the holder of the lease from which it was admitted.
    pub node: NodeId,
    /// The request id that weir has assigned. For a request admitted from a lease, the name of the lease's hold, which then
    /// grows.
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
    /// The hold has grown by this amount, which is the requested amount or the rest of the money if that is less. It is more than
    /// zero.
    Granted(NanoUsd),
    /// Nothing remains of the balance or of the quota.
    Refused,
    /// The rest of the money is in leases, which are being recalled. The node should make the call again a moment later.
    Recalling,
    /// The store has no hold of this request: the request was settled, or the node lease has lapsed. The request continues, and
    /// its settlement is charged nevertheless.
    NoHold,
}
