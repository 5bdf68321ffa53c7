//! Errors of requests to a bucket.

use std::{io, time::Duration};

use http::StatusCode;

use super::answer::BucketRefusal;
use crate::edges::web_client::WebError;

/// Why a request to a bucket failed. The texts contain no secret.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum BucketRequestError {
    /// The server has refused the request.
    #[error("{0}")]
    Refused(BucketRefusal),
    /// No response was received.
    #[error("{0}")]
    Connection(#[from] WebError),
    /// The timeout has passed.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The request cannot be made, or the response does not fit the request.
    #[error("{0}")]
    Unexpected(String),
    /// The file to put cannot be read.
    #[error("the file cannot be read: {0}")]
    Local(#[from] io::Error),
    /// The process is stopping.
    #[error("weir is stopping")]
    Stopping,
}

impl BucketRequestError {
    /// Whether the same request may succeed if it is made again.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.is_transient(),
            Self::Connection(WebError::Connect(_) | WebError::Broken(_) | WebError::Late(_)) => true,
            Self::Connection(WebError::TooLong(_) | WebError::Address)
            | Self::Timeout(_)
            | Self::Unexpected(_)
            | Self::Local(_)
            | Self::Stopping => false,
        }
    }

    /// Whether the object does not exist.
    pub(in super::super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.status == StatusCode::NOT_FOUND && refused.code != "NoSuchBucket")
    }
}
