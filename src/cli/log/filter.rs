//! The options that say which rows.

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Which rows; all that is given has to be true of them. They come by day, then by account, in the order in which they ended.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only rows of this account
    #[arg(long)]
    pub account: Option<String>,
    /// Only rows of the key with this id
    #[arg(long, value_name = "ID")]
    pub key: Option<String>,
    /// Only rows of this model, asked for or served
    #[arg(long)]
    pub model: Option<String>,
    /// Only requests that ended with this status, or with one of a class such as 5xx
    #[arg(long)]
    pub status: Option<String>,
    /// Only requests with this tag
    #[arg(long, value_name = "NAME=VALUE")]
    pub tag: Option<String>,
    /// Only requests that ended then or later: an RFC 3339 time, or a date for its first moment in UTC
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only requests that ended before then
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Only rows that the store has, of all or of the last days: for when the log's home is away
    #[arg(long)]
    pub store_only: bool,
}

impl FilterArgs {
    /// As a query of the admin API: each part with `&` in front.
    pub(super) fn query(&self) -> String {
        let fields = [
            ("account", &self.account),
            ("key", &self.key),
            ("model", &self.model),
            ("status", &self.status),
            ("tag", &self.tag),
            ("from", &self.from),
            ("until", &self.until),
        ];
        let mut query: String = fields
            .into_iter()
            .filter_map(|(name, value)| {
                let value = value.as_deref()?;
                Some(format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)))
            })
            .collect();
        if self.store_only {
            query.push_str("&store_only=true");
        }
        query
    }
}
