//! Flags that limit what a key or an account may do. A flag that is not given leaves its limit as it is.

use std::str::FromStr;

use super::admin_client::AdminClientError;
use crate::{
    api::values::{Factor, Limit, Nullable, Percents, Usd},
    domain::ledger::{OnExhausted, Reset},
};
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

/// How it is typed and shown that nothing was chosen.
pub(crate) const DEFAULT: &str = "default";

/// A value, or the word for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

impl<T> OrNone<T> {
    /// The field that an option sets.
    pub(crate) fn nullable(option: Option<Self>) -> Nullable<T> {
        option.map(|Self(value)| value)
    }
}

/// Reads a value, or `none`.
pub(crate) fn or_none<T: FromStr>(text: &str) -> Result<OrNone<T>, T::Err> {
    or("none", text)
}

/// Reads a value, or the word for none.
pub(crate) fn or<T: FromStr>(none: &str, text: &str) -> Result<OrNone<T>, T::Err> {
    if text == none {
        return Ok(OrNone(None));
    }
    text.parse().map(|value| OrNone(Some(value)))
}

/// Reads one of some words.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: std::error::Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

/// How fast.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct RateArgs {
    /// Requests per minute
    #[arg(long, value_name = "N|none", value_parser = or_none::<Limit>)]
    pub(crate) rpm: Option<OrNone<Limit>>,
    /// Tokens per minute, input and output
    #[arg(long, value_name = "N|none", value_parser = or_none::<Limit>)]
    pub(crate) tpm: Option<OrNone<Limit>>,
    /// Requests running at one time
    #[arg(long, value_name = "N|none", value_parser = or_none::<Limit>)]
    pub(crate) concurrency: Option<OrNone<Limit>>,
}

/// What a key may spend.
#[derive(Args, Clone, Debug, Default)]
pub struct QuotaArgs {
    /// What the key may spend in each period, or unlimited
    #[arg(long, value_name = "D|unlimited", allow_negative_numbers = true, value_parser = quota)]
    pub(crate) quota_usd: Option<OrNone<Usd>>,
    /// When the quota begins anew, at 00:00 UTC; weeks begin on Monday
    #[arg(long, value_name = "none|daily|weekly|monthly",
        value_parser = one_of::<Reset>(&["none", "daily", "weekly", "monthly"]))]
    pub(crate) reset: Option<Reset>,
    /// What becomes of a running answer when quota or balance are used up: it ends by itself, or it is ended
    #[arg(long, value_name = "finish|cut", value_parser = one_of::<OnExhausted>(&["finish", "cut"]))]
    pub(crate) on_exhausted: Option<OnExhausted>,
    /// A running answer that may finish is ended when it has cost so many times the quota (without a quota: the balance);
    /// 2 unless set
    #[arg(long, value_name = "N|none", value_parser = or_none::<Factor>)]
    pub(crate) finish_factor: Option<OrNone<Factor>>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub notify: NotifyArgs,
}

fn quota(text: &str) -> Result<OrNone<Usd>, String> {
    or("unlimited", text)
}

/// When somebody is told.
#[derive(Args, Clone, Debug, Default)]
pub struct NotifyArgs {
    /// At which parts of a key's quota somebody is told, in percent and separated by commas: of 50, 75, 80, 90, 95 and 100; none;
    /// or default for what the account says, or else the notices of the configuration
    #[arg(long, value_name = "LIST|none|default", value_parser = notify)]
    pub(crate) notify: Option<OrNone<Percents>>,
}

fn notify(text: &str) -> Result<OrNone<Percents>, String> {
    or(DEFAULT, text)
}

/// An update that names nothing is most often a forgotten option.
pub(crate) fn something_to_change(is_empty: bool) -> Result<(), AdminClientError> {
    if is_empty {
        let help = "nothing to change: give an option for what is to change, see --help";
        return Err(AdminClientError::Usage(help.to_owned()));
    }
    Ok(())
}
