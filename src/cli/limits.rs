//! Options for the limits of a key or an account, and their values. An option that is not given leaves its limit unchanged.

use std::str::FromStr;

use super::admin_client::AdminClientError;
use crate::{
    api::values::{FactorInput, LimitInput, Nullable, Percents, Usd},
    domain::ledger::{OnExhausted, QuotaReset},
};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

/// The word for a value that is not set.
pub(crate) const DEFAULT: &str = "default";

/// A value, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

impl<T> OrNone<T> {
    /// The API's field for an option.
    pub(crate) fn nullable(option: Option<Self>) -> Nullable<T> {
        option.map(|Self(value)| value)
    }
}

/// Parses a value, or `none`.
pub(crate) fn or_none<T: FromStr>(text: &str) -> Result<OrNone<T>, T::Err> {
    or("none", text)
}

/// Parses a value, or the word `none` for nothing.
pub(crate) fn or<T: FromStr>(none: &str, text: &str) -> Result<OrNone<T>, T::Err> {
    if text == none {
        return Ok(OrNone(None));
    }
    text.parse().map(|value| OrNone(Some(value)))
}

/// A parser for one of `words`.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

/// Rate and concurrency limits.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct RateArgs {
    /// Requests per minute
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) rpm: Option<OrNone<LimitInput>>,
    /// Tokens per minute, input and output
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) tpm: Option<OrNone<LimitInput>>,
    /// Concurrent requests
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) concurrency: Option<OrNone<LimitInput>>,
}

/// The quota of a key.
#[derive(Args, Clone, Debug, Default)]
pub struct QuotaArgs {
    /// The amount that the key may spend per period, or unlimited
    #[arg(long, value_name = "D|unlimited", allow_negative_numbers = true, value_parser = quota)]
    pub(crate) quota_usd: Option<OrNone<Usd>>,
    /// When the quota is reset, at 00:00 UTC; weeks begin on Monday
    #[arg(long, value_name = "none|daily|weekly|monthly",
        value_parser = one_of::<QuotaReset>(&["none", "daily", "weekly", "monthly"]))]
    pub(crate) reset: Option<QuotaReset>,
    /// What happens to a running answer when quota or balance are used up: it may finish, or it is cut
    #[arg(long, value_name = "finish|cut", value_parser = one_of::<OnExhausted>(&["finish", "cut"]))]
    pub(crate) on_exhausted: Option<OnExhausted>,
    /// A running answer that may finish is cut when it costs this many times the quota (without a quota: the balance);
    /// 2 unless set
    #[arg(long, value_name = "N|none", value_parser = or_none::<FactorInput>)]
    pub(crate) finish_factor: Option<OrNone<FactorInput>>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub notify: NotifyArgs,
}

fn quota(text: &str) -> Result<OrNone<Usd>, String> {
    or("unlimited", text)
}

/// When notices are sent.
#[derive(Args, Clone, Debug, Default)]
pub struct NotifyArgs {
    /// The parts of a key's quota at which a notice is sent, in percent and separated by commas: any of 50, 75, 80, 90, 95 and
    /// 100; none; or default for the account's list, or else that of the configuration
    #[arg(long, value_name = "LIST|none|default", value_parser = notify)]
    pub(crate) notify: Option<OrNone<Percents>>,
}

fn notify(text: &str) -> Result<OrNone<Percents>, String> {
    or(DEFAULT, text)
}

/// Refuses an update without any change: an option was probably forgotten.
pub(crate) fn something_to_change(is_empty: bool) -> Result<(), AdminClientError> {
    if is_empty {
        let help = "nothing to change: give at least one option, see --help";
        return Err(AdminClientError::Usage(help.to_owned()));
    }
    Ok(())
}
