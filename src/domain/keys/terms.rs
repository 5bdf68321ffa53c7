//! The limits of keys and accounts, and the percentages of a quota at which notices are sent.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::domain::money::NanoUsd;

/// The period after which a quota resets. All resets are at 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaReset {
    /// The quota never resets.
    #[default]
    None,
    /// The quota resets every day.
    Daily,
    /// The quota resets every Monday.
    Weekly,
    /// The quota resets on the first day of every month.
    Monthly,
}

impl QuotaReset {
    /// Returns the name of this value on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }
}

/// The error that a string cannot be parsed as an enum, because it is not the name of any of the enum's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the value is not one of the allowed values")]
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

/// The way in which a running answer continues or ends when its hold cannot grow, because the key's quota or the balance is used
/// up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// The answer can finish within the limit of the [`FinishFactor`], and is charged in full.
    #[default]
    Finish,
    /// The answer is cut off. Its body ends with an error in the form of the protocol.
    Cut,
}

impl OnExhausted {
    /// Returns the name of this value on the command line.
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

/// The maximum cost of an answer that finishes after the quota or the balance is used up. It is a multiple of the key's quota or,
/// for a key without a quota, of the account's balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FinishFactor(Option<u32>);

impl FinishFactor {
    /// The largest finish factor.
    pub const MAX: u32 = 1_000;
    /// No limit: an answer never ends because of its cost.
    pub const NONE: Self = Self(None);

    /// Creates a factor from 1 to [`FinishFactor::MAX`]; `None` for any other number.
    pub fn new(factor: u64) -> Option<Self> {
        let factor = u32::try_from(factor).ok()?;
        (1..=Self::MAX).contains(&factor).then_some(Self(Some(factor)))
    }

    /// Returns the factor; `None` if there is no limit.
    pub const fn get(self) -> Option<u32> {
        self.0
    }

    /// Returns the amount times the factor, at most [`NanoUsd::MAX`]; `None` if there is no limit.
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

/// The setting that determines which state at a provider a request can refer to. Such state consists of earlier responses,
/// conversations, containers and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderState {
    /// Only state that requests of the same account have created.
    #[default]
    Own,
    /// Any state that the operator's credential can access at the provider, including state of other accounts.
    Any,
}

impl ProviderState {
    /// Returns the name of this value on the command line.
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

/// The rate and concurrency limits of a key or an account; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RateLimits {
    /// The maximum number of requests per minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u64>,
    /// The maximum number of tokens per minute, input and output together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<u64>,
    /// The maximum number of concurrent requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
}

impl RateLimits {
    /// The maximum value of each limit. It keeps all numbers in the computation of rates below 2^53.
    pub const MAX: u64 = 1_000_000_000;
}

/// The quota, the rate limits and the notices of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyTerms {
    /// The key's quota: the maximum amount that the key can spend per period; `None` if it is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<NanoUsd>,
    /// The period after which the quota resets.
    #[serde(default)]
    pub reset: QuotaReset,
    /// The way in which a running answer continues or ends when the quota is used up.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
    /// The maximum cost of an answer that finishes after the quota is used up.
    #[serde(default, skip_serializing_if = "FinishFactor::is_default")]
    pub finish_factor: FinishFactor,
    /// The percentages of the quota at which notices are sent. `None` means the percentages of the account, or those in the
    /// configuration if the account has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Thresholds>,
    /// The key's rate and concurrency limits.
    #[serde(flatten)]
    pub rates: RateLimits,
}

impl KeyTerms {
    /// Whether a reset period is set although the key has no quota.
    pub fn has_reset_without_quota(&self) -> bool {
        self.reset != QuotaReset::None && self.quota.is_none()
    }
}

/// The limits of an account, and its settings for notices and for state at providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AccountTerms {
    /// The low mark: the balance is low if it is at or below this amount. `None` if the balance is never low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_balance: Option<NanoUsd>,
    /// The setting that determines which state at a provider the account's requests can refer to.
    #[serde(default)]
    pub provider_state: ProviderState,
    /// The percentages of a quota at which notices are sent, for those keys of the account that have no such setting of their
    /// own. `None` means the percentages in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<Thresholds>,
    /// The account's rate and concurrency limits.
    #[serde(flatten)]
    pub rates: RateLimits,
}

/// A change of [`RateLimits`]. `None` does not change a limit, and `Some(None)` removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitsChange {
    /// The new maximum number of requests per minute.
    pub rpm: Option<Option<u64>>,
    /// The new maximum number of tokens per minute.
    pub tpm: Option<Option<u64>>,
    /// The new maximum number of concurrent requests.
    pub concurrency: Option<Option<u64>>,
}

impl RateLimitsChange {
    /// Returns the limits after the change.
    #[must_use]
    pub fn apply(self, rates: RateLimits) -> RateLimits {
        RateLimits {
            rpm: self.rpm.unwrap_or(rates.rpm),
            tpm: self.tpm.unwrap_or(rates.tpm),
            concurrency: self.concurrency.unwrap_or(rates.concurrency),
        }
    }
}

/// A change of [`KeyTerms`]. `None` does not change a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTermsChange {
    /// The new quota; `Some(None)` removes the quota.
    pub quota: Option<Option<NanoUsd>>,
    /// The new period after which the quota resets.
    pub reset: Option<QuotaReset>,
    /// The new setting that determines how a running answer continues or ends when the quota is used up.
    pub on_exhausted: Option<OnExhausted>,
    /// The new maximum cost of an answer that continues after the quota is used up. It is a multiple of the quota. For a key
    /// without a quota, it is a multiple of the account's balance.
    pub finish_factor: Option<FinishFactor>,
    /// The new percentages of the quota at which notices are sent. `Some(None)` means that the key uses the percentages of its
    /// account. If the account has none, the key uses those in the configuration.
    pub notify: Option<Option<Thresholds>>,
    /// The change of rate and concurrency limits.
    pub rates: RateLimitsChange,
}

impl KeyTermsChange {
    /// Returns the key's terms after the change.
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

/// A change of [`AccountTerms`]. `None` does not change a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountTermsChange {
    /// The new low mark of the balance; `Some(None)` removes it.
    pub low_balance: Option<Option<NanoUsd>>,
    /// The new setting that determines which state at a provider the account's requests can refer to.
    pub provider_state: Option<ProviderState>,
    /// The new percentages of quotas at which notices are sent. `Some(None)` means those in the configuration.
    pub notify: Option<Option<Thresholds>>,
    /// The change of rate and concurrency limits.
    pub rates: RateLimitsChange,
}

impl AccountTermsChange {
    /// Returns the account's terms after the change.
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

/// All percentages of a quota at which a notice can be sent. A ledger records when spending reaches each percentage. The key's
/// own setting determines which percentages cause a notice. If the key has no setting, the setting of its account applies. If the
/// account has none either, the configuration applies.
pub(crate) const PERCENTS: [u8; 6] = [50, 75, 80, 90, 95, 100];

/// The percentages of a quota at which notices are sent: a subset of [`PERCENTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub struct Thresholds {
    /// The chosen percentages as a bit set. The lowest bit is for the first percentage in [`PERCENTS`].
    chosen: u8,
}

impl Thresholds {
    /// Creates a set of percentages. They can be given in any order.
    ///
    /// # Errors
    /// Returns the first percentage that is not in [`PERCENTS`].
    pub(crate) fn of(percents: impl IntoIterator<Item = u64>) -> Result<Self, u64> {
        let mut chosen = 0;
        for percent in percents {
            let place = PERCENTS.iter().position(|known| u64::from(*known) == percent);
            chosen |= 1 << place.ok_or(percent)?;
        }
        Ok(Self { chosen })
    }

    /// Whether the set contains this percentage.
    pub(crate) fn contains(self, percent: u8) -> bool {
        self.percents().any(|chosen| chosen == percent)
    }

    /// Returns the percentages in ascending order.
    pub(crate) fn percents(self) -> impl Iterator<Item = u8> {
        let places = PERCENTS.into_iter().enumerate();
        places.filter_map(move |(place, percent)| (self.chosen & (1 << place) != 0).then_some(percent))
    }
}

/// Percentages that are not in [`PERCENTS`] are ignored. Only a later version of weir can have stored them.
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
