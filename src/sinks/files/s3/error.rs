//! Why a bucket has not done what it was asked for.

use std::{io, time::Duration};

use http::StatusCode;

use super::answer::Refused;
use crate::edges::web_client::WebError;

/// Why a request has not done what it was for. Names no secret.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum RequestError {
    /// The bucket has answered, and not as one wishes.
    #[error("{0}")]
    Refused(Refused),
    /// There is no answer that can be read.
    #[error("{0}")]
    Lost(#[from] WebError),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The answer is none to the question.
    #[error("it answers {0}")]
    Odd(String),
    /// The file that was to be put there cannot be read.
    #[error("the file cannot be read: {0}")]
    Local(#[from] io::Error),
    /// This process ends.
    #[error("weir is stopping")]
    Stopping,
}

impl RequestError {
    /// Whether it may succeed when it is simply made again.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.may_pass(),
            Self::Lost(WebError::Connect(_) | WebError::Broken(_) | WebError::Late(_)) => true,
            Self::Lost(WebError::TooLong(_) | WebError::Address)
            | Self::Late(_)
            | Self::Odd(_)
            | Self::Local(_)
            | Self::Stopping => false,
        }
    }

    /// Whether there is no such object.
    pub(in super::super) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.status == StatusCode::NOT_FOUND && refused.code != "NoSuchBucket")
    }
}
