//! The calls that place and enlarge a request's hold, and their replies.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::{
        key::{KeyId, KeyRecord},
        terms::{ProviderState, RateLimits},
    },
    ledger::ids::NodeId,
    money::NanoUsd,
};

/// A store's call before a request is forwarded: checks all limits and places a hold. `billing` makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmitCall {
    /// The asking node; its lease keeps the hold alive.
    pub node: NodeId,
    /// weir's request id.
    pub request: SmolStr,
    /// The key as this node knows it; `record.account` is the account that pays. A store that knows a later revision
    /// answers [`AdmitReply::StaleKey`]; one that knows an earlier revision adopts this one.
    pub key: Arc<KeyRecord>,
    /// The expected cost of the request.
    pub estimate: NanoUsd,
    /// The expected input and output tokens. They are taken from the tokens per minute until the settlement corrects them.
    pub tokens: u64,
    /// The number of requests of this key on this node that have ended and whose settlements the store has not acknowledged. They
    /// do not count as running.
    pub ended_key: u64,
    /// The same for the whole account.
    pub ended_account: u64,
}

/// The answer to [`AdmitCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmitReply {
    /// Admitted, with a hold.
    Granted(Grant),
    /// Not admitted; nothing has changed, no limit was used up.
    Refused(Denial),
    /// The key was changed since this node read it: read it again, then ask again.
    StaleKey,
}

/// The hold of an admitted request, and the state of its key and account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The held amount: the estimate, or the remaining money if that is less. Zero for an estimate of zero.
    pub hold: NanoUsd,
    /// When it was admitted by the store's clock, in milliseconds since the Unix epoch. Determines the periods in which it
    /// counts.
    pub at_ms: i64,
    /// The balance, holds not subtracted.
    pub balance: NanoUsd,
    /// The balance at or below which it counts as low; `None` if it never does.
    pub low_balance: Option<NanoUsd>,
    /// The key's quota in the period of `at_ms`; `None` if it has none.
    pub quota: Option<QuotaUse>,
    /// Which provider state the account's requests may name.
    pub provider_state: ProviderState,
    /// The account's rate and concurrency limits.
    pub account_rates: RateLimits,
    /// The last step of this node that the store has applied to the account.
    pub watermark: u64,
}

/// A key's quota and its spending in the current period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUse {
    /// The quota of the key's terms.
    pub quota: NanoUsd,
    /// The spending in the current period, without holds.
    pub spent: NanoUsd,
    /// When the period ends, in seconds since the Unix epoch; `None` if it never does.
    pub resets_at: Option<i64>,
}

/// Why a request is not admitted, in the order of the checks. Spent money stays spent until an operator acts or a period ends;
/// held money is released, all or in part, when running requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denial {
    /// The key was revoked.
    KeyRevoked,
    /// The key has expired.
    KeyExpired,
    /// The account does not exist.
    AccountUnknown,
    AccountSuspended,
    /// The account's balance is spent: `balance <= 0`.
    BalanceExhausted,
    /// Running requests hold the rest of the account's balance: `balance - held <= 0 < balance`.
    BalanceHeld,
    /// The key has spent its quota: `spent >= quota`.
    QuotaExhausted(QuotaUse),
    /// Running requests hold the rest of the key's quota: `spent < quota <= spent + held`.
    QuotaHeld(QuotaUse),
    /// The limit of concurrent requests is reached.
    Concurrency {
        /// Whether it is the key's limit or the account's.
        scope: LimitScope,
        /// The maximum number of concurrent requests.
        limit: u64,
        /// Whether leases have free slots, which are being recalled.
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
        /// In how many milliseconds the same request would be admitted if no other came in between.
        retry_after_ms: u64,
        /// Whether leases have an unused part of it, which is being recalled.
        #[serde(default)]
        lent: bool,
    },
}

impl Denial {
    /// Whether the lacking money, rate or slot is held by running requests or lent to leases, and so may soon be free.
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

/// The owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LimitScope {
    /// The API key's.
    Key,
    /// The account's.
    Account,
}

/// The unit of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RateKind {
    Requests,
    /// Tokens, input and output.
    Tokens,
}

/// A running request's call for a larger hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopUp {
    /// The node that admitted it, or the holder of the lease from which it was admitted.
    pub node: NodeId,
    /// weir's request id, or the name of that lease's hold, which then grows.
    pub request: SmolStr,
    /// The account that pays.
    pub account: SmolStr,
    /// The key of the request.
    pub key: KeyId,
    /// When it was admitted ([`super::Grant::at_ms`]). Determines the quota's period.
    pub at_ms: i64,
    /// The requested growth of the hold.
    pub more: NanoUsd,
}

/// The answer to [`TopUp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopUpReply {
    /// The hold has grown by this amount: the requested one, or what remained; more than zero.
    Granted(NanoUsd),
    /// Nothing remains.
    Refused,
    /// The rest is in leases, which are being recalled: ask again in a moment.
    Recalling,
    /// The store has no hold of this request: it was settled, or the node's lease has lapsed. The request goes on, and
    /// its settlement is charged all the same.
    NoHold,
}
