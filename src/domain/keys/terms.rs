//! The limits of keys and accounts.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::domain::{keys::thresholds::Thresholds, money::NanoUsd};

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

/// The text names none of the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is none of the choices")]
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

/// What happens to a running answer whose hold can no longer grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// It may finish, within the [`FinishFactor`], and is charged in full.
    #[default]
    Finish,
    /// It ends with the protocol's in-band error.
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

/// How many times the key's allowance one answer may cost before it is cut, if answers of the key may finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FinishFactor(Option<u32>);

impl FinishFactor {
    /// The largest factor.
    pub const MAX: u32 = 1_000;
    /// No limit: an answer is never cut.
    pub const NONE: Self = Self(None);

    /// From 1 to [`FinishFactor::MAX`]; `None` for any other number.
    pub fn new(factor: u64) -> Option<Self> {
        let factor = u32::try_from(factor).ok()?;
        (1..=Self::MAX).contains(&factor).then_some(Self(Some(factor)))
    }

    /// The factor; `None` without a limit.
    pub const fn get(self) -> Option<u32> {
        self.0
    }

    /// The amount times the factor, at most [`NanoUsd::MAX`]; `None` without a limit.
    pub fn times(self, amount: NanoUsd) -> Option<NanoUsd> {
        let nanos = amount.nanos().saturating_mul(i64::from(self.0?));
        Some(NanoUsd::from_nanos(nanos).min(NanoUsd::MAX))
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The default factor is 2.
impl Default for FinishFactor {
    fn default() -> Self {
        Self(Some(2))
    }
}

/// Which state at a provider a request may name: an earlier response, a conversation, a container, a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderState {
    /// State that requests of the account have created.
    #[default]
    Own,
    /// Anything that the operator's credential reaches at the provider, including state of other accounts.
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

/// Rate and concurrency limits; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rates {
    /// Requests per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u64>,
    /// Tokens per minute, input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<u64>,
    /// Concurrent requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
}

impl Rates {
    /// The largest limit of each kind: with it every figure of a rate limit stays below 2^53.
    pub const MAX: u64 = 1_000_000_000;
}

/// A key's quota and rate limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyTerms {
    /// What it may spend per period; `None` means unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<NanoUsd>,
    /// When the quota's period ends.
    #[serde(default)]
    pub reset: Reset,
    /// What happens when the quota is used up during an answer.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
    /// How much an answer that may finish can cost.
    #[serde(default, skip_serializing_if = "FinishFactor::is_default")]
    pub finish_factor: FinishFactor,
    /// At which parts of the quota somebody is told; `None`: as the account says, or else the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Thresholds>,
    /// Rate and concurrency limits.
    #[serde(flatten)]
    pub rates: Rates,
}

impl KeyTerms {
    /// Whether a quota begins anew that is not there.
    pub fn lacks_quota(&self) -> bool {
        self.reset != Reset::None && self.quota.is_none()
    }
}

/// The limits of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccountTerms {
    /// At or below this balance the account counts as low; `None` if it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_balance: Option<NanoUsd>,
    /// Which state at providers its requests may name.
    #[serde(default)]
    pub provider_state: ProviderState,
    /// At which parts of their quotas somebody is told of its keys; `None`: as the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Thresholds>,
    /// Rate and concurrency limits.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A change of [`Rates`]. `None` keeps a limit, `Some(None)` removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RatesChange {
    /// Changes the requests per minute.
    pub rpm: Option<Option<u64>>,
    /// Changes the tokens per minute.
    pub tpm: Option<Option<u64>>,
    /// Changes the concurrent requests.
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

/// A change of [`KeyTerms`]. `None` keeps a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTermsChange {
    /// Changes the quota; `Some(None)` removes it.
    pub quota: Option<Option<NanoUsd>>,
    /// Changes the period.
    pub reset: Option<Reset>,
    /// Changes what happens when the quota is used up during an answer.
    pub on_exhausted: Option<OnExhausted>,
    /// Changes how much an answer that may finish can cost.
    pub finish_factor: Option<FinishFactor>,
    /// Changes at which parts of the quota somebody is told; `Some(None)`: as account or configuration say.
    pub notify: Option<Option<Thresholds>>,
    /// Changes rate and concurrency limits.
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
            notify: self.notify.unwrap_or(terms.notify),
            rates: self.rates.apply(terms.rates),
        }
    }
}

/// A change of [`AccountTerms`]. `None` keeps a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountTermsChange {
    /// Changes the balance that counts as low; `Some(None)` removes it.
    pub low_balance: Option<Option<NanoUsd>>,
    /// Changes which state at providers its requests may name.
    pub provider_state: Option<ProviderState>,
    /// Changes at which parts of their quotas somebody is told of its keys; `Some(None)`: as the configuration says.
    pub notify: Option<Option<Thresholds>>,
    /// Changes rate and concurrency limits.
    pub rates: RatesChange,
}

impl AccountTermsChange {
    /// The limits after the change.
    #[must_use]
    pub(crate) fn apply(self, terms: AccountTerms) -> AccountTerms {
        AccountTerms {
            low_balance: self.low_balance.unwrap_or(terms.low_balance),
            provider_state: self.provider_state.unwrap_or(terms.provider_state),
            notify: self.notify.unwrap_or(terms.notify),
            rates: self.rates.apply(terms.rates),
        }
    }
}
