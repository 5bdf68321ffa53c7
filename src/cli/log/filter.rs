//! The options that say which rows.

use clap::Args;

use crate::{
    api::{
        log::{QueryLog, Statuses},
        names::AccountId,
        values::Moment,
    },
    domain::{keys::key::KeyId, ledger::tag::Tag},
};

/// Which rows; all that is given has to be true of them. They come by day, then by account, in the order in which they ended.
#[derive(Args, Clone, Debug, Default)]
pub struct FilterArgs {
    /// Only rows of this account
    #[arg(long)]
    pub(crate) account: Option<AccountId>,
    /// Only rows of the key with this id
    #[arg(long, value_name = "ID")]
    pub(crate) key: Option<KeyId>,
    /// Only rows of this model, asked for or served
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Only requests that ended with this status, or with one of a class such as 5xx
    #[arg(long)]
    pub(crate) status: Option<Statuses>,
    /// Only requests with this tag
    #[arg(long, value_name = "NAME=VALUE", value_parser = tag)]
    pub(crate) tag: Option<Tag>,
    /// Only requests that ended then or later: an RFC 3339 time, or a date for its first moment in UTC
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<Moment>,
    /// Only requests that ended before then
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,
}

/// Reads a tag.
pub(crate) fn tag(text: &str) -> Result<Tag, &'static str> {
    Tag::parse(text).ok_or(Tag::RULE)
}

impl FilterArgs {
    /// The question for these rows.
    pub(super) fn asked(&self) -> QueryLog {
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
