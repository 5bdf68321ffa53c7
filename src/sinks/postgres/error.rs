//! Errors of the database, in words for the operator.

use std::{error::Error, time::Duration};

/// An error of the database. The texts contain neither the connection string nor values of rows.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostgresError {
    /// The settings cannot be used.
    #[error("[log.postgres] {0}")]
    Settings(String),
    /// The schema is missing or older than this version.
    #[error("the database schema is missing or out of date: run `weir log init`")]
    NotReady,
    /// The server has refused the statement.
    #[error("postgres refused: {message} ({code})")]
    Refused {
        /// The SQLSTATE.
        code: String,
        /// The server's message.
        message: String,
    },
    /// The server cannot be reached, or the connection was lost. The statement may have been executed.
    #[error("postgres cannot be reached: {0}")]
    Unreachable(String),
    /// The server has not answered in time. The statement may have been executed.
    #[error("postgres has not answered within {} s", .0.as_secs())]
    Timeout(Duration),
    /// A row of the table was not written by weir.
    #[error("a row of weir.log cannot be read: {0}")]
    Row(String),
}

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(refusal) = error.as_db_error() {
            // The error's detail may quote a row.
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
        Self::Unreachable(text)
    }
}
