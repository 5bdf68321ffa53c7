//! What a store is asked before a request is forwarded, and what it answers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::{
        key::KeyRecord,
        terms::{ProviderState, Rates},
    },
    ledger::node::NodeId,
    money::NanoUsd,
};

/// A request for admission, made by `billing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admit {
    /// The node that asks; its lease keeps the hold alive.
    pub node: NodeId,
    /// weir's request id.
    pub request: SmolStr,
    /// The key as this node knows it; `record.account` is the account that pays. A store that knows a later revision
    /// answers [`AdmitReply::StaleKey`]; one that knows an earlier one takes this over.
    pub key: Arc<KeyRecord>,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmitReply {
    /// Admitted, with a hold.
    Granted(Grant),
    /// Not admitted; nothing has changed, no limit was used up.
    Refused(Denial),
    /// The key was changed since this node read it: read it again, then ask again.
    StaleKey,
}

/// What an admitted request was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub quota: Option<QuotaUse>,
    /// Which state at providers the account's requests may name.
    pub provider_state: ProviderState,
    /// The account's rate and concurrency limits.
    pub account_rates: Rates,
    /// The last step of this node that the store has applied to the account.
    pub watermark: u64,
}

/// A key's quota and what was spent of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUse {
    /// The quota of the key's terms.
    pub quota: NanoUsd,
    /// What was spent in the current period, without holds.
    pub spent: NanoUsd,
    /// When the period ends, in seconds since the Unix epoch; `None` if it never does.
    pub resets_at: Option<i64>,
}

/// Why a request is not admitted, in the order of the checks. What is spent stays spent until an operator acts or a
/// period ends; what is only held comes back, all or in part, when running requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denial {
    /// The key was revoked.
    KeyRevoked,
    /// The key has expired.
    KeyExpired,
    /// There is no such account.
    AccountUnknown,
    AccountSuspended,
    /// Nothing is left of the account's balance: `balance <= 0`.
    BalanceExhausted,
    /// Running requests hold what is left of the account's balance: `balance - held <= 0 < balance`.
    BalanceHeld,
    /// The key has spent its quota: `spent >= quota`.
    QuotaExhausted(QuotaUse),
    /// Running requests hold what is left of the key's quota: `spent < quota <= spent + held`.
    QuotaHeld(QuotaUse),
    /// The limit of concurrent requests is reached.
    Concurrency {
        /// Whether it is the key's limit or the account's.
        scope: Scope,
        /// The most concurrent requests.
        limit: u64,
        /// Leases have places that are free: they are taken back.
        #[serde(default)]
        lent: bool,
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
        /// Leases have some of it that is not used: that is taken back.
        #[serde(default)]
        lent: bool,
    },
}

impl Denial {
    /// Whether what is missing comes back soon: running requests hold it, or leases have it.
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

    /// Whether a change of the key's record can lift it. A revocation is final.
    pub const fn depends_on_key(self) -> bool {
        match self {
            Self::KeyExpired | Self::QuotaExhausted(_) | Self::QuotaHeld(_) => true,
            Self::Concurrency { scope, .. } | Self::RateLimited { scope, .. } => matches!(scope, Scope::Key),
            Self::KeyRevoked
            | Self::AccountUnknown
            | Self::AccountSuspended
            | Self::BalanceExhausted
            | Self::BalanceHeld => false,
        }
    }
}

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// The API key's.
    Key,
    /// The account's.
    Account,
}

/// What a rate limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Counted {
    Requests,
    /// Tokens, input and output.
    Tokens,
}
