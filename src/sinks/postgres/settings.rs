//! How to reach the database of the consumption log.

use std::time::Duration;

use crate::{config::log_postgres::PostgresTls, domain::keys::secret::Secret};

/// `[log.postgres]`, with secrets and files read.
#[derive(Clone, Debug)]
pub(crate) struct PostgresSettings {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, or the form `host=... user=...`.
    pub url: Secret,
    pub tls: PostgresTls,
    /// Authorities trusted in place of the platform's, PEM.
    pub ca: Option<Vec<u8>>,
    /// Longest wait for a connection that can be used.
    pub connect: Duration,
    /// Longest wait for a batch of rows to be committed.
    pub write: Duration,
    /// Longest wait for a page of rows.
    pub read: Duration,
    /// Days that rows are kept.
    pub keep_days: u32,
}
