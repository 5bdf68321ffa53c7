//! Flags that limit what a key or an account may do. A flag that is not given leaves its limit as it is.

use std::str::FromStr;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde_json::{Map, Value, json};

use super::admin_client::AdminClientError;
use crate::{
    api::values::{Given, Limit, Percents},
    domain::keys::thresholds::Thresholds,
};

/// At which parts of a quota somebody is told, as a field of the admin API.
pub(crate) const NOTIFY: &str = "notify_percent";
/// How it is typed and shown that nothing was chosen.
pub(crate) const DEFAULT: &str = "default";

/// A value, or the word for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrNone<T>(pub(crate) Option<T>);

impl<T> OrNone<T> {
    /// The field that an option sets.
    pub(crate) fn given(option: Option<Self>) -> Given<T> {
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
    #[arg(long, value_name = "D|unlimited", allow_negative_numbers = true)]
    pub quota_usd: Option<String>,
    /// When the quota begins anew, at 00:00 UTC; weeks begin on Monday
    #[arg(long, value_name = "none|daily|weekly|monthly", value_parser = ["none", "daily", "weekly", "monthly"])]
    pub reset: Option<String>,
    /// What becomes of a running answer when quota or balance are used up: it ends by itself, or it is ended
    #[arg(long, value_name = "finish|cut", value_parser = ["finish", "cut"])]
    pub on_exhausted: Option<String>,
    /// A running answer that may finish is ended when it has cost so many times the quota (without a quota: the balance);
    /// 2 unless set
    #[arg(long, value_name = "N|none", value_parser = or_none::<Limit>)]
    pub(crate) finish_factor: Option<OrNone<Limit>>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at its type")]
    pub notify: NotifyArgs,
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
    match text {
        "none" => Ok(OrNone(Some(Percents(Thresholds::default())))),
        other => or(DEFAULT, other),
    }
}

impl NotifyArgs {
    /// Adds what was given to a request's fields.
    pub fn put(&self, fields: &mut Map<String, Value>) {
        if let Some(OrNone(chosen)) = &self.notify {
            fields.insert(NOTIFY.to_owned(), json!(chosen));
        }
    }
}

impl RateArgs {
    /// Adds what was given to a request's fields.
    pub fn put(self, fields: &mut Map<String, Value>) {
        for (name, limit) in [("rpm", self.rpm), ("tpm", self.tpm), ("concurrency", self.concurrency)] {
            if let Some(OrNone(limit)) = limit {
                fields.insert(name.to_owned(), json!(limit));
            }
        }
    }
}

impl QuotaArgs {
    /// Adds what was given to a request's fields.
    pub fn put(&self, fields: &mut Map<String, Value>) {
        put_or_null(fields, "quota_usd", self.quota_usd.as_deref(), "unlimited");
        for (name, value) in [("reset", &self.reset), ("on_exhausted", &self.on_exhausted)] {
            if let Some(value) = value {
                fields.insert(name.to_owned(), json!(value));
            }
        }
        if let Some(OrNone(factor)) = self.finish_factor {
            fields.insert("finish_factor".to_owned(), json!(factor));
        }
        self.notify.put(fields);
    }
}

/// A list as it is shown: as it is typed.
pub(crate) fn listed(list: &[Value]) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match list {
        [] => "none".to_owned(),
        some => some.iter().map(plain).collect::<Vec<_>>().join(","),
    }
}

/// An update that names nothing is most often a forgotten option.
pub(crate) fn something_to_change(is_empty: bool) -> Result<(), AdminClientError> {
    if is_empty {
        let help = "nothing to change: give an option for what is to change, see --help";
        return Err(AdminClientError::Usage(help.to_owned()));
    }
    Ok(())
}

/// Adds a field that was given; one word stands for null.
pub(crate) fn put_or_null(fields: &mut Map<String, Value>, name: &str, value: Option<&str>, null: &str) {
    if let Some(value) = value {
        let value = if value == null { Value::Null } else { json!(value) };
        fields.insert(name.to_owned(), value);
    }
}
