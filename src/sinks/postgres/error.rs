//! What can go wrong with a database, in words for the operator.

use std::{error::Error, time::Duration};

/// Why something was not done at a database. The texts have neither the connection string nor what is in rows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostgresError {
    /// The settings cannot be used.
    #[error("[log.postgres] {0}")]
    Settings(String),
    /// The schema is not there, or from before this version.
    #[error("the database has not what this weir needs: run `weir log init`")]
    NotReady,
    /// The server refuses, with its SQLSTATE.
    #[error("postgres refuses: {message} ({code})")]
    Refused {
        /// The five characters that say what it is.
        code: String,
        /// The server's words.
        message: String,
    },
    /// The server cannot be reached, or the connection is gone. What was asked for may have been done.
    #[error("postgres cannot be reached: {0}")]
    Away(String),
    /// The server has not answered in time. What was asked for may have been done.
    #[error("postgres has not answered within {} s", .0.as_secs())]
    Late(Duration),
    /// A row of the table is none of weir's.
    #[error("a row of weir.log cannot be read: {0}")]
    Row(String),
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refusal) = error.as_db_error() {
            // Its detail may quote a row.
            return Self::Refused {
                code: refusal.code().code().to_owned(),
                message: refusal.message().to_owned(),
            };
        }
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        Self::Away(text)
    }
}
