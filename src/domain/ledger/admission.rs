//! The calls that place and enlarge the hold of a request, and the replies to them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::{
        KeyId, KeyRecord,
        terms::{ProviderState, RateLimits},
    },
    ledger::ids::NodeId,
    money::NanoUsd,
};

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
    /// The time of the request's admission ([`super::Grant::at_ms`]), which determines the period of the quota.
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
