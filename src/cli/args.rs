//! Options that several subcommands share, above all for the limits of keys and accounts. An option that is left out leaves its
//! limit unchanged.

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
        keys::OVERLAP_MAX_SECONDS,
        ledger::{OnExhausted, QuotaReset},
        version::Version,
    },
};

/// The word for a value that is not set, so that the default applies.
pub(crate) const DEFAULT: &str = "default";

/// The value of an option that can also be a word for "no value", such as `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

impl<T> OrNone<T> {
    /// Converts an option to the admin API's field: left out, null or a value.
    pub(crate) fn nullable(option: Option<Self>) -> Nullable<T> {
        option.map(|Self(value)| value)
    }
}

/// Parses a value, or the word `none`.
pub(crate) fn or_none<T: FromStr>(text: &str) -> Result<OrNone<T>, T::Err> {
    or("none", text)
}

/// Parses a value, or the word `none` that stands for no value.
pub(crate) fn or<T: FromStr>(none: &str, text: &str) -> Result<OrNone<T>, T::Err> {
    if text == none {
        return Ok(OrNone(None));
    }
    text.parse().map(|value| OrNone(Some(value)))
}

/// Returns a parser that accepts one of `words`.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

/// The options for limits of rate and concurrency.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct RateArgs {
    /// The maximum number of requests per minute, or none
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) rpm: Option<OrNone<LimitInput>>,
    /// The maximum number of input and output tokens per minute, or none
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) tpm: Option<OrNone<LimitInput>>,
    /// The maximum number of concurrent requests, or none
    #[arg(long, value_name = "N|none", value_parser = or_none::<LimitInput>)]
    pub(crate) concurrency: Option<OrNone<LimitInput>>,
}

/// The options for the quota of a key.
#[derive(Args, Clone, Debug, Default)]
pub struct QuotaArgs {
    /// The amount in USD that the key may spend per period, or unlimited
    #[arg(long, value_name = "D|unlimited", allow_negative_numbers = true, value_parser = quota)]
    pub(crate) quota_usd: Option<OrNone<Usd>>,
    /// How often the quota is reset, at 00:00 UTC; weeks begin on Monday
    #[arg(long, value_name = "none|daily|weekly|monthly",
        value_parser = one_of::<QuotaReset>(&["none", "daily", "weekly", "monthly"]))]
    pub(crate) reset: Option<QuotaReset>,
    /// What happens to a running answer when the quota or the balance is used up: finish lets it finish, cut ends it
    #[arg(long, value_name = "finish|cut", value_parser = one_of::<OnExhausted>(&["finish", "cut"]))]
    pub(crate) on_exhausted: Option<OnExhausted>,
    /// How many times the quota (without a quota, the balance) an answer that may finish can cost before it is cut; 2 unless set
    #[arg(long, value_name = "N|none", value_parser = or_none::<FactorInput>)]
    pub(crate) finish_factor: Option<OrNone<FactorInput>>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub notify: NotifyArgs,
}

fn quota(text: &str) -> Result<OrNone<Usd>, String> {
    or("unlimited", text)
}

/// The option that says when notices are sent.
#[derive(Args, Clone, Debug, Default)]
pub struct NotifyArgs {
    /// The percentages of a key's quota at which a notice is sent, separated by commas: any of 50, 75, 80, 90, 95 and 100; none
    /// for no notices; default for the account's list or else the configuration's
    #[arg(long, value_name = "LIST|none|default", value_parser = notify)]
    pub(crate) notify: Option<OrNone<Percents>>,
}

fn notify(text: &str) -> Result<OrNone<Percents>, String> {
    or(DEFAULT, text)
}

/// Returns an error for an update without any change, because an option was probably forgotten.
pub(crate) fn something_to_change(is_empty: bool) -> Result<(), AdminClientError> {
    if is_empty {
        let help = "nothing to change: give at least one option, see --help";
        return Err(AdminClientError::Usage(help.to_owned()));
    }
    Ok(())
}

/// The message for any other text.
const OVERLAP_HINT: &str =
    "give a whole number with s, m, h or d, such as 24h, at most 30d; or 0 to end the old secret at once";

/// The time for which the old secret of a rotated key remains valid, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapArg(pub u64);

impl OverlapArg {
    /// Parses a number with a unit.
    ///
    /// # Errors
    /// The text is not such a time. Contains a message that says what is valid.
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

/// The option that makes a change conditional.
#[derive(Args, Clone, Debug, Default)]
pub struct IfVersion {
    /// Make the change only if the object still has this version, which commands that show the object print
    #[arg(long, value_name = "V")]
    pub if_version: Option<Version>,
}

/// The id of an object, as an argument or as the option `--id`.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct IdArgs<T = String>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// The id, as the list command prints it
    #[arg(value_name = "ID", value_parser = T::from_str)]
    positional: Option<T>,
    /// The id, as an option
    #[arg(long = "id", value_name = "ID", value_parser = T::from_str)]
    option: Option<T>,
}

impl<T> IdArgs<T>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    /// Returns the id, or an error if it was not given.
    pub(crate) fn id_or_error(&self) -> Result<T, AdminClientError> {
        let given = self.positional.as_ref().or(self.option.as_ref());
        given
            .cloned()
            .ok_or_else(|| AdminClientError::Usage("give an ID".to_owned()))
    }
}

impl IdArgs {
    /// Returns the id as text. Empty if it was not given.
    pub fn id(&self) -> &str {
        let given = self.positional.as_deref().or(self.option.as_deref());
        given.unwrap_or_default()
    }
}

/// The number of accounts per call of the admin API.
const PAGE: u64 = 1000;

/// Reads the ids of all accounts, in alphabetical order.
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
