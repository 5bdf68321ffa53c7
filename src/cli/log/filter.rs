//! The options that select rows.

use clap::Args;

use crate::{
    api::{
        log::{QueryLog, StatusRange},
        names::AccountId,
        values::Moment,
    },
    domain::{keys::key::KeyId, ledger::tag::Tag},
};

/// Selects the rows that meet all given conditions. They are sorted by day, then by account, in the order in which they ended.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only rows of this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Only rows of the key with this id
    #[arg(long, value_name = "ID")]
    pub(crate) key: Option<KeyId>,
    /// Only rows of this model, requested or served
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Only requests that ended with this status, or with a class of status such as 5xx
    #[arg(long)]
    pub(crate) status: Option<StatusRange>,
    /// Only requests with this tag
    #[arg(long, value_name = "NAME=VALUE", value_parser = tag)]
    pub(crate) tag: Option<Tag>,
    /// Only requests that ended at this time or later: an RFC 3339 time, or a date (its first moment in UTC)
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<Moment>,
    /// Only requests that ended before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,
}

/// Parses a tag.
pub(crate) fn tag(text: &str) -> Result<Tag, &'static str> {
    Tag::parse(text).ok_or(Tag::RULE)
}

impl FilterArgs {
    /// The call for these rows.
    pub(super) fn query(&self) -> QueryLog {
        let Self {
            account,
            key,
            model,
            status,
            tag,
            from,
            until,
        } = self.clone();
        QueryLog {
            account,
            key,
            model,
            status,
            tag,
            from,
            until,
            ..QueryLog::default()
        }
    }
}
