//! The limits of keys and accounts, and the thresholds of notices.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::domain::money::NanoUsd;

/// When a quota resets; always at 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaReset {
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

impl QuotaReset {
    /// The name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }
}

/// The text is not one of the choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it is not one of the choices")]
pub struct UnknownChoice;

impl std::str::FromStr for QuotaReset {
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
    /// It may finish, within the [`FinishFactor`], and is charged in full.
    #[default]
    Finish,
    /// It ends with the protocol's in-band error.
    Cut,
}

impl OnExhausted {
    /// The name on the command line.
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

/// How many times the key's allowance one answer may cost before it is cut, if the key's answers may finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FinishFactor(Option<u32>);

impl FinishFactor {
    /// The largest factor.
    pub const MAX: u32 = 1_000;
    /// No limit: an answer is never cut.
    pub const NONE: Self = Self(None);

    /// A factor from 1 to [`FinishFactor::MAX`]; `None` for any other number.
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

/// Which state at a provider a request may refer to: an earlier response, a conversation, a container, a file.
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
    /// The name on the command line.
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
pub struct RateLimits {
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

impl RateLimits {
    /// Maximum limit of each kind. It keeps all numbers of a rate limit below 2^53.
    pub const MAX: u64 = 1_000_000_000;
}

/// A key's quota and rate limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyTerms {
    /// The amount it may spend per period; `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<NanoUsd>,
    /// When the quota resets.
    #[serde(default)]
    pub reset: QuotaReset,
    /// What happens when the quota is used up during an answer.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
    /// The maximum cost of an answer that may finish.
    #[serde(default, skip_serializing_if = "FinishFactor::is_default")]
    pub finish_factor: FinishFactor,
    /// The parts of the quota at which a notice is sent; `None`: those of the account, else of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Thresholds>,
    /// Rate and concurrency limits.
    #[serde(flatten)]
    pub rates: RateLimits,
}

impl KeyTerms {
    /// Whether a reset is set without a quota.
    pub fn has_reset_without_quota(&self) -> bool {
        self.reset != QuotaReset::None && self.quota.is_none()
    }
}

/// The limits of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccountTerms {
    /// A balance at or below this counts as low; `None`: it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_balance: Option<NanoUsd>,
    /// Which state at providers its requests may refer to.
    #[serde(default)]
    pub provider_state: ProviderState,
    /// The parts of its keys' quotas at which a notice is sent; `None`: those of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Thresholds>,
    /// Rate and concurrency limits.
    #[serde(flatten)]
    pub rates: RateLimits,
}

/// A change of [`RateLimits`]. `None` keeps a limit, `Some(None)` removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitsChange {
    /// Changes the requests per minute.
    pub rpm: Option<Option<u64>>,
    /// Changes the tokens per minute.
    pub tpm: Option<Option<u64>>,
    /// Changes the concurrent requests.
    pub concurrency: Option<Option<u64>>,
}

impl RateLimitsChange {
    /// The limits after the change.
    #[must_use]
    pub fn apply(self, rates: RateLimits) -> RateLimits {
        RateLimits {
            rpm: self.rpm.unwrap_or(rates.rpm),
            tpm: self.tpm.unwrap_or(rates.tpm),
            concurrency: self.concurrency.unwrap_or(rates.concurrency),
        }
    }
}

/// A change of [`KeyTerms`]. `None` keeps a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTermsChange {
    /// Changes the quota; `Some(None)` removes it.
    pub quota: Option<Option<NanoUsd>>,
    /// Changes when the quota resets.
    pub reset: Option<QuotaReset>,
    /// Changes what happens when the quota is used up during an answer.
    pub on_exhausted: Option<OnExhausted>,
    /// Changes the maximum cost of an answer that may finish.
    pub finish_factor: Option<FinishFactor>,
    /// Changes the parts of the quota at which a notice is sent; `Some(None)`: those of account or configuration.
    pub notify: Option<Option<Thresholds>>,
    /// Changes rate and concurrency limits.
    pub rates: RateLimitsChange,
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

/// A change of [`AccountTerms`]. `None` keeps a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountTermsChange {
    /// Changes the balance that counts as low; `Some(None)` removes it.
    pub low_balance: Option<Option<NanoUsd>>,
    /// Changes which state at providers its requests may refer to.
    pub provider_state: Option<ProviderState>,
    /// Changes the parts of its keys' quotas at which a notice is sent; `Some(None)`: those of the configuration.
    pub notify: Option<Option<Thresholds>>,
    /// Changes rate and concurrency limits.
    pub rates: RateLimitsChange,
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

/// The parts that ledgers record, in percent. The key, else its account, else the node's configuration chooses which of them
/// send a notice.
pub(crate) const PERCENTS: [u8; 6] = [50, 75, 80, 90, 95, 100];

/// A subset of [`PERCENTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub struct Thresholds {
    /// One bit for each of [`PERCENTS`], the lowest bit for the first.
    chosen: u8,
}

impl Thresholds {
    /// The thresholds with these parts, given in any order.
    ///
    /// # Errors
    /// The first part that is not in [`PERCENTS`].
    pub(crate) fn of(percents: impl IntoIterator<Item = u64>) -> Result<Self, u64> {
        let mut chosen = 0;
        for percent in percents {
            let place = PERCENTS.iter().position(|known| u64::from(*known) == percent);
            chosen |= 1 << place.ok_or(percent)?;
        }
        Ok(Self { chosen })
    }

    /// Whether this part is one of the thresholds.
    pub(crate) fn contains(self, percent: u8) -> bool {
        self.percents().any(|chosen| chosen == percent)
    }

    /// The parts, in ascending order.
    pub(crate) fn percents(self) -> impl Iterator<Item = u8> {
        let places = PERCENTS.into_iter().enumerate();
        places.filter_map(move |(place, percent)| (self.chosen & (1 << place) != 0).then_some(percent))
    }
}

/// Parts that only a later version of weir knows are ignored.
impl From<Vec<u8>> for Thresholds {
    fn from(percents: Vec<u8>) -> Self {
        let known = percents.into_iter().filter(|percent| PERCENTS.contains(percent));
        Self::of(known.map(u64::from)).unwrap_or_default()
    }
}

impl From<Thresholds> for Vec<u8> {
    fn from(thresholds: Thresholds) -> Self {
        thresholds.percents().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_parts_that_are_counted_each_once() {
        let some = Thresholds::of([100, 80, 80]).unwrap();
        assert_eq!(some.percents().collect::<Vec<_>>(), [80, 100]);
        assert!(some.contains(80) && !some.contains(90));
        assert_eq!(Thresholds::of([50, 60]), Err(60));
        let all = Thresholds::of(PERCENTS.map(u64::from)).unwrap();
        assert_eq!(all.percents().collect::<Vec<_>>(), PERCENTS);
        assert_eq!(Thresholds::of([]).unwrap().percents().count(), 0);
    }

    #[test]
    fn they_are_written_as_a_list_and_read_without_what_is_not_counted() {
        let some = Thresholds::of([50, 95]).unwrap();
        assert_eq!(serde_json::to_string(&some).unwrap(), "[50,95]");
        assert_eq!(serde_json::from_str::<Thresholds>("[95,33,50]").unwrap(), some);
    }
}
