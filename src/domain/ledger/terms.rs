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

/// A word that names none of the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChoice;

impl std::str::FromStr for Reset {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        [Self::None, Self::Daily, Self::Weekly, Self::Monthly]
            .into_iter()
            .find(|reset| reset.as_str() == text)
            .ok_or(UnknownChoice)
    }
}

/// What happens to a running answer whose hold cannot grow any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// It ends by itself, and is charged in full; see [`FinishFactor`].
    #[default]
    Finish,
    /// It is ended with the protocol's in-band error.
    Cut,
}

impl OnExhausted {
    /// The name, as on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finish => "finish",
            Self::Cut => "cut",
        }
    }
}

impl std::str::FromStr for OnExhausted {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        [Self::Finish, Self::Cut]
            .into_iter()
            .find(|choice| choice.as_str() == text)
            .ok_or(UnknownChoice)
    }
}

/// How many times what a key may spend one answer may cost before it is ended, although answers of the key may finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FinishFactor(Option<u32>);

impl FinishFactor {
    /// The largest factor.
    pub const MAX: u32 = 1_000;
    /// No answer is ended.
    pub const NONE: Self = Self(None);

    /// From 1 to [`FinishFactor::MAX`]; `None` for any other number.
    pub fn new(factor: u64) -> Option<Self> {
        let factor = u32::try_from(factor).ok()?;
        (1..=Self::MAX).contains(&factor).then_some(Self(Some(factor)))
    }

    /// The factor; `None`: no answer is ended.
    pub const fn get(self) -> Option<u32> {
        self.0
    }

    /// So many times an amount, and no more than [`NanoUsd::MAX`]; `None`: no bound.
    pub fn times(self, amount: NanoUsd) -> Option<NanoUsd> {
        let nanos = amount.nanos().saturating_mul(i64::from(self.0?));
        Some(NanoUsd::from_nanos(nanos).min(NanoUsd::MAX))
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Twice.
impl Default for FinishFactor {
    fn default() -> Self {
        Self(Some(2))
    }
}

/// Whose state at a provider a request may name: an earlier response, a conversation, a container, a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderState {
    /// What requests of the account have made.
    #[default]
    Own,
    /// Anything that the operator's credential reaches at the provider, other accounts' included.
    Any,
}

impl ProviderState {
    /// The name, as on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Any => "any",
        }
    }
}

impl std::str::FromStr for ProviderState {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, UnknownChoice> {
        [Self::Own, Self::Any]
            .into_iter()
            .find(|choice| choice.as_str() == text)
            .ok_or(UnknownChoice)
    }
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
    /// How far an answer may go that finishes.
    #[serde(default, skip_serializing_if = "FinishFactor::is_default")]
    pub finish_factor: FinishFactor,
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
    /// Whose state at providers its requests may name.
    #[serde(default)]
    pub provider_state: ProviderState,
    /// How fast.
    #[serde(flatten)]
    pub rates: Rates,
}

/// What of [`Rates`] an operator changes; `None` leaves a limit as it is, `Some(None)` lifts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RatesChange {
    /// Requests per minute.
    pub rpm: Option<Option<u64>>,
    /// Tokens per minute.
    pub tpm: Option<Option<u64>>,
    /// Requests running at one time.
    pub concurrency: Option<Option<u64>>,
}

impl RatesChange {
    /// The limits after the change.
    #[must_use]
    pub fn apply(self, rates: Rates) -> Rates {
        Rates {
            rpm: self.rpm.unwrap_or(rates.rpm),
            tpm: self.tpm.unwrap_or(rates.tpm),
            concurrency: self.concurrency.unwrap_or(rates.concurrency),
        }
    }
}

/// What of [`KeyTerms`] an operator changes; `None` leaves a part as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTermsChange {
    /// Another quota, or none.
    pub quota: Option<Option<NanoUsd>>,
    /// Another period.
    pub reset: Option<Reset>,
    /// What happens in the middle of an answer.
    pub on_exhausted: Option<OnExhausted>,
    /// How far an answer may go that finishes.
    pub finish_factor: Option<FinishFactor>,
    /// How fast.
    pub rates: RatesChange,
}

impl KeyTermsChange {
    /// The limits after the change.
    #[must_use]
    pub fn apply(self, terms: KeyTerms) -> KeyTerms {
        KeyTerms {
            quota: self.quota.unwrap_or(terms.quota),
            reset: self.reset.unwrap_or(terms.reset),
            on_exhausted: self.on_exhausted.unwrap_or(terms.on_exhausted),
            finish_factor: self.finish_factor.unwrap_or(terms.finish_factor),
            rates: self.rates.apply(terms.rates),
        }
    }
}

/// What of [`AccountTerms`] an operator changes; `None` leaves a part as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountTermsChange {
    /// Another balance that counts as low, or none.
    pub low_balance: Option<Option<NanoUsd>>,
    /// Whose state at providers its requests may name.
    pub provider_state: Option<ProviderState>,
    /// How fast.
    pub rates: RatesChange,
}

impl AccountTermsChange {
    /// The limits after the change.
    #[must_use]
    pub fn apply(self, terms: AccountTerms) -> AccountTerms {
        AccountTerms {
            low_balance: self.low_balance.unwrap_or(terms.low_balance),
            provider_state: self.provider_state.unwrap_or(terms.provider_state),
            rates: self.rates.apply(terms.rates),
        }
    }
}
