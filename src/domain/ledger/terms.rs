//! The limits of keys and accounts.

use serde::{Deserialize, Serialize};

use crate::domain::money::NanoUsd;

/// When a quota begins anew; always at 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reset {
    /// Never.
    #[default]
    None,
    /// Every day.
    Daily,
    /// Every Monday.
    Weekly,
    /// On the first of every month.
    Monthly,
}

impl Reset {
    /// The name, as on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }
}

/// What happens to a running answer whose hold cannot grow any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// It ends by itself, and is charged in full.
    #[default]
    Finish,
    /// It is ended with the protocol's in-band error.
    Cut,
}

/// Limits on how much at a time; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rates {
    /// Requests per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u64>,
    /// Tokens per minute, input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<u64>,
    /// Requests running at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
}

impl Rates {
    /// The largest limit of each kind: with it every figure of a rate limit stays below 2^53.
    pub const MAX: u64 = 1_000_000_000;
}

/// What a key may spend, and how fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyTerms {
    /// What it may spend in each period; `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<NanoUsd>,
    /// The period.
    #[serde(default)]
    pub reset: Reset,
    /// What happens when it is used up in the middle of an answer.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
    /// How fast.
    #[serde(flatten)]
    pub rates: Rates,
}

/// The limits of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccountTerms {
    /// At or below this balance it is said to be low; `None`: never said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_balance: Option<NanoUsd>,
    /// How fast.
    #[serde(flatten)]
    pub rates: Rates,
}
