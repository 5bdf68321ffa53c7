//! Options for the limits of a key or an account, and their values. An option that is not given leaves its limit unchanged.

use std::{error::Error, str::FromStr};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::{
    api::{
        accounts::ListAccounts,
        values::{FactorInput, LimitInput, Nullable, Percents, Usd},
    },
    cli::admin_client::{AdminClient, AdminClientError},
    domain::{
        keys::key::OVERLAP_MAX_SECONDS,
        ledger::{OnExhausted, QuotaReset},
        version::Version,
    },
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
    T: FromStr<Err: Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
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

/// The error for anything else.
const OVERLAP_HINT: &str =
    "give a whole number with s, m, h or d, such as 24h, at most 30d; or 0 to end the old text at once";

/// A time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapArg(pub u64);

impl OverlapArg {
    /// Parses one.
    ///
    /// # Errors
    /// Says what to give.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| OVERLAP_HINT)?;
        let unit = match text.strip_prefix(digits) {
            Some("s") => 1,
            Some("m") => 60,
            Some("h") => 3600,
            Some("d") => 24 * 3600,
            Some("") if number == 0 => 1,
            _ => return Err(OVERLAP_HINT),
        };
        let seconds = number
            .checked_mul(unit)
            .filter(|seconds| *seconds <= OVERLAP_MAX_SECONDS);
        seconds.map(Self).ok_or(OVERLAP_HINT)
    }
}

/// The version that a change requires.
#[derive(Args, Clone, Debug, Default)]
pub struct IfVersion {
    /// Change it only if it is still at this version, which the commands that show it print
    #[arg(long, value_name = "V")]
    pub if_version: Option<Version>,
}

/// An id, as an argument or as the option `--id`.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct IdArgs<T = String>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// Its id, as shown in the list
    #[arg(value_name = "ID", value_parser = T::from_str)]
    positional: Option<T>,
    /// The same
    #[arg(long = "id", value_name = "ID", value_parser = T::from_str)]
    option: Option<T>,
}

impl<T> IdArgs<T>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// The given id.
    pub(crate) fn id_or_error(&self) -> Result<T, AdminClientError> {
        let given = self.positional.as_ref().or(self.option.as_ref());
        given
            .cloned()
            .ok_or_else(|| AdminClientError::Usage("give an ID".to_owned()))
    }
}

impl IdArgs {
    /// The given text.
    pub fn id(&self) -> &str {
        let given = self.positional.as_deref().or(self.option.as_deref());
        given.unwrap_or_default()
    }
}

/// Accounts per call.
const PAGE: u64 = 1000;

/// Reads the names of all accounts, in order.
pub(crate) async fn read_account_names(client: &AdminClient) -> Result<Vec<String>, AdminClientError> {
    let mut names = Vec::new();
    let mut page = ListAccounts {
        after: None,
        limit: Some(PAGE),
    };
    loop {
        let listed = client.request(&page).await?.read()?;
        names.extend(listed.accounts.into_iter().map(|account| account.id));
        if listed.next.is_none() {
            return Ok(names);
        }
        page.after = listed.next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_has_a_unit_and_an_end() {
        let seconds = |text| OverlapArg::parse(text).map(|overlap| overlap.0);
        for (text, expected) in [
            ("0", 0),
            ("90s", 90),
            ("5m", 300),
            ("24h", 86_400),
            ("30d", OVERLAP_MAX_SECONDS),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "h",
            "24",
            "-1h",
            "1.5h",
            "1w",
            "1 h",
            "31d",
            "721h",
            "99999999999999999999s",
            "9223372036854775807d",
        ] {
            assert_eq!(seconds(text), Err(OVERLAP_HINT), "{text}");
        }
    }
}
